//! Sorting, shuffling and prefix sums against std's and loops.

use std::collections::HashSet;

use farside_rma::global_array::Format;
use farside_rma::prelude::*;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{blamed, everywhere};
use crate::checks::config::{MAPPED, these};

/// The elements of a rank in the sequence of all.
fn part<'a, T>(team: &Team, counts: &[usize], all: &'a [T]) -> &'a [T] {
    let start = counts[..team.rank()].iter().sum::<usize>();
    &all[start..start + counts[team.rank()]]
}

/// Numbers of elements of the ranks: one has all, all but the first have some, as many as their rank, and none at all.
fn counts(shape: usize, p: usize) -> Vec<usize> {
    (0..p).map(|rank| [if rank == p / 2 { 200 } else { 0 }, if rank == 0 { 0 } else { 37 }, rank, 0][shape]).collect()
}

#[test]
fn sorted_elements_equal_those_of_a_serial_sort() {
    everywhere(&[1, 2, 3, 5, 8], |team| {
        let p = team.size();
        for (shape, most) in (0..4).flat_map(|shape| [1u32, 3, 1000].map(|most| (shape, most))) {
            let counts = counts(shape, p);
            let mut rng = StdRng::seed_from_u64((shape as u64) << 32 | u64::from(most));
            // A key and the place before.
            let mut all: Vec<[u32; 2]> =
                (0..counts.iter().sum::<usize>() as u32).map(|i| [rng.random_range(0..most), i]).collect();
            let mut own = part(team, &counts, &all).to_vec();
            let (mut stable, mut keyed) = (own.clone(), own.clone());
            team.sort_unstable(&mut own)?;
            team.sort_by(&mut stable, |a, b| b[0].cmp(&a[0]))?;
            team.sort_by_key(&mut keyed, |one| one[0])?;
            // The sort by key is stable, so the places remain in order.
            all.sort();
            assert_eq!(own, part(team, &counts, &all));
            assert_eq!(keyed, own);
            all.sort_by(|a, b| b[0].cmp(&a[0]).then(a[1].cmp(&b[1])));
            assert_eq!(stable, part(team, &counts, &all));
        }
        Ok(())
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, rng_seed: RngSeed::Fixed(3), ..ProptestConfig::default() })]

    #[test]
    fn any_elements_are_sorted(parts in proptest::collection::vec(proptest::collection::vec(-5..5i64, 0..30), 1..7)) {
        let mut all: Vec<i64> = parts.concat();
        all.sort_unstable();
        let counts: Vec<usize> = parts.iter().map(Vec::len).collect();
        for config in these(&[MAPPED]) {
            config.run(parts.len() as u32, |team| {
                let mut own = parts[team.rank()].clone();
                team.sort(&mut own)?;
                assert_eq!(own, part(team, &counts, &all));
                Ok(())
            }).unwrap();
        }
    }
}

#[test]
fn floats_are_sorted_and_an_order_that_is_none_is_refused_or_ends() {
    everywhere(&[3], |team| {
        let mut own: Vec<f64> = (0..50).map(|i| ((i * 7919 + team.rank() * 31) % 101) as f64 - 50.0).collect();
        team.sort_by(&mut own, f64::total_cmp)?;
        let mut ends = [0.0; 6];
        team.allgather(&[own[0], own[49]], &mut ends)?;
        assert!(own.is_sorted() && ends.is_sorted(), "{ends:?}");
        // Each rank has an order of its own.
        let turned = team.rank() == 1;
        let refused = team.sort_by(&mut own, |a, b| if turned { b.total_cmp(a) } else { a.total_cmp(b) });
        assert!(blamed(refused).is_none_or(|(kind, _)| kind == ErrorKind::BadArgument));
        Ok(())
    });
}

#[test]
fn shuffled_elements_are_those_given_in_another_order() {
    everywhere(&[1, 3, 8], |team| {
        let counts = counts(1, team.size());
        let all: Vec<u32> = (0..counts.iter().sum::<usize>() as u32).collect();
        let mut seen = HashSet::new();
        for seed in 0..3 {
            let mut own = part(team, &counts, &all).to_vec();
            team.shuffle(&mut own, seed)?;
            let mut again = part(team, &counts, &all).to_vec();
            team.shuffle(&mut again, seed)?;
            assert_eq!(own, again);
            let mut found = vec![0; all.len()];
            team.allgatherv(&own, &mut found, &counts)?;
            assert!(all.len() < 2 || seen.insert(found.clone()), "the same order twice");
            assert!(all.len() < 2 || !found.is_sorted());
            found.sort_unstable();
            assert_eq!(found, all);
        }
        Ok(())
    });
}

