//! N bodies that attract each other: the blocks of all ranks travel around the ring in notified puts, and each rank
//! adds their forces to its own bodies while the next block arrives.
//!
//!     farside run -n 4 target/release/examples/n_body --bodies 4000 --steps 10

#[path = "common/program.rs"]
mod program;

use std::process::ExitCode;

use bytemuck::{Pod, Zeroable};
use clap::Parser;
use farside_rma::prelude::*;
use program::{Outcome, numbers, run};

/// Moves bodies by their gravity.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Bodies of each rank.
    #[arg(long, default_value_t = 50)]
    bodies: usize,
    /// Steps.
    #[arg(long, default_value_t = 4)]
    steps: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Body {
    place: [f64; 3],
    speed: [f64; 3],
}

fn start(rank: usize, options: &Options) -> Vec<Body> {
    let mut numbers = numbers(rank).map(|x| (x >> 11) as f64 / (1u64 << 53) as f64);
    let mut three = || std::array::from_fn(|_| numbers.next().unwrap_or(0.5));
    (0..options.bodies).map(|_| Body { place: three(), speed: three() }).collect()
}

/// Changes the speeds of `bodies` by the attraction of `others`.
fn attract(bodies: &mut [Body], others: &[Body]) {
    for body in bodies {
        for other in others {
            let d: [f64; 3] = std::array::from_fn(|i| other.place[i] - body.place[i]);
            let square = d.iter().map(|x| x * x).sum::<f64>() + 1e-3;
            (0..3).for_each(|i| body.speed[i] += 1e-6 * d[i] / (square * square.sqrt()));
        }
    }
}

fn advance(bodies: &mut [Body]) {
    bodies.iter_mut().for_each(|body| (0..3).for_each(|i| body.place[i] += 0.01 * body.speed[i]));
}

fn main() -> ExitCode {
    let options = Options::parse();
    run(|job| simulate(job, &options))
}

fn simulate(job: &Job, options: &Options) -> Outcome {
    let team = job.world()?;
    let (p, me) = (team.size(), team.rank());
    let (right, left) = ((me + 1) % p, (me + p - 1) % p);
    // A place for the block of each rank, which comes once a step.
    let blocks = Symmetric::<Body>::allocate(&team, p * options.bodies)?;
    let flags = Flags::allocate(&team, p)?;
    let mut bodies = start(me, options);
    for step in 1..=options.steps {
        let mut block = bodies.clone();
        attract(&mut bodies, &block);
        for turn in 1..p {
            // The block that `turn` ranks to the left had first; its place is its owner's number.
            blocks.put_notify(&block, right, (me + p + 1 - turn) % p * options.bodies, &flags, turn, step)?;
            flags.wait_until(turn, ge(step))?;
            blocks.local().read((left + p + 1 - turn) % p * options.bodies, &mut block)?;
            attract(&mut bodies, &block);
        }
        advance(&mut bodies);
        // No rank overwrites a block that another one still reads.
        team.barrier()?;
    }

    // The same on one rank, with the blocks in the same order.
    let mut all: Vec<Vec<Body>> = (0..p).map(|rank| start(rank, options)).collect();
    for _ in 0..options.steps {
        let before = all.clone();
        for (rank, bodies) in all.iter_mut().enumerate() {
            (0..p).for_each(|turn| attract(bodies, &before[(rank + p - turn) % p]));
            advance(bodies);
        }
    }
    if bodies != all[me] {
        return Err("the bodies are not where they are on one rank".into());
    }
    if me == 0 {
        println!("{} bodies of {p} ranks after {} steps: right", p * options.bodies, options.steps);
    }
    flags.free()?;
    Ok(blocks.free()?)
}
