//! Floors of the machine, measured in the same run as everything else: lower bounds for any library on shared memory.
//!
//! - `line_round_trip`, `line_one_way`: two processors pass a 64-byte cache line back and forth by plain loads and
//!   stores of one word in it; `two_lines_round_trip`: the same with a line for each direction; `bare_meeting`: a
//!   barrier of two ([`crate::lines`]).
//! - `yield_turn`: the time that a process which yields its core waits for its next turn, with 4 processes on that core
//!   that all yield. It bounds every call in which all ranks take part if 4 ranks share a core and switch in this way.
//! - `memcpy`: libc's copy from private memory to a shared mapping, always between the same two buffers, so that they
//!   are as warm as possible.
//! - `atomic`: an addition to a word in a shared mapping that only one process uses.
//!
//! The ranks measure the bound of a target again, alternating with the operation that it bounds (`crate::measure`):
//! round trips of lines with the active message, a line one way and a bare meeting with the barrier, a memcpy to the
//! window's memory with each put.
//!
//! Every figure is the median of 15 blocks; a block of the ping-pong is 5000 round trips, one of the others the number
//! of calls that fills about a millisecond.

pub(crate) mod perftest;
pub(crate) mod queue_pair;
mod raw;
pub(crate) mod sockets;

use std::collections::BTreeMap;

use farside_core::error::{Error, ErrorKind, Result};

use crate::lines::Pattern;
use crate::options::over_verbs;
use crate::record::{Key, Library, Op, Record, Suite, Sync};

/// The number of blocks for each figure.
const BLOCKS: usize = 15;
/// The number of round trips in a block of the ping-pong.
const ROUND_TRIPS: u64 = 5000;
/// Yields in a block of `yield_turn`, and the number of blocks.
const YIELDS: (u64, usize) = (2000, 3);
/// Maximum length of a measured copy.
const COPY_BYTES_MAX: u64 = 1 << 30;

/// Measures the floors of the device that the ranks use: [`perftest`]'s over verbs.
///
/// # Errors
/// Those of [`measure`], or over verbs of [`perftest::measure`].
pub(crate) fn measure_here(sizes: &[u64]) -> Result<(Vec<Record>, Option<Error>)> {
    if over_verbs() { perftest::measure(sizes) } else { measure(sizes) }
}

/// Measures all floors, with a copy of each of `sizes` bytes. Takes about a tenth of a second and 20 ms per size.
///
/// If a limit cannot be measured here (lines between cores if there is only one core), its error is returned together
/// with the records.
///
/// # Errors
/// [`ErrorKind::BadArgument`] for a size of 0 or above 1 GiB, [`ErrorKind::System`] without memory.
pub(crate) fn measure(sizes: &[u64]) -> Result<(Vec<Record>, Option<Error>)> {
    let (mut records, mut failed) = (Vec::new(), None);
    let mut add = |op, bytes, ranks, iterations, blocks_us: &[f64]| -> Result<()> {
        records.push(record(op, bytes, ranks, iterations, blocks_us)?);
        Ok(())
    };
    let all = ROUND_TRIPS * BLOCKS as u64;
    for (op, pattern) in [
        (Op::TwoLinesRoundTrip, Pattern::TwoLines),
        (Op::LineRoundTrip, Pattern::RoundTrip),
        (Op::BareMeeting, Pattern::Meeting),
    ] {
        match raw::between_cores(pattern, ROUND_TRIPS, BLOCKS) {
            Ok(blocks_us) => {
                add(op, 64, 2, all, &blocks_us)?;
                if op == Op::LineRoundTrip {
                    let halves: Vec<f64> = blocks_us.iter().map(|us| us / 2.0).collect();
                    add(Op::LineOneWay, 64, 2, all, &halves)?;
                }
            }
            Err(error) => failed = Some(error),
        }
    }
    add(Op::YieldTurn, 0, 4, YIELDS.0 * YIELDS.1 as u64, &raw::yield_turn(4, YIELDS.0, YIELDS.1)?)?;
    let (iterations, blocks_us) = raw::atomic(BLOCKS)?;
    add(Op::Atomic, 8, 1, iterations, &blocks_us)?;
    for &bytes in sizes {
        if !(1..=COPY_BYTES_MAX).contains(&bytes) {
            let cause = format!("the size must be from 1 B to 1 GiB, not {bytes} bytes");
            return Err(Error::new(ErrorKind::BadArgument, "measure memcpy").cause(cause));
        }
        let (iterations, blocks_us) = raw::memcpy(bytes as usize, BLOCKS)?;
        add(Op::Memcpy, bytes, 1, iterations, &blocks_us)?;
    }
    Ok((records, failed))
}

fn record(op: Op, bytes: u64, ranks: u32, iterations: u64, blocks_us: &[f64]) -> Result<Record> {
    let key = Key { suite: Suite::Limit, op, bytes, ranks, ..Key::default() };
    Record::from_blocks(Library::Limit, key, iterations, blocks_us)
}

