//! One run of a benchmark: Farside, its limits and its peers, round by round.

use std::process::Command;
use std::thread;
use std::time::Duration;

use farside_core::error::{Error, Result};

use crate::cores::{allowed, bind_to_nth};
use crate::launch::{self, Note};
use crate::limits::perftest;
use crate::options::{Options, over_verbs};
use crate::pack;
use crate::plan::Plan;
use crate::record::{Library, Op, Record, Suite, Window, best};
use crate::report;
use crate::results::Results;
use crate::shapes::Case;
use crate::table::number;
use crate::targets::{self, Target};
use crate::usage::Share;

/// The share of the processors that other processes use on an idle machine.
const QUIET: f64 = 0.05;

/// Measures limits for these sizes. Returns the records and, if a limit cannot be measured on this machine, its error.
pub(crate) type Limits = fn(&[u64]) -> Result<(Vec<Record>, Option<Error>)>;

/// The measurements of one benchmark.
#[derive(Default)]
pub(crate) struct Task {
    /// The title of the report.
    pub(crate) title: String,
    /// The plans; the runs of one plan are close together in time.
    pub(crate) plans: Vec<Plan>,
    /// The libraries that measure each plan, Farside first.
    pub(crate) libraries: Vec<Library>,
    /// The limits to measure before and after each round, and their sizes.
    pub(crate) limits: Option<(Limits, Vec<u64>)>,
    /// Variables of the environment of all libraries.
    pub(crate) environment: Vec<(&'static str, String)>,
}

struct Session<'a> {
    task: &'a Task,
    limit: Duration,
    results: Results,
}

impl Task {
    /// Measures everything. Returns the best records, and those of each round.
    ///
    /// # Errors
    /// `Launcher` without the command `farside`, if ranks are to be started; the errors of the calls.
    pub(crate) fn measure(&self, rounds: u32, limit: Duration) -> Result<(Results, Vec<Vec<Record>>)> {
        if self.plans.iter().any(|plan| plan.suites != [Suite::Pack] && !plan.suites[0].is_of_mpi()) {
            launch::farside()?;
        }
        let mut session = Session { task: self, limit, results: Results::here(self.title.clone()) };
        // Each round has its own records, with the limits before and after.
        let (mut of_rounds, mut from, mut number) = (Vec::new(), 0, 0);
        let total = rounds as usize * self.plans.len() * self.libraries.len();
        let before = Share::now();
        session.limits()?;
        for _ in 0..rounds {
            for (plan, library) in self.plans.iter().flat_map(|plan| self.libraries.iter().map(move |l| (plan, *l))) {
                number += 1;
                eprintln!("[{number}/{total}] {}, {plan}", library.label());
                session.measure(plan, library)?;
            }
            let limits = session.results.records.len();
            session.limits()?;
            of_rounds.push(best(&session.results.records[from..]));
            from = limits;
        }
        let cores = session.results.machine.cores;
        if let Some(share) = before.and_then(|before| before.of_others(cores)).filter(|share| *share > QUIET) {
            let text =
                "other processes used {share} % of the processors during the run: its times and ratios may be wrong";
            session.note("the machine".to_owned(), text.replace("{share}", &format!("{:.0}", 100.0 * share)));
        }
        let mut results = session.results;
        results.records = best(&results.records);
        Ok((results, of_rounds))
    }

    /// Measures everything, prints the results and the targets, and writes the files, which are named after the
    /// benchmark. Returns true if there are records of Farside. `targets` are those of the best records of each round.
    ///
    /// # Errors
    /// Those of [`measure`](Self::measure), and those of writing the files.
    pub(crate) fn run(
        &self,
        name: &str,
        options: &Options,
        targets: impl Fn(&[Vec<Record>]) -> Vec<Target>,
    ) -> Result<bool> {
        let (results, rounds) = self.measure(options.rounds.unwrap_or(1), options.limit.duration())?;
        println!("{}\n{}\n{}\n", results.title, results.machine.line(), results.table());
        let targets = targets(&rounds);
        if !targets.is_empty() {
            println!("{}", targets::display(&targets));
        }
        print!("{}", targets::layout_results(&results.records));
        results.write(name, options, &report::html(&results))
    }
}

