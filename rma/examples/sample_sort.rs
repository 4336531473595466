//! Sorts numbers that are spread over all ranks; each rank keeps as many as it had.
//!
//!     farside run -n 4 target/release/examples/sample_sort --numbers 1000000

#[path = "common/program.rs"]
mod program;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use farside_rma::prelude::*;
use program::{Outcome, numbers, run};

/// Sorts and shuffles the numbers of all ranks.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Numbers of the last rank; the others have fewer.
    #[arg(long, default_value_t = 100_000)]
    numbers: usize,
    /// Different numbers.
    #[arg(long, default_value_t = 1 << 40, value_parser = clap::value_parser!(u64).range(1..))]
    different: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    run(|job| sort(job, &options))
}

fn sort(job: &Job, options: &Options) -> Outcome {
    let team = job.world()?;
    let (ranks, me) = (team.size(), team.rank());
    let count = |rank: usize| options.numbers * (rank + 1) / ranks;
    let drawn = |rank: usize| numbers(rank).map(|x| x % options.different).take(count(rank));
    let mut own: Vec<u64> = drawn(me).collect();

    team.barrier()?;
    let start = Instant::now();
    team.sort_unstable(&mut own)?;
    let time = start.elapsed();

    let mut all: Vec<u64> = (0..ranks).flat_map(drawn).collect();
    all.sort_unstable();
    let first: usize = (0..me).map(count).sum();
    if own != all[first..first + count(me)] {
        return Err("the numbers of this rank are not those of a serial sort".into());
    }
    team.shuffle(&mut own, 1)?;
    team.sort(&mut own)?;
    if own != all[first..first + count(me)] {
        return Err("the numbers were others after they had been shuffled".into());
    }
    if me == 0 {
        println!(
            "{} numbers: {:.2} million a second",
            all.len(),
            all.len() as f64 / time.as_secs_f64().max(1e-9) / 1e6
        );
    }
    Ok(())
}
