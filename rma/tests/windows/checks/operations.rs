//! One check for each operation, for any element type and any synchronization.

use farside_rma::{CasElement, Op, Result, Team};

use super::config::{self, Config};
use super::sync::{Sync, Win};
use super::values::{Value, initial, written};

/// The number of elements that one origin owns at every target: whole pages of all types for a few ranks together.
pub(crate) const PART: usize = 1201;

/// Lengths whose sum is a part: single elements, lengths below and above that of one request, and bulk.
const PIECES: &[usize] = &[1, 2, 3, 1, 5, 24, 1, 64, 1, 1099];

/// The pieces of a part of `part` elements, as start and length.
fn pieces(part: usize) -> impl Iterator<Item = (usize, usize)> {
    PIECES.iter().scan(0, move |at, len| {
        let start = *at;
        *at += len;
        Some((start, (*len).min(part - start)))
    })
}

/// Number of elements that are accumulated. It is smaller in a quick run over verbs, where each element is a message,
/// but exceeds the 256 messages that may be in progress there.
fn accumulated() -> usize {
    if config::verbs() && config::quick() { PART - 800 } else { PART }
}

fn fill<T: Value>(win: &mut Win<T>) -> Result<()> {
    let me = win.team().rank();
    win.local(|l| l.iter_mut().enumerate().for_each(|(i, x)| *x = initial(me, i)))
}

/// Every origin puts its part to every target, in pieces: twice, so that late operations are detected.
pub(crate) fn put<T: Value>(team: &Team, config: &Config, sync: Sync) -> Result<()> {
    let (p, me) = (team.size(), team.rank());
    let mut win = Win::<T>::new(team, config, sync, p * PART)?;
    for round in 0..2 {
        let data: Vec<Vec<T>> = (0..p).map(|t| (0..PART).map(|i| written(me + round, t, i)).collect()).collect();
        win.epoch(sync, |e, targets| {
            for t in targets {
                pieces(PART).try_for_each(|(at, len)| e.put(&data[*t][at..at + len], *t, me * PART + at))?;
            }
            Ok(())
        })?;
        win.local(|l| {
            for (i, x) in l.iter().enumerate() {
                assert_eq!(*x, written(i / PART + round, me, i % PART), "element {i} of rank {me}, round {round}");
            }
        })?;
    }
    win.free()
}

/// Every origin puts its part to every target, value by value, from both ends of the part.
pub(crate) fn put_value<T: Value>(team: &Team, config: &Config, sync: Sync) -> Result<()> {
    const AT_EITHER_END: usize = 9;
    let (p, me) = (team.size(), team.rank());
    let mut win = Win::<T>::new(team, config, sync, p * PART)?;
    fill(&mut win)?;
    for round in 1..3 {
        win.epoch(sync, |e, targets| {
            for t in targets {
                for i in (0..AT_EITHER_END).chain(PART - AT_EITHER_END..PART) {
                    e.put_value(written(me + round, *t, i), *t, me * PART + i)?;
                }
            }
            Ok(())
        })?;
        win.local(|l| {
            for (i, x) in l.iter().enumerate() {
                let (origin, at) = (i / PART, i % PART);
                let untouched = (AT_EITHER_END..PART - AT_EITHER_END).contains(&at);
                let expected: T = if untouched { initial(me, i) } else { written(origin + round, me, at) };
                assert_eq!(*x, expected, "element {i} of rank {me}, round {round}");
            }
        })?;
    }
    win.free()
}

/// Every rank gets all elements of every rank, in pieces.
pub(crate) fn get<T: Value>(team: &Team, config: &Config, sync: Sync) -> Result<()> {
    let p = team.size();
    let mut win = Win::<T>::new(team, config, sync, p * PART)?;
    fill(&mut win)?;
    let mut into = vec![vec![T::of(127); p * PART]; p];
    let mut slots: Vec<Option<&mut [T]>> = into.iter_mut().map(|v| Some(&mut v[..])).collect();
    win.epoch(sync, |e, targets| {
        for t in targets {
            let mut rest = slots[*t].take().unwrap();
            let mut at = 0;
            while !rest.is_empty() {
                for (_, len) in pieces(PART) {
                    let (now, later) = rest.split_at_mut(len);
                    e.get(now, *t, at)?;
                    (rest, at) = (later, at + len);
                }
            }
        }
        Ok(())
    })?;
    for (t, got) in into.iter().enumerate() {
        for (i, x) in got.iter().enumerate() {
            assert_eq!(*x, initial(t, i), "element {i} of rank {t}");
        }
    }
    win.free()
}

