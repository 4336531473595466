//! Collectives of bytes.

use farside_core::coll;
use farside_core::{ErrorKind, Job, Result};

use super::every_size;

fn add_u32(into: &mut [u8], from: &[u8]) {
    for (a, b) in into.chunks_exact_mut(4).zip(from.chunks_exact(4)) {
        let sum = u32::from_le_bytes(a.try_into().unwrap()) + u32::from_le_bytes(b.try_into().unwrap());
        a.copy_from_slice(&sum.to_le_bytes());
    }
}

#[test]
fn reduce_scatter_sums_each_block() {
    every_size(|job| {
        let team = job.world()?;
        let p = team.size();
        let mine: Vec<u8> = (0..p).flat_map(|to| ((team.rank() * 100 + to) as u32).to_le_bytes()).collect();
        let got = coll::reduce_scatter(&team, &mine, &mut add_u32)?;
        let want: u32 = (0..p).map(|from| (from * 100 + team.rank()) as u32).sum();
        assert_eq!(got, want.to_le_bytes());
        Ok(())
    });
}

type Call<'a> = &'a dyn Fn() -> Result<()>;

#[test]
fn collectives_of_bytes_send_as_many_messages_as_they_say() {
    every_size(|job| {
        let team = job.world()?;
        let rounds = coll::log2_up(team.size()) as u64;
        let short = vec![1; team.size()];
        // In a barrier in two levels a leader sends between nodes and to its children, and others to their parents.
        let spans = !team.is_on_one_node() && !job.device().capabilities().nodes.is_empty();
        let cases: [(&str, u64, Call<'_>); 7] = [
            ("barrier", if team.is_oversubscribed() { 1 } else { rounds }, &|| team.barrier()),
            ("split", rounds, &|| team.split(Some(0), 0).map(drop)),
            ("allgather", rounds, &|| coll::allgather(&team, &[1]).map(drop)),
            ("allgather of long blocks", 2 * rounds, &|| coll::allgather(&team, &[1; 121]).map(drop)),
            ("reduce_scatter", rounds, &|| coll::reduce_scatter(&team, &short, &mut |_, _| ()).map(drop)),
            ("broadcast", rounds, &|| coll::broadcast(&team, 0, &[1]).map(drop)),
            ("broadcast of a long vector", 2 * rounds, &|| coll::broadcast(&team, 0, &[1; 121]).map(drop)),
        ];
        for (name, want, call) in cases {
            team.barrier()?;
            let before = job.stats();
            call()?;
            let sent = (job.stats() - before).messages();
            let (exact, want) = if spans && name == "barrier" { (false, want + 1) } else { (true, want) };
            let exact = exact && (!name.starts_with("broadcast") || team.rank() == 0);
            assert!(sent <= want && (!exact || sent == want), "{name} at {} ranks: {sent}, {want}", team.size());
        }
        team.barrier()
    });
}

/// Bytes that differ by rank and index.
fn pattern(rank: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + i / 251) ^ (rank * 17 + 1)) as u8).collect()
}

#[test]
fn allgather_of_different_lengths_gives_every_block_in_order() {
    every_size(|job| {
        let team = job.world()?;
        // Empty blocks, short ones, and blocks of many packets, at different ranks in each round.
        for (round, lens) in [[0, 1, 7], [100, 0, 9000], [200_000, 3, 0], [0, 0, 0]].into_iter().enumerate() {
            let len = |rank: usize| lens[(rank + round) % 3] + rank;
            let got = coll::allgather(&team, &pattern(team.rank(), len(team.rank())))?;
            assert_eq!(got.len(), team.size());
            for (rank, block) in got.iter().enumerate() {
                assert!(*block == pattern(rank, len(rank)), "round {round}, block {rank}");
            }
        }
        Ok(())
    });
}

#[test]
fn broadcast_from_every_root_of_every_length() {
    every_size(|job| {
        let team = job.world()?;
        for root in 0..team.size() {
            for len in [0, 1, 100, 8000, 100_000] {
                // The data of ranks other than the root must not matter.
                let mine = pattern(team.rank() + 50, if team.rank() == root { len } else { 13 });
                assert!(coll::broadcast(&team, root, &mine)? == pattern(root + 50, len), "{len} bytes from {root}");
            }
        }
        let e = coll::broadcast(&team, team.size(), &[]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NoSuchRank);
        team.barrier()
    });
}

