//! Floors of the machine, measured in the same run as everything else: what no library can go below on shared memory.
//!
//! - `line_round_trip`, `line_one_way`: a 64-byte line that two processes on two cores pass to and fro by plain loads
//!   and stores of one word in it.
//! - `two_lines_round_trip`: the same with a line for each way, as messages have that can go both ways at once: a line
//!   that only one of the two writes has to be taken back from its reader before each store.
//! - `bare_meeting`: a barrier of two without a library: each of two processes stores a number and waits for the other's,
//!   in one line.
//! - `yield_turn`: how long a process that gives its core away waits for its next turn, with 4 processes on that
//!   core that all do so: with 4 ranks for a core that switch in this way, no call in which
//!   all ranks take part costs less.
//! - `memcpy`: libc's copy from private memory to a shared mapping, always the same two buffers, so that they are as
//!   warm as they get.
//! - `atomic`: an addition to a word in a shared mapping that only one process uses.
//!
//! What a target is compared with is measured once more by the ranks themselves, in turns with what it bounds
//! (`crate::measure`): round trips of lines beside the active message, a line one way and a bare meeting beside the barrier,
//! a memcpy to the window's memory beside each put.
//!
//! Every figure is the median of [`BLOCKS`] blocks; a block of the ping-pong is [`ROUND_TRIPS`] round trips, one of the
//! others as many calls as fill about a millisecond.

pub mod perftest;
pub mod queue_pair;
mod raw;

use std::collections::BTreeMap;

use farside_core::error::{Error, ErrorKind, Result};

use crate::record::{Key, Library, Op, Record, Shape, Suite, Sync, Window};

/// Blocks per figure.
pub const BLOCKS: usize = 15;
/// Round trips in a block of the ping-pong.
pub const ROUND_TRIPS: u64 = 5000;

/// Turns in a block of turns of a core.
const YIELDS: u64 = 2000;

/// The largest copy that is measured.
const COPY_BYTES_MAX: u64 = 1 << 30;

/// Measures all floors, with a copy of each of `sizes` bytes. Takes about a tenth of a second and 20 ms per size.
///
/// What cannot be measured here (the ping-pong with one core only) comes back as an error beside the rest.
///
/// # Errors
/// [`ErrorKind::BadArgument`] for a size of 0 or above 1 GiB, [`ErrorKind::System`] without memory.
pub fn measure(sizes: &[u64]) -> Result<(Vec<Record>, Option<Error>)> {
    let mut records = Vec::new();
    let mut failed = None;
    match raw::ping_pong(true, ROUND_TRIPS, BLOCKS) {
        Ok(blocks_us) => {
            let iterations = ROUND_TRIPS * BLOCKS as u64;
            records.push(record(Op::TwoLinesRoundTrip, 64, 2, iterations, &blocks_us)?);
        }
        Err(error) => failed = Some(error),
    }
    match raw::ping_pong(false, ROUND_TRIPS, BLOCKS) {
        Ok(blocks_us) => {
            let iterations = ROUND_TRIPS * BLOCKS as u64;
            let halves: Vec<f64> = blocks_us.iter().map(|us| us / 2.0).collect();
            records.push(record(Op::LineRoundTrip, 64, 2, iterations, &blocks_us)?);
            records.push(record(Op::LineOneWay, 64, 2, iterations, &halves)?);
        }
        Err(error) => failed = Some(error),
    }
    if failed.is_none() {
        let blocks_us = raw::meeting(ROUND_TRIPS, BLOCKS)?;
        records.push(record(Op::BareMeeting, 64, 2, ROUND_TRIPS * BLOCKS as u64, &blocks_us)?);
    }
    let blocks_us = raw::yield_turn(4, YIELDS, 3)?;
    records.push(record(Op::YieldTurn, 0, 4, 3 * YIELDS, &blocks_us)?);
    let (iterations, blocks_us) = raw::atomic(BLOCKS)?;
    records.push(record(Op::Atomic, 8, 1, iterations, &blocks_us)?);
    for &bytes in sizes {
        let length =
            usize::try_from(bytes).ok().filter(|_| (1..=COPY_BYTES_MAX).contains(&bytes)).ok_or_else(|| {
                Error::new(ErrorKind::BadArgument, "measure memcpy")
                    .cause(format!("{bytes} bytes is not within 1 B and 1 GiB"))
            })?;
        let (iterations, blocks_us) = raw::memcpy(length, BLOCKS)?;
        records.push(record(Op::Memcpy, bytes, 1, iterations, &blocks_us)?);
    }
    Ok((records, failed))
}

