//! A work queue: ranks draw tasks by fetch-and-add until none is left, and put each result where it belongs.
//!
//!     farside run -n 4 target/release/examples/work_queue --tasks 10000

#[path = "common/program.rs"]
mod program;

use std::process::ExitCode;

use clap::Parser;
use farside_rma::prelude::*;
use program::{Outcome, run};

/// Processes tasks of different lengths on all ranks.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Number of tasks.
    #[arg(long, default_value_t = 2000)]
    tasks: usize,
}

/// The task: the number of steps of the Collatz sequence from `n` to 1.
fn steps(mut n: u64) -> u64 {
    let mut count = 0;
    while n > 1 {
        n = if n.is_multiple_of(2) { n / 2 } else { 3 * n + 1 };
        count += 1;
    }
    count
}

fn main() -> ExitCode {
    let options = Options::parse();
    run(|job| process(job, &options))
}

fn process(job: &Job, options: &Options) -> Outcome {
    let team = job.world()?;
    let next = Symmetric::<usize>::allocate(&team, 1)?;
    let results = Symmetric::<u64>::allocate(&team, options.tasks.div_ceil(team.size()))?;
    let mut done = 0u64;
    loop {
        let task = next.atomic(0, 0)?.fetch_add(1)?;
        if task >= options.tasks {
            break;
        }
        results.put_value(steps(task as u64 + 1), task % team.size(), task / team.size())?;
        done += 1;
    }
    results.barrier()?;

    let own = (team.rank()..options.tasks).step_by(team.size());
    let expected: Vec<u64> = own.map(|task| steps(task as u64 + 1)).collect();
    if results.local().to_vec()?[..expected.len()] != expected {
        return Err("a result is missing or wrong".into());
    }
    let mut each = vec![0; team.size()];
    team.allgather(&[done], &mut each)?;
    if each.iter().sum::<u64>() != options.tasks as u64 {
        return Err(format!("{each:?} tasks were done, {} expected", options.tasks).into());
    }
    if team.rank() == 0 {
        println!("{} tasks, by rank: {each:?}", options.tasks);
    }
    results.free()?;
    Ok(next.free()?)
}
