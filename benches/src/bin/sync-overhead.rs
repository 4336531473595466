//! `sync-overhead`: what synchronization costs, beside the limits of the machine and, with `--peers`, MPI libraries.
//!
//! With `FARSIDE_DEVICE=verbs` all of it is over RDMA devices: the limits are perftest's, the peers Debian's MPICH and
//! Open MPI over UCX, and single operations are timed one by one, as perftest does.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use farside_benches::best::best;
use farside_benches::launch::Launcher;
use farside_benches::limits;
use farside_benches::measure::{self, Budget, Method};
use farside_benches::peers::{Note, Peers};
use farside_benches::plan::{Effort, Plan};
use farside_benches::progress::Progress;
use farside_benches::record::{Key, Library, Op, Record, Suite, Window};
use farside_benches::results::Results;
use farside_benches::table::number;
use farside_benches::targets;
use farside_core::Job;
use farside_core::error::{Error, ErrorKind, Result};

/// Measures epochs, operations, messages, barriers and the ghost-area exchange, and reports them side by side.
#[derive(Parser)]
struct Arguments {
    /// Numbers of ranks, each even.
    #[arg(long, value_delimiter = ',', default_value = "2,4,8", value_parser = clap::value_parser!(u32).range(2..=1024))]
    ranks: Vec<u32>,
    /// Fewer sizes and shorter blocks.
    #[arg(long)]
    quick: bool,
    /// Of epoch,op,am,barrier,ghost.
    #[arg(long, value_delimiter = ',', value_parser = parse_suite)]
    suites: Vec<Suite>,
    /// Bytes of puts and gets.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1 << 28))]
    sizes: Vec<u64>,
    /// Integers to each neighbour in the ghost-area exchange.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=131_072))]
    counts: Vec<u64>,
    /// Measure so many times, limits in between: of each figure the best counts, for every library; of a target the median
    /// of the rounds' ratios.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Also measure MPICH, Intel MPI and Open MPI, which ci/peers has put into FARSIDE_PEERS or target/peers.
    #[arg(long)]
    peers: bool,
    /// Kinds of window, of allocated,user.
    #[arg(long, value_delimiter = ',', value_parser = parse_window)]
    windows: Vec<Window>,
    /// Leave the limits of the machine out.
    #[arg(long)]
    no_limits: bool,
    /// Seconds that one library may take for one suite.
    #[arg(long, value_name = "SECS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    time_limit: u64,
    /// The records as JSON.
    #[arg(long, value_name = "FILE", default_value = "out/sync-overhead.json")]
    json: PathBuf,
    /// The report.
    #[arg(long, value_name = "FILE", default_value = "out/sync-overhead.html")]
    html: PathBuf,
    /// Be one rank: what `farside run` starts.
    #[arg(long, hide = true)]
    worker: bool,
}

fn parse_suite(text: &str) -> Result<Suite, String> {
    let known = Suite::ALL.iter().filter(|suite| !matches!(suite, Suite::Limit | Suite::Pack | Suite::Put));
    known.copied().find(|suite| suite.name() == text).ok_or_else(|| "not a suite".to_owned())
}

fn parse_window(text: &str) -> Result<Window, String> {
    let known = [Window::Allocated, Window::User];
    known.into_iter().find(|window| window.name() == text).ok_or_else(|| "not a kind of window".to_owned())
}

/// Whether the ranks reach each other by RDMA devices.
fn over_verbs() -> bool {
    std::env::var("FARSIDE_DEVICE").is_ok_and(|device| device == "verbs")
}

impl Arguments {
    fn effort(&self) -> Effort {
        if self.quick { Effort::Quick } else { Effort::Full }
    }

    fn plan(&self) -> Result<Plan> {
        if let Some(odd) = self.ranks.iter().find(|ranks| *ranks % 2 == 1) {
            return Err(Error::new(ErrorKind::BadArgument, "plan the measurements")
                .cause(format!("{odd} ranks: the number must be even")));
        }
        let mut plan = Plan::new(self.effort(), &sorted(&self.ranks));
        if !self.suites.is_empty() {
            plan.suites.retain(|suite| self.suites.contains(suite));
        }
        if !self.sizes.is_empty() {
            plan.sizes = sorted(&self.sizes);
        }
        if !self.windows.is_empty() {
            plan.windows.retain(|window| self.windows.contains(window));
        }
        if !self.counts.is_empty() {
            plan.counts = sorted(&self.counts);
        }
        Ok(plan)
    }

    /// The arguments of the ranks that measure `plan`.
    fn of_worker(&self, plan: &Plan) -> Vec<String> {
        let mut arguments = vec!["--worker".to_owned()];
        arguments.extend(plan.peer_arguments());
        arguments
    }

    /// The arguments of a peer that measures `plan`.
    fn of_peer(plan: &Plan) -> Vec<String> {
        let mut arguments = plan.peer_arguments();
        if over_verbs() {
            arguments.push("--single".to_owned());
        }
        arguments
    }
}

/// Debian's packages, which know RDMA devices, are two.
fn peer_libraries() -> &'static [Library] {
    if over_verbs() { &[Library::Mpich, Library::OpenMpi] } else { Library::PEERS }
}

fn sorted<T: Ord + Copy>(values: &[T]) -> Vec<T> {
    let mut values = values.to_vec();
    values.sort_unstable();
    values.dedup();
    values
}

/// What a rank does.
fn work(arguments: &Arguments) -> Result<()> {
    let plan = arguments.plan()?;
    let job = Job::init()?;
    measure::bind(&job)?;
    let measured = measure::run(
        &job,
        &plan,
        Budget::of(arguments.effort(), if over_verbs() { Method::Single } else { Method::Blocks }),
        &mut std::io::stdout(),
    );
    if let Err(error) = &measured
        && error.kind() == ErrorKind::Protocol
    {
        job.abort(3, &error.to_string());
    }
    measured?;
    job.finalize()
}

