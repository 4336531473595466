//! Flags and notified puts: ordering, every waiting call, sleeping ranks.

use std::time::Duration;

use farside_rma::prelude::*;

use super::{everywhere, quick, verbs};

/// A ring in which each round's data, of varying length, must have arrived when the flag is seen.
#[test]
fn data_is_there_when_the_flag_is_seen() {
    everywhere(&[2, 4], |team, _| {
        let (p, me) = (team.size(), team.rank());
        let rounds = if verbs() && quick() { 40 } else { 300 };
        let lens = [1, 2, 9, 100, 1100, 5000];
        let (data, flags) = (Symmetric::<u64>::allocate(team, 5000)?, Flags::allocate(team, 2)?);
        let (right, left) = ((me + 1) % p, (me + p - 1) % p);
        for round in 1..=rounds {
            let len = lens[round as usize % lens.len()];
            let values = vec![round * 100 + me as u64; len];
            if round % 2 == 0 {
                data.put_notify(&values, right, 0, &flags, 0, round)?;
            } else {
                drop(data.put_notify_nbi(values, right, 0, &flags, 0, round)?);
            }
            assert_eq!(flags.wait_until(0, ge(round))?, round);
            let mut got = vec![0; len];
            data.local().read(0, &mut got)?;
            assert!(got.iter().all(|x| *x == round * 100 + left as u64), "round {round}: {got:?}");
            // The left neighbour may overwrite the data now.
            flags.set(left, 1, round)?;
            flags.wait_until(1, ge(round))?;
        }
        data.quiet()?;
        flags.free()?;
        data.free()
    });
}

#[test]
fn additions_of_all_ranks_wake_a_sleeping_rank() {
    everywhere(&[2, 3], |team, _| {
        let p = team.size() as u64;
        let flags = Flags::allocate(team, 3)?;
        for round in 1..=20 {
            if team.rank() != 0 && round % 10 == 0 {
                // The pause is so long that rank 0 sleeps.
                std::thread::sleep(Duration::from_millis(5));
            }
            flags.add(0, 1, 2)?;
            if team.rank() == 0 {
                assert_eq!(flags.wait_until(1, eq(2 * p * round))?, 2 * p * round);
                assert_eq!((flags.get(0)?, flags.get(2)?), (0, 0));
                (0..team.size()).try_for_each(|rank| flags.set(rank, 2, round))?;
            }
            flags.wait_until(2, gt(round - 1))?;
            team.barrier()?;
            flags.reset(2, 0)?;
            team.barrier()?;
            assert!(!flags.test(2, ne(0))?);
        }
        flags.free()
    });
}

#[test]
fn any_all_test_and_conditions() {
    everywhere(&[3], |team, _| {
        let (p, me) = (team.size(), team.rank());
        let flags = Flags::allocate(team, 2 * p)?;
        for rank in (0..p).filter(|rank| *rank != me) {
            flags.set(rank, me, 10 + me as u64)?;
        }
        let mut left: Vec<usize> = (0..p).filter(|rank| *rank != me).collect();
        while !left.is_empty() {
            let index = flags.wait_any(0..p, lt(u64::MAX))?;
            assert_eq!(index, 0, "the lowest that meets the condition");
            let index = flags.wait_any(left[0]..p, ge(10))?;
            if let Some(found) = left.iter().position(|rank| *rank == index) {
                left.remove(found);
            }
            flags.wait_all(index..index + 1, eq(10 + index as u64))?;
        }
        let others = |condition| (0..p).filter(|i| *i != me).try_for_each(|i| flags.wait_all(i..i + 1, condition));
        others(ge(10))?;
        others(le(12))?;
        others(ne(0))?;
        assert!(flags.test(me, eq(0))? && !flags.test(me, gt(0))?);
        flags.wait_all(2..2, eq(9))?;
        assert_eq!(flags.wait_any(2..2, eq(9)).unwrap_err().kind(), ErrorKind::BadArgument);
        flags.free()
    });
}

#[cfg(feature = "async")]
#[test]
fn flags_and_buffers_are_awaited_together() {
    use farside_rma::block_on;
    everywhere(&[2], |team, _| {
        let peer = 1 - team.rank();
        let (data, flags) = (Symmetric::<u32>::allocate(team, 1000)?, Flags::allocate(team, 1)?);
        let got = block_on(async {
            let put = data.put_notify_nbi(vec![8; 1000], peer, 0, &flags, 0, 4)?;
            let (put, flag) = tokio::join!(put, flags.until(0, ge(4)));
            assert_eq!(flag?, 4);
            data.get_nbi(put?, team.rank(), 0)?.await
        })??;
        assert_eq!(got, [8; 1000]);
        flags.free()?;
        data.free()
    });
}

/// All ranks notify by one flag: the sum says that the data of all are there.
#[test]
fn data_of_all_is_there_when_the_sum_is_seen() {
    everywhere(&[2, 4], |team, _| {
        let (p, me) = (team.size(), team.rank());
        let rounds = if verbs() && quick() { 10 } else { 60 };
        let (data, flags) = (Symmetric::<u64>::allocate(team, 300 * p)?, Flags::allocate(team, 2)?);
        for round in 1..=rounds {
            let len = [1, 9, 300][round as usize % 3];
            data.put_notify_add(&vec![round * 100 + me as u64; len], 0, 300 * me, &flags, 0, 3)?;
            if me == 0 {
                flags.wait_until(0, eq(3 * round * p as u64))?;
                for rank in 0..p {
                    let mut got = vec![0; len];
                    data.local().read(300 * rank, &mut got)?;
                    assert!(got.iter().all(|x| *x == round * 100 + rank as u64), "round {round}: {got:?}");
                }
                (0..p).try_for_each(|rank| flags.set(rank, 1, round))?;
            }
            flags.wait_until(1, ge(round))?;
        }
        data.quiet()?;
        data.free()?;
        flags.free()
    });
}

#[test]
fn some_are_all_that_meet_the_condition() {
    everywhere(&[3], |team, _| {
        let flags = Flags::allocate(team, 5)?;
        if team.rank() == 0 {
            [4, 1, 2].into_iter().try_for_each(|at| flags.set(1, at, at as u64))?;
        }
        team.barrier()?;
        if team.rank() == 1 {
            flags.wait_all(1..3, ne(0))?;
            flags.wait_until(4, eq(4))?;
            assert_eq!(flags.wait_some(0..5, ne(0))?, [1, 2, 4]);
            assert_eq!(flags.wait_some(2..4, ge(2))?, [2]);
            assert_eq!(flags.wait_some(3..3, ge(2)).unwrap_err().kind(), ErrorKind::BadArgument);
            assert_eq!(flags.wait_some(0..6, ge(2)).unwrap_err().kind(), ErrorKind::OutOfRange);
        }
        team.barrier()?;
        flags.free()
    });
}
