//! Aggregated updates, gathers and conveyors: results equal those of a serial model over every device and number of hops;
//! messages are counted; memory is bounded; errors.

mod conveyors;
mod refused;

use farside_rma::aggregate::Options;
use farside_rma::core::stats::{Kind, Snapshot};
use farside_rma::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::checks::config::{Config, Memory, POSTED, quick, table, these, verbs, within};

/// Runs `f` with the given numbers of ranks over every device.
fn everywhere(ranks: &[u32], f: impl Fn(&Team, &Config) -> Result<()> + Sync + Send + Copy + 'static) {
    let most = if verbs() && quick() { 1 } else { 12 };
    let allocated = |c: &&Config| c.memory == Memory::Allocated || c.device.is_some() || c.seed.is_some();
    for config in table().iter().filter(allocated).take(most) {
        for n in ranks.iter().copied() {
            run(config, n, f);
        }
    }
}

fn run(config: &Config, n: u32, f: impl Fn(&Team, &Config) -> Result<()> + Sync + Send + Copy + 'static) {
    let config = *config;
    let result = within(60, &format!("{} with {n} ranks", config.name), move || {
        config.run(n, |team| f(team, &config)).map(drop)
    });
    result.unwrap_or_else(|e| panic!("{}, {n} ranks: {e}", config.name));
}

/// Little memory and every number of hops; and what a program gets that gives no options.
const OPTIONS: [Options; 4] = [
    Options { bytes: 4 << 10, hops: Some(1) },
    Options { bytes: 6 << 10, hops: Some(2) },
    Options { bytes: 8 << 10, hops: Some(3) },
    Options { bytes: 1 << 20, hops: None },
];

const LEN: usize = 7;

/// Random updates of a rank: ranks, elements, values.
fn drawn(rank: usize, ranks: usize, seed: u64) -> impl Iterator<Item = (usize, usize, u64)> {
    let mut rng = StdRng::seed_from_u64(seed << 8 | rank as u64);
    let count = rng.random_range(0..500);
    (0..count).map(move |_| (rng.random_range(0..ranks), rng.random_range(0..LEN), rng.random()))
}

#[test]
fn updates_equal_the_serial_model() {
    everywhere(&[1, 2, 3, 5, 8], |team, _| {
        let (p, me) = (team.size(), team.rank());
        for (seed, op) in [Op::Sum, Op::Max, Op::Bxor, Op::Prod].into_iter().enumerate() {
            let (options, seed) = (OPTIONS[(seed + p) % OPTIONS.len()], seed as u64);
            let table = Symmetric::<u64>::allocate(team, LEN)?;
            let array = GlobalArray::<u64, 2>::new(team, [p, LEN])?;
            let mut updates = table.aggregated_with(op, options)?;
            let mut others = array.aggregated_with(op, options)?;
            for (rank, at, value) in drawn(me, p, seed) {
                updates.add(rank, at, value)?;
                others.add([rank, at], value)?;
            }
            updates.finish()?;
            others.finish()?;
            let mut expected = vec![0; p * LEN];
            for (rank, at, value) in (0..p).flat_map(|from| drawn(from, p, seed)) {
                let element = &mut expected[LEN * rank + at];
                farside_rma::op::combine(op, std::slice::from_mut(element), &[value])?;
            }
            // The updates are visible at every rank.
            let mut found = vec![0; p * LEN];
            for rank in 0..p {
                table.get(&mut found[LEN * rank..][..LEN], rank, 0)?;
            }
            assert_eq!(found, expected, "{op} of {me}, {options:?}");
            array.get((0..p, 0..LEN), &mut found)?;
            assert_eq!(found, expected, "{op} of {me} in an array, {options:?}");
            array.free()?;
            table.free()?;
        }
        Ok(())
    });
}

#[test]
fn last_value_of_a_rank_replaces_its_earlier_ones() {
    everywhere(&[2, 4], |team, _| {
        let (p, me) = (team.size(), team.rank());
        let table = Symmetric::<f32>::allocate(team, p)?;
        for options in OPTIONS {
            let mut values = table.aggregated_with(Op::Replace, options)?;
            for i in 0..300 {
                for rank in 0..p {
                    values.add(rank, me, (i * p + rank) as f32)?;
                }
            }
            values.finish()?;
            assert_eq!(table.local().to_vec()?, vec![(299 * p + me) as f32; p]);
            // No rank begins the next updates earlier.
            team.barrier()?;
        }
        table.free()
    });
}

