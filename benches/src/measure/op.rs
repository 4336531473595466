//! Suite "op": single operations and their completion inside one lock_all epoch, by the even rank of every pair, while
//! the odd rank waits in a barrier. A put to mapped memory is measured in turns with a memcpy from the same memory to the same,
//! and over verbs puts and gets of a word or of many bytes, and a fetch-add, in turns with those of a bare queue pair.

use farside_core::error::Result;
use farside_rma::Assert;

use super::raw::Raw;
use super::turns::Way;
use super::untyped::Untyped;
use super::{Bench, Method, What};
use crate::by_hand::{Facts, copies};
use crate::record::{Library, Op, Shape, Suite, Sync, Window};

/// Operations before one flush, where bandwidth is measured.
const BURST: u32 = 64;
/// Bytes of a word.
pub(super) const WORD: usize = 8;
/// From here on the time is that of the bytes alone.
const LONG: usize = 1 << 20;

/// Measures all operations on a window of this kind. Collective.
pub(super) fn run(bench: &Bench<'_>, window: Window, sizes: &[u64]) -> Result<()> {
    let largest = sizes.last().copied().unwrap_or(0) as usize;
    let pair = Untyped::new(&bench.team, window, largest)?;
    pair.raw().lock_all(Assert::empty())?;
    let target = bench.partner();
    let raw = Raw::open(bench, largest)?;
    let what =
        |op, bytes, per_iteration| What { suite: Suite::Op, window, sync: Sync::Flush, op, bytes, per_iteration };
    for &bytes in sizes {
        let bytes = bytes as usize;
        check_put_get(bench, &pair, bytes)?;
        let bare = raw.as_ref().filter(|_| bytes == WORD || bytes >= LONG);
        let origins = |op, per_iteration, body: &mut dyn FnMut(u64) -> Result<()>| {
            let what = what(op, bytes, per_iteration);
            if let Some(raw) = bare {
                return raw.beside(bench, what, body);
            }
            bench.measure(&what, bench.is_origin(), &mut |iterations| {
                if bench.is_origin() { body(iterations) } else { Ok(()) }
            })
        };
        let mut put = |iterations| {
            for _ in 0..iterations {
                pair.put(0, bytes, target, 0)?;
                pair.raw().flush(target)?;
            }
            Ok(())
        };
        if bench.budget.method == Method::Blocks && pair.is_mapped(target)? {
            beside_a_copy(bench, &pair, what(Op::Put, bytes, 1), &mut put)?;
        } else {
            origins(Op::Put, 1, &mut put)?;
        }
        origins(Op::Get, 1, &mut |iterations| {
            for _ in 0..iterations {
                pair.get(bytes, target)?;
                pair.raw().flush(target)?;
            }
            Ok(())
        })?;
        if bench.budget.method == Method::Packets {
            // Those of a burst are those of its parts.
            continue;
        }
        origins(Op::PutBandwidth, BURST, &mut |iterations| {
            for _ in 0..iterations {
                for _ in 0..BURST {
                    pair.put(0, bytes, target, 0)?;
                }
                pair.raw().flush(target)?;
            }
            Ok(())
        })?;
        origins(Op::GetBandwidth, BURST, &mut |iterations| {
            for _ in 0..iterations {
                for _ in 0..BURST {
                    pair.get(bytes, target)?;
                }
                pair.raw().flush(target)?;
            }
            Ok(())
        })?;
    }
    for op in [Op::FetchOp, Op::Cas, Op::Accumulate] {
        let mut compare = 0;
        let failed = check_atomic(bench, &pair, op, &mut compare)?;
        let what = what(op, WORD, 1);
        let mut run = |iterations| {
            let failures = atomics(&pair, op, target, iterations, &mut compare)?;
            bench.check(failures == 0, Suite::Op, Sync::Flush, op, "a swap found a value that nobody stored")
        };
        match &raw {
            Some(raw) if op == Op::FetchOp => raw.beside(bench, what, &mut run)?,
            _ => bench.measure(&what, bench.is_origin(), &mut |iterations| {
                if bench.is_origin() { run(iterations) } else { Ok(()) }
            })?,
        }
        bench.check(failed == 0, Suite::Op, Sync::Flush, op, "a swap found a value that nobody stored")?;
    }
    pair.raw().unlock_all()?;
    pair.free()
}