/// The floors, before and after: of each the smaller. A machine that has changed meanwhile is worth a note.
fn limits(plan: &Plan, results: &mut Results, progress: &mut Progress) -> Result<()> {
    progress.doing(Library::Limit.title());
    let (records, failed) =
        if over_verbs() { limits::perftest::measure(&plan.sizes)? } else { limits::measure(&plan.copy_sizes())? };
    if let Some(error) = failed {
        let note = Note { subject: Library::Limit.title().to_owned(), text: error.to_string() };
        progress.say(&note.to_string());
        results.notes.push(note);
    }
    for record in &records {
        let changed = |before: &&Record| {
            let ratio = record.us_median / before.us_median;
            before.library == Library::Limit && before.key() == record.key() && !(0.67..=1.5).contains(&ratio)
        };
        let told = matches!(record.op, Op::LineRoundTrip) || record.op == Op::Memcpy && record.bytes >= 65536;
        if let Some(before) = results.records.iter().find(changed).filter(|_| told) {
            let (was, is) = (number(Some(before.us_median)), number(Some(record.us_median)));
            results.notes.push(Note {
                subject: Library::Limit.title().to_owned(),
                text: format!("{} of {} B took {was} us at first and {is} us at last", record.op, record.bytes),
            });
        }
    }
    results.records.extend(records);
    Ok(())
}

fn drive(arguments: &Arguments) -> Result<()> {
    let plan = arguments.plan()?;
    let mut launcher = Launcher::locate()?;
    if over_verbs() {
        launcher = launcher.with("FARSIDE_VERBS_DEVICE", limits::perftest::Devices::find()?.setting());
    }
    let limit = Duration::from_secs(arguments.time_limit);
    let peers = if arguments.peers { Some(Peers::locate(None)?.limit(limit)) } else { None };
    for file in [&arguments.json, &arguments.html] {
        if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(|error| {
                Error::system("make a folder for the results", error).cause(folder.display().to_string())
            })?;
        }
    }
    let mut results = Results::here();
    let with_peers = if peers.is_some() { peer_libraries().len() } else { 0 };
    let of_ranks = |ranks: &u32| plan.farside_keys(*ranks).len() + with_peers * plan.keys(*ranks).len();
    let total = arguments.rounds as usize * plan.ranks.iter().map(of_ranks).sum::<usize>();
    let mut progress = Progress::new(total as u64);
    if !arguments.no_limits {
        limits(&plan, &mut results, &mut progress)?;
    }
    // Of each round what was measured in it, with the limits before and after.
    let (mut rounds, mut limits_at) = (Vec::new(), 0);
    for _ in 0..arguments.rounds {
        let from = limits_at;
        for &ranks in &plan.ranks {
            // Suite by suite, so that what is compared is measured close together.
            for &suite in &plan.suites {
                let part = Plan { suites: vec![suite], ..plan.clone() };
                // Beside what is planned come records of limits and of bare requests.
                let counts = |planned: &[Key], library: Library, record: &Record| {
                    record.library == library && planned.contains(&record.key())
                };
                let mut add = |planned: &[Key],
                               library: Library,
                               (records, notes): (Vec<Record>, Vec<Note>),
                               progress: &mut Progress| {
                    let counted = records.iter().filter(|record| counts(planned, library, record)).count();
                    progress.skip(planned.len().saturating_sub(counted) as u64);
                    notes.iter().for_each(|note| progress.say(&note.to_string()));
                    results.records.extend(records);
                    results.notes.extend(notes.into_iter().map(|mut note| {
                        note.subject = format!("{}, {suite}", note.subject);
                        note
                    }));
                };
                let planned = part.farside_keys(ranks);
                let measured = launcher.measure(ranks, limit, &arguments.of_worker(&part), |record| {
                    if counts(&planned, Library::Farside, record) {
                        progress.step(Library::Farside, &record.key());
                    }
                });
                add(&planned, Library::Farside, measured, &mut progress);
                let planned = part.keys(ranks);
                for &library in peer_libraries().iter().filter(|_| peers.is_some()) {
                    let Some(peers) = &peers else { continue };
                    let measured = peers.run(library, ranks, &Arguments::of_peer(&part), |record| {
                        if counts(&planned, library, record) {
                            progress.step(library, &record.key());
                        }
                    });
                    add(&planned, library, measured, &mut progress);
                }
            }
        }
        // Between all rounds, before the first and after the last.
        limits_at = results.records.len();
        if !arguments.no_limits {
            limits(&plan, &mut results, &mut progress)?;
        }
        rounds.push(best(&results.records[from..]));
    }
    progress.finish();
    results.records = best(&results.records);
    println!("{}\n{}", results.machine.line(), results.table());
    let of_records = if over_verbs() { targets::verbs_targets } else { targets::targets };
    println!("\n{}", targets::display(&targets::of_rounds(&rounds, of_records)));
    for note in &results.notes {
        println!("note: {note}");
    }
    results.write_json(&arguments.json)?;
    results.write_html(&arguments.html)?;
    println!("written: {} and {}", arguments.json.display(), arguments.html.display());
    if results.records.iter().any(|record| record.library == Library::Farside) {
        Ok(())
    } else {
        Err(Error::new(ErrorKind::Launcher, "measure Farside").cause("no rank has measured anything; see the notes"))
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match if arguments.worker { work(&arguments) } else { drive(&arguments) } {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sync-overhead: {error}");
            ExitCode::FAILURE
        }
    }
}
