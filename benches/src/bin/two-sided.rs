//! `two-sided`: messages beside the layers below them, and beside MPI libraries.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, value_parser};
use farside_benches::limits::sockets;
use farside_benches::record::{Library, Op, Suite};
use farside_benches::session::peers;
use farside_benches::table::{number, text};
use farside_benches::two_sided::{WAYS, measure};
use farside_benches::worker::over_tcp;
use farside_benches::{launch, program};
use farside_core::error::Result;

/// Measures two-sided messages beside the raw put and active messages below them, polling and sleeping. With --peers
/// also one C program on Farside's MPI library and on others: latency, bandwidth, message rate, and the time of a
/// message while 1 to 10,000 receives or unexpected messages are outstanding.
///
/// With `FARSIDE_DEVICE=tcp` the C program alone, over TCP with every library, beside bare sockets.
#[derive(Parser)]
struct Arguments {
    /// Fewer sizes and shorter blocks of the C program.
    #[arg(long)]
    quick: bool,
    /// Run the C program on Farside's libmpi_abi (target/release, or `FARSIDE_MPI`), and on MPICH, Intel MPI and Open
    /// MPI, which ci/peers has put into FARSIDE_PEERS or target/peers.
    #[arg(long)]
    peers: bool,
    /// Number of measurements, the libraries in turns; the best counts.
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Bytes of a message.
    #[arg(long, value_delimiter = ',', default_value = "8,1024,8192,65536,1048576", value_parser = value_parser!(u64).range(1..=1 << 26))]
    sizes: Vec<u64>,
    /// Seconds that one library may take for a round.
    #[arg(long, value_name = "SECS", default_value_t = 60, value_parser = value_parser!(u64).range(1..=86_400))]
    time_limit: u64,
}

fn layers(arguments: &Arguments) -> Result<()> {
    let sizes: Vec<usize> = arguments.sizes.iter().map(|size| *size as usize).collect();
    for (wait, how) in [("spin", "polling"), ("park", "event-driven")] {
        let mut best = measure(wait, &sizes)?;
        for _ in 1..arguments.rounds {
            let times = measure(wait, &sizes)?;
            best.iter_mut().flatten().flatten().zip(times.iter().flatten().flatten()).for_each(|(a, b)| *a = a.min(*b));
        }
        let header: Vec<&str> = ["us", "bytes"].into_iter().chain(WAYS.map(|(name, _)| name)).collect();
        let row = |kind: usize, at: usize| {
            let what = ["one way", "of a burst"][kind].to_owned();
            let times = best.iter().map(|way| number(Some(way[at][kind])));
            [what, sizes[at].to_string()].into_iter().chain(times).collect()
        };
        let rows = (0..2).flat_map(|kind| (0..sizes.len()).map(move |at| (kind, at))).map(|(kind, at)| row(kind, at));
        println!("Two ranks as threads, {how}, microseconds of a message\n{}\n", text(&header, 1, rows));
    }
    println!("{}\n", WAYS.map(|(name, what)| format!("{name}: {what}")).join("\n"));
    Ok(())
}

fn libraries(arguments: &Arguments) -> Result<bool> {
    let sizes = arguments.sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let mut asked = vec!["--suites".to_owned(), "two-sided".into()];
    asked.extend(arguments.quick.then(|| "--quick".into()));
    asked.extend(["--sizes".into(), sizes]);
    let mut all: Vec<Library> = std::iter::once(Library::Farside).chain(peers().iter().copied()).collect();
    all.extend(over_tcp().then_some(Library::Limit));
    let mut best: BTreeMap<(Op, u64), BTreeMap<Library, f64>> = BTreeMap::new();
    let limit = Duration::from_secs(arguments.time_limit);
    for (_, library) in (0..arguments.rounds).flat_map(|round| all.iter().map(move |library| (round, *library))) {
        let (records, notes) = match library {
            Library::Limit => (sockets::measure(&arguments.sizes)?, Vec::new()),
            _ => launch::run(launch::peer(library, 2, limit, &asked)?, library, 2, limit, |_| ()),
        };
        notes.iter().for_each(|note| println!("{note}"));
        for record in records.iter().filter(|record| record.key.suite == Suite::TwoSided) {
            let us = best.entry((record.key.op, record.key.bytes)).or_default().entry(library).or_insert(f64::MAX);
            *us = us.min(record.us_min);
        }
    }
    let header: Vec<&str> = ["us", "bytes, number"]
        .into_iter()
        .chain(all.iter().map(|library| library.label()))
        .chain(["of the best peer"])
        .chain(over_tcp().then_some("of sockets"))
        .collect();
    let rows = best.iter().map(|((op, bytes), us)| {
        let peer =
            us.iter().filter(|(library, _)| Library::PEERS.contains(library)).map(|(_, us)| *us).reduce(f64::min);
        let ratio = |to: Option<f64>| number(us.get(&Library::Farside).zip(to).map(|(own, other)| own / other));
        let sockets = over_tcp().then(|| ratio(us.get(&Library::Limit).copied()));
        let times = all.iter().map(|library| number(us.get(library).copied())).chain([ratio(peer)]).chain(sockets);
        [op.label().to_owned(), bytes.to_string()].into_iter().chain(times).collect()
    });
    println!(
        "One C program on each MPI library, two processes, microseconds of a message; best of {} rounds in turns\n{}",
        arguments.rounds,
        text(&header, 1, rows)
    );
    Ok(best.values().any(|us| us.contains_key(&Library::Farside)))
}

fn main() -> ExitCode {
    program(|arguments: Arguments| {
        if !over_tcp() {
            layers(&arguments)?;
        }
        if arguments.peers { libraries(&arguments) } else { Ok(true) }
    })
}