fn record(op: Op, bytes: u64, ranks: u32, iterations: u64, blocks_us: &[f64]) -> Result<Record> {
    let key = Key { suite: Suite::Limit, window: Window::None, sync: Sync::None, op, shape: Shape::None, bytes, ranks };
    Record::from_blocks(Library::Limit, env!("CARGO_PKG_VERSION"), key, iterations, blocks_us)
}

/// The floors, and from them the limit of each measurement.
#[derive(Clone, Debug)]
pub struct Floors {
    us: BTreeMap<(Op, u64), f64>,
    cores: usize,
}

impl Floors {
    /// From the records of [`measure`] among `records`; those of libraries are passed over. `cores` as in
    /// [`crate::machine::Machine`].
    #[must_use]
    pub fn from_records(records: &[Record], cores: usize) -> Self {
        let limits = records.iter().filter(|record| record.library == Library::Limit);
        Self { us: limits.map(|record| ((record.op, record.bytes), record.us_median)).collect(), cores }
    }

    /// Microseconds below which the measurement `key` cannot go: its parts that no implementation over mapped memory
    /// avoids, each at its floor. `None` where a part was not measured, or where ranks must wait for each other and
    /// there are more of them than cores, so that the scheduler decides.
    ///
    /// | measurement | parts |
    /// |---|---|
    /// | put, get, each of a burst | copy |
    /// | fetch-op, compare-and-swap, accumulate | atomic |
    /// | fence, PSCW | copy, one line one way (half of the there-and-back) |
    /// | lock | copy, two atomics |
    /// | round trip of a message | one line there and back |
    /// | barrier of P | one line one way, in each of ceil(log2 P) rounds |
    /// | ghost areas | four copies, one line one way; with locks, four copies and eight atomics |
    #[must_use]
    pub fn of(&self, key: &Key) -> Option<f64> {
        let floor = |op, bytes| self.us.get(&(op, bytes)).copied();
        let copy = || floor(Op::Memcpy, key.bytes);
        let atomic = || floor(Op::Atomic, 8);
        if self.us.contains_key(&(Op::RawRead, 8)) {
            return self.of_rdma(key);
        }
        let waiting = |op| floor(op, 64).filter(|_| key.ranks as usize <= self.cores);
        match (key.suite, key.sync, key.op) {
            (Suite::Limit, ..) => floor(key.op, key.bytes),
            (_, _, Op::FetchOp | Op::Cas | Op::Accumulate) => atomic(),
            (Suite::Op, ..) => copy(),
            (Suite::Epoch, Sync::Fence | Sync::FenceClosure | Sync::Pscw, _) => {
                Some(copy()? + waiting(Op::LineOneWay)?)
            }
            (Suite::Epoch, Sync::Lock | Sync::LockExclusive, _) => Some(copy()? + 2.0 * atomic()?),
            (Suite::Ghost, Sync::Lock | Sync::LockExclusive, _) => Some(4.0 * copy()? + 8.0 * atomic()?),
            (Suite::Ghost, ..) => Some(4.0 * copy()? + waiting(Op::LineOneWay)?),
            (Suite::Am, ..) => waiting(Op::LineRoundTrip),
            (Suite::Barrier, ..) => {
                let rounds = key.ranks.max(1).next_power_of_two().ilog2();
                Some(f64::from(rounds) * waiting(Op::LineOneWay)?)
            }
            _ => None,
        }
    }
}

