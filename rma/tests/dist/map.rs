//! Maps against std's.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use farside_rma::aggregate::Options;
use farside_rma::core::stats::Kind;
use farside_rma::dist::Map;
use farside_rma::prelude::*;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Deserializer, Serialize};

use super::{OPTIONS, blamed, everywhere, run};
use crate::checks::config::{MAPPED, these};

/// An access to a map of which a rank makes several.
#[derive(Clone, Debug)]
enum Step {
    Insert(u16, u32),
    Remove(u16),
    Get(u16),
    Add(u16, u32),
    /// Keeps the entries of this rank whose values are no multiples of the number.
    Retain(u32),
}

/// Makes the accesses with keys of this rank alone, next to those of the others, and compares each result.
fn same_as_serial(team: &Team, steps: &[Step]) -> Result<()> {
    let map = Map::<(u32, u16), u32>::new(team)?;
    let add = map.register(|entry, by: u32| {
        let value = entry.or_default();
        *value = value.wrapping_add(by);
        *value
    })?;
    let (me, mut model) = (team.rank() as u32, HashMap::new());
    for step in steps {
        match *step {
            Step::Insert(key, value) => {
                assert_eq!(map.insert((me, key), value)?, model.insert((me, key), value));
            }
            Step::Remove(key) => assert_eq!(map.remove((me, key))?, model.remove(&(me, key))),
            Step::Get(key) => assert_eq!(map.get(&(me, key))?, model.get(&(me, key)).copied()),
            Step::Add(key, by) => {
                let value = model.entry((me, key)).or_default();
                *value = u32::wrapping_add(*value, by);
                assert_eq!(map.update((me, key), &add, by)?, *value);
            }
            Step::Retain(by) => {
                let own = |key: &(u32, u16)| key.0 == me && map.owner(key) == team.rank();
                map.retain(|key, value| !(own(key) && value.is_multiple_of(by)))?;
                model.retain(|key, value| !(own(key) && value.is_multiple_of(by)));
            }
        }
    }
    team.barrier()?;
    let keys: Vec<_> = model.keys().copied().collect();
    assert_eq!(map.get_all(&keys)?, keys.iter().map(|key| model.get(key).copied()).collect::<Vec<_>>());
    let mut len = [model.len()];
    team.allreduce(&mut len, Op::Sum)?;
    assert_eq!(map.len()?, len[0]);
    map.free()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (key, value) = (0..12u16, 0..50u32);
    let step = prop_oneof![
        (key.clone(), value.clone()).prop_map(|(key, value)| Step::Insert(key, value)),
        key.clone().prop_map(Step::Remove),
        key.clone().prop_map(Step::Get),
        (key, value).prop_map(|(key, by)| Step::Add(key, by)),
        (1..4u32).prop_map(Step::Retain),
    ];
    proptest::collection::vec(step, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, rng_seed: RngSeed::Fixed(2), ..ProptestConfig::default() })]

    #[test]
    fn results_of_random_accesses_equal_the_serial_model(steps in steps(), ranks in 1..=6u32) {
        for config in these(&[MAPPED]) {
            config.run(ranks, |team| same_as_serial(team, &steps)).unwrap();
        }
    }
}

/// Keys of any length, of which ranks have some in common, and numbers.
fn drawn(rank: usize, seed: u64) -> impl Iterator<Item = (String, u64)> {
    let mut rng = StdRng::seed_from_u64(seed << 8 | rank as u64);
    // One rank has none.
    let count = if rank == 1 { 0 } else { rng.random_range(0..300) };
    (0..count).map(move |_| {
        let (key, long) = (rng.random_range(0..40), [1, 1, 8, 60][rng.random_range(0..4)]);
        (format!("{key}").repeat(long), rng.random_range(0..u64::MAX >> 16))
    })
}

