//! Suite "put": puts from a layout of the origin to the same layout of the target, and their completion inside one
//! lock_all epoch, by rank 0 of two, while rank 1 waits in a barrier. If the target's memory is mapped, hand-written
//! copies between the same addresses and a memcpy of the same number of bytes are measured too.
//!
//! Also an exchange of columns: every rank puts columns to every rank, itself included: its k-th group of columns
//! becomes, at rank k, the group with this rank's number. Between two fences of a chain.

use farside_core::error::{Error, ErrorKind, Result};
use farside_rma::Assert;

use super::Bench;
use super::turns::{Run, Way};
use super::untyped::Untyped;
use crate::by_hand::{HandCopy, LoopLayout, copies};
use crate::record::{Key, Library, Op, Shape, Suite, Sync, Window};
use crate::shapes::{Case, columns_bytes, is_exchanged, put_ops};

/// The number of puts before one flush, in measurements of bandwidth.
const BURST: u32 = 16;
/// Page size: windows are rounded up to whole pages, so that no other data shares their mapping.
const PAGE: usize = 4096;

/// Measures puts of all messages on a window of this kind, if there are two ranks, and exchanges of those messages that
/// are columns and few enough. Collective.
pub(super) fn run(bench: &Bench<'_>, window: Window, layouts: &[(Shape, u64)]) -> Result<()> {
    let cases = layouts.iter().map(|&(shape, bytes)| Case::new(shape, bytes)).collect::<Result<Vec<_>>>()?;
    if bench.ranks == 2 {
        let pair = open(bench, window, cases.iter().map(Case::room).max().unwrap_or(0))?;
        pair.raw().lock_all(Assert::empty())?;
        for case in &cases {
            let key = bench.key(Suite::Put, window, Sync::Flush, Op::Put, case.bytes as usize);
            let key = Key { shape: case.shape, ..key };
            check_put(bench, &pair, case, key)?;
            puts(bench, &pair, case, key)?;
        }
        pair.raw().unlock_all()?;
        pair.free()?;
    }
    for case in cases.iter().filter(|case| is_exchanged(case.shape, case.bytes, bench.ranks as u32)) {
        // In the last rank's part, the layout starts behind the columns of all others.
        let step = columns_bytes(case.shape, case.bytes);
        let room = case.room() + (bench.ranks - 1) * step;
        let pair = open(bench, window, room)?;
        let mut exchange = |iterations: u64| {
            for _ in 0..iterations {
                for to in 0..bench.ranks {
                    pair.put_typed(to * step, &case.map, to, bench.rank * step)?;
                }
                pair.raw().fence(Assert::empty())?;
            }
            Ok(())
        };
        let key = bench.key(Suite::Put, window, Sync::Fence, Op::Alltoall, case.bytes as usize);
        let key = Key { shape: case.shape, ..key };
        check_exchange(bench, &pair, case, key, &mut exchange)?;
        pair.raw().fence(Assert::NOPRECEDE)?;
        bench.time_single(key, 1, true, &mut exchange)?;
        pair.free()?;
    }
    Ok(())
}

/// A window of at least `room` bytes, in whole pages.
fn open(bench: &Bench<'_>, window: Window, room: usize) -> Result<Untyped> {
    let pair = Untyped::new(&bench.team, window, room.next_multiple_of(PAGE))?;
    if window == Window::Unmapped && pair.is_mapped(bench.partner())? {
        return Err(Error::new(ErrorKind::BadArgument, "measure puts to memory that is not mapped")
            .cause("the window's memory is mapped")
            .remedy("set FARSIDE_SHM_USER_MEMORY=vm"));
    }
    Ok(pair)
}