/// The floors, and from them the limit of each measurement.
#[derive(Clone, Debug)]
pub(crate) struct Floors {
    us: BTreeMap<(Op, u64), f64>,
    cores: usize,
}

impl Floors {
    /// The floors among `records`, as [`measure`] writes them; records of libraries are ignored. `cores` as in
    /// [`crate::machine::Machine`].
    pub(crate) fn from_records(records: &[Record], cores: usize) -> Self {
        let limits = records.iter().filter(|record| record.library == Library::Limit);
        Self { us: limits.map(|record| ((record.key.op, record.key.bytes), record.us_median)).collect(), cores }
    }

    /// A lower bound in microseconds for the measurement `key`: its unavoidable parts, each at its floor. `None` if a
    /// part was not measured, or if ranks wait for each other over mapped memory and outnumber the cores, since the
    /// time then depends on the scheduler.
    ///
    /// | measurement | parts over mapped memory | parts over RDMA ([`perftest`]) |
    /// |---|---|---|
    /// | put, get, each of a burst; loops by size | copy | a write and its completion; a read; a write of many |
    /// | fetch-op, compare-and-swap, accumulate | atomic | an atomic |
    /// | fence, PSCW | copy, one line one way (half of the there-and-back) | a write one way |
    /// | lock | copy, two atomics | exclusive: an atomic; a write and its completion, with the unlock in the same list |
    /// | round trip of a message | one line there and back | a write one way, twice |
    /// | barrier of P | one line one way, in each of ceil(log2 P) rounds | a write one way in each |
    /// | ghost areas | four copies, one line one way; with locks, four copies and eight atomics | |
    pub(crate) fn of(&self, key: &Key) -> Option<f64> {
        use Op::{Accumulate, Cas, FetchOp, Get, LineOneWay, LineRoundTrip, Memcpy, Put, PutBandwidth};
        use Op::{RawAtomic, RawRead, RawWrite, RawWriteBandwidth, RawWriteDone};
        let floor = |op, bytes| self.us.get(&(op, bytes)).copied();
        let waiting = |op| floor(op, 64).filter(|_| key.ranks as usize <= self.cores);
        let sum = |parts: &[(f64, Option<f64>)]| parts.iter().map(|(times, us)| Some(times * (*us)?)).sum();
        let (copy, atomic) = (floor(Memcpy, key.bytes), floor(Op::Atomic, 8));
        let rounds = f64::from(key.ranks.max(1).next_power_of_two().ilog2());
        let passive = matches!(key.sync, Sync::Lock | Sync::LockExclusive);
        let rdma = self.us.contains_key(&(RawRead, 8));
        match (key.suite, key.op) {
            (Suite::Limit, op) => floor(op, key.bytes),
            (_, FetchOp | Cas | Accumulate) if rdma => floor(RawAtomic, 8),
            (Suite::Op, Put) if rdma => floor(RawWriteDone, key.bytes),
            (Suite::Op, Get) if rdma => floor(RawRead, key.bytes),
            (Suite::Op, PutBandwidth) if rdma => floor(RawWriteBandwidth, key.bytes),
            (Suite::Epoch, _) if rdma && !passive => floor(RawWrite, key.bytes),
            (Suite::Epoch, _) if rdma && key.sync == Sync::LockExclusive => {
                sum(&[(1.0, floor(RawAtomic, 8)), (1.0, floor(RawWriteDone, key.bytes))])
            }
            (Suite::Am, _) if rdma => sum(&[(2.0, floor(RawWrite, 8))]),
            (Suite::Barrier, _) if rdma => sum(&[(rounds, floor(RawWrite, 8))]),
            _ if rdma => None,
            (_, FetchOp | Cas | Accumulate) => atomic,
            (Suite::Op | Suite::Loops, _) => copy,
            (Suite::Epoch, _) if passive => sum(&[(1.0, copy), (2.0, atomic)]),
            (Suite::Epoch, _) => sum(&[(1.0, copy), (1.0, waiting(LineOneWay))]),
            (Suite::Ghost, _) if passive => sum(&[(4.0, copy), (8.0, atomic)]),
            (Suite::Ghost, _) => sum(&[(4.0, copy), (1.0, waiting(LineOneWay))]),
            (Suite::Am, _) => waiting(LineRoundTrip),
            (Suite::Barrier, _) => sum(&[(rounds, waiting(LineOneWay))]),
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
        let count = |op| records.iter().filter(|record| record.key.op == op).count();
        assert_eq!((count(Op::Memcpy), count(Op::Atomic)), (2, 1));
        // On a busy machine some of the patterns between cores may fail.
        let lines = count(Op::LineRoundTrip);
        assert!(lines == 1 || lines == 0 && failed.is_some(), "{lines} lines, {failed:?}");
        assert_eq!(count(Op::LineOneWay), lines);
        for record in &records {
            assert_eq!(Record::parse(&record.line()).unwrap().key, record.key);
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
        let of = |suite, sync, op, bytes, ranks| floors.of(&Key { suite, sync, op, bytes, ranks, ..Key::default() });
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
