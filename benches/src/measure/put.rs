//! Suite "put": puts from a layout of the origin to the same layout of the target, and their completion inside one lock_all
//! epoch, by rank 0 of two, while rank 1 waits in a barrier. Beside them, where the target's memory is mapped, copies by
//! hand from the same memory to the same memory, and a memcpy of as many bytes.

use farside_core::error::{Error, ErrorKind, Result};
use farside_rma::Assert;

use super::Bench;
use super::turns::Way;
use super::untyped::Untyped;
use crate::by_hand::{Facts, HandCopy, copies};
use crate::record::{Key, Library, Op, Shape, Suite, Sync, Window};
use crate::shapes::{Case, put_ops};

/// Puts before one flush, where bandwidth is measured.
const BURST: u32 = 16;
/// Windows are whole pages: what is beside them is mapped nowhere.
const PAGE: usize = 4096;

/// Measures puts of all messages on a window of this kind; nothing unless there are two ranks. Collective.
pub(super) fn run(bench: &Bench<'_>, window: Window, layouts: &[(Shape, u64)]) -> Result<()> {
    if bench.ranks != 2 {
        return Ok(());
    }
    let cases = layouts.iter().map(|&(shape, bytes)| Case::new(shape, bytes)).collect::<Result<Vec<_>>>()?;
    let pair = open(bench, window, cases.iter().map(|case| case.map.true_ub() as usize).max().unwrap_or(0))?;
    pair.raw().lock_all(Assert::empty())?;
    for case in &cases {
        check(bench, &pair, case)?;
        measure(bench, &pair, window, case)?;
    }
    pair.raw().unlock_all()?;
    pair.free()
}

/// A window of so many bytes, in whole pages.
pub(super) fn open(bench: &Bench<'_>, window: Window, room: usize) -> Result<Untyped> {
    let pair = Untyped::new(&bench.team, window, room.next_multiple_of(PAGE))?;
    if window == Window::Unmapped && pair.is_mapped(bench.partner())? {
        return Err(Error::new(ErrorKind::BadArgument, "measure puts to memory that is not mapped")
            .cause("it is mapped")
            .remedy("FARSIDE_SHM_USER_MEMORY=vm"));
    }
    Ok(pair)
}

fn measure(bench: &Bench<'_>, pair: &Untyped, window: Window, case: &Case) -> Result<()> {
    let Case { shape, bytes, ref map, ref facts } = *case;
    let (target, origin, room) = (bench.partner(), bench.is_origin(), map.true_ub() as usize);
    let key = |op| Key { suite: Suite::Put, window, sync: Sync::Flush, op, shape, bytes, ranks: 2 };
    // Rank 1 only waits.
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
    let by_hand = |by: HandCopy, facts: &Facts, room: usize, iterations: u64| -> Result<()> {
        mine(iterations).try_for_each(|_| pair.put_by_hand(facts, by, room, target).map(|_| ()))
    };
    let (mut one, mut burst) = (|n| flushed(1, n), |n| flushed(BURST, n));
    // Without gaps, rows are one memcpy.
    let flat = Case::new(Shape::None, bytes)?;
    let ([rows, ints], [memcpy, _]) = (copies(shape), copies(Shape::None));
    let (mut rows, mut ints) = (|n| by_hand(rows, facts, room, n), |n| by_hand(ints, facts, room, n));
    let mut memcpy = |n| by_hand(memcpy, &flat.facts, bytes as usize, n);
    let mut ways = vec![Way::of(Library::Farside, &mut one)];
    if pair.is_mapped(target)? {
        ways.push(Way::of(Library::Limit, &mut memcpy));
        if shape != Shape::None {
            ways.push(Way::of(Library::Loop, &mut rows));
            ways.push(Way::of(Library::Loop, &mut ints));
        }
    }
    let iterations = bench.turns(key(Op::Put), origin, &mut ways)?;
    if put_ops(shape).contains(&Op::PutBandwidth) {
        let mut ways = [Way { per_iteration: BURST, ..Way::of(Library::Farside, &mut burst) }];
        bench.turns(key(Op::PutBandwidth), origin, &mut ways)?;
        bench.processors(key(Op::Put), iterations, &mut one)?;
    }
    Ok(())
}

/// Puts a marked message to cleared memory, by Farside and by hand, and gets all of that back: the message is where its
/// layout says, and nothing else has changed.
fn check(bench: &Bench<'_>, pair: &Untyped, case: &Case) -> Result<()> {
    let (target, room) = (bench.partner(), case.map.true_ub() as usize);
    let marked: Vec<u8> = (0..room).map(|i| (i * 5 + i / 253 + case.bytes as usize + 1) as u8).collect();
    let mut wanted = vec![0; room];
    for (at, len) in case.map.blocks(0) {
        let part = at as usize..at as usize + len as usize;
        wanted[part.clone()].copy_from_slice(&marked[part]);
    }
    let by_hand = copies(case.shape);
    for way in 0..if bench.is_origin() { 1 + by_hand.len() } else { 0 } {
        pair.set_origin(&vec![0; room])?;
        pair.put(0, room, target, 0)?;
        pair.raw().flush(target)?;
        pair.set_origin(&marked)?;
        let put = match way.checked_sub(1) {
            None => pair.put_typed(0, &case.map, target, 0).map(|()| true),
            Some(way) => pair.put_by_hand(&case.facts, by_hand[way], room, target),
        }?;
        pair.raw().flush(target)?;
        pair.set_origin(&vec![0xff; room])?;
        pair.get(room, target)?;
        pair.raw().flush(target)?;
        let holds = !put || pair.origin(room)? == wanted;
        bench.check(holds, Suite::Put, Sync::Flush, Op::Put, "what came back by get is not what was put")?;
    }
    bench.team.barrier()
}