impl Session<'_> {
    fn measure(&mut self, plan: &Plan, library: Library) -> Result<()> {
        let (ranks, suite, mut words) = (plan.ranks, plan.suites[0], plan.arguments());
        if library == Library::Farside && suite == Suite::Pack {
            return self.pack(plan);
        }
        if library == Library::Farside && !suite.is_of_mpi() {
            // Layouts are also put into unmapped memory.
            let unmapped = (suite == Suite::Put).then(|| Plan { windows: vec![Window::Unmapped], ..plan.clone() });
            for plan in [plan].into_iter().chain(&unmapped) {
                let mut words = plan.arguments();
                if !plan.algorithms.is_empty() {
                    words.extend(["--algorithms".to_owned(), plan.algorithms.join(";")]);
                }
                let mut command = launch::ranks(ranks, self.limit, &words)?;
                if over_verbs() {
                    command.env("FARSIDE_VERBS_DEVICE", perftest::Devices::find()?.setting());
                }
                if plan.windows == [Window::Unmapped] {
                    command.env("FARSIDE_SHM_USER_MEMORY", "vm");
                }
                self.take(command, plan, library);
            }
            return Ok(());
        }
        if suite == Suite::Coll && plan.operations == [Op::Pingpong] {
            // The ping-pong serves predictions, which only Farside makes.
            return Ok(());
        }
        let single = over_verbs() && !plan.packets && suite != Suite::Coll && !suite.is_of_mpi();
        words.extend(single.then(|| "--single".to_owned()));
        let from = self.results.records.len();
        self.take(launch::peer(library, ranks, self.limit, &words)?, plan, library);
        // A peer may or may not map user memory, so its times are compared with both modes of Farside.
        let put = |record: &&Record| record.key.suite == Suite::Put && record.key.window == Window::User;
        let mut user: Vec<_> = self.results.records[from..].iter().filter(put).cloned().collect();
        user.iter_mut().for_each(|record| record.key.window = Window::Unmapped);
        self.results.records.extend(user);
        Ok(())
    }

    /// Runs a measuring program and adds its records.
    fn take(&mut self, mut command: Command, plan: &Plan, library: Library) {
        command.envs(self.task.environment.iter().map(|(name, value)| (name, value)));
        let (records, notes) = launch::run(command, library, plan.ranks, self.limit);
        self.results.records.extend(records);
        notes.into_iter().for_each(|note| self.note(format!("{}, {}", note.subject, plan.suites[0]), note.text));
    }

    fn note(&mut self, subject: String, text: String) {
        let note = Note { subject, text };
        eprintln!("{note}");
        self.results.notes.push(note);
    }

    /// Runs suite "pack" on a separate thread, so that only this thread is bound to a core and the peers choose theirs.
    fn pack(&mut self, plan: &Plan) -> Result<()> {
        for &(shape, bytes) in &plan.layouts {
            let measure = || {
                bind_to_nth(allowed().len() - 1)?;
                pack::measure(&Case::new(shape, bytes)?, plan.quick)
            };
            let records = thread::scope(|scope| scope.spawn(measure).join());
            self.results.records.extend(records.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(())
    }

    /// Measures the limits; of repeated measurements the smallest value counts. Notes a change of the machine's speed.
    fn limits(&mut self) -> Result<()> {
        let Some((measure, sizes)) = &self.task.limits else { return Ok(()) };
        let (records, failed) = measure(sizes)?;
        let mut notes: Vec<String> = failed.iter().map(ToString::to_string).collect();
        let steady = |op, bytes| op == Op::LineRoundTrip || op == Op::Memcpy && bytes >= 65536;
        for record in records.iter().filter(|record| steady(record.key.op, record.key.bytes)) {
            let same = |held: &&Record| held.library == Library::Limit && held.key == record.key;
            let Some(before) = self.results.records.iter().find(same) else { continue };
            if !(0.67..=1.5).contains(&(record.us_median / before.us_median)) {
                let [was, is] = [before, record].map(|record| number(Some(record.us_median)));
                let (what, bytes) = (record.key.op.label(), record.key.bytes);
                notes.push(format!("{what} of {bytes} B took {was} us at first and {is} us at last"));
            }
        }
        notes.into_iter().for_each(|text| self.note(Library::Limit.label().to_owned(), text));
        self.results.records.extend(records);
        Ok(())
    }
}
