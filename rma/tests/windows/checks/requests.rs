//! Request-based operations, completed by wait, test, await, or the end of the epoch.

use farside_rma::{Assert, LockWindow, Op, PassiveEpoch, Request, Result, Team, block_on};

use super::config::{self, Config, Memory};
use super::values::{initial, written};

/// How a request is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Complete {
    Wait,
    Test,
    Await,
    /// Completed by the end of the epoch.
    Epoch,
}

/// Elements of one origin at one target: fewer in quick runs over verbs, but still more than a packet holds.
fn part() -> usize {
    if config::verbs() && config::quick() { 331 } else { 1301 }
}

fn complete<B: Unpin>(requests: Vec<Request<'_, B>>, how: Complete) -> Result<()> {
    match how {
        Complete::Wait => requests.into_iter().try_for_each(|r| r.wait().map(drop)),
        Complete::Test => {
            for mut r in requests {
                while r.test()?.is_none() {
                    std::thread::yield_now();
                }
                let again = r.test().map(|_| ()).unwrap_err();
                assert_eq!(again.kind(), farside_rma::ErrorKind::BadArgument, "the buffer is returned once: {again}");
            }
            Ok(())
        }
        Complete::Await => block_on(async {
            for r in requests {
                r.await?;
            }
            Ok(())
        })?,
        Complete::Epoch => {
            drop(requests);
            Ok(())
        }
    }
}

fn window(team: &Team, config: &Config) -> Result<LockWindow<u64>> {
    let len = team.size() * part();
    let me = team.rank();
    let content: Vec<u64> = (0..len).map(|i| initial(me, i)).collect();
    if config.memory == Memory::Vector {
        return LockWindow::from_vec(team, content);
    }
    let window = LockWindow::allocate(team, len)?;
    window.with_local(|l| {
        l.copy_from_slice(&content);
        Ok(())
    })?;
    team.barrier()?;
    Ok(window)
}

type Body<'e, 'env> = &'e PassiveEpoch<'e, 'env, u64>;

/// A put is complete at the target when its request is complete: a get of the same epoch sees it.
pub(crate) fn rput(team: &Team, config: &Config, how: Complete) -> Result<()> {
    let (p, me) = (team.size(), team.rank());
    let window = window(team, config)?;
    for round in 1..3 {
        let data: Vec<Vec<u64>> = (0..p).map(|t| (0..part()).map(|i| written(me + round, t, i)).collect()).collect();
        let mut seen = vec![[0u64; 2]; p];
        let slots: Vec<&mut [u64; 2]> = seen.iter_mut().collect();
        window.lock_all(Assert::empty(), |e: Body<'_, '_>| {
            let mut requests = Vec::new();
            for (t, d) in data.iter().enumerate() {
                for at in [0..1, 1..4, 4..part() - 1, part() - 1..part()] {
                    requests.push(e.rput(&d[at.clone()], t, me * part() + at.start)?);
                }
            }
            complete(requests, how)?;
            if how == Complete::Epoch {
                return Ok(());
            }
            for (t, s) in slots.into_iter().enumerate() {
                let (first, last) = s.split_at_mut(1);
                e.rget(first, t, me * part())?.wait()?;
                e.rget(last, t, me * part() + part() - 1)?.wait()?;
            }
            Ok(())
        })?;
        for (t, s) in seen.iter().enumerate().filter(|_| how != Complete::Epoch) {
            assert_eq!(*s, [data[t][0], data[t][part() - 1]], "what is at rank {t} when the request is complete");
        }
        team.barrier()?;
        window.with_local(|l| {
            for (i, x) in l.iter().enumerate() {
                assert_eq!(
                    *x,
                    written::<u64>(i / part() + round, me, i % part()),
                    "element {i} of rank {me}, round {round}"
                );
            }
            Ok(())
        })?;
        team.barrier()?;
    }
    window.free()
}

/// Gets have arrived when the epoch is closed, however they are completed.
pub(crate) fn rget(team: &Team, config: &Config, how: Complete) -> Result<()> {
    let p = team.size();
    let window = window(team, config)?;
    let mut into = vec![vec![0u64; p * part()]; p];
    let slots: Vec<&mut Vec<u64>> = into.iter_mut().collect();
    window.lock_all(Assert::empty(), |e: Body<'_, '_>| {
        let mut requests = Vec::new();
        for (t, slot) in slots.into_iter().enumerate() {
            let (first, rest) = slot.split_at_mut(1);
            requests.push(e.rget(rest, t, 1)?);
            requests.push(e.rget(first, t, 0)?);
        }
        complete(requests, how)
    })?;
    for (t, got) in into.iter().enumerate() {
        for (i, x) in got.iter().enumerate() {
            assert_eq!(*x, initial::<u64>(t, i), "element {i} of rank {t}");
        }
    }
    window.free()
}