#[test]
fn aggregated_updates_equal_the_serial_model() {
    everywhere(&[1, 2, 3, 5, 8], |team| {
        let p = team.size();
        let mut map = Map::<String, (u64, Vec<u64>)>::new(team)?;
        let add = map.register(|entry, value: u64| {
            let (sum, values) = entry.or_default();
            *sum += value;
            values.push(value);
        })?;
        let mut model = HashMap::<String, (u64, Vec<u64>)>::new();
        for (seed, options) in OPTIONS.into_iter().enumerate() {
            let seed = seed as u64;
            let mut updates = map.updates_with(&add, options)?;
            drawn(team.rank(), seed).try_for_each(|(key, value)| updates.add(key, value))?;
            updates.finish()?;
            for (key, value) in (0..p).flat_map(|rank| drawn(rank, seed)) {
                let (sum, values) = model.entry(key).or_default();
                *sum += value;
                values.push(value);
            }
        }
        assert_eq!(map.len()?, model.len());
        assert!(map.local()?.keys().all(|key| map.owner(key) == team.rank()));
        for (key, (sum, values)) in &model {
            let (found, mut others) = map.get(key)?.unwrap();
            let mut values = values.clone();
            values.sort_unstable();
            others.sort_unstable();
            assert_eq!((found, others), (*sum, values), "{key}");
        }
        map.free()
    });
}

#[test]
fn values_of_a_rank_for_a_key_are_applied_in_its_order() {
    everywhere(&[1, 4], |team| {
        let me = team.rank();
        for options in OPTIONS {
            let mut last = Map::<(usize, u8), u32>::new(team)?;
            let mut inserts = last.inserts_with(options)?;
            for i in 0..200 {
                inserts.add((me, (i % 3) as u8), i)?;
            }
            inserts.finish()?;
            for rank in 0..team.size() {
                assert_eq!(last.get_all(&[(rank, 0), (rank, 1), (rank, 2)])?, [Some(198), Some(199), Some(197)]);
            }
            last.free()?;
        }
        Ok(())
    });
}

#[test]
fn whole_map_is_folded_counted_and_cleared() {
    everywhere(&[1, 3, 6], |team| {
        let (p, me) = (team.size() as u64, team.rank() as u64);
        let mut map = Map::<u64, String>::new(team)?;
        assert_eq!((map.is_empty()?, map.reduce(|key, _| *key, u64::max)?), (true, None));
        assert_eq!(map.fold(7, |sum, _, _| sum + 1, |a, b| a + b)?, 7 * p);
        // All keys of one rank.
        map.extend((0..if me == 0 { 50 } else { 0 }).map(|key| (key, "x".repeat(key as usize))))?;
        assert_eq!(map.len()?, 50);
        let lengths = |mut found: BTreeMap<u64, usize>, key: &u64, value: &String| {
            found.insert(*key, value.len());
            found
        };
        let merged = |mut a: BTreeMap<u64, usize>, b| {
            a.extend(b);
            a
        };
        assert_eq!(map.fold(BTreeMap::new(), lengths, merged)?, (0..50).map(|key| (key, key as usize)).collect());
        assert_eq!(map.reduce(|_, value| value.len(), usize::max)?, Some(49));
        map.retain(|key, value| {
            value.push('!');
            key % 2 == 0
        })?;
        team.barrier()?;
        assert_eq!((map.len()?, map.get(&10)?), (25, Some("xxxxxxxxxx!".to_owned())));
        assert_eq!(map.get(&11)?, None);
        map.clear()?;
        assert!(map.is_empty()?);
        map.insert(me, String::new())?;
        let mut kept = [map.into_local()?.len() as u64];
        team.allreduce(&mut kept, Op::Sum)?;
        assert_eq!(kept, [p]);
        Ok(())
    });
}

/// A value whose encoding is refused by the rank that gets it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Unreadable(pub(super) u8);

impl<'de> Deserialize<'de> for Unreadable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let read = u8::deserialize(deserializer)?;
        if read < 2 { Ok(Self(read)) } else { Err(serde::de::Error::custom("greater than 1")) }
    }
}

