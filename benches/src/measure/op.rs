//! Suite "op": single operations and their completion inside one lock_all epoch, by the even rank of every pair, while
//! the odd rank waits in a barrier. A put to mapped memory alternates with a memcpy between the same addresses; over
//! verbs puts and gets of a word or of many bytes, and a fetch-add, alternate with operations of a bare queue pair.

use farside_core::error::Result;
use farside_rma::Assert;

use super::limits::BareQueuePair;
use super::turns::{Run, Way};
use super::untyped::Untyped;
use super::{Bench, Method};
use crate::by_hand::{LoopLayout, copies};
use crate::record::{Key, Library, Op, Shape, Suite, Sync, Window};

/// The number of operations before one flush, in measurements of bandwidth.
const BURST: u32 = 64;
/// Bytes of a word.
const WORD: usize = 8;
/// Operations of at least this size take a time that depends on the number of bytes alone.
const LONG_BYTES: usize = 1 << 20;

/// Measures all operations on a window of this kind. Collective.
pub(super) fn run(bench: &Bench<'_>, window: Window, sizes: &[u64]) -> Result<()> {
    let largest = sizes.last().copied().unwrap_or(0) as usize;
    let pair = Untyped::new(&bench.team, window, largest)?;
    pair.raw().lock_all(Assert::empty())?;
    let (origin, target) = (bench.is_origin(), bench.partner());
    let bare = BareQueuePair::open(bench, largest)?;
    let key = |op, bytes| bench.key(Suite::Op, window, Sync::Flush, op, bytes);
    // Only the origin's time counts.
    let measure = |key: Key, per_iteration, bare: Option<&BareQueuePair>, run: Run<'_>| match bare {
        Some(bare) => bare.time_with_bare_requests(bench, key, per_iteration, run),
        None => bench.time_single(key, per_iteration, origin, &mut |n| if origin { run(n) } else { Ok(()) }),
    };
    for bytes in sizes.iter().map(|bytes| *bytes as usize) {
        check_put_get(bench, &pair, key(Op::Put, bytes))?;
        let bare = bare.as_ref().filter(|_| bytes == WORD || bytes >= LONG_BYTES);
        for (op, count) in [(Op::Put, 1), (Op::Get, 1), (Op::PutBandwidth, BURST), (Op::GetBandwidth, BURST)] {
            if count > 1 && bench.budget.method == Method::Packets {
                // Packets are counted for single operations, so bursts are skipped.
                continue;
            }
            let (put, get) = (|| pair.put(0, bytes, target, 0), || pair.get(bytes, target));
            let mut put_one = |n| flushed(&pair, target, n, put);
            let mut get_one = |n| flushed(&pair, target, n, get);
            let mut put_burst = |n| flushed(&pair, target, n, || (0..BURST).try_for_each(|_| put()));
            let mut get_burst = |n| flushed(&pair, target, n, || (0..BURST).try_for_each(|_| get()));
            let run: Run<'_> = match op {
                Op::Put => &mut put_one,
                Op::Get => &mut get_one,
                Op::PutBandwidth => &mut put_burst,
                _ => &mut get_burst,
            };
            if op == Op::Put && bench.budget.method == Method::Blocks && pair.is_mapped(target)? {
                alternately_with_copy(bench, &pair, key(op, bytes), run)?;
            } else {
                measure(key(op, bytes), count, bare, run)?;
            }
        }
    }
    for key in [Op::FetchOp, Op::Cas, Op::Accumulate].map(|op| key(op, WORD)) {
        let mut compare = 0;
        let mut run = |iterations| {
            let failures = atomics(&pair, key.op, target, iterations, &mut compare)?;
            bench.check(failures == 0, key, "a swap found a value that was never stored")
        };
        check_atomic(bench, &pair, key, &mut run)?;
        measure(key, 1, bare.as_ref().filter(|_| key.op == Op::FetchOp), &mut run)?;
    }
    pair.raw().unlock_all()?;
    pair.free()
}

/// Repeats operations and a flush. Compiled for each operation: a call through a pointer, or a loop of one iteration,
/// takes as long as half a put of a word.
#[inline(always)]
fn flushed(pair: &Untyped, target: usize, iterations: u64, operations: impl Fn() -> Result<()>) -> Result<()> {
    for _ in 0..iterations {
        operations()?;
        pair.raw().flush(target)?;
    }
    Ok(())
}

/// Measures `put`, alternating with libc's memcpy.
fn alternately_with_copy(bench: &Bench<'_>, pair: &Untyped, key: Key, put: Run<'_>) -> Result<()> {
    let (origin, bytes) = (bench.is_origin(), key.bytes as usize);
    let (layout, [memcpy, _]) = (LoopLayout::of_one_block(bytes), copies(Shape::None));
    let mut put = |iterations| if origin { put(iterations) } else { Ok(()) };
    let mut copy = |iterations| {
        let mine = if origin { 0..iterations } else { 0..0 };
        mine.into_iter().try_for_each(|_| pair.put_by_hand(&layout, memcpy, bytes, bench.partner()).map(|_| ()))
    };
    let mut ways = [Way::of(Library::Farside, &mut put), Way::of(Library::Limit, &mut copy)];
    bench.time_alternating(key, origin, &mut ways).map(|_| ())
}

/// Iterations of an atomic operation and its flush. Every swap should succeed: it expects the result of the previous
/// one, which is in `compare`; returns the number that failed.
fn atomics(pair: &Untyped, op: Op, target: usize, iterations: u64, compare: &mut u64) -> Result<u64> {
    let mut failures = 0;
    for _ in 0..iterations {
        match op {
            Op::FetchOp => pair.fetch_add(1, target)?,
            Op::Cas => pair.compare_and_swap(*compare, *compare + 1, target)?,
            _ => pair.add(1, target)?,
        }
        pair.raw().flush(target)?;
        if op == Op::Cas {
            failures += u64::from(pair.result() != *compare);
            *compare += 1;
        }
    }
    Ok(failures)
}

/// Puts a pattern, clears the buffer and gets the data again: both directions must transfer every byte.
fn check_put_get(bench: &Bench<'_>, pair: &Untyped, key: Key) -> Result<()> {
    if bench.is_origin() {
        let (target, bytes) = (bench.partner(), key.bytes as usize);
        let marked: Vec<u8> = (0..bytes).map(|i| (i * 5 + i / 253 + target + bytes) as u8).collect();
        pair.put_whole(&marked, target)?;
        bench.check(pair.get_whole(bytes, target)? == marked, key, "the data read by get differ from the data put")?;
    }
    bench.team.barrier()
}

/// Updates a cleared word three times: the target must then hold exactly three.
fn check_atomic(bench: &Bench<'_>, pair: &Untyped, key: Key, run: Run<'_>) -> Result<()> {
    if bench.is_origin() {
        let target = bench.partner();
        pair.put_whole(&[0; WORD], target)?;
        run(3)?;
        let holds = pair.get_whole(WORD, target)? == 3u64.to_ne_bytes();
        bench.check(holds, key, "three increments did not add up to 3")?;
    }
    bench.team.barrier()
}
