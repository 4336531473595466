//! Command lines of `farside run` and `mpiexec`. Their options (`table.rs`) are those of MPICH's and Open MPI's
//! launchers. A name may have one dash or two.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::hosts::{self, Host};
use crate::table::{TABLE, find};

/// Maximum number of ranks of a job.
const RANKS_MAX: u32 = 100_000;

/// The two commands that start ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    /// `farside run`: one program.
    Run,
    /// `mpiexec`, `mpirun`: one program or several, with `:` between them.
    Mpiexec,
}

impl Front {
    /// The name of the command in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Run => "farside",
            Self::Mpiexec => "mpiexec",
        }
    }

    fn command(self) -> &'static str {
        match self {
            Self::Run => "farside run",
            Self::Mpiexec => "mpiexec",
        }
    }
}

/// The processors that ranks may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Bind {
    /// All processors that the launcher may use.
    #[default]
    None,
    /// Each rank gets one processor, in turn.
    Core,
    /// Each rank gets the processors of one NUMA node, in turn.
    Numa,
}

/// The variables of the launcher's environment that a rank gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Inherited {
    /// All variables.
    #[default]
    All,
    /// Variables with these names.
    Only(Vec<String>),
}

/// The environment of ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Environment {
    /// The part of the launcher's environment that the ranks get.
    pub inherited: Option<Inherited>,
    /// Variables that are set for the ranks, in this order.
    pub set: Vec<(String, String)>,
}

/// One program of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Program {
    /// Number of ranks.
    pub ranks: u32,
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// The environment of its ranks.
    pub environment: Environment,
    /// The folder in which they start.
    pub folder: Option<PathBuf>,
    /// Folders that are searched for the program before `PATH`.
    pub path: Vec<PathBuf>,
}

/// A job to be started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Launch {
    /// The process number of the guard: this process is its worker.
    pub guard: Option<i32>,
    /// The programs, whose ranks follow each other.
    pub programs: Vec<Program>,
    /// Put the rank in front of every line of output.
    pub prefix: bool,
    /// End the job after this many seconds.
    pub timeout: Option<u64>,
    /// The processors that ranks may use.
    pub bind: Bind,
    /// The machines on which ranks run; empty for this machine.
    pub hosts: Vec<Host>,
    /// Number of ranks on each machine, which replaces its slots.
    pub per_node: Option<u32>,
    /// The launcher that starts ranks on several machines: `hydra`, `prrte`, or its path.
    pub launcher: Option<String>,
    /// The command with which that launcher reaches a machine, instead of ssh.
    pub agent: Option<String>,
    /// Options that have no effect here, each with the reason.
    pub notes: Vec<String>,
}

impl Launch {
    /// The number of ranks.
    pub(crate) fn ranks(&self) -> u32 {
        self.programs.iter().fold(0, |ranks, program| ranks.saturating_add(program.ranks))
    }

    /// Whether another launcher starts the ranks: on other machines, or because it is named.
    pub(crate) fn is_foreign(&self) -> bool {
        self.launcher.is_some() || self.agent.is_some() || self.hosts.iter().any(|host| !host.is_here)
    }

    /// The number of each rank's program, by rank.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.programs).flat_map(|(number, program)| (0..program.ranks).map(move |_| number))
    }
}

/// The request of a command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Start this job.
    Launch(Launch),
    /// Print this text.
    Print(String),
}

/// The state of reading a command line.
pub(crate) struct Reading {
    pub(crate) front: Front,
    words: VecDeque<OsString>,
    pub(crate) launch: Launch,
    /// The environment of all programs.
    pub(crate) everywhere: Environment,
    /// The program whose options are being read, with the number of ranks once that is given.
    pub(crate) program: Program,
    pub(crate) ranks: Option<u32>,
    /// The number of ranks if `ranks` is not given: slots of the hosts, or ranks per node.
    pub(crate) room: Option<u32>,
    /// The numbers of ranks that `-soft` allows.
    pub(crate) soft: Vec<u32>,
    /// Text to be printed instead of starting a job.
    pub(crate) print: Option<String>,
}