fn puts(bench: &Bench<'_>, pair: &Untyped, case: &Case, key: Key) -> Result<()> {
    let Case { shape, bytes, ref map, ref layout } = *case;
    let (target, origin, room) = (bench.partner(), bench.is_origin(), case.room());
    // Only rank 0 puts; rank 1 waits.
    let mine = |iterations: u64| if origin { 0..iterations } else { 0..0 };
    let put = || match shape {
        Shape::None => pair.put(0, room, target, 0),
        _ => pair.put_typed(0, map, target, 0),
    };
    let flushed = |puts: u32, iterations: u64| -> Result<()> {
        for _ in mine(iterations) {
            (0..puts).try_for_each(|_| put())?;
            pair.raw().flush(target)?;
        }
        Ok(())
    };
    let by_hand = |by: HandCopy, layout: &LoopLayout, room: usize, iterations: u64| -> Result<()> {
        mine(iterations).try_for_each(|_| pair.put_by_hand(layout, by, room, target).map(|_| ()))
    };
    let (mut one, mut burst) = (|n| flushed(1, n), |n| flushed(BURST, n));
    // Without gaps the hand-written copy is one memcpy.
    let (flat, [memcpy, _]) = (LoopLayout::of_one_block(bytes as usize), copies(Shape::None));
    let [rows, ints] = copies(shape);
    let (mut rows, mut ints) = (|n| by_hand(rows, layout, room, n), |n| by_hand(ints, layout, room, n));
    let mut memcpy = |n| by_hand(memcpy, &flat, bytes as usize, n);
    let mut ways = vec![Way::of(Library::Farside, &mut one)];
    if pair.is_mapped(target)? {
        ways.push(Way::of(Library::Limit, &mut memcpy));
        if shape != Shape::None {
            ways.extend([Way::of(Library::Loop, &mut rows), Way::of(Library::Loop, &mut ints)]);
        }
    }
    let iterations = bench.time_alternating(key, origin, &mut ways)?;
    if put_ops(shape).contains(&Op::PutBandwidth) {
        bench.time_single(Key { op: Op::PutBandwidth, ..key }, BURST, origin, &mut burst)?;
        bench.processors(key, iterations, &mut one)?;
    }
    Ok(())
}

/// The values that `rank` sends.
fn pattern_of(rank: usize, room: usize) -> Vec<u8> {
    (0..room).map(|i| (i * 5 + i / 253 + 31 * rank + 1) as u8).collect()
}

/// Puts a marked message to cleared memory, with Farside and by hand, and gets all of that memory back: the message
/// must be at the positions of its layout, and no other byte may have changed.
fn check_put(bench: &Bench<'_>, pair: &Untyped, case: &Case, key: Key) -> Result<()> {
    let (target, room) = (bench.partner(), case.room());
    let (marked, mut wanted) = (pattern_of(case.bytes as usize, room), vec![0; room]);
    for (at, len) in case.map.blocks(0) {
        let part = at as usize..at as usize + len as usize;
        wanted[part.clone()].copy_from_slice(&marked[part]);
    }
    let by_hand = copies(case.shape);
    for way in 0..if bench.is_origin() { 1 + by_hand.len() } else { 0 } {
        pair.put_whole(&vec![0; room], target)?;
        pair.set_origin(&marked)?;
        let put = match way.checked_sub(1) {
            None => pair.put_typed(0, &case.map, target, 0).map(|()| true),
            Some(way) => pair.put_by_hand(&case.layout, by_hand[way], room, target),
        }?;
        pair.raw().flush(target)?;
        let holds = pair.get_whole(room, target)? == wanted;
        bench.check(!put || holds, key, "the data read by get differ from the data put")?;
    }
    bench.team.barrier()
}

/// Makes one exchange of marked messages: all columns must be at their positions, and no other byte may have changed.
fn check_exchange(bench: &Bench<'_>, pair: &Untyped, case: &Case, key: Key, exchange: Run<'_>) -> Result<()> {
    let step = columns_bytes(case.shape, case.bytes);
    let room = case.room() + (bench.ranks - 1) * step;
    pair.set_origin(&pattern_of(bench.rank, room))?;
    pair.fill_local(0, room)?;
    bench.team.barrier()?;
    pair.raw().fence(Assert::NOPRECEDE)?;
    exchange(1)?;
    let mut wanted = vec![0; room];
    for from in 0..bench.ranks {
        let theirs = pattern_of(from, room);
        for (at, len) in case.map.blocks(0) {
            let (to, from, len) = (at as usize + from * step, at as usize + bench.rank * step, len as usize);
            wanted[to..to + len].copy_from_slice(&theirs[from..from + len]);
        }
    }
    bench.check(pair.local(room)? == wanted, key, "columns are at wrong positions in the target")?;
    bench.team.barrier()
}