/// All ranks add to all elements of all ranks; totals wrap as the type does.
pub(crate) fn accumulate<T: Value>(team: &Team, config: &Config, sync: Sync) -> Result<()> {
    let (p, me, part) = (team.size(), team.rank(), accumulated());
    let mut win = Win::<T>::new(team, config, sync, part)?;
    win.local(|l| l.fill(T::of(2)))?;
    let data: Vec<T> = (0..part).map(|i| T::of((me + 1 + i % 2) as u64)).collect();
    win.epoch(sync, |e, targets| {
        for t in targets {
            pieces(part).try_for_each(|(at, len)| e.accumulate(Op::Sum, &data[at..at + len], *t, at))?;
        }
        Ok(())
    })?;
    win.local(|l| {
        for (i, x) in l.iter().enumerate() {
            let total = 2 + (1..=p).map(|r| (r + i % 2) as u64).sum::<u64>();
            assert_eq!(*x, T::of(total), "element {i} of rank {me}");
        }
    })?;
    win.free()
}

/// All ranks add to all elements of all ranks, and read them concurrently. Each rank uses other pieces: long ones, and
/// short ones with previous values.
pub(crate) fn together<T: Value>(team: &Team, config: &Config, sync: Sync) -> Result<()> {
    let (p, me, part) = (team.size(), team.rank(), accumulated());
    let mut win = Win::<T>::new(team, config, sync, part)?;
    let (one, ones, cut) = (T::of(1), vec![T::of(1); part], 30 + 70 * me);
    let mut read = vec![vec![T::of(127); part + 3]; p];
    let mut slots: Vec<Option<&mut [T]>> = read.iter_mut().map(|v| Some(&mut v[..])).collect();
    let places = [0, part / 2, part - 1];
    win.epoch(sync, |e, targets| {
        for t in targets {
            let (seen, former) = slots[*t].take().unwrap().split_at_mut(part);
            e.accumulate(Op::Sum, &ones[..cut], *t, 0)?;
            e.accumulate(Op::Sum, &ones[cut..], *t, cut)?;
            for (old, at) in former.iter_mut().zip(places) {
                e.fetch_and_op(Op::Sum, &one, old, *t, at)?;
            }
            e.get_accumulate(Op::NoOp, &ones, seen, *t, 0)?;
            e.accumulate(Op::Sum, &ones, *t, 0)?;
        }
        Ok(())
    })?;
    let added = |i: usize| if places.contains(&i) { 3 } else { 2 };
    for (t, values) in read.iter().enumerate() {
        let number = |x: &T| {
            (0..(3 * p) as u64).find(|n| T::of(*n) == *x).expect("a sum that the element has never had") as usize
        };
        let (seen, former) = values.split_at(part);
        for (old, at) in former.iter().zip(places) {
            assert!(number(old) >= 1 && number(&seen[at]) > number(old), "element {at} of rank {t}: {old:?}, {seen:?}");
        }
        for (i, x) in seen.iter().enumerate() {
            assert!((1..p * added(i)).contains(&number(x)), "element {i} of rank {t}: {x:?}");
        }
    }
    win.local(|l| {
        for (i, x) in l.iter().enumerate() {
            assert_eq!(*x, T::of((p * added(i)) as u64), "element {i} of rank {me}");
        }
    })?;
    win.free()
}

/// Every origin adds to its own part and gets the previous values; all origins read one element that no rank writes.
pub(crate) fn get_accumulate<T: Value>(team: &Team, config: &Config, sync: Sync) -> Result<()> {
    let (p, me, part) = (team.size(), team.rank(), accumulated());
    let mut win = Win::<T>::new(team, config, sync, p * part + 1)?;
    win.local(|l| l.iter_mut().enumerate().for_each(|(i, x)| *x = T::of((i % 50) as u64)))?;
    let data: Vec<T> = (0..part).map(|i| T::of((me + 1 + i % 3) as u64)).collect();
    let one = [T::of(1)];
    let mut old = vec![vec![T::of(127); part + 1]; p];
    let mut slots: Vec<Option<&mut [T]>> = old.iter_mut().map(|v| Some(&mut v[..])).collect();
    win.epoch(sync, |e, targets| {
        for t in targets {
            let (mut rest, last) = slots[*t].take().unwrap().split_at_mut(part);
            for (at, len) in pieces(part) {
                let (now, later) = rest.split_at_mut(len);
                e.get_accumulate(Op::Sum, &data[at..at + len], now, *t, me * part + at)?;
                rest = later;
            }
            e.get_accumulate(Op::NoOp, &one, last, *t, p * part)?;
        }
        Ok(())
    })?;
    for (t, old) in old.iter().enumerate() {
        for (i, x) in old.iter().enumerate() {
            let at = if i == part { p * part } else { me * part + i };
            assert_eq!(*x, T::of((at % 50) as u64), "previous element {at} of rank {t}");
        }
    }
    win.local(|l| {
        for (i, x) in l.iter().enumerate() {
            let (origin, at) = (i / part, i % part);
            let added = if origin == p { 0 } else { origin + 1 + at % 3 };
            assert_eq!(*x, T::of((i % 50 + added) as u64), "element {i} of rank {me}");
        }
    })?;
    win.free()
}

