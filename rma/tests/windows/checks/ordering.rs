//! Ordering. Accumulates of one origin to one element are applied in the order of issue, for every length and protocol:
//! read after read, read after write, write after read, write after write.

use farside_rma::{Assert, Op, Result, Team};

use super::config::{self, Config};
use super::sync::{Sync, Win};

/// Number of elements of one origin: more than fit one bounce buffer.
const LONG_ELEMENTS: usize = 40_003;

/// Length of the long accumulate: shorter in quick runs over verbs, but still several pieces.
fn long() -> usize {
    if config::verbs() && config::quick() { LONG_ELEMENTS / 24 } else { LONG_ELEMENTS }
}

/// Non-commuting operations of one origin on a few elements, single and several at a time.
pub(crate) fn short(team: &Team, config: &Config, sync: Sync) -> Result<()> {
    const PART: usize = 1201;
    let (p, me) = (team.size(), team.rank());
    let mut win = Win::<u64>::new(team, config, sync, p * PART)?;
    win.local(|l| l.fill(5))?;
    let c = |n: u64| [n; 3];
    let (ten, two, three, four) = (c(10), c(2), c(3), c(4));
    let mut old = vec![[[0u64; 3]; 6]; p];
    let mut slots: Vec<Option<&mut [[u64; 3]; 6]>> = old.iter_mut().map(Some).collect();
    let places = [0, PART / 2, PART - 3];
    win.epoch(sync, |e, targets| {
        for t in targets {
            for at in places {
                let at = me * PART + at;
                e.accumulate(Op::Replace, &ten, *t, at)?; // 10 10 10
                e.accumulate(Op::Sum, &two[..1], *t, at)?; // 12
                e.accumulate(Op::Prod, &three, *t, at)?; // 36 30 30
                e.accumulate(Op::Replace, &four[..1], *t, at + 1)?; // 36 4 30
                e.accumulate(Op::Sum, &two[..2], *t, at + 1)?; // 36 6 32
            }
            let at = me * PART + places[1];
            let [a, b, x, d, y, z] = slots[*t].take().unwrap();
            e.get_accumulate(Op::NoOp, &ten, a, *t, at)?;
            e.get_accumulate(Op::Sum, &two, b, *t, at)?; // 38 8 34
            e.fetch_and_op(Op::Replace, &three[0], &mut x[0], *t, at)?; // 3
            e.get_accumulate(Op::Prod, &two, d, *t, at)?; // 6 16 68
            e.compare_and_swap(6, 7, &mut y[0], *t, at)?; // 7
            e.get_accumulate(Op::NoOp, &ten, z, *t, at)?;
        }
        Ok(())
    })?;
    for (t, [a, b, x, d, y, z]) in old.into_iter().enumerate() {
        assert_eq!(a, [36, 6, 32], "read after write at rank {t}");
        assert_eq!(b, [36, 6, 32], "read after read at rank {t}");
        assert_eq!(x[0], 38, "read of a sum at rank {t}");
        assert_eq!(d, [3, 8, 34], "write after write at rank {t}");
        assert_eq!(y[0], 6, "compare after product at rank {t}");
        assert_eq!(z, [7, 16, 68], "the last read at rank {t}");
    }
    win.local(|l| {
        for origin in 0..p {
            for at in places {
                let expected = if at == places[1] { [7, 16, 68] } else { [36, 6, 32] };
                assert_eq!(l[origin * PART + at..][..3], expected, "place {at} of rank {origin} at rank {me}");
            }
        }
    })?;
    win.free()
}

/// A long accumulate and then short ones on its last, middle and first elements.
pub(crate) fn long_then_short(team: &Team, config: &Config, sync: Sync) -> Result<()> {
    let (p, me, long) = (team.size(), team.rank(), long());
    let mut win = Win::<u64>::new(team, config, sync, if me == 0 { p * long } else { 1 })?;
    let data: Vec<u64> = (0..long as u64).map(|i| i + 1000).collect();
    let (five, seven) = ([5u64; 2], [7u64]);
    let mut old = [0u64; 2];
    let mut slot = Some(&mut old);
    win.epoch(sync, |e, targets| {
        if !targets.contains(&0) {
            return Ok(());
        }
        let base = me * long;
        e.accumulate(Op::Replace, &data, 0, base)?;
        e.accumulate(Op::Replace, &seven, 0, base + long - 1)?;
        e.accumulate(Op::Replace, &five, 0, base + long / 2)?;
        e.accumulate(Op::Sum, &seven, 0, base)?;
        let [last, first] = slot.take().unwrap();
        e.fetch_and_op(Op::NoOp, &seven[0], last, 0, base + long - 1)?;
        e.fetch_and_op(Op::NoOp, &seven[0], first, 0, base)
    })?;
    assert_eq!(old, [7, 1007], "what rank {me} reads after its own writes");
    win.local(|l| {
        for (i, x) in l.iter().enumerate().filter(|_| me == 0) {
            let expected = match i % long {
                0 => 1007,
                i if i == long - 1 => 7,
                i if i == long / 2 || i == long / 2 + 1 => 5,
                i => i as u64 + 1000,
            };
            assert_eq!(*x, expected, "element {i}");
        }
    })?;
    win.free()
}

