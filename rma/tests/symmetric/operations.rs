//! Puts, gets, atomics, operations in progress, contexts and exclusive access, each with its values checked.

use bytemuck::{Pod, Zeroable};
use farside_rma::core::stats::Kind;
use farside_rma::prelude::*;
use farside_rma::symmetric::Context;

use super::everywhere;

/// An element type that is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Particle {
    place: [f32; 3],
    id: u32,
    charge: [u8; 4],
}

impl Particle {
    fn new(rank: usize, i: usize) -> Self {
        Self { place: [rank as f32, i as f32, 0.5], id: (rank * 1000 + i) as u32, charge: [1, 2, 3, i as u8] }
    }
}

#[test]
fn elements_of_every_kind() {
    fn check<T: Pod + PartialEq + std::fmt::Debug>(team: &Team, value: impl Fn(usize, usize) -> T) -> Result<()> {
        let (p, me) = (team.size(), team.rank());
        let table = Symmetric::<T>::allocate(team, 3 * p)?;
        for rank in 0..p {
            table.put(&[value(me, rank), value(me, rank + 1)], rank, 3 * me)?;
            table.put_value(value(me, 7), rank, 3 * me + 2)?;
        }
        table.barrier()?;
        for from in 0..p {
            for rank in 0..p {
                let mut got = [T::zeroed(); 3];
                table.get(&mut got, rank, 3 * from)?;
                assert_eq!(got, [value(from, rank), value(from, rank + 1), value(from, 7)]);
            }
            assert_eq!(table.get_value(me, 3 * from + 1)?, value(from, me + 1));
            assert_eq!(table.local().load(3 * from)?, value(from, me));
        }
        table.free()
    }
    everywhere(&[1, 2, 3], |team, _| {
        check::<u8>(team, |r, i| (r * 16 + i) as u8)?;
        check::<u16>(team, |r, i| (r * 300 + i) as u16)?;
        check::<usize>(team, |r, i| usize::MAX - r * 16 - i)?;
        check::<i128>(team, |r, i| -(1 << 100) + (r * 16 + i) as i128)?;
        check::<[u16; 3]>(team, |r, i| [r as u16, i as u16, 9])?;
        check::<Particle>(team, Particle::new)
    });
}

