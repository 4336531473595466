//! `coll`: collectives by every algorithm, measured beside predicted, and, with `--peers`, MPI libraries.

use std::hint::black_box;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, value_parser};
use farside_benches::coll::report::Measured;
use farside_benches::coll::{ELEMENT, model, operation, operations, stored};
use farside_benches::plan::{Plan, sorted};
use farside_benches::record::{Library, Op, best};
use farside_benches::results::Results;
use farside_benches::session::peers;
use farside_benches::{launch, program, targets};
use farside_core::error::{Error, ErrorKind, Result};
use farside_core::settings::Settings;

/// Measures collectives on doubles: each algorithm by number of ranks and size, beside what pLogP predicts with
/// parameters from round trips in the same run, the selected one marked; says where the selection misses the best.
#[derive(Parser)]
struct Arguments {
    /// Shorter blocks.
    #[arg(long)]
    quick: bool,
    /// Number of measurements; the best counts, for every library and algorithm.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Also measure MPICH, Intel MPI and Open MPI, which ci/peers has put into FARSIDE_PEERS or target/peers.
    #[arg(long)]
    peers: bool,
    /// Numbers of ranks, each even.
    #[arg(long, value_delimiter = ',', default_value = "2,4,8", value_parser = value_parser!(u32).range(2..=1024))]
    ranks: Vec<u32>,
    /// Operations; all unless given.
    #[arg(long, value_delimiter = ',')]
    operations: Vec<Op>,
    /// Bytes of the vector, or of the block that each rank has for, or of, each: multiples of 8.
    #[arg(long, value_delimiter = ',', default_value = "8,256,4096,32768,262144,1048576", value_parser = value_parser!(u64).range(8..=1 << 26))]
    sizes: Vec<u64>,
    /// Algorithms, as NAME or NAME(NUMBER,..), separated by semicolons, of operations that have them; all unless given.
    /// The selected ones are measured in any case.
    #[arg(long, value_delimiter = ';')]
    algorithms: Vec<String>,
    /// Seconds that one library may take for one operation.
    #[arg(long, value_name = "SECS", default_value_t = 300, value_parser = value_parser!(u64).range(1..=86_400))]
    time_limit: u64,
    /// The records as JSON, out/coll.json unless given.
    #[arg(long, value_name = "FILE", default_value = "out/coll.json")]
    json: PathBuf,
    /// The plots of measured and predicted times, out/coll.html unless given.
    #[arg(long, value_name = "FILE", default_value = "out/coll.html")]
    page: PathBuf,
    /// Predict with the models that `farside tune` has stored, and not with round trips of this run.
    #[arg(long)]
    stored: bool,
}

/// Microseconds of reducing a byte of doubles, in cache.
fn reduction_us() -> f64 {
    const COUNT: usize = 8192;
    let (from, mut into) = (vec![1.0f64; COUNT], vec![0.0f64; COUNT]);
    let pass = |into: &mut [f64]| {
        let start = Instant::now();
        into.iter_mut().zip(black_box(&from)).for_each(|(into, from)| *into += from);
        black_box(into);
        start.elapsed().as_secs_f64() * 1e6
    };
    let least = (0..100).map(|_| pass(&mut into)).fold(f64::INFINITY, f64::min);
    least / (COUNT as u64 * ELEMENT) as f64
}

fn run(arguments: Arguments) -> Result<bool> {
    let refuse = |cause: String| Err(Error::new(ErrorKind::BadArgument, "plan the measurements").cause(cause));
    let (ranks, sizes) = (sorted(arguments.ranks), sorted(arguments.sizes));
    if let Some(odd) = ranks.iter().find(|ranks| *ranks % 2 == 1) {
        return refuse(format!("{odd} ranks: the number must be even"));
    }
    if let Some(bytes) = sizes.iter().find(|bytes| *bytes % ELEMENT != 0) {
        return refuse(format!("{bytes} bytes are no doubles"));
    }
    if let Some(op) = arguments.operations.iter().find(|op| operation(**op).is_none()) {
        return refuse(format!("{op} is no collective"));
    }
    let kept = if arguments.stored { stored(&Settings::from_env()?) } else { None };
    if arguments.stored && kept.is_none() {
        return refuse("no models are stored; run farside tune first".to_owned());
    }
    let wanted = if arguments.operations.is_empty() { operations() } else { arguments.operations };
    let limit = Duration::from_secs(arguments.time_limit);
    let mut results = Results::here("Farside: collectives");
    let libraries = peers().iter().filter(|_| arguments.peers);
    let libraries: Vec<Library> = [Library::Farside].iter().chain(libraries).copied().collect();
    for (round, ranks) in (1..=arguments.rounds).flat_map(|round| ranks.iter().map(move |ranks| (round, *ranks))) {
        for op in [Op::Pingpong].iter().chain(&wanted) {
            eprintln!("round {round} of {}: {op}, {ranks} ranks", arguments.rounds);
            // All libraries measure one operation before the next, so that compared values are measured close together.
            let words = Plan::of_collective(arguments.quick, *op, ranks, &sizes).arguments();
            for library in libraries.iter().filter(|library| **library == Library::Farside || *op != Op::Pingpong) {
                let mut words = words.clone();
                if *library == Library::Farside && !arguments.algorithms.is_empty() {
                    words.extend(["--algorithms".to_owned(), arguments.algorithms.join(";")]);
                }
                let command = launch::command(*library, ranks, limit, &words)?;
                results.add(launch::run(command, *library, ranks, limit, |_| {}));
            }
        }
    }
    results.records = best(&results.records);
    let measured = Measured(&results.records);
    let reduction = reduction_us();
    let predictor = |ranks| kept.clone().or_else(|| model(&results.records, ranks, reduction));
    println!("{}\n{}", results.machine.line(), measured.tables(predictor));
    let whence = if kept.is_some() { "the models that farside tune has stored" } else { "round trips of the same run" };
    let about = [results.machine.line(), format!("Predicted with pLogP from {whence}.")];
    let failed = |e| Error::system("write the page", e).cause(arguments.page.display().to_string());
    let folder = arguments.page.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.map_or(Ok(()), std::fs::create_dir_all).map_err(failed)?;
    std::fs::write(&arguments.page, measured.page(predictor, &about)).map_err(failed)?;
    println!("{}\n{}", measured.selection(), targets::display(&measured.targets()));
    results.print_notes();
    results.write_json(&arguments.json)?;
    println!("written: {}, {}", arguments.json.display(), arguments.page.display());
    results.check()
}

fn main() -> ExitCode {
    program(run)
}