/// Puts to partial pages, which take a request, and then a put to whole pages, which is a copy: after the closing call
/// both are complete. Rank 0 sends nothing and is outside the runtime while the other ranks write to it.
pub(crate) fn ends_then_middle(team: &Team, config: &Config, sync: Sync) -> Result<()> {
    const LEN: usize = 9001;
    // The length is more than a page.
    const END: usize = 700;
    let (p, me) = (team.size(), team.rank());
    let mut win = Win::<u64>::new(team, config, sync, (p - 1) * LEN)?;
    for round in 1..6u64 {
        let data: Vec<u64> = (0..LEN as u64).map(|i| i + round * 1_000_000).collect();
        win.epoch(sync, |e, targets| {
            if me == 0 {
                std::thread::sleep(std::time::Duration::from_millis(3));
            } else if targets.contains(&0) {
                let base = (me - 1) * LEN;
                e.put(&data[..END], 0, base)?;
                e.put(&data[LEN - END..], 0, base + LEN - END)?;
                e.put(&data[END..LEN - END], 0, base + END)?;
            }
            Ok(())
        })?;
        let check = |l: &[u64]| {
            for (i, x) in l.iter().enumerate().filter(|_| me == 0) {
                assert_eq!(*x, (i % LEN) as u64 + round * 1_000_000, "element {i}, round {round}");
            }
        };
        // The data are checked as soon as the epoch is closed, since a barrier would hide late operations.
        match &mut win {
            Win::Active(w) => {
                check(w.local()?);
                team.barrier()?;
            }
            Win::Passive(_) => win.local(|l| check(l))?,
        }
    }
    win.free()
}

/// Windows in which only one rank has memory, so that ranks see different capabilities of each other.
pub(crate) fn one_has_all(team: &Team, config: &Config, sync: Sync) -> Result<()> {
    const LEN: usize = 2003;
    let (p, me) = (team.size(), team.rank());
    for owner in [0, p - 1] {
        let mut win = Win::<u64>::new(team, config, sync, if me == owner { p * LEN } else { 0 })?;
        for round in 1..4u64 {
            let data: Vec<u64> = (0..LEN as u64).map(|i| i + round * 10_000).collect();
            win.epoch(
                sync,
                |e, targets| {
                    if targets.contains(&owner) { e.put(&data, owner, me * LEN) } else { Ok(()) }
                },
            )?;
            win.local(|l| {
                assert_eq!(l.len(), if me == owner { p * LEN } else { 0 });
                for (i, x) in l.iter().enumerate() {
                    assert_eq!(*x, (i % LEN) as u64 + round * 10_000, "element {i} of rank {owner}, round {round}");
                }
            })?;
        }
        win.free()?;
    }
    Ok(())
}

/// Bytes that one rank has put to a second rank before a fence are visible to a get of a third rank after the fence.
pub(crate) fn third_gets(team: &Team, config: &Config, sync: Sync) -> Result<()> {
    let (me, p) = (team.rank(), team.size());
    let mut win = Win::<u64>::new(team, config, sync, long())?;
    for round in 1..6u64 {
        let (data, mut got) = (vec![round; long()], vec![0; long()]);
        let none = Assert::empty();
        if let Win::Active(w) = &mut win {
            w.fences(|f| {
                f.epoch(none, |_| Ok(()))?;
                // The last rank could leave the fence before all of these operations are complete at rank 1.
                f.epoch(none, |e| if me == p - 1 { (0..6).try_for_each(|_| e.put(&data, 1, 0)) } else { Ok(()) })?;
                f.epoch(none, |e| if me == 0 { e.get(&mut got, 1, 0) } else { Ok(()) })
            })?;
        }
        let stale = got.iter().filter(|x| me == 0 && **x != round).count();
        assert_eq!(stale, 0, "elements of an earlier round in round {round}");
    }
    win.free()
}
