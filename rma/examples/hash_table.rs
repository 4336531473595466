//! A distributed hash table with open addressing: compare-and-swap claims a slot, fetch-and-op adds to its value.
//!
//!     farside run -n 4 target/release/examples/hash_table --keys 100000
//!
//! All ranks insert at the same time, and the keys of a rank overlap with those of its neighbours. Afterwards every
//! rank looks up every key: it must have exactly the sum of the values added to it, be in the table once, and no other
//! key may be.

#[path = "common/program.rs"]
mod program;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use farside_rma::PassiveEpoch;
use farside_rma::prelude::*;
use program::{Outcome, run};

/// Inserts into a distributed hash table from all ranks at the same time.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Keys that each rank inserts; half of them are also the next rank's.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    keys: u64,
    /// Percentage of slots that are in use at the end.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=99))]
    fill: u64,
}

/// The key of a free slot.
const EMPTY: u64 = 0;

/// Slots of two words, key and value, in blocks of equal length.
struct HashTable {
    window: LockWindow<u64>,
    slots: u64,
    block: u64,
}

/// Result of an insert.
struct Inserted {
    /// Whether the key was not there before.
    new: bool,
    /// The number of slots examined.
    probes: u64,
}

impl HashTable {
    /// A table with room for `slots` keys. Collective.
    fn new(team: &Team, slots: u64) -> Result<Self> {
        let block = slots.div_ceil(team.size() as u64);
        let first = |rank: usize| (rank as u64 * block).min(slots);
        let mine = first(team.rank() + 1) - first(team.rank());
        Ok(Self { window: LockWindow::allocate(team, 2 * mine as usize)?, slots, block })
    }

    /// The slots in which `key` may be, the likeliest first: for each its rank, and the index of the slot's key there.
    fn probes(&self, key: u64) -> impl Iterator<Item = (usize, usize)> {
        let (slots, block) = (self.slots, self.block);
        let home = mix(key) % slots;
        (0..slots).map(move |step| {
            let slot = (home + step) % slots;
            ((slot / block) as usize, 2 * (slot % block) as usize)
        })
    }

    /// Adds `value` to the value of `key`, which is inserted if the table does not have it and must not be [`EMPTY`].
    /// Takes one compare-and-swap for each slot examined, and one fetch-and-op.
    fn add(&self, epoch: &PassiveEpoch<'_, '_, u64>, key: u64, value: u64) -> Outcome<Inserted> {
        for (probes, (rank, at)) in (1..).zip(self.probes(key)) {
            let found = epoch.compare_and_swap_blocking(EMPTY, key, rank, at)?;
            if found == EMPTY || found == key {
                epoch.fetch_and_op_blocking(Op::Sum, value, rank, at + 1)?;
                return Ok(Inserted { new: found == EMPTY, probes });
            }
        }
        Err(format!("no room for key {key} in {} slots", self.slots).into())
    }

    /// The value of `key`. Takes one get for each slot examined, and one for the value.
    fn find(&self, epoch: &PassiveEpoch<'_, '_, u64>, key: u64) -> Result<Option<u64>> {
        for (rank, at) in self.probes(key) {
            match epoch.get_blocking(rank, at)? {
                EMPTY => return Ok(None),
                found if found == key => return epoch.get_blocking(rank, at + 1).map(Some),
                _ => {}
            }
        }
        Ok(None)
    }
}

/// The key with this number. Keys differ from each other and from [`EMPTY`], and their slots are spread over the table.
fn key(number: u64) -> u64 {
    mix(number + 1)
}

/// The finalizer of splitmix64: a permutation of the words that keeps 0.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn main() -> ExitCode {
    let options = Options::parse();
    run(|job| fill_and_check(job, &options))
}

fn fill_and_check(job: &Job, options: &Options) -> Outcome {
    let team = job.world()?;
    let (ranks, me) = (team.size() as u64, team.rank() as u64);
    // Rank r inserts the keys from r * stride on, so that it shares keys with the ranks before and after it.
    let stride = options.keys.div_ceil(2);
    let distinct = stride * (ranks - 1) + options.keys;
    let inserts = |rank: u64, number: u64| (rank * stride..rank * stride + options.keys).contains(&number);
    let amount = |rank: u64| rank + 1;
    let table = HashTable::new(&team, (distinct * 100).div_ceil(options.fill) + 1)?;

    let start = Instant::now();
    let counts = table.window.lock_all(Assert::empty(), |epoch| {
        let keys = (me * stride..me * stride + options.keys).map(key);
        keys.map(|key| table.add(epoch, key, amount(me))).collect::<Outcome<Vec<_>>>()
    })?;
    team.barrier()?;
    let time = start.elapsed();

    // The number of new keys and of slots examined, summed over all ranks.
    let new = counts.iter().filter(|inserted| inserted.new).count() as u64;
    let mut sums = [new, counts.iter().map(|inserted| inserted.probes).sum()];
    team.allreduce(&mut sums, Op::Sum)?;
    let [new, probes] = sums;
    if new != distinct {
        return Err(format!("{new} keys were inserted as new, {distinct} expected").into());
    }

    table.window.lock_all(Assert::empty(), |epoch| {
        (0..distinct + options.keys).try_for_each(|number| -> Outcome {
            let inserted = (0..ranks).filter(|rank| inserts(*rank, number));
            let expected = inserted.map(amount).reduce(|a, b| a + b);
            match table.find(epoch, key(number))? {
                found if found == expected => Ok(()),
                found => Err(format!("key number {number} has {found:?}, {expected:?} expected").into()),
            }
        })
    })?;
    // No key is in the table twice, and nothing else was written: the slots in use are as many as the keys.
    let in_use = |local: &mut [u64]| local.chunks_exact(2).filter(|slot| slot[0] != EMPTY).count() as u64;
    let mut used = [table.window.with_local(|local| Ok::<_, Error>(in_use(local)))?];
    team.allreduce(&mut used, Op::Sum)?;
    let [used] = used;
    if used != distinct {
        return Err(format!("{used} slots are in use, {distinct} expected").into());
    }
    if me == 0 {
        let all = ranks * options.keys;
        let rate = all as f64 / time.as_secs_f64().max(1e-9) / 1e6;
        println!("{all} inserts of {distinct} keys by {ranks} ranks in {time:.2?}: {rate:.2} million a second");
        println!(
            "{:.2} slots looked at per insert; all keys, values and absences are right",
            probes as f64 / all as f64
        );
    }
    Ok(table.window.free()?)
}
