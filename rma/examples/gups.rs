//! Random-access updates (HPC Challenge): every rank updates random words of a table that is spread over all ranks.
//!
//!     farside run -n 2 target/release/examples/gups --bits 22
//!
//! An update is `table[r mod N] ^= r` for the next number `r` of the rank's stream. The benchmark tolerates 1 % of lost
//! updates, because it does not require atomicity. Accumulates and fetch-and-op are atomic, so here no update may be
//! lost: each rank applies all streams to its part of the table once more, locally, and must find `table[i] == i`.

#[path = "common/program.rs"]
mod program;

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use farside_rma::prelude::*;
use program::{Outcome, run};

/// Random-access updates of a distributed table, in giga-updates per second.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Base-2 logarithm of the number of words of the table, on all ranks together.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=40))]
    bits: u32,
    /// Updates for each word of the table.
    #[arg(long, default_value_t = 4)]
    updates_per_word: u64,
    /// Maximum number of updates of a rank in progress at a time (the benchmark's rules allow 1024).
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1024))]
    look_ahead: u32,
    /// Operation that updates the table.
    #[arg(long, value_enum, default_value = "all")]
    by: By,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// Accumulates, which complete when the epoch is closed.
    Accumulate,
    /// Fetch-and-op: the previous value comes back before the next update.
    Fetch,
    /// Both, one after the other.
    All,
}

/// Distribution of the table's words: blocks of equal length, of which the last ranks may have less or nothing.
#[derive(Clone, Copy)]
struct Table {
    words: u64,
    block: u64,
}

impl Table {
    /// The word that `number` updates: its rank, and its index there.
    fn place(&self, number: u64) -> (usize, usize) {
        let index = number & (self.words - 1);
        ((index / self.block) as usize, (index % self.block) as usize)
    }

    fn first(&self, rank: usize) -> u64 {
        (rank as u64 * self.block).min(self.words)
    }

    fn len(&self, rank: usize) -> usize {
        (self.first(rank + 1) - self.first(rank)) as usize
    }
}

/// The stream of one rank: the benchmark's x^63 + x^2 + x + 1 over GF(2), from a start value of the rank's own.
struct Stream(u64);

impl Stream {
    fn of(rank: usize) -> Self {
        // The finalizer of splitmix64 spreads the start values; it gives 0 only for 0.
        let mut z = (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self(z ^ (z >> 31))
    }
}

impl Iterator for Stream {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0 = (self.0 << 1) ^ (if self.0 >> 63 == 1 { 7 } else { 0 });
        Some(self.0)
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    run(|job| {
        let all = [By::Accumulate, By::Fetch];
        all.into_iter().filter(|by| [*by, By::All].contains(&options.by)).try_for_each(|by| measure(job, &options, by))
    })
}

fn measure(job: &Job, options: &Options, by: By) -> Outcome {
    let team = job.world()?;
    let words = 1u64 << options.bits;
    let table = Table { words, block: words.div_ceil(team.size() as u64) };
    let window = LockWindow::<u64>::allocate(&team, table.len(team.rank()))?;
    let first = table.first(team.rank());
    window.with_local(|local| -> Result<()> {
        local.iter_mut().zip(first..).for_each(|(word, index)| *word = index);
        Ok(())
    })?;
    let total = words.saturating_mul(options.updates_per_word);
    // If the ranks do not divide the total, the first ones have one update more.
    let count = |rank: usize| total / team.size() as u64 + u64::from((rank as u64) < total % team.size() as u64);
    team.barrier()?;

    let start = Instant::now();
    match by {
        By::Fetch => fetch(&window, table, count(team.rank()))?,
        _ => accumulate(&window, table, count(team.rank()), options.look_ahead)?,
    }
    team.barrier()?;
    let time = start.elapsed();

    let errors = window.with_local(|local| -> Result<_> {
        for rank in 0..team.size() {
            let updates = Stream::of(rank).take(count(rank) as usize).map(|number| (number, table.place(number)));
            updates.filter(|(_, (owner, _))| *owner == team.rank()).for_each(|(number, (_, at))| local[at] ^= number);
        }
        Ok(local.iter().zip(first..).filter(|(word, index)| **word != *index).count())
    })?;
    window.free()?;
    if errors > 0 {
        return Err(format!("{errors} of {} words are wrong after {total} updates", table.len(team.rank())).into());
    }
    if team.rank() == 0 {
        let rate = total as f64 / time.as_secs_f64().max(1e-9) / 1e9;
        println!("{by:?}: {total} updates of 2^{} words in {time:.2?}: {rate:.4} GUPS, 0 errors here", options.bits);
    }
    Ok(())
}

/// Makes all updates of this rank as accumulates, at most `look_ahead` in each epoch.
fn accumulate(window: &LockWindow<u64>, table: Table, count: u64, look_ahead: u32) -> Result<()> {
    let mut stream = Stream::of(window.team().rank()).take(count as usize);
    loop {
        let numbers: Vec<u64> = stream.by_ref().take(look_ahead as usize).collect();
        if numbers.is_empty() {
            return Ok(());
        }
        window.lock_all(Assert::empty(), |epoch| {
            numbers.iter().try_for_each(|number| {
                let (rank, at) = table.place(*number);
                epoch.accumulate(Op::Bxor, std::slice::from_ref(number), rank, at)
            })
        })?;
    }
}

/// Makes all updates of this rank as fetch-and-op, one at a time.
fn fetch(window: &LockWindow<u64>, table: Table, count: u64) -> Result<()> {
    window.lock_all(Assert::empty(), |epoch| {
        Stream::of(window.team().rank()).take(count as usize).try_for_each(|number| {
            let (rank, at) = table.place(number);
            epoch.fetch_and_op_blocking(Op::Bxor, number, rank, at).map(drop)
        })
    })
}