/// Reads a command line without the command's own name.
///
/// # Errors
/// A description of the mistake.
pub(crate) fn parse(front: Front, words: impl IntoIterator<Item = OsString>) -> Result<Request, String> {
    let mut reading = Reading {
        front,
        words: words.into_iter().collect(),
        launch: Launch::default(),
        everywhere: Environment::default(),
        program: Program::default(),
        ranks: None,
        room: None,
        soft: Vec::new(),
        print: None,
    };
    if front == Front::Mpiexec {
        verification(&mut reading.everywhere)?;
    }
    reading.programs()?;
    if let Some(text) = reading.print {
        return Ok(Request::Print(text));
    }
    let Reading { mut launch, everywhere, .. } = reading;
    for program in &mut launch.programs {
        program.environment.set.splice(0..0, everywhere.set.iter().cloned());
        program.environment.inherited = program.environment.inherited.take().or_else(|| everywhere.inherited.clone());
    }
    match launch.ranks() {
        1..=RANKS_MAX => Ok(Request::Launch(launch)),
        ranks => Err(format!("{ranks} ranks are out of range: a job has 1 to {RANKS_MAX}")),
    }
}

/// If `FARSIDE_VERIFY` is set, makes the ranks preload the library that checks MPI calls.
fn verification(everywhere: &mut Environment) -> Result<(), String> {
    if std::env::var_os("FARSIDE_VERIFY").is_none_or(|level| level.is_empty()) {
        return Ok(());
    }
    let place = std::env::current_exe().map_err(|e| format!("cannot find the path of this command: {e}"))?;
    let library = place.with_file_name("../lib/libfarside_verify.so");
    let library = library.canonicalize().map_err(|e| format!("FARSIDE_VERIFY is set: {}: {e}", library.display()))?;
    let others = std::env::var("LD_PRELOAD").map(|others| format!(":{others}")).unwrap_or_default();
    everywhere.set.push(("LD_PRELOAD".into(), format!("{}{others}", library.display())));
    Ok(())
}

impl Reading {
    fn programs(&mut self) -> Result<(), String> {
        loop {
            self.options()?;
            if self.print.is_some() {
                return Ok(());
            }
            if self.words.is_empty() && !self.launch.programs.is_empty() {
                return Ok(()); // the programs of a file
            }
            let several = self.front == Front::Mpiexec;
            let end = self.words.iter().position(|word| several && word == ":").unwrap_or(self.words.len());
            self.program.words = self.words.drain(..end).collect();
            self.finish_program()?;
            if self.words.pop_front().is_none() {
                return Ok(());
            }
            if self.words.is_empty() {
                return Err(self.see("no program after the last :"));
            }
        }
    }

    fn finish_program(&mut self) -> Result<(), String> {
        let mut program = std::mem::take(&mut self.program);
        if program.words.is_empty() {
            return Err(self.see("no program"));
        }
        let ranks = self.ranks.take().or(self.room.take()).unwrap_or(1);
        let soft = std::mem::take(&mut self.soft);
        let allowed = soft.iter().copied().filter(|n| (1..=ranks).contains(n)).max();
        program.ranks = match allowed {
            Some(allowed) => allowed,
            None if soft.is_empty() => ranks,
            None => return Err(format!("-soft allows no number of ranks from 1 to {ranks}")),
        };
        self.launch.programs.push(program);
        Ok(())
    }

