//! One run of a benchmark: Farside, its limits and its peers, round by round, and the reports.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use clap::{Args, value_parser};
use farside_core::error::Result;

use crate::cores::{allowed, bind_to_nth};
use crate::launch::{self, Note};
use crate::limits::{self, perftest};
use crate::pack;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::record::{Key, Library, Op, Record, Suite, Window, best};
use crate::results::Results;
use crate::shapes::Case;
use crate::table::number;
use crate::targets::{self, Target};
use crate::worker::over_verbs;

/// The arguments that benchmarks share.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Fewer sizes, and shorter measurements.
    #[arg(long)]
    pub quick: bool,
    /// Number of times that everything is measured. Of each figure the best counts, for every library; of the ratios of
    /// `sync-overhead` the median.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Also measure MPICH, Intel MPI and Open MPI, which ci/peers has put into FARSIDE_PEERS or target/peers.
    #[arg(long)]
    pub peers: bool,
    /// Seconds that one library may take for one suite or layout.
    #[arg(long, value_name = "SECS", default_value_t = 300, value_parser = value_parser!(u64).range(1..=86_400))]
    pub time_limit: u64,
    /// The records as JSON, out/PROGRAM.json unless given.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// The report, out/PROGRAM.html unless given.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// The measurements of one program.
pub struct Task {
    /// The name of the program, which its files are named after.
    pub name: &'static str,
    /// The title of its report.
    pub title: &'static str,
    /// The plans, each with one number of ranks; the runs of one plan are close together in time.
    pub plans: Vec<Plan>,
    /// Sizes of copies if the limits of the machine are measured too.
    pub limits: Option<Vec<u64>>,
    /// The targets, from the best records of each round.
    pub targets: fn(&[Vec<Record>]) -> Vec<Target>,
}

/// The peers; over verbs only Debian's two packages, which support RDMA devices.
#[must_use]
pub fn peers() -> &'static [Library] {
    if over_verbs() { &[Library::Mpich, Library::OpenMpi] } else { Library::PEERS }
}

struct Session<'a> {
    options: &'a Options,
    results: Results,
    progress: Progress,
    /// Settings of Farside's ranks.
    settings: Vec<(&'static str, String)>,
}

impl Task {
    /// Measures everything, prints it and writes the files. Returns whether there are records of Farside.
    ///
    /// # Errors
    /// `Launcher` without the command `farside`, if ranks are to be started; the errors of the calls.
    pub fn run(&self, options: &Options) -> Result<bool> {
        if self.plans.iter().any(|plan| plan.suites != [Suite::Pack]) {
            launch::farside()?;
        }
        let verbs = over_verbs().then(perftest::Devices::find).transpose()?;
        let settings = verbs.map(|devices| ("FARSIDE_VERBS_DEVICE", devices.setting())).into_iter().collect();
        let libraries = if options.peers { peers().len() } else { 0 };
        let planned = self.plans.iter().map(|plan| {
            let ranks = plan.ranks[0];
            let own: usize = farside_plans(plan).iter().map(|plan| plan.farside_keys(ranks).len()).sum();
            own + libraries * plan.peer_keys(ranks).len()
        });
        let progress = Progress::new(options.rounds as usize * planned.sum::<usize>());
        let mut session = Session { options, results: Results::here(self.title), progress, settings };
        // Each round has its own records, with the limits before and after.
        let (mut rounds, mut from) = (Vec::new(), 0);
        session.limits(self.limits.as_deref())?;
        for _ in 0..options.rounds {
            for plan in &self.plans {
                session.measure(plan)?;
            }
            let limits = session.results.records.len();
            session.limits(self.limits.as_deref())?;
            rounds.push(best(&session.results.records[from..]));
            from = limits;
        }
        drop(session.progress);
        let mut results = session.results;
        results.records = best(&results.records);
        println!("{}\n{}\n", results.machine.line(), results.table());
        println!("{}", targets::display(&(self.targets)(&rounds)));
        print!("{}", targets::standing(&results.records));
        results.print_notes();
        let file = |given: &Option<PathBuf>, kind| given.clone().unwrap_or(format!("out/{}.{kind}", self.name).into());
        let (json, html) = (file(&options.json, "json"), file(&options.html, "html"));
        results.write_json(&json)?;
        results.write_html(&html)?;
        println!("written: {} and {}", json.display(), html.display());
        results.check()
    }
}