#[test]
fn strided_indexed_selected_and_own() {
    everywhere(&[1, 2, 4], |team, _| {
        let (p, me) = (team.size(), team.rank());
        let peer = (me + 1) % p;
        let table = Symmetric::<Particle>::allocate(team, 40)?;
        let mine: Vec<Particle> = (0..5).map(|i| Particle::new(me, i)).collect();
        table.put_strided(&mine, peer, 1, 4)?;
        table.put_indexed(&mine[..3], peer, &[39, 20, 0])?;
        table.barrier()?;
        let from = (me + p - 1) % p;
        let theirs = |i: usize| Particle::new(from, i);
        let mut expected = [Particle::zeroed(); 40];
        (0..5).for_each(|i| expected[1 + 4 * i] = theirs(i));
        [39, 20, 0].into_iter().enumerate().for_each(|(i, at)| expected[at] = theirs(i));
        assert_eq!(table.local().to_vec()?, expected);
        let mut strided = [Particle::zeroed(); 5];
        table.get_strided(&mut strided, peer, 1, 4)?;
        assert_eq!(strided[..], mine);
        let mut picked = [Particle::zeroed(); 4];
        table.get_indexed(&mut picked, peer, &[20, 5, 5, 0])?;
        assert_eq!(picked, [mine[1], mine[1], mine[1], mine[2]]);
        table.barrier()?;
        // Puts from window memory to the peer, without a buffer, and to an overlapping range of the same rank.
        table.put_own(1..6, peer, 30)?;
        table.barrier()?;
        let mut got = [Particle::zeroed(); 5];
        table.get(&mut got, me, 30)?;
        let before = Particle::new((me + 2 * p - 2) % p, 0);
        assert_eq!((got[0], got[4]), (before, Particle::new((me + 2 * p - 2) % p, 1)));
        table.put_own(30..35, me, 31)?;
        assert_eq!(table.local().load(31)?, before);
        assert_eq!(table.local().load(35)?, got[4]);
        table.barrier()?;
        // Selected elements of window memory, to the peer and to an overlapping range of the same rank.
        let (apart, row) = (Selection::indices(&[1, 5, 9, 13, 17])?, Selection::contiguous(5)?);
        table.put_own_selected(&apart, peer, 35, &row)?;
        table.barrier()?;
        let theirs: Vec<Particle> = (0..5).map(|i| Particle::new((me + 2 * p - 2) % p, i)).collect();
        assert_eq!(table.local().to_vec()?[35..], theirs);
        table.put_own_selected(&Selection::indices(&[35, 36, 37, 38])?, me, 36, &Selection::contiguous(4)?)?;
        assert_eq!(table.local().to_vec()?[36..], theirs[..4]);
        let e = table.put_own_selected(&Selection::indices(&[40])?, peer, 0, &Selection::contiguous(1)?).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::OutOfRange, "{e}");
        // A rank that sees the flag sees the elements.
        let flags = Flags::allocate(team, 2)?;
        for round in 1..=20 {
            let mine: Vec<Particle> = (0..5).map(|i| Particle::new(me, round * 5 + i)).collect();
            table.put_selected_notify(&mine, &row, peer, 2, &Selection::vector(5, 1, 4)?, (&flags, 0, round as u64))?;
            flags.wait_until(0, ge(round as u64))?;
            let seen: Vec<Particle> = (0..5).map(|i| table.local().load(2 + 4 * i)).collect::<Result<_>>()?;
            assert_eq!(seen, (0..5).map(|i| Particle::new(from, round * 5 + i)).collect::<Vec<_>>());
            flags.set(from, 1, round as u64)?;
            flags.wait_until(1, ge(round as u64))?;
        }
        flags.free()?;
        table.free()
    });
}

#[test]
fn atomics_of_every_name() {
    everywhere(&[1, 2, 4], |team, _| {
        let p = team.size() as u64;
        let me = team.rank() as u64;
        let words = Symmetric::<u64>::allocate(team, 12)?;
        let home = team.size() - 1;
        let at = |i| words.atomic(home, i);
        let rounds = 50;
        let mut seen = 0;
        for i in 0..rounds {
            let old = at(0)?.fetch_add(1)?;
            assert!(old >= seen && old < p * rounds);
            seen = old + 1;
            at(1)?.add(i)?;
            at(2)?.fetch_sub(1)?;
            at(3)?.fetch_update(|old| Some(old + 2))?.unwrap();
        }
        at(4)?.or(1 << me)?;
        assert_eq!(at(4)?.fetch_or(1 << me)? & (1 << me), 1 << me, "ordered after the operation before");
        at(5)?.max(me + 1)?;
        at(6)?.xor(1 << me)?;
        at(6)?.fetch_xor(1 << (me + 8))?;
        let won = at(7)?.compare_exchange(0, me + 1)?;
        assert!(won.is_ok() || won.unwrap_err() - 1 < p);
        at(8)?.store(77)?;
        at(9)?.fetch_nbi(Op::Sum, 5)?.wait()?;
        let lost = at(7)?.compare_exchange_nbi(0, 99)?.wait()?;
        assert!((1..=p).contains(&lost));
        words.barrier()?;
        let sums = (0..rounds).sum::<u64>() * p;
        let all: Vec<u64> = (0..10).map(|i| at(i)?.load()).collect::<Result<_>>()?;
        let bits = (1 << p) - 1;
        assert_eq!(
            all[..7],
            [p * rounds, sums, 0u64.wrapping_sub(p * rounds), 2 * p * rounds, bits, p, bits | bits << 8]
        );
        assert_eq!((all[8], all[9]), (77, 5 * p));
        let refused = at(0)?.fetch_update(|_| None)?;
        assert_eq!(refused, Err(p * rounds));
        words.barrier()?;
        assert_eq!(at(5)?.swap(1)? & !7, 0);
        words.free()?;

        // Floats have sums and minima, but no bitwise operations.
        let floats = Symmetric::<f64>::allocate(team, 2)?;
        let half = floats.atomic(0, 0)?;
        half.fetch_add(0.5)?;
        half.fetch_sub(0.25)?;
        floats.atomic(0, 1)?.fetch_min(-(me as f64))?;
        floats.barrier()?;
        assert_eq!((half.load()?, floats.get_value(0, 1)?), (0.25 * p as f64, -(p as f64 - 1.0)));
        assert_eq!(half.fetch_or(1.0).unwrap_err().kind(), ErrorKind::Unsupported);
        floats.barrier()?;
        floats.accumulate(Op::Sum, &[1.0, 1.0], 0, 0)?;
        floats.barrier()?;
        assert_eq!(floats.get_value(0, 1)?, 1.0);
        floats.free()
    });
}