    fn options(&mut self) -> Result<(), String> {
        while let Some(word) = self.words.front().and_then(|word| word.to_str()).filter(|word| word.starts_with('-')) {
            let word = word.to_owned();
            self.words.pop_front();
            if word == "--" {
                return Ok(());
            }
            let bare = word.strip_prefix("--").or_else(|| word.strip_prefix('-')).unwrap_or_default();
            let (name, value) = bare.split_once('=').map_or((bare, None), |(name, value)| (name, Some(value)));
            let Some(row) = find(name) else { return Err(self.see(&format!("unknown option '{word}'"))) };
            match value {
                Some(_) if row.values.is_empty() => return Err(self.see(&format!("-{name} takes no value: '{word}'"))),
                Some(value) => self.words.push_front(value.into()),
                None => {}
            }
            (row.read)(self, &word)?;
            if self.print.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The next word, as the value of an option.
    pub(crate) fn value(&mut self, option: &str) -> Result<String, String> {
        let values = find(option.trim_start_matches('-')).map_or("a value", |row| row.values);
        let word = self.words.pop_front().ok_or_else(|| self.see(&format!("{option} needs {values}")))?;
        word.into_string().map_err(|word| format!("{option}: {} is not text", word.display()))
    }

    /// The next word, as a number of at least 1.
    pub(crate) fn number<T: std::str::FromStr + PartialOrd + From<u8>>(&mut self, option: &str) -> Result<T, String> {
        let word = self.value(option)?;
        let number = word.parse().ok().filter(|n| *n >= T::from(1));
        number.ok_or_else(|| format!("{option} needs a number of at least 1, not '{word}'"))
    }

    /// The next word or two, as a variable `NAME=VALUE` or `NAME VALUE`.
    pub(crate) fn variable(&mut self, option: &str) -> Result<(String, String), String> {
        let word = self.value(option)?;
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => (word, self.value(option)?),
        };
        if name.is_empty() { Err(format!("{option}: a variable needs a name")) } else { Ok((name, value)) }
    }

    /// Reads the programs of a file: one per line, with its options.
    pub(crate) fn file(&mut self, option: &str) -> Result<(), String> {
        let path = self.value(option)?;
        let text = read(&path)?;
        let rest = std::mem::take(&mut self.words);
        if !rest.is_empty() {
            return Err(format!("{option} {path}: it must be the last option"));
        }
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            self.words = split(line).ok_or_else(|| format!("{path}: unterminated quote: {line}"))?.into();
            self.programs()?;
        }
        if self.launch.programs.is_empty() { Err(format!("{path} has no program")) } else { Ok(()) }
    }

    /// Adds machines.
    pub(crate) fn hosts<'a>(&mut self, hosts: impl Iterator<Item = &'a str>) -> Result<(), String> {
        hosts::add(&mut self.launch.hosts, hosts)?;
        self.room = hosts::room(&self.launch.hosts, self.launch.per_node);
        Ok(())
    }

    /// The environment that an option changes: that of all ranks if its name begins with `g`, otherwise that of the
    /// program's ranks.
    pub(crate) fn environment(&mut self, option: &str) -> &mut Environment {
        let is_of_all = option.trim_start_matches('-').starts_with('g');
        if is_of_all { &mut self.everywhere } else { &mut self.program.environment }
    }

    /// Records an option that has no effect.
    pub(crate) fn note(&mut self, text: String) -> Result<(), String> {
        self.launch.notes.push(text);
        Ok(())
    }

    pub(crate) fn see(&self, what: &str) -> String {
        let help = if self.front == Front::Run { "--help" } else { "-help" };
        format!("{what} (see {} {help})", self.front.command())
    }
}

/// The text of a file.
pub(crate) fn read(path: impl AsRef<Path>) -> Result<String, String> {
    std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.as_ref().display()))
}

/// The words of a line; quotes keep spaces. `None` for an unterminated quote.
fn split(line: &str) -> Option<Vec<OsString>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(q), c) if q == c => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ' | '\t') => words.extend(word.take().map(OsString::from)),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word.map(OsString::from));
    quote.is_none().then_some(words)
}

/// The help of a command, made from the table.
pub(crate) fn help(front: Front) -> String {
    let mut out = match front {
        Front::Run => "Runs ranks of a program, and ends all of them when one fails.\n\n\
                       farside run [OPTIONS] PROGRAM [ARGUMENTS]\n\n"
            .to_owned(),
        Front::Mpiexec => "Runs ranks of MPI programs, and ends all of them when one fails.\n\n\
                           mpiexec [OPTIONS] PROGRAM [ARGUMENTS] [: [OPTIONS] PROGRAM [ARGUMENTS]] ..\n\n\
                           FARSIDE_VERIFY=1 (to 4) in the environment checks MPI calls (libfarside_verify.so).\n\n"
            .to_owned(),
    };
    for row in TABLE.iter().filter(|row| !row.help.is_empty()) {
        let names: Vec<String> = row.names.iter().map(|name| format!("-{name}")).collect();
        out += &format!("  {} {}\n        {}\n", names.join(", "), row.values, row.help);
    }
    out
}