/// Each of the 24 orders of 4 elements is as frequent as it should be: chi-squared with 23 degrees of freedom.
#[test]
fn every_order_is_equally_likely() {
    let found = MAPPED.run(3, |team| {
        let counts = [2, 0, 2];
        let mut orders = std::collections::HashMap::<[u8; 4], u32>::new();
        for seed in 0..1200 {
            let mut own = part(team, &counts, &[0, 1, 2, 3]).to_vec();
            team.shuffle(&mut own, seed)?;
            let mut all = [0; 4];
            team.allgatherv(&own, &mut all, &counts)?;
            *orders.entry(all).or_default() += 1;
        }
        Ok(orders)
    });
    let orders = found.unwrap().swap_remove(0);
    let squares: f64 = orders.values().map(|count| (f64::from(*count) - 50.0).powi(2) / 50.0).sum();
    // Exceeded with probability 0.001; the seeds are fixed.
    assert!(orders.len() == 24 && squares < 49.7, "{squares}: {orders:?}");
}

#[test]
fn prefix_sums_equal_those_of_a_loop() {
    everywhere(&[1, 2, 5], |team| {
        let (p, me) = (team.size(), team.rank());
        let value = |i: usize| (i as i64 * 37 % 11) - 5;
        for len in [0, 1, 7, 100] {
            for (format, op, first) in [
                (Format::Block, Op::Sum, None),
                (Format::Block, Op::Max, Some(-3)),
                (Format::Cyclic(1), Op::Sum, Some(100)),
                (Format::Cyclic(3), Op::Min, None),
            ] {
                let array = GlobalArray::<i64, 1>::distributed(team, [len], [format])?;
                array.for_each(|[i], element| *element = value(i))?;
                let mut expected = Vec::new();
                let mut sum = first;
                for i in 0..len {
                    let mut next = [sum.unwrap_or(value(i))];
                    if sum.is_some() {
                        farside_rma::op::combine(op, &mut next, &[value(i)])?;
                    }
                    expected.push(if first.is_some() { sum.unwrap_or(0) } else { next[0] });
                    sum = Some(next[0]);
                }
                match first {
                    Some(first) => array.prefix_exclusive(op, first)?,
                    None => array.prefix(op)?,
                }
                let mut found = vec![0; len];
                array.get(0..len, &mut found)?;
                assert_eq!(found, expected, "{format:?} {op} {first:?}");
                array.sync()?;
                array.free()?;
            }
        }
        let table = Symmetric::<u32>::allocate(team, 3)?;
        table.exclusive(|own| {
            own.fill(2);
            Ok::<(), Error>(())
        })?;
        table.prefix(Op::Sum)?;
        assert_eq!(table.local().to_vec()?, [1, 2, 3].map(|i| 2 * (3 * me as u32 + i)));
        assert_eq!(table.get_value(p - 1, 2)?, 6 * p as u32);
        table.barrier()?;
        table.free()?;
        let floats = GlobalArray::<f64, 1>::new(team, [9])?;
        assert_eq!(blamed(floats.prefix(Op::Bor)).map(|(kind, _)| kind), Some(ErrorKind::Unsupported));
        // One rank whose elements are borrowed fails the call at all.
        if me == 0 {
            floats.with_local(|_| {
                assert_eq!(blamed(floats.prefix(Op::Sum)).map(|(kind, _)| kind), Some(ErrorKind::WrongEpoch));
                Ok::<(), Error>(())
            })?;
        } else {
            assert_eq!(blamed(floats.prefix(Op::Sum)), Some((ErrorKind::Aborted, Some(0))));
        }
        floats.free()
    });
}

#[test]
fn messages_of_a_sort_grow_with_the_logarithm_of_the_length() {
    use farside_rma::core::stats::Kind;
    for config in these(&[MAPPED]) {
        let used = config.run(4, |team| {
            let mut rounds = Vec::new();
            for len in [100, 10_000] {
                let mut rng = StdRng::seed_from_u64(team.rank() as u64);
                let mut own: Vec<u64> = (0..len).map(|_| rng.random()).collect();
                team.barrier()?;
                let before = team.job().stats();
                team.sort_unstable(&mut own)?;
                let used = team.job().stats() - before;
                rounds.push(used.count(Kind::Send) + used.count(Kind::Write) + used.count(Kind::Signal));
            }
            Ok(rounds)
        });
        for rounds in used.unwrap() {
            assert!(
                rounds[0] > 0 && rounds[1] <= 3 * rounds[0].max(50),
                "{rounds:?} messages for 100 times as many elements"
            );
        }
    }
}