#[test]
fn buffers_come_back() {
    everywhere(&[2, 3], |team, _| {
        let (p, me) = (team.size(), team.rank());
        let len = 5000;
        let table = Symmetric::<u64>::allocate(team, p * len)?;
        let peer = (me + 1) % p;
        let mine: Vec<u64> = (0..len as u64).map(|i| i * 7 + me as u64).collect();
        // Completes with wait and test, into a boxed slice and an array.
        let back = table.put_nbi(mine.clone(), peer, me * len)?.wait()?;
        assert_eq!(back, mine);
        let mut get = table.get_nbi(vec![0; len].into_boxed_slice(), peer, me * len)?;
        let got = loop {
            if let Some(got) = get.test()? {
                break got;
            }
        };
        assert_eq!(got[..], mine);
        assert_eq!(get.test().unwrap_err().kind(), ErrorKind::BadArgument, "returned once");
        assert_eq!(table.get_nbi([0; 3], peer, me * len + 1)?.wait()?, mine[1..4]);
        // Operations continue when their handles are dropped or leaked.
        for at in 0..300 {
            drop(table.put_nbi([at as u64 + 1], peer, me * len + at)?);
        }
        std::mem::forget(table.put_nbi(vec![1234; 9], peer, me * len + 400)?);
        drop(table.get_nbi(vec![0; len], peer, 0)?);
        table.quiet()?;
        let mut got = vec![0; 409];
        table.get(&mut got, peer, me * len)?;
        assert!((0..300).all(|at| got[at] == at as u64 + 1) && got[400..] == [1234; 9], "{got:?}");
        team.barrier()?;
        // A handle that outlives the array still returns its buffer.
        let late = table.put_nbi(vec![5; 4], peer, 0)?;
        table.free()?;
        assert_eq!(late.wait()?, [5; 4]);
        Ok(())
    });
}

#[test]
fn array_that_is_dropped_or_leaked_early_keeps_no_buffer_in_use() {
    everywhere(&[2], |team, _| {
        let table = Symmetric::<u64>::allocate(team, 100_000)?;
        let peer = 1 - team.rank();
        let pending = table.put_nbi(vec![1; 100_000], peer, 0)?;
        drop(table.get_nbi(vec![1; 100_000], peer, 0)?);
        team.barrier()?;
        drop(table);
        // The handle keeps this rank's side, but the peer may have dropped its memory first.
        match pending.wait() {
            Ok(buffer) => assert_eq!(buffer.len(), 100_000),
            Err(e) => assert_eq!(e.kind(), ErrorKind::BadKey, "{e}"),
        }
        team.barrier()
    });
}

