//! The Rust interface compared with libraries of partitioned global address spaces: operations on symmetric memory,
//! remote calls and tables ([`operations`], [`tables`]), whole arrays between tasks ([`arrays`]) and a Fourier
//! transform of two tasks compared with a data-parallel one ([`fourier`]). `benches/pgas/run` starts this program and
//! the peers, which make the same measurements; each output line has an operation, a number and a figure.

use std::time::Duration;

use clap::ValueEnum;
use farside_core::error::{Error, ErrorKind, Result};
use farside_rma::prelude::*;

pub(crate) mod arrays;
pub(crate) mod command;
pub(crate) mod fourier;
pub(crate) mod operations;
pub(crate) mod tables;

/// A part of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Put, get, atomics, put with a flag, remote calls: operations of rank 0 on rank 1.
    Operations,
    /// Atomic additions to, and reads of, random elements of a table over all ranks.
    Tables,
    /// Whole arrays between two tasks.
    Arrays,
    /// Fourier transforms, by two tasks and by one.
    Fourier,
}

/// The number of blocks; their median is reported.
const BLOCKS: usize = 5;

/// Measures times of operations, at all ranks of a team together.
pub(crate) struct Meter<'a> {
    /// The team whose ranks participate.
    pub(crate) team: &'a Team,
    /// Time of a block.
    pub(crate) block: Duration,
    /// Takes an operation, a number and a figure, at rank 0.
    pub(crate) line: &'a dyn Fn(&str, usize, f64),
    /// Nanoseconds of a floating-point operation of a simulated processor, whose computations take no virtual time by
    /// themselves; 0 on others.
    pub(crate) flop_ns: f64,
}

impl Meter<'_> {
    /// Seconds of one operation, at every rank: the median of five blocks. `run` makes the given number of operations at
    /// each call, and is called at all ranks with the same numbers.
    pub(crate) fn seconds(&self, mut run: impl FnMut(u64) -> Result<()>) -> Result<f64> {
        let (mut times, mut count, mut long) = (Vec::new(), 1, false);
        while times.len() < BLOCKS {
            self.team.barrier()?;
            let device = self.team.job().device();
            let start = device.now();
            run(count)?;
            self.team.barrier()?;
            let mut time = [(device.now() - start).as_secs_f64()];
            self.team.broadcast(&mut time, 0)?;
            let wanted = self.block.as_secs_f64();
            if times.is_empty() && time[0] < wanted / 2.0 && count < 1 << 40 {
                let grown = count as f64 * (wanted / time[0].max(1e-9)).clamp(2.0, 10.0);
                (count, long) = (grown as u64, false);
                continue;
            }
            // The median discards blocks in which a rank was interrupted; an additional first block is the warm-up.
            if !std::mem::replace(&mut long, true) {
                continue;
            }
            times.push(time[0] / count as f64);
        }
        Ok(median(times))
    }

    /// Reports a figure, at rank 0.
    pub(crate) fn line(&self, operation: &str, number: usize, figure: f64) {
        if self.team.rank() == 0 {
            (self.line)(operation, number, figure);
        }
    }

    /// Measures and reports the microseconds of an operation; `share` of the measured time is one operation.
    pub(crate) fn microseconds(
        &self,
        operation: &str,
        number: usize,
        share: f64,
        run: impl FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let seconds = self.seconds(run)?;
        self.line(operation, number, 1e6 * share * seconds);
        Ok(())
    }

    /// Measures and reports millions a second of `each` that one operation makes at all ranks.
    pub(crate) fn millions(
        &self,
        operation: &str,
        number: usize,
        each: usize,
        run: impl FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let seconds = self.seconds(run)?;
        self.line(operation, number, each as f64 / seconds / 1e6);
        Ok(())
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// The error for data that are not as expected.
#[cold]
fn wrong_data(what: &str) -> Error {
    Error::new(ErrorKind::Protocol, "measure").cause(format!("{what} is wrong"))
}

/// A stream of pseudorandom numbers that depends on the seed (splitmix64).
fn numbers(seed: usize) -> impl Iterator<Item = u64> {
    let mut state = seed as u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_five_is_the_third() {
        assert_eq!(median(vec![5.0, 1.0, 4.0, 2.0, 3.0]), 3.0);
    }

    #[test]
    fn meter_runs_the_same_numbers_at_all_ranks() {
        let runs = Job::threads(2, |job| {
            let team = job.world()?;
            let mut counts = Vec::new();
            let meter = Meter { team: &team, block: Duration::from_micros(200), line: &|_, _, _| (), flop_ns: 0.0 };
            meter.seconds(|count| {
                counts.push(count);
                Ok(())
            })?;
            Ok(counts)
        });
        let runs = runs.unwrap();
        assert_eq!(runs[0], runs[1]);
        assert!(runs[0].len() >= BLOCKS);
    }
}
