//! `packets`: packets of every epoch and operation over verbs, beside the fewest that the protocol needs and, with `--peers`,
//! MPI libraries; and of calls of 3 and 4 ranks beside their formula.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use farside_benches::launch::Launcher;
use farside_benches::measure::{self, Budget, Method};
use farside_benches::packets::{self, display, missed};
use farside_benches::peers::Peers;
use farside_benches::plan::{Effort, Plan};
use farside_benches::record::{Library, Suite, Window};
use farside_benches::results::Results;
use farside_core::Job;
use farside_core::error::{Error, ErrorKind, Result};

/// Counts packets with FARSIDE_DEVICE=verbs, where all ranks are on a machine whose RDMA devices count them: the emulated
/// machine of ci/rxe. Fails if Farside needs more than it should.
#[derive(Parser)]
struct Arguments {
    /// Also count those of Debian's MPICH and Open MPI, for which ci/peers --verbs has built the program.
    #[arg(long)]
    peers: bool,
    /// Numbers of ranks whose calls are compared with formulas.
    #[arg(long, value_delimiter = ',', default_value = "2,3,4", value_parser = clap::value_parser!(u32).range(2..=4))]
    ranks: Vec<u32>,
    /// Seconds that one library may take.
    #[arg(long, value_name = "SECS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    time_limit: u64,
    /// The records as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Be one rank: what `farside run` starts.
    #[arg(long, hide = true)]
    worker: bool,
}

fn plan() -> Plan {
    Plan {
        suites: vec![Suite::Epoch, Suite::Op, Suite::Am, Suite::Barrier],
        windows: vec![Window::Allocated],
        sizes: vec![8],
        ..Plan::new(Effort::Quick, &[2])
    }
}

fn work() -> Result<()> {
    let job = Job::init()?;
    measure::run(&job, &plan(), Budget::of(Effort::Quick, Method::Packets), &mut std::io::stdout())?;
    job.finalize()
}

fn drive(arguments: &Arguments) -> Result<bool> {
    let limit = Duration::from_secs(arguments.time_limit);
    let mut results = Results::here();
    let (records, notes) = Launcher::locate()?.measure(2, limit, &["--worker"], |_| {});
    results.records.extend(records);
    results.notes.extend(notes);
    if arguments.peers {
        let peers = Peers::locate(None)?.limit(limit);
        let mut words = plan().peer_arguments();
        words.push("--packets".to_owned());
        for library in [Library::Mpich, Library::OpenMpi] {
            let (records, notes) = peers.run(library, 2, &words, |_| {});
            results.records.extend(records);
            results.notes.extend(notes);
        }
    }
    println!("{}\n{}", results.machine.line(), display(&results.records));
    for note in &results.notes {
        println!("note: {note}");
    }
    if let Some(file) = &arguments.json {
        results.write_json(file)?;
    }
    let missed = missed(&results.records).len();
    let counted =
        results.records.iter().filter(|r| r.library == Library::Farside && packets::goal(&r.key()).is_some()).count();
    println!("{} of {counted} rows at their goal\n", counted - missed);
    let mut rows = Vec::new();
    for &ranks in &arguments.ranks {
        rows.extend(packets::calls(ranks)?);
    }
    println!("{}", packets::display_calls(&rows));
    let equal = rows.iter().filter(|row| row.holds()).count();
    println!("{equal} of {} rows equal the formula", rows.len());
    if counted == 0 {
        return Err(
            Error::new(ErrorKind::Launcher, "count packets").cause("no rank has counted anything; see the notes")
        );
    }
    Ok(missed == 0 && equal == rows.len())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match if arguments.worker { work().map(|()| true) } else { drive(&arguments) } {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("packets: {error}");
            ExitCode::FAILURE
        }
    }
}
