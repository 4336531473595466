//! Index-gather: every rank gets random elements of a table that is spread over all ranks, one by one and aggregated.
//!
//!     farside run -n 4 target/release/examples/index_gather --indices 1000000

#[path = "common/program.rs"]
mod program;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use farside_rma::prelude::*;
use program::{Outcome, numbers, run};

/// Gets random elements of a table that is spread over all ranks.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// How many elements each rank gets.
    #[arg(long, default_value_t = 100_000)]
    indices: usize,
    /// How many elements of the table each rank holds.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    elements: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    run(|job| get(job, &options))
}

fn get(job: &Job, options: &Options) -> Outcome {
    let team = job.world()?;
    let (ranks, me) = (team.size() as u64, team.rank());
    let table = Symmetric::<u64>::allocate(&team, options.elements as usize)?;
    // The value of each element follows from its place, so that each rank can check what it gets.
    let value = |(rank, at): (usize, usize)| rank as u64 * options.elements + at as u64;
    for at in 0..table.len() {
        table.local().store(at, value((me, at)))?;
    }
    let place = |number: u64| ((number % ranks) as usize, (number / ranks % options.elements) as usize);
    let places: Vec<_> = numbers(me).take(options.indices).map(place).collect();
    let expected: Vec<u64> = places.iter().copied().map(value).collect();
    table.barrier()?;

    let start = Instant::now();
    let plain: Vec<u64> = places.iter().map(|(rank, at)| table.get_value(*rank, *at)).collect::<Result<_>>()?;
    team.barrier()?;
    let plain_time = start.elapsed();

    let start = Instant::now();
    let mut gathered = vec![0; places.len()];
    table.gather_aggregated(&places, |i, value| gathered[i] = value)?;
    team.barrier()?;
    let aggregated_time = start.elapsed();

    if plain != expected || gathered != expected {
        return Err("an element has another value than expected".into());
    }
    if me == 0 {
        let all = options.indices as f64 * ranks as f64;
        let rate = |time: Duration| all / time.as_secs_f64() / 1e6;
        println!("{all} elements: {:.4} million a second, {:.4} aggregated", rate(plain_time), rate(aggregated_time));
    }
    Ok(table.free()?)
}