/// 2 x 2 matrices over a small ring, row by row: associative, not commutative.
fn multiply(low: &mut [u8], high: &[u8]) {
    for (a, b) in low.chunks_exact_mut(4).zip(high.chunks_exact(4)) {
        let m = |i: usize, j: usize| a[2 * i].wrapping_mul(b[j]).wrapping_add(a[2 * i + 1].wrapping_mul(b[2 + j]));
        let product = [m(0, 0), m(0, 1), m(1, 0), m(1, 1)];
        a.copy_from_slice(&product);
    }
}

#[test]
fn allreduce_combines_in_canonical_order() {
    every_size(|job| {
        let team = job.world()?;
        for len in [4, 400, 40_000] {
            let mut want = pattern(0, len);
            (1..team.size()).for_each(|r| multiply(&mut want, &pattern(r, len)));
            let got = coll::allreduce(&team, &pattern(team.rank(), len), &mut multiply)?;
            assert!(got == want, "{len} bytes");
        }
        Ok(())
    });
}

#[test]
fn allreduce_of_floats_is_bitwise_the_same_everywhere() {
    every_size(|job| {
        let team = job.world()?;
        // Sums of these numbers depend on the order of addition.
        let value = |rank: usize, i: usize| (1.0 + i as f64) * 10f64.powi((rank * 7 % 20) as i32 - 10) / 3.0;
        let mine: Vec<u8> = (0..100).flat_map(|i| value(team.rank(), i).to_le_bytes()).collect();
        let sum = coll::allreduce(&team, &mine, &mut |low, high| {
            for (a, b) in low.chunks_exact_mut(8).zip(high.chunks_exact(8)) {
                let s = f64::from_le_bytes((&*a).try_into().unwrap()) + f64::from_le_bytes(b.try_into().unwrap());
                a.copy_from_slice(&s.to_le_bytes());
            }
        })?;
        for (i, s) in sum.chunks(8).enumerate() {
            let (s, want) =
                (f64::from_le_bytes(s.try_into().unwrap()), (0..team.size()).map(|r| value(r, i)).sum::<f64>());
            assert!((s - want).abs() <= 1e-12 * want, "element {i}: {s}, {want}");
        }
        for (rank, other) in coll::allgather(&team, &sum)?.iter().enumerate() {
            assert!(*other == sum, "rank {rank} has another result");
        }
        Ok(())
    });
}

#[test]
fn allreduce_of_different_lengths_is_a_mismatch() {
    let e = Job::threads(2, |job| {
        let team = job.world()?;
        coll::allreduce(&team, &vec![0; 4 + team.rank()], &mut |_, _| ()).map(drop)
    })
    .unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Mismatch);
}

#[test]
fn split_orders_by_key_and_keeps_colors_apart() {
    every_size(|job| {
        let world = job.world()?;
        let (p, me) = (world.size(), world.rank());
        // Three colors, the last one without a team; keys that reverse the order, with ties.
        let color = |r: usize| (r % 3 != 2).then_some(r as u32 % 3);
        let key = |r: usize| ((p - r) / 2) as u32;
        let team = world.split(color(me), key(me))?;
        let mut want: Vec<usize> = (0..p).filter(|r| color(*r) == color(me)).collect();
        want.sort_by_key(|r| (key(*r), *r));
        match &team {
            None => assert_eq!(color(me), None),
            Some(team) => {
                assert!(team.members().iter().map(|m| *m as usize).eq(want.iter().copied()));
                assert_eq!(team.job_rank(team.rank())?, me as u32);
                assert_eq!(team.job_rank(team.size()).unwrap_err().kind(), ErrorKind::NoSuchRank);
                // Both colors communicate at the same time, many times, so that mixed traffic would show.
                for i in 0..20 {
                    let all = coll::allgather(team, &[me as u8, i])?;
                    assert!(all.iter().zip(&want).all(|(b, r)| *b == [*r as u8, i]), "{all:?}");
                    team.barrier()?;
                }
            }
        }
        world.barrier()
    });
}