/// Measures `put`, and libc's copy in its place.
fn beside_a_copy(bench: &Bench<'_>, pair: &Untyped, what: What, put: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
    let (origin, facts) = (bench.is_origin(), Facts::of_one_block(what.bytes));
    let [memcpy, _] = copies(Shape::None);
    let mut put = |iterations| if origin { put(iterations) } else { Ok(()) };
    let mut copy = |iterations| {
        let mine = if origin { 0..iterations } else { 0..0 };
        mine.into_iter().try_for_each(|_| pair.put_by_hand(&facts, memcpy, what.bytes, bench.partner()).map(|_| ()))
    };
    let mut ways = [Way::of(Library::Farside, &mut put), Way::of(Library::Limit, &mut copy)];
    bench.turns(what.key(bench.ranks), origin, &mut ways).map(|_| ())
}

/// Iterations of an atomic operation and its flush. Every swap succeeds: it expects what the one before has left, which
/// is in `compare`; returns how many did not.
fn atomics(pair: &Untyped, op: Op, target: usize, iterations: u64, compare: &mut u64) -> Result<u64> {
    let mut failures = 0;
    match op {
        Op::FetchOp => {
            for _ in 0..iterations {
                pair.fetch_add(1, target)?;
                pair.raw().flush(target)?;
            }
        }
        Op::Cas => {
            for _ in 0..iterations {
                pair.compare_and_swap(*compare, *compare + 1, target)?;
                pair.raw().flush(target)?;
                failures += u64::from(pair.result() != *compare);
                *compare += 1;
            }
        }
        _ => {
            for _ in 0..iterations {
                pair.add(1, target)?;
                pair.raw().flush(target)?;
            }
        }
    }
    Ok(failures)
}

/// Puts a marked buffer, clears it and gets it back: both directions must bring every byte.
fn check_put_get(bench: &Bench<'_>, pair: &Untyped, bytes: usize) -> Result<()> {
    if bench.is_origin() {
        let target = bench.partner();
        let marked: Vec<u8> = (0..bytes).map(|i| (i * 5 + i / 253 + target + bytes) as u8).collect();
        pair.set_origin(&marked)?;
        pair.put(0, bytes, target, 0)?;
        pair.raw().flush(target)?;
        pair.set_origin(&vec![0; bytes])?;
        pair.get(bytes, target)?;
        pair.raw().flush(target)?;
        let holds = pair.origin(bytes)? == marked;
        bench.check(holds, Suite::Op, Sync::Flush, Op::Put, "what came back by get is not what was put")?;
    }
    bench.team.barrier()
}

/// Three updates of a cleared word: the target must then hold exactly three.
fn check_atomic(bench: &Bench<'_>, pair: &Untyped, op: Op, compare: &mut u64) -> Result<u64> {
    let mut failures = 0;
    if bench.is_origin() {
        let target = bench.partner();
        pair.set_origin(&[0; 8])?;
        pair.put(0, 8, target, 0)?;
        pair.raw().flush(target)?;
        failures = atomics(pair, op, target, 3, compare)?;
        pair.set_origin(&[0xff; 8])?;
        pair.get(8, target)?;
        pair.raw().flush(target)?;
        let holds = pair.origin(8)? == 3u64.to_ne_bytes();
        bench.check(holds, Suite::Op, Sync::Flush, op, "three updates did not make three")?;
    }
    bench.team.barrier()?;
    Ok(failures)
}
