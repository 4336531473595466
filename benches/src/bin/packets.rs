//! `packets`: packets of every epoch, operation and size of message over verbs, beside the fewest that the protocol
//! needs and, with `--peers`, MPI libraries; and of calls of 3 and 4 ranks beside their formula.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, value_parser};
use farside_benches::packets::{best_peer, calls, display, display_calls, goal, missed};
use farside_benches::plan::Plan;
use farside_benches::record::{Key, Library, Record, Suite, Window};
use farside_benches::results::Results;
use farside_benches::{launch, program};
use farside_core::error::{Error, ErrorKind, Result};

/// Counts packets with FARSIDE_DEVICE=verbs, where all ranks are on a machine whose RDMA devices count them: the
/// emulated machine of ci/rxe. Fails if Farside needs more than it should.
#[derive(Parser)]
struct Arguments {
    /// Also count those of Debian's MPICH and Open MPI, for which ci/peers --verbs has built the program.
    #[arg(long)]
    peers: bool,
    /// Numbers of ranks whose calls are compared with formulas.
    #[arg(long, value_delimiter = ',', default_value = "2,3,4", value_parser = value_parser!(u32).range(2..=4))]
    ranks: Vec<u32>,
    /// Seconds that one library may take.
    #[arg(long, value_name = "SECS", default_value_t = 300, value_parser = value_parser!(u64).range(1..=86_400))]
    time_limit: u64,
    /// The records as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn run(arguments: Arguments) -> Result<bool> {
    let limit = Duration::from_secs(arguments.time_limit);
    let suites = vec![Suite::Epoch, Suite::Op, Suite::Am, Suite::Barrier];
    let plan = Plan { suites, windows: vec![Window::Allocated], sizes: vec![8], ..Plan::new(true, &[2]) };
    // Two messages each way, of 8 bytes, 4 KiB, 64 KiB and 1 MiB.
    let (windows, counts) = (Vec::new(), vec![2, 1 << 10, 1 << 14, 1 << 18]);
    let messages = Plan { suites: vec![Suite::Ghost], windows, counts, ..Plan::new(true, &[2]) };
    let mut results = Results::here("Farside: packets");
    let peers = [Library::Mpich, Library::OpenMpi].into_iter().filter(|_| arguments.peers);
    for library in [Library::Farside].into_iter().chain(peers) {
        for plan in [&plan, &messages] {
            let words = [plan.arguments(), vec!["--packets".to_owned()]].concat();
            let command = launch::command(library, 2, limit, &words)?;
            results.add(launch::run(command, library, 2, limit, |_| {}));
        }
    }
    println!("{}\n{}", results.machine.line(), display(&results.records));
    results.print_notes();
    if let Some(file) = &arguments.json {
        results.write_json(file)?;
    }
    let missed = missed(&results.records).len();
    let aim = |key: &Key| goal(key).or_else(|| best_peer(&results.records, key));
    let has_goal = |record: &&Record| record.library == Library::Farside && aim(&record.key).is_some();
    let counted = results.records.iter().filter(has_goal).count();
    println!("{} of {counted} rows at their goal, or at most at the best peer's\n", counted - missed);
    let rows = arguments.ranks.into_iter().map(calls).collect::<Result<Vec<_>>>()?.concat();
    let equal = rows.iter().filter(|row| row.holds()).count();
    println!("{}\n{equal} of {} rows equal the formula", display_calls(&rows), rows.len());
    if counted == 0 {
        let cause = "no rank has counted anything; see the notes";
        return Err(Error::new(ErrorKind::Launcher, "count packets").cause(cause));
    }
    Ok(missed == 0 && equal == rows.len())
}

fn main() -> ExitCode {
    program(run)
}
