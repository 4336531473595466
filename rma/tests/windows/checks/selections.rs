//! The operations between selections, for any element type and any synchronization.

use farside_rma::{Op, Result, Selection, Team};

use super::config::{self, Config};
use super::sync::{Sync, Win};
use super::values::{Value, initial, written};

const COLUMNS: usize = 50;

const ROWS: usize = 24;

/// Rows that are accumulated: fewer in a quick run over verbs, where each element is a message.
fn accumulated_rows() -> usize {
    if config::verbs() && config::quick() { 8 } else { ROWS }
}

/// Elements that one origin owns at every target: a matrix of `height` rows, and a packed copy of some of its columns.
fn part(height: usize) -> usize {
    height * COLUMNS + 10 * height
}

/// A selection, and the indices of its elements, by definition.
type Named<T> = (Selection<T>, Vec<usize>);

fn matrix<T: Value>(height: usize, rows: std::ops::Range<usize>, columns: std::ops::Range<usize>) -> Result<Named<T>> {
    let indices = rows.clone().flat_map(|r| columns.clone().map(move |c| r * COLUMNS + c)).collect();
    Ok((Selection::subarray([height, COLUMNS], [rows, columns])?, indices))
}

fn packed<T: Value>(at: usize, len: usize) -> Result<Named<T>> {
    Ok((Selection::ranges(std::slice::from_ref(&(at..at + len)))?, (at..at + len).collect()))
}

/// Pairs of a selection of the buffer and one of the part, which together contain every element of the part once.
fn moves<T: Value>(height: usize) -> Result<Vec<(Named<T>, Named<T>)>> {
    let end = height * COLUMNS;
    let every_second: Vec<_> = (0..height / 2).map(|i| 2 * i * COLUMNS + 20..2 * i * COLUMNS + 23).collect();
    let second: Named<T> = (Selection::ranges(&every_second)?, every_second.iter().cloned().flatten().collect());
    let others: Vec<_> = every_second.iter().rev().map(|r| r.start + COLUMNS..r.end + COLUMNS).collect();
    let other: Named<T> = (Selection::ranges(&others)?, others.iter().cloned().flatten().collect());
    Ok(vec![
        // These are strided on both sides, with blocks of different lengths.
        (matrix(height, 0..height, 0..10)?, matrix(height, 0..height, 0..10)?),
        (matrix(height, 0..height / 2, 10..30)?, matrix(height, 0..height, 10..20)?),
        // Contiguous on one side.
        (matrix(height, 0..height, 30..40)?, packed(end, 10 * height)?),
        (packed(7, height * 15)?, matrix(height, 0..height, 23..38)?),
        // Index lists, one of them descending.
        (packed(100, height / 2 * 3)?, second),
        (packed(200, height / 2 * 3)?, other),
        // These are one block on both sides of a row, and the rest.
        (matrix(height, 3..4, 38..COLUMNS)?, matrix(height, 0..1, 38..COLUMNS)?),
        (matrix(height, 1..height, 38..COLUMNS)?, matrix(height, 1..height, 38..COLUMNS)?),
    ])
}

/// Every origin puts its part to every target: twice, so that late operations are detected.
pub(crate) fn put<T: Value>(team: &Team, config: &Config, sync: Sync) -> Result<()> {
    let (p, me) = (team.size(), team.rank());
    let height = ROWS;
    let part = part(height);
    let mut win = Win::<T>::new(team, config, sync, p * part + 3)?;
    win.local(|l| l.iter_mut().enumerate().for_each(|(i, x)| *x = initial(me, i)))?;
    let moves = moves::<T>(height)?;
    for round in 0..2 {
        let data: Vec<Vec<T>> = (0..p).map(|t| (0..part).map(|i| written(me + round, t, i)).collect()).collect();
        win.epoch(sync, |e, targets| {
            targets.iter().try_for_each(|t| {
                moves.iter().try_for_each(|((of, _), (at, _))| e.put_selected(&data[*t], of, *t, me * part, at))
            })
        })?;
        let mut expected: Vec<T> = (0..p * part + 3).map(|i| initial(me, i)).collect();
        for origin in 0..p {
            for ((_, from), (_, to)) in &moves {
                from.iter().zip(to).for_each(|(f, t)| expected[origin * part + t] = written(origin + round, me, *f));
            }
        }
        win.local(|l| assert!(l == expected, "rank {me}, round {round}: {}", differing(l, &expected)))?;
    }
    win.free()
}