/// A key of `owner`.
fn key_of(map: &Map<u64, Unreadable>, owner: usize) -> u64 {
    (0..).find(|key| map.owner(key) == owner).unwrap()
}

#[test]
fn wrong_encodings_are_errors_that_name_the_rank() {
    everywhere(&[3], |team| {
        let mut map = Map::<u64, Unreadable>::new(team)?;
        let (me, right) = (team.rank(), key_of(&map, (team.rank() + 1) % 3));
        let e = map.insert(right, Unreadable(9)).unwrap_err();
        assert!(e.kind() == ErrorKind::Aborted && e.to_string().contains("cannot decode"), "{e}");
        team.barrier()?;
        let mut inserts = map.inserts()?;
        // The first one is lost, and the others arrive.
        inserts.add(right, Unreadable(9))?;
        inserts.add(right, Unreadable(1))?;
        let left = (me + 2) % 3;
        assert_eq!(blamed(inserts.finish()), Some((ErrorKind::Protocol, Some(left))));
        assert_eq!(map.len()?, 3);
        map.free()
    });
}

#[test]
fn what_is_refused_is_an_error_at_the_rank_that_asks() {
    everywhere(&[2], |team| {
        let (me, other) = (team.rank(), 1 - team.rank());
        let mut map = Map::<u64, Unreadable>::new(team)?;
        let theirs = key_of(&map, other);
        let within = Map::<u64, Unreadable>::new(team)?;
        let foreign = within.register(|_, ()| ())?;
        assert_eq!(blamed(map.update(theirs, &foreign, ())).unwrap().0, ErrorKind::BadArgument);
        assert_eq!(blamed(map.updates(&foreign).map(drop)).unwrap().0, ErrorKind::BadArgument);
        let nothing = map.register(|_, bytes: Vec<u8>| bytes.len())?;
        // A long argument is a message of its own.
        assert_eq!(map.update(theirs, &nothing, vec![1; 3 << 20])?, 3 << 20);
        let mut long = map.updates(&nothing)?;
        assert_eq!(blamed(long.add(theirs, vec![1; 1 << 20])).unwrap().0, ErrorKind::BadArgument);
        long.add(theirs, vec![1; 100_000])?;
        long.finish()?;

        // Entries that their owner has borrowed.
        team.barrier()?;
        let borrowed = map.local()?;
        assert!(map.get(&theirs)?.is_none());
        assert_eq!(blamed(map.insert(theirs, Unreadable(1))), Some((ErrorKind::WrongEpoch, Some(other))));
        assert_eq!(blamed(map.update(theirs, &nothing, vec![])), Some((ErrorKind::WrongEpoch, Some(other))));
        assert_eq!(blamed(map.retain(|_, _| true)), Some((ErrorKind::WrongEpoch, Some(me))));
        team.barrier()?;
        drop(borrowed);
        team.barrier()?;
        map.insert(theirs, Unreadable(1))?;
        within.free()?;
        map.free()
    });
}

#[test]
fn function_that_panics_or_communicates_gets_an_error() {
    everywhere(&[2], |team| {
        let mut map = Map::<u64, Unreadable>::new(team)?;
        let keys = [key_of(&map, 0), key_of(&map, 1)];
        let panics = map.register(|_, ()| -> () { std::panic::resume_unwind(Box::new("no such luck".to_owned())) })?;
        let inside = team.clone();
        let calls = map.register(move |_, _: Vec<u8>| inside.barrier().map_err(|e| format!("{:?}", e.kind())))?;
        for key in keys {
            let e = map.update(key, &panics, ()).unwrap_err();
            assert!(e.kind() == ErrorKind::Aborted && e.to_string().contains("no such luck"), "{e}");
            assert_eq!(e.blamed(), Some(map.owner(&key)));
            for len in [0, 1_000_000] {
                assert_eq!(map.update(key, &calls, vec![0; len])?, Err("InCallback".to_owned()));
            }
        }
        let mut updates = map.updates(&panics)?;
        updates.add(keys[1 - team.rank()], ())?;
        assert_eq!(blamed(updates.finish()), Some((ErrorKind::Aborted, Some(1 - team.rank()))));
        map.free()
    });
}