#[test]
fn flushed_updates_are_visible_at_their_owner() {
    everywhere(&[1, 3, 5], |team, _| {
        let (p, me) = (team.size(), team.rank());
        let table = Symmetric::<u32>::allocate(team, p)?;
        for (round, options) in OPTIONS.into_iter().enumerate() {
            let mut sums = table.aggregated_with(Op::Sum, options)?;
            for flush in 1..=3 {
                for rank in 0..p {
                    (0..10).try_for_each(|_| sums.add(rank, me, 1))?;
                }
                for rank in 0..p {
                    sums.flush(rank)?;
                    assert_eq!(table.get_value(rank, me)?, 30 * round as u32 + 10 * flush);
                }
            }
            sums.finish()?;
        }
        table.free()
    });
}

#[test]
fn gathered_elements_equal_the_table() {
    everywhere(&[1, 3, 8], |team, _| {
        let (p, me) = (team.size(), team.rank());
        let table = Symmetric::<[u16; 3]>::allocate(team, LEN)?;
        let array = GlobalArray::<u64, 1>::new(team, [p * LEN])?;
        for at in 0..LEN {
            table.local().store(at, [me as u16, at as u16, 9])?;
        }
        array.for_each(|[i], element| *element = 3 * i as u64)?;
        table.barrier()?;
        for options in [OPTIONS[p % 3], OPTIONS[3]] {
            let places: Vec<_> = drawn(me, p, 3).map(|(rank, at, _)| (rank, at)).collect();
            let mut found = vec![None; places.len()];
            table.gather_aggregated_with(options, &places, |i, value| {
                assert!(found[i].replace(value).is_none(), "position {i} twice");
            })?;
            for (place, value) in places.iter().zip(found) {
                assert_eq!(value, Some([place.0 as u16, place.1 as u16, 9]));
            }
            let indices: Vec<_> = places.iter().map(|(rank, at)| [LEN * rank + at]).collect();
            let mut found = vec![0; indices.len()];
            array.gather_aggregated_with(options, &indices, |i, value| found[i] = value)?;
            assert!(found.iter().zip(&indices).all(|(value, [i])| *value == 3 * *i as u64));
        }
        array.free()?;
        table.free()
    });
}

/// Packets that a rank has sent.
fn sent(used: &Snapshot) -> u64 {
    used.count(Kind::Send)
}

#[test]
fn messages_are_those_of_the_blocks() {
    for config in these(&[POSTED]) {
        run(&config, 2, |team, _| {
            const UPDATES: u64 = 20_000;
            let job = team.job();
            let table = Symmetric::<u64>::allocate(team, 64)?;
            // A fifth of the memory is a block; an update has an index and a value.
            let block = 4096;
            let mut sums = table.aggregated_with(Op::Sum, Options { bytes: 5 * block, hops: None })?;
            job.align()?;
            let before = job.stats();
            for i in 0..UPDATES {
                sums.add(1 - team.rank(), i as usize % 64, 1)?;
            }
            sums.finish()?;
            let messages = sent(&(job.stats() - before));
            let blocks = UPDATES.div_ceil(block as u64 / 16);
            // A block, and one message back for each of the peer's; then the rounds of the termination.
            let expected = 2 * blocks..=2 * blocks + 12;
            assert!(expected.contains(&messages), "{messages} messages, expected {expected:?}");
            assert_eq!(table.local().to_vec()?.iter().sum::<u64>(), UPDATES);
            table.free()
        });
    }
}

#[test]
fn updates_of_mapped_memory_send_nothing() {
    run(&crate::checks::config::MAPPED, 3, |team, _| {
        let job = team.job();
        let table = Symmetric::<u64>::allocate(team, 8)?;
        if table.is_mapped() {
            job.align()?;
            let before = job.stats();
            let mut sums = table.aggregated(Op::Sum)?;
            for i in 0..1000 {
                sums.add(i % 3, i % 8, 1)?;
            }
            let used = job.stats() - before;
            assert_eq!((sent(&used), used.count(Kind::Accumulate)), (0, 1000));
            sums.finish()?;
        }
        table.free()
    });
}