/// Every rank gets parts of every rank into a buffer whose other elements do not change.
pub(crate) fn get<T: Value>(team: &Team, config: &Config, sync: Sync) -> Result<()> {
    let (p, me) = (team.size(), team.rank());
    let height = ROWS;
    let part = part(height);
    let mut win = Win::<T>::new(team, config, sync, part + 5)?;
    win.local(|l| l.iter_mut().enumerate().for_each(|(i, x)| *x = initial(me, i)))?;
    let moves = moves::<T>(height)?;
    let mut into = vec![vec![vec![T::of(127); part]; moves.len()]; p];
    let mut slots: Vec<Option<&mut Vec<Vec<T>>>> = into.iter_mut().map(Some).collect();
    win.epoch(sync, |e, targets| {
        for t in targets {
            for (((from, _), (to, _)), buffer) in moves.iter().zip(slots[*t].take().unwrap()) {
                e.get_selected(buffer, to, *t, 5, from)?;
            }
        }
        Ok(())
    })?;
    for (t, buffers) in into.iter().enumerate() {
        for (n, (((_, from), (_, to)), got)) in moves.iter().zip(buffers).enumerate() {
            let mut expected = vec![T::of(127); part];
            from.iter().zip(to).for_each(|(f, i)| expected[*i] = initial(t, f + 5));
            assert!(*got == expected, "move {n} from rank {t}: {}", differing(got, &expected));
        }
    }
    win.free()
}

/// All ranks add to the same elements of all ranks, and then each gets the previous values of its own part.
pub(crate) fn accumulate<T: Value>(team: &Team, config: &Config, sync: Sync) -> Result<()> {
    let (p, me) = (team.size(), team.rank());
    let height = accumulated_rows();
    let part = part(height);
    let mut win = Win::<T>::new(team, config, sync, (1 + p) * part)?;
    win.local(|l| l.fill(T::of(2)))?;
    let moves = moves::<T>(height)?;
    let data: Vec<T> = (0..part).map(|i| T::of((me + 1 + i % 2) as u64)).collect();
    win.epoch(sync, |e, targets| {
        targets.iter().try_for_each(|t| {
            moves.iter().try_for_each(|((of, _), (at, _))| e.accumulate_selected(Op::Sum, &data, of, *t, 0, at))
        })
    })?;
    win.local(|l| {
        for (_, from, to) in moves.iter().map(|((_, f), (_, t))| ((), f, t)) {
            for (f, t) in from.iter().zip(to) {
                let total = 2 + (1..=p).map(|r| (r + f % 2) as u64).sum::<u64>();
                assert_eq!(l[*t], T::of(total), "element {t} of rank {me}");
            }
        }
    })?;
    let twos = vec![T::of(3); height * COLUMNS];
    let mut old = vec![vec![T::of(127); height * COLUMNS]; p];
    let mut slots: Vec<Option<&mut Vec<T>>> = old.iter_mut().map(Some).collect();
    let ((of, of_indices), (at, at_indices)) =
        (matrix::<T>(height, 0..height / 2, 10..30)?, matrix::<T>(height, 0..height, 10..20)?);
    win.epoch(sync, |e, targets| {
        targets.iter().try_for_each(|t| {
            let old = slots[*t].take().unwrap();
            e.get_accumulate_selected(Op::Sum, &twos, old, &of, *t, (1 + me) * part, &at)
        })
    })?;
    for got in &old {
        for (i, x) in got.iter().enumerate() {
            let expected = if of_indices.contains(&i) { 2 } else { 127 };
            assert_eq!(*x, T::of(expected), "previous value {i}");
        }
    }
    win.local(|l| {
        for (i, x) in l[part..].iter().enumerate() {
            let expected = if at_indices.contains(&(i % part)) { 5 } else { 2 };
            assert_eq!(*x, T::of(expected), "element {i} of rank {me}");
        }
    })?;
    win.free()
}

fn differing<T: Value>(got: &[T], expected: &[T]) -> String {
    let first = got.iter().zip(expected).position(|(a, b)| a != b).unwrap_or_default();
    format!("element {first} is {:?}, not {:?}", got[first], expected[first])
}