/// The plan of Farside's ranks: layouts are also put to memory that is not mapped.
fn farside_plans(plan: &Plan) -> Vec<Plan> {
    let unmapped = (plan.suites == [Suite::Put]).then(|| Plan { windows: vec![Window::Unmapped], ..plan.clone() });
    [plan.clone()].into_iter().chain(unmapped).collect()
}

impl Session<'_> {
    /// Farside, then each peer.
    fn measure(&mut self, plan: &Plan) -> Result<()> {
        let (ranks, limit) = (plan.ranks[0], Duration::from_secs(self.options.time_limit));
        for plan in farside_plans(plan) {
            let keys = plan.farside_keys(ranks);
            if plan.suites == [Suite::Pack] {
                self.pack(&plan)?;
                continue;
            }
            let mut command = launch::ranks(ranks, limit, &plan.arguments())?;
            command.envs(self.settings.iter().map(|(name, value)| (name, value)));
            if plan.windows == [Window::Unmapped] {
                command.env("FARSIDE_SHM_USER_MEMORY", "vm");
            }
            self.take(command, Library::Farside, plan.suites[0], ranks, &keys);
        }
        let mut arguments = plan.arguments();
        arguments.extend(over_verbs().then(|| "--single".to_owned()));
        for &library in peers().iter().filter(|_| self.options.peers) {
            let command = launch::peer(library, ranks, limit, &arguments)?;
            let from = self.results.records.len();
            self.take(command, library, plan.suites[0], ranks, &plan.peer_keys(ranks));
            // A peer may or may not map memory of the user, so its times are compared with both of Farside's ways.
            let put = |record: &&Record| record.key.suite == Suite::Put && record.key.window == Window::User;
            let mut user: Vec<_> = self.results.records[from..].iter().filter(put).cloned().collect();
            user.iter_mut().for_each(|record| record.key.window = Window::Unmapped);
            self.results.records.extend(user);
        }
        Ok(())
    }

    /// Runs a measuring program and adds its records, which include limits and loops that are not planned.
    fn take(&mut self, command: Command, library: Library, suite: Suite, ranks: u32, planned: &[Key]) {
        let (limit, mut left) = (Duration::from_secs(self.options.time_limit), planned.len());
        let (records, notes) = launch::run(command, library, ranks, limit, |record| {
            if record.library == library && planned.contains(&record.key) {
                self.progress.step(library, &record.key);
                left = left.saturating_sub(1);
            }
        });
        self.progress.skip(left);
        self.results.records.extend(records);
        for mut note in notes {
            self.progress.say(&note.to_string());
            note.subject += &format!(", {suite}");
            self.results.notes.push(note);
        }
    }

    /// Runs suite "pack" on a thread of its own, so that only this thread is bound to a core: the peers choose theirs.
    fn pack(&mut self, plan: &Plan) -> Result<()> {
        for &(shape, bytes) in &plan.layouts {
            let measure = || {
                bind_to_nth(allowed().len() - 1)?;
                pack::measure(&Case::new(shape, bytes)?, plan.quick)
            };
            let records = thread::scope(|scope| scope.spawn(measure).join());
            let records = records.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            let own = records.iter().filter(|record| record.library == Library::Farside);
            own.for_each(|record| self.progress.step(record.library, &record.key));
            self.results.records.extend(records);
        }
        Ok(())
    }

    /// Measures the floors, of which the smallest values count. Notes a change of the machine's speed.
    fn limits(&mut self, sizes: Option<&[u64]>) -> Result<()> {
        let Some(sizes) = sizes else { return Ok(()) };
        let (records, failed) = if over_verbs() { perftest::measure(sizes)? } else { limits::measure(sizes)? };
        let mut note = |text: String| {
            let note = Note { subject: Library::Limit.label().to_owned(), text };
            self.progress.say(&note.to_string());
            self.results.notes.push(note);
        };
        failed.into_iter().for_each(|error| note(error.to_string()));
        let steady = |op, bytes| op == Op::LineRoundTrip || op == Op::Memcpy && bytes >= 65536;
        for record in records.iter().filter(|record| steady(record.key.op, record.key.bytes)) {
            let same = |held: &&Record| held.library == Library::Limit && held.key == record.key;
            let Some(before) = self.results.records.iter().find(same) else { continue };
            if !(0.67..=1.5).contains(&(record.us_median / before.us_median)) {
                let [was, is] = [before, record].map(|record| number(Some(record.us_median)));
                let (what, bytes) = (record.key.op.label(), record.key.bytes);
                note(format!("{what} of {bytes} B took {was} us at first and {is} us at last"));
            }
        }
        self.results.records.extend(records);
        Ok(())
    }
}