impl Floors {
    /// As [`of`](Self::of), over RDMA: parts are those of [`perftest`].
    ///
    /// | measurement | parts |
    /// |---|---|
    /// | put | a write and its completion |
    /// | get | a read |
    /// | fetch-op, compare-and-swap, accumulate | an atomic |
    /// | each of a burst of puts | a write of many |
    /// | fence, PSCW | a write one way |
    /// | exclusive lock | an atomic; a write and its completion, with the unlock in the same list |
    /// | round trip of a message | a write one way, twice |
    /// | barrier of P | a write one way, in each of ceil(log2 P) rounds |
    fn of_rdma(&self, key: &Key) -> Option<f64> {
        let floor = |op, bytes| self.us.get(&(op, bytes)).copied();
        match (key.suite, key.sync, key.op) {
            (Suite::Limit, ..) => floor(key.op, key.bytes),
            (_, _, Op::FetchOp | Op::Cas | Op::Accumulate) => floor(Op::RawAtomic, 8),
            (Suite::Op, _, Op::Put) => floor(Op::RawWriteDone, key.bytes),
            (Suite::Op, _, Op::Get) => floor(Op::RawRead, key.bytes),
            (Suite::Op, _, Op::PutBandwidth) => floor(Op::RawWriteBandwidth, key.bytes),
            (Suite::Epoch, Sync::Fence | Sync::FenceClosure | Sync::Pscw, _) => floor(Op::RawWrite, key.bytes),
            (Suite::Epoch, Sync::LockExclusive, _) => {
                Some(floor(Op::RawAtomic, 8)? + floor(Op::RawWriteDone, key.bytes)?)
            }
            (Suite::Am, ..) => Some(2.0 * floor(Op::RawWrite, 8)?),
            (Suite::Barrier, ..) => {
                Some(f64::from(key.ranks.max(1).next_power_of_two().ilog2()) * floor(Op::RawWrite, 8)?)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measure_gives_every_floor_once() {
        let (records, failed) = measure(&[8, 4096]).unwrap();
        let count = |op| records.iter().filter(|record| record.op == op).count();
        assert_eq!((count(Op::Memcpy), count(Op::Atomic)), (2, 1));
        let lines = usize::from(failed.is_none());
        assert_eq!((count(Op::LineRoundTrip), count(Op::LineOneWay)), (lines, lines));
        for record in &records {
            assert_eq!(Record::parse(&record.line()).unwrap().key(), record.key());
        }
    }

    #[test]
    fn measure_impossible_size_is_refused() {
        for bytes in [0, u64::MAX] {
            assert_eq!(measure(&[bytes]).unwrap_err().kind(), ErrorKind::BadArgument);
        }
    }

    #[test]
    fn floor_is_the_sum_of_its_parts() {
        let part = |op, bytes, us: f64| record(op, bytes, 2, 1, &[us]).unwrap();
        let records = [
            part(Op::LineRoundTrip, 64, 20.0),
            part(Op::LineOneWay, 64, 10.0),
            part(Op::Atomic, 8, 1.0),
            part(Op::Memcpy, 8, 100.0),
        ];
        let floors = Floors::from_records(&records, 4);
        let of = |suite, sync, op, bytes, ranks| {
            floors.of(&Key { suite, window: Window::Allocated, sync, op, shape: Shape::None, bytes, ranks })
        };
        assert_eq!(of(Suite::Epoch, Sync::Fence, Op::Put, 8, 2), Some(110.0));
        assert_eq!(of(Suite::Epoch, Sync::Lock, Op::Put, 8, 2), Some(102.0));
        assert_eq!(of(Suite::Op, Sync::Flush, Op::Get, 8, 8), Some(100.0));
        assert_eq!(of(Suite::Op, Sync::Flush, Op::Cas, 8, 8), Some(1.0));
        assert_eq!(of(Suite::Am, Sync::None, Op::Pingpong, 8, 2), Some(20.0));
        assert_eq!(of(Suite::Barrier, Sync::None, Op::Barrier, 0, 2), Some(10.0));
        assert_eq!(of(Suite::Barrier, Sync::None, Op::Barrier, 0, 3), Some(20.0));
        assert_eq!(of(Suite::Ghost, Sync::Pscw, Op::Ghost, 8, 4), Some(410.0));
        assert_eq!(of(Suite::Ghost, Sync::Lock, Op::Ghost, 8, 4), Some(408.0));
        // more ranks than cores; a size that was not measured
        assert_eq!(of(Suite::Barrier, Sync::None, Op::Barrier, 0, 8), None);
        assert_eq!(of(Suite::Epoch, Sync::Fence, Op::Put, 8, 8), None);
        assert_eq!(of(Suite::Op, Sync::Flush, Op::Put, 64, 2), None);
    }
}