/// All ranks add to all elements of all ranks.
pub(crate) fn raccumulate(team: &Team, config: &Config, how: Complete) -> Result<()> {
    let (p, me) = (team.size(), team.rank());
    let window = window(team, config)?;
    let data = vec![me as u64 + 1; p * part()];
    window.lock_all(Assert::empty(), |e: Body<'_, '_>| {
        let mut requests = Vec::new();
        for t in 0..p {
            requests.push(e.raccumulate(Op::Sum, &data[..1], t, 0)?);
            requests.push(e.raccumulate(Op::Sum, &data[1..], t, 1)?);
        }
        complete(requests, how)
    })?;
    team.barrier()?;
    window.with_local(|l| {
        let total = (1..=p as u64).sum::<u64>();
        for (i, x) in l.iter().enumerate() {
            assert_eq!(*x, initial::<u64>(me, i) + total, "element {i} of rank {me}");
        }
        Ok(())
    })?;
    window.free()
}

/// Each origin reads and replaces its own part in one step.
pub(crate) fn rget_accumulate(team: &Team, config: &Config, how: Complete) -> Result<()> {
    let (p, me) = (team.size(), team.rank());
    let window = window(team, config)?;
    let data: Vec<u64> = (0..part()).map(|i| written(me, 0, i)).collect();
    let mut old = vec![vec![0u64; part()]; p];
    let slots: Vec<&mut Vec<u64>> = old.iter_mut().collect();
    window.lock_all(Assert::empty(), |e: Body<'_, '_>| {
        let mut requests = Vec::new();
        for (t, slot) in slots.into_iter().enumerate() {
            requests.push(e.rget_accumulate(Op::Replace, &data, slot, t, me * part())?);
        }
        complete(requests, how)
    })?;
    for (t, old) in old.iter().enumerate() {
        for (i, x) in old.iter().enumerate() {
            assert_eq!(*x, initial::<u64>(t, me * part() + i), "previous element {i} of rank {t}");
        }
    }
    team.barrier()?;
    window.with_local(|l| {
        for (i, x) in l.iter().enumerate() {
            assert_eq!(*x, written::<u64>(i / part(), 0, i % part()), "element {i} of rank {me}");
        }
        Ok(())
    })?;
    window.free()
}

/// Single elements: each rank adds to one element of every rank, and swaps its own element at every rank if it is
/// unchanged.
pub(crate) fn rfetch_and_op_rcompare_and_swap(team: &Team, config: &Config, how: Complete) -> Result<()> {
    let (p, me) = (team.size(), team.rank());
    let window = window(team, config)?;
    let (shared, own) = (p * part() - 1, me * part());
    let mut sums = vec![0u64; p];
    let mut swapped = vec![[0u64; 2]; p];
    let slots: Vec<_> = sums.iter_mut().zip(&mut swapped).collect();
    window.lock_all(Assert::empty(), |e: Body<'_, '_>| {
        let mut requests = Vec::new();
        for (t, (sum, [first, second])) in slots.into_iter().enumerate() {
            requests.push(e.rfetch_and_op(Op::Sum, &1000, sum, t, shared)?);
            requests.push(e.rcompare_and_swap(initial(t, own), 7, first, t, own)?);
            requests.push(e.rcompare_and_swap(initial(t, own), 8, second, t, own)?);
        }
        complete(requests, how)
    })?;
    for t in 0..p {
        assert_eq!(swapped[t], [initial(t, own), 7], "at rank {t}");
        assert!((0..p).any(|before| sums[t] == initial::<u64>(t, shared) + 1000 * before as u64), "at rank {t}");
    }
    team.barrier()?;
    window.with_local(|l| {
        assert_eq!(l[shared], initial::<u64>(me, shared) + 1000 * p as u64);
        (0..p).for_each(|r| assert_eq!(l[r * part()], 7));
        Ok(())
    })?;
    window.free()
}

/// The blocking operations.
pub(crate) fn now(team: &Team, config: &Config) -> Result<()> {
    let (p, me) = (team.size(), team.rank());
    let window = window(team, config)?;
    let at = |r: usize| r * part() + part() - 1;
    window.lock_all(Assert::empty(), |e: Body<'_, '_>| {
        for t in 0..p {
            let first: u64 = initial(t, at(me));
            assert_eq!(e.get_blocking(t, at(me))?, first);
            assert_eq!(e.fetch_and_op_blocking(Op::Sum, 1000, t, at(me))?, first);
            assert_eq!(e.compare_and_swap_blocking(first + 1000, 3, t, at(me))?, first + 1000);
            assert_eq!(e.compare_and_swap_blocking(4, 5, t, at(me))?, 3);
            e.put_value(6 + me as u64, t, at(me))?;
            e.flush(t)?;
            assert_eq!(e.get_blocking(t, at(me))?, 6 + me as u64);
        }
        Ok(())
    })?;
    team.barrier()?;
    window.with_local(|l| {
        (0..p).for_each(|r| assert_eq!(l[at(r)], 6 + r as u64));
        Ok(())
    })?;
    window.free()
}
