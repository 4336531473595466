//! A pipeline: blocks travel from rank to rank, each of which works on one block while the next one arrives. A put carries
//! its notification, and two slots per rank are enough.
//!
//!     farside run -n 4 target/release/examples/ring_pipeline --blocks 1000 --len 8192

#[path = "common/program.rs"]
mod program;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use farside_rma::prelude::*;
use program::{Outcome, run};

/// Sends blocks through all ranks.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Number of blocks.
    #[arg(long, default_value_t = 100)]
    blocks: u64,
    /// Numbers in a block.
    #[arg(long, default_value_t = 1000)]
    len: usize,
}

/// Blocks that a rank can hold.
const SLOTS: u64 = 2;
/// Flag 0 is the number of blocks that have arrived, flag 1 that of slots that the right neighbour has freed.
const COME: usize = 0;
const FREED: usize = 1;

fn main() -> ExitCode {
    let options = Options::parse();
    run(|job| stream(job, &options))
}

fn stream(job: &Job, options: &Options) -> Outcome {
    let team = job.world()?;
    let (me, last) = (team.rank(), team.size() - 1);
    let slots = Symmetric::<u64>::allocate(&team, SLOTS as usize * options.len)?;
    let flags = Flags::allocate(&team, 2)?;
    let mut block = vec![0; options.len];
    let at = |number: u64| (number % SLOTS) as usize * options.len;

    team.barrier()?;
    let start = Instant::now();
    for number in 0..options.blocks {
        if me == 0 {
            block.iter_mut().zip(number..).for_each(|(x, value)| *x = value);
        } else {
            flags.wait_until(COME, gt(number))?;
            slots.local().read(at(number), &mut block)?;
            flags.set(me - 1, FREED, number + 1)?;
        }
        // The work of a stage.
        block.iter_mut().for_each(|x| *x += me as u64);
        if me < last {
            flags.wait_until(FREED, ge((number + 1).saturating_sub(SLOTS)))?;
            slots.put_notify(&block, me + 1, at(number), &flags, COME, number + 1)?;
        } else if !block.iter().zip(number..).all(|(x, value)| *x == value + (last * (last + 1) / 2) as u64) {
            return Err(format!("block {number} is wrong").into());
        }
    }
    team.barrier()?;
    if me == 0 {
        let bytes = options.blocks as f64 * options.len as f64 * 8.0;
        println!(
            "{} blocks through {} ranks: {:.2} GB a second",
            options.blocks,
            last + 1,
            bytes / start.elapsed().as_secs_f64() / 1e9
        );
    }
    flags.free()?;
    Ok(slots.free()?)
}
