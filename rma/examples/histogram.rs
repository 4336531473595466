//! A distributed histogram: every rank counts its numbers in bins that are spread over all ranks, by atomic additions, one
//! by one and aggregated.
//!
//!     farside run -n 4 target/release/examples/histogram --numbers 1000000

#[path = "common/program.rs"]
mod program;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use farside_rma::prelude::*;
use program::{Outcome, numbers, run};

/// Counts random numbers in bins that are spread over all ranks.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// How many random numbers each rank draws.
    #[arg(long, default_value_t = 100_000)]
    numbers: usize,
    /// How many bins each rank holds.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    bins: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    run(|job| count(job, &options))
}

fn count(job: &Job, options: &Options) -> Outcome {
    let team = job.world()?;
    let (ranks, me) = (team.size() as u64, team.rank());
    let bins = Symmetric::<u64>::allocate(&team, options.bins as usize)?;
    let place = |number: u64| ((number % ranks) as usize, (number / ranks % options.bins) as usize);

    let start = Instant::now();
    for number in numbers(me).take(options.numbers) {
        let (rank, bin) = place(number);
        bins.atomic(rank, bin)?.add(1)?;
    }
    bins.barrier()?;
    let plain_time = start.elapsed();

    let start = Instant::now();
    let mut sums = bins.aggregated(Op::Sum)?;
    for number in numbers(me).take(options.numbers) {
        let (rank, bin) = place(number);
        sums.add(rank, bin, 1)?;
    }
    sums.finish()?;
    let aggregated_time = start.elapsed();

    // Each rank counts again what all ranks have added to its bins, twice.
    let mut expected = vec![0; options.bins as usize];
    for (rank, bin) in (0..team.size()).flat_map(|rank| numbers(rank).take(options.numbers)).map(place) {
        if rank == me {
            expected[bin] += 2;
        }
    }
    if bins.local().to_vec()? != expected {
        return Err("a bin has another count than expected".into());
    }
    if me == 0 {
        let all = options.numbers as f64 * ranks as f64;
        let rate = |time: Duration| all / time.as_secs_f64() / 1e6;
        println!(
            "{all} numbers in {} bins: {:.4} million a second, {:.4} aggregated",
            ranks * options.bins,
            rate(plain_time),
            rate(aggregated_time)
        );
    }
    Ok(bins.free()?)
}