/// Updates that are dropped are lost, and the map can be used further.
#[test]
fn dropped_updates_leave_the_map_usable() {
    everywhere(&[2], |team| {
        let mut map = Map::<u32, u32>::new(team)?;
        let mut inserts = map.inserts()?;
        (0..1000).try_for_each(|key| inserts.add(key, 1))?;
        drop(inserts);
        team.barrier()?;
        map.extend((0..1000).map(|key| (key, 2)))?;
        assert_eq!(map.reduce(|_, value| *value, u32::min)?, Some(2));
        map.free()
    });
}

#[test]
fn messages_of_inserts_are_those_of_the_blocks() {
    for config in these(&[MAPPED]) {
        run(&config, 2, |team| {
            const KEYS: u64 = 20_000;
            let job = team.job();
            let mut map = Map::<u64, u32>::new(team)?;
            let theirs: Vec<u64> = (0..).filter(|key| map.owner(key) != team.rank()).take(KEYS as usize).collect();
            // A fifth of the memory is a block; a key and a value are one piece of 16 bytes.
            let block = 4096;
            let mut inserts = map.inserts_with(Options { bytes: 5 * block, hops: None })?;
            job.align()?;
            let before = job.stats();
            theirs.iter().try_for_each(|key| inserts.add(*key, 1))?;
            inserts.finish()?;
            let messages = (job.stats() - before).count(Kind::Send);
            let blocks = KEYS.div_ceil(block as u64 / 16);
            // A block, and one message back for each of the peer's; then the rounds of the termination.
            let expected = 2 * blocks..=2 * blocks + 12;
            assert!(expected.contains(&messages), "{messages} messages, expected {expected:?}");
            // An insert of its own is a call and its answer; the answers are those to the other rank's.
            team.barrier()?;
            job.align()?;
            let before = job.stats();
            theirs[..10].iter().try_for_each(|key| map.insert(*key, 2).map(drop))?;
            // The other rank's inserts are served in the barrier.
            team.barrier()?;
            let messages = (job.stats() - before).count(Kind::Send);
            assert!((20..=24).contains(&messages), "{messages} messages of 10 inserts and 10 answers");
            // The answers to 640 keys of one owner take 10 calls.
            job.align()?;
            let before = job.stats();
            let values = map.get_all(&theirs[..640])?;
            team.barrier()?;
            let messages = (job.stats() - before).count(Kind::Send);
            assert!((20..=24).contains(&messages), "{messages} messages of 10 blocks of keys and 10 answers");
            assert!(values.iter().zip(0..).all(|(value, at)| *value == Some(if at < 10 { 2 } else { 1 })));
            assert_eq!(map.len()?, 2 * KEYS as usize);
            map.free()
        });
    }
}

thread_local! {
    /// Ranks of a test are threads.
    static SEEN: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A rank that waits elsewhere serves accesses, and counts none twice.
#[test]
fn accesses_are_served_in_any_wait() {
    for config in these(&[MAPPED]) {
        run(&config, 3, |team| {
            let map = Map::<u64, u64>::new(team)?;
            let seen = map.register(|_, from: usize| SEEN.with_borrow_mut(|seen| seen.push(from)))?;
            if team.rank() > 0 {
                let key = (0..).find(|key| map.owner(key) == 0).unwrap_or(0);
                map.update(key, &seen, team.rank())?;
            }
            team.barrier()?;
            let mut found = SEEN.take();
            found.sort_unstable();
            assert_eq!(found, if team.rank() == 0 { vec![1, 2] } else { vec![] });
            map.free()
        });
    }
}
