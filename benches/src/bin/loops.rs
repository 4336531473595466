//! `loops`: the loops of IMB and OSU by size, one C program on Farside's MPI library and on others, also on a busy
//! machine.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, value_parser};
use farside_benches::record::{Library, Op, best};
use farside_benches::results::Results;
use farside_benches::session::peers;
use farside_benches::{launch, limits, program};
use farside_core::error::Result;

/// Measures ping-pong, exchange, reduce, allreduce, all-to-all, put, get, accumulate and a chain of PSCW epochs by size
/// on Farside's libmpi_abi (target/release, or `FARSIDE_MPI`), and on MPICH, Intel MPI and Open MPI, which ci/peers has
/// put into FARSIDE_PEERS or target/peers, beside a memcpy of as many bytes; writes a table, JSON, and HTML with plots.
#[derive(Parser)]
struct Arguments {
    /// Shorter blocks.
    #[arg(long)]
    quick: bool,
    /// Number of measurements, the libraries in turns; of each figure the smallest median counts.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Number of processes that spin beside the ranks.
    #[arg(long, default_value_t = 0, value_parser = value_parser!(u32).range(0..=1024))]
    busy: u32,
    /// Numbers of ranks, each even.
    #[arg(long, value_delimiter = ',', default_value = "2", value_parser = value_parser!(u32).range(2..=1024))]
    ranks: Vec<u32>,
    /// Bytes, ascending: multiples of 8.
    #[arg(long, value_delimiter = ',', default_value = "8,64,512,4096,16384,65536,262144,1048576,4194304", value_parser = value_parser!(u64).range(8..=1 << 26))]
    sizes: Vec<u64>,
    /// Operations; all unless given.
    #[arg(long, value_delimiter = ',')]
    operations: Vec<Op>,
    /// Libraries; all unless given.
    #[arg(long, value_delimiter = ',')]
    libraries: Vec<Library>,
    /// Seconds that one library may take for a round.
    #[arg(long, value_name = "SECS", default_value_t = 300, value_parser = value_parser!(u64).range(1..=86_400))]
    time_limit: u64,
    /// The records as JSON.
    #[arg(long, value_name = "FILE", default_value = "out/loops.json")]
    json: PathBuf,
    /// The report.
    #[arg(long, value_name = "FILE", default_value = "out/loops.html")]
    html: PathBuf,
}

fn run(arguments: &Arguments) -> Result<bool> {
    let list = |all: Vec<String>| all.join(",");
    let sizes = list(arguments.sizes.iter().map(u64::to_string).collect());
    let mut words = ["--suites", "loops", "--sizes", &sizes].map(str::to_owned).to_vec();
    words.extend(arguments.quick.then(|| "--quick".to_owned()));
    if !arguments.operations.is_empty() {
        words.extend(["--operations".to_owned(), list(arguments.operations.iter().map(Op::to_string).collect())]);
    }
    let all = || std::iter::once(Library::Farside).chain(peers().iter().copied());
    let wanted = |library: &Library| arguments.libraries.is_empty() || arguments.libraries.contains(library);
    let libraries: Vec<Library> = all().filter(wanted).collect();
    let limit = Duration::from_secs(arguments.time_limit);
    let mut results = Results::here("Farside: loops by size");
    for round in 1..=arguments.rounds {
        for (ranks, library) in arguments.ranks.iter().flat_map(|ranks| libraries.iter().map(|of| (*ranks, *of))) {
            eprintln!("round {round} of {}: {}, {ranks} ranks", arguments.rounds, library.label());
            let mut command = launch::peer(library, ranks, limit, &words)?;
            command.env("FARSIDE_PEERS_BUSY", arguments.busy.to_string());
            results.add(launch::run(command, library, ranks, limit, |_| ()));
        }
        // On a busy machine a copy would be measured beside other processes than the ranks were.
        if arguments.busy == 0 {
            results.records.extend(limits::measure(&arguments.sizes)?.0);
        }
    }
    results.records = best(&results.records);
    println!("{}; {} busy processes\n{}", results.machine.line(), arguments.busy, results.table());
    results.print_notes();
    results.write_json(&arguments.json)?;
    results.write_html(&arguments.html)?;
    println!("written: {} and {}", arguments.json.display(), arguments.html.display());
    results.check()
}

fn main() -> ExitCode {
    program(|arguments: Arguments| run(&arguments))
}