#[test]
fn contexts_complete_by_themselves() {
    everywhere(&[2, 4], |team, _| {
        let (p, me) = (team.size(), team.rank());
        let (a, b) = (Symmetric::<u32>::allocate(team, 64 * p)?, Symmetric::<u64>::allocate(team, p)?);
        let (first, second) = (Context::new(), Context::new());
        for rank in 0..p {
            for i in 0..64 {
                drop(first.put_nbi(&a, [i + 1], rank, 64 * me + i as usize)?);
            }
            drop(second.put_nbi(&b, vec![me as u64 + 1], rank, me)?);
        }
        let sum = b.atomic(0, 0)?.fetch_in(&second, Op::NoOp, 0)?;
        first.quiet()?;
        second.quiet()?;
        assert!(sum.wait()? <= 1);
        team.barrier()?;
        assert_eq!(a.local().to_vec()?, (0..p).flat_map(|_| 1..=64).collect::<Vec<u32>>());
        assert_eq!(b.local().to_vec()?, (1..=p as u64).collect::<Vec<_>>());
        b.free()?;
        a.free()
    });
}

#[test]
fn exclusive_access_between_operations() {
    everywhere(&[1, 2, 3], |team, _| {
        let (p, me) = (team.size(), team.rank());
        let table = Symmetric::<u64>::allocate(team, p + 1)?;
        for round in 1..20 {
            for rank in 0..p {
                drop(table.put_nbi([round * 10 + me as u64], rank, me)?);
            }
            table.exclusive(|own| {
                assert!((0..p).all(|from| own[from] == round * 10 + from as u64), "{own:?}");
                own[p] += own[..p].iter().sum::<u64>();
                own[..p].fill(0);
                Ok::<(), Error>(())
            })?;
            let first = table.get_value((me + 1) % p, 0)?;
            assert!(first == 0 || first / 10 == round + 1, "the next round's, or none: {first}");
        }
        table.barrier()?;
        let each = (1..20).map(|round| (0..p as u64).map(|from| round * 10 + from).sum::<u64>()).sum::<u64>();
        assert_eq!(table.local().load(p)?, each);
        table.free()
    });
}

/// Counts per call, on mapped memory and where every operation is a message.
#[test]
fn messages_of_each_call() {
    everywhere(&[2], |team, config| {
        let peer = 1 - team.rank();
        let (table, flags) = (Symmetric::<u64>::allocate(team, 16)?, Flags::allocate(team, 2)?);
        let counted = |call: &dyn Fn() -> Result<()>| -> Result<Vec<(Kind, u64)>> {
            // The cost of a peer's requests is counted at the peer.
            team.barrier()?;
            let before = team.job().stats();
            call()?;
            let d = team.job().stats() - before;
            team.barrier()?;
            let kinds = [Kind::Write, Kind::Read, Kind::Accumulate, Kind::FetchAdd, Kind::CompareSwap, Kind::Signal];
            Ok(kinds.into_iter().map(|kind| (kind, d.count(kind))).filter(|(_, count)| *count > 0).collect())
        };
        let one = |kind| vec![(kind, 1)];
        let name = config.name;
        assert_eq!(counted(&|| table.put(&[1, 2], peer, 0))?, one(Kind::Write), "{name}");
        assert_eq!(counted(&|| table.get_value(peer, 0).map(drop))?, one(Kind::Read), "{name}");
        assert_eq!(counted(&|| table.put_nbi([1; 9], peer, 0).map(drop))?, one(Kind::Write), "{name}");
        assert_eq!(counted(&|| table.quiet())?, [], "{name}");
        assert_eq!(counted(&|| table.fence())?, [], "{name}");
        let notified = counted(&|| table.put_notify(&[3], peer, 0, &flags, 0, 1))?;
        assert_eq!(notified, [(Kind::Write, 1), (Kind::Signal, 1)], "{name}");
        assert_eq!(counted(&|| flags.set(peer, 1, 1))?, one(Kind::Signal), "{name}");
        assert_eq!(counted(&|| flags.add(peer, 1, 1))?, one(Kind::FetchAdd), "{name}");
        flags.free()?;
        table.free()
    });
}