/// All ranks draw numbers from one element of each target: each number is drawn exactly once.
pub(crate) fn fetch_and_op<T: Value>(team: &Team, config: &Config, sync: Sync) -> Result<()> {
    const DRAWS: usize = 6;
    const AT: usize = PART - 1;
    let (p, me) = (team.size(), team.rank());
    let mut win = Win::<T>::new(team, config, sync, PART)?;
    let one = T::of(1);
    let mut drawn = vec![vec![T::of(127); DRAWS]; p];
    let mut slots: Vec<Option<&mut [T]>> = drawn.iter_mut().map(|v| Some(&mut v[..])).collect();
    win.epoch(sync, |e, targets| {
        for t in targets {
            slots[*t].take().unwrap().iter_mut().try_for_each(|old| e.fetch_and_op(Op::Sum, &one, old, *t, AT))?;
        }
        Ok(())
    })?;
    let mine: Vec<u8> = drawn.iter().flatten().flat_map(|x| bytemuck::bytes_of(x).to_vec()).collect();
    let all = farside_rma::core::coll::allgather(team, &mine)?;
    for t in 0..p {
        let mut numbers = Vec::new();
        for bytes in &all {
            let row = &bytes[t * DRAWS * size_of::<T>()..][..DRAWS * size_of::<T>()];
            let row: Vec<T> = row.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect();
            let of =
                |x: &T| (0..(p * DRAWS) as u64).find(|n| T::of(*n) == *x).expect("a number that could not be drawn");
            let row: Vec<u64> = row.iter().map(of).collect();
            assert!(row.is_sorted(), "one rank draws in order: {row:?}");
            numbers.extend(row);
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (0..(p * DRAWS) as u64).collect::<Vec<_>>(), "numbers drawn from rank {t}");
    }
    win.local(|l| {
        assert_eq!(l[AT], T::of((p * DRAWS) as u64), "the total at rank {me}");
        assert!(l[..AT].iter().all(|x| *x == T::zeroed()));
    })?;
    win.free()
}

/// Only this origin swaps one element: once with the expected value, once with another value. All origins swap another
/// element: exactly one succeeds.
pub(crate) fn compare_and_swap<T: Value + CasElement>(team: &Team, config: &Config, sync: Sync) -> Result<()> {
    let (p, me) = (team.size(), team.rank());
    let len = p * PART + 1;
    let mut win = Win::<T>::new(team, config, sync, len)?;
    fill(&mut win)?;
    win.local(|l| l[len - 1] = T::of(100))?;
    let mut old = vec![[T::of(127); 4]; p];
    let mut slots: Vec<Option<&mut [T; 4]>> = old.iter_mut().map(Some).collect();
    win.epoch(sync, |e, targets| {
        for t in targets {
            let [first, second, missed, contended] = slots[*t].take().unwrap();
            let (at, end) = (me * PART, me * PART + PART - 1);
            e.compare_and_swap(initial(*t, at), T::of(110), first, *t, at)?;
            e.compare_and_swap(T::of(110), T::of(111 + me as u64), second, *t, at)?;
            e.compare_and_swap(T::of(126), T::of(125), missed, *t, end)?;
            e.compare_and_swap(T::of(100), T::of(101 + me as u64), contended, *t, len - 1)?;
        }
        Ok(())
    })?;
    for (t, [first, second, missed, _]) in old.iter().enumerate() {
        assert_eq!(*first, initial(t, me * PART), "previous value at rank {t}");
        assert_eq!(*second, T::of(110), "value swapped in by this rank at rank {t}");
        assert_eq!(*missed, initial(t, me * PART + PART - 1), "value after a failed swap at rank {t}");
    }
    let won: Vec<u8> = old.iter().map(|o| u8::from(o[3] == T::of(100))).collect();
    let all = farside_rma::core::coll::allgather(team, &won)?;
    let last = win.local(|l| {
        for origin in 0..p {
            let (at, end) = (origin * PART, origin * PART + PART - 1);
            assert_eq!(l[at], T::of(111 + origin as u64), "swapped by rank {origin}");
            assert_eq!(l[end], initial(me, end), "unchanged although rank {origin} tried to swap");
        }
        l[len - 1]
    })?;
    for (t, [_, _, _, contended]) in old.iter().enumerate() {
        let winner = (0..p).find(|origin| all[*origin][t] == 1).map_or(127, |w| 101 + w);
        assert!([T::of(100), T::of(winner as u64)].contains(contended), "{contended:?} at rank {t}, which had 100");
    }
    let winners: Vec<usize> = (0..p).filter(|origin| all[*origin][me] == 1).collect();
    assert_eq!(winners.len(), 1, "winners at rank {me}: {winners:?}");
    assert_eq!(last, T::of(101 + winners[0] as u64), "the winner's value");
    win.free()
}
