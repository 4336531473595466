//! A random permutation by darts: the ranks throw numbers at random places of a board, which is spread over all ranks and has
//! twice as many places. A place keeps the first number that hits it, and the others are thrown again by those who threw
//! them. The numbers in the order of their places are the permutation.
//!
//!     farside run -n 4 target/release/examples/permutation --numbers 1000000

#[path = "common/program.rs"]
mod program;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use farside_rma::aggregate::Conveyor;
use farside_rma::prelude::*;
use program::{Outcome, numbers, run};

/// Makes a random permutation by darts.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// How many numbers each rank throws.
    #[arg(long, default_value_t = 100_000)]
    numbers: usize,
}

fn main() -> ExitCode {
    let options = Options::parse();
    run(|job| throw(job, &options))
}

/// A number and the place at which it was thrown, or, on its way back, no place.
type Dart = [u64; 2];
const MISSED: u64 = u64::MAX;
const FREE: u64 = u64::MAX;

fn throw(job: &Job, options: &Options) -> Outcome {
    let team = job.world()?;
    let (ranks, me, own) = (team.size() as u64, team.rank(), options.numbers as u64);
    let mut board = vec![FREE; 2 * options.numbers];
    let mut random = numbers(me);
    let mut aim = |number: u64| {
        let place = random.next().unwrap_or(0) % (2 * own * ranks);
        ((place / (2 * own)) as usize, [number, place % (2 * own)])
    };

    team.barrier()?;
    let start = Instant::now();
    let mut conveyor = Conveyor::<Dart>::new(&team)?;
    let first: Vec<(usize, Dart)> = (own * me as u64..own * (me as u64 + 1)).map(&mut aim).collect();
    conveyor.drive(first, |outbox, from, [number, place]| {
        if place == MISSED {
            let (rank, dart) = aim(number);
            outbox.push(rank, dart);
        } else if board[place as usize] == FREE {
            board[place as usize] = number;
        } else {
            outbox.push(from, [number, MISSED]);
        }
    })?;
    let time = start.elapsed();
    conveyor.free()?;

    // Each number is in the permutation once: the sums of numbers, and of their squares, are those of a serial run.
    let numbers: Vec<u64> = board.into_iter().filter(|number| *number != FREE).collect();
    let square = |number: u64| number.wrapping_mul(number);
    let mut sums =
        [numbers.len() as u64, numbers.iter().sum(), numbers.iter().copied().map(square).fold(0, u64::wrapping_add)];
    team.allreduce(&mut sums, Op::Sum)?;
    let all = own * ranks;
    if sums != [all, (0..all).sum(), (0..all).map(square).fold(0, u64::wrapping_add)] {
        return Err("a number is missing, or is there twice".into());
    }
    if me == 0 {
        println!("a permutation of {all} numbers: {:.2} million a second", all as f64 / time.as_secs_f64() / 1e6);
    }
    Ok(())
}
