//! A distributed hash map: every rank inserts keys in blocks, adds to those of all ranks, and gets them again.
//!
//!     farside run -n 4 target/release/examples/hash_map --keys 100000

#[path = "common/program.rs"]
mod program;

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use farside_rma::dist::Map;
use farside_rma::prelude::*;
use program::{Outcome, numbers, run};

/// Inserts, updates and gets entries of a map over all ranks.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Keys that each rank inserts.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    keys: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    run(|job| fill(job, &options))
}

fn fill(job: &Job, options: &Options) -> Outcome {
    let team = job.world()?;
    let (ranks, me, keys) = (team.size() as u64, team.rank() as u64, options.keys);
    let mut map = Map::<u64, u64>::new(&team)?;
    let add = map.register(|entry, by: u64| *entry.and_modify(|value| *value += by).or_insert(by))?;
    team.barrier()?;

    let start = Instant::now();
    map.extend((keys * me..keys * (me + 1)).map(|key| (key, 1)))?;
    let inserted = start.elapsed();
    // Each rank adds to keys that it draws from those of all ranks, and to some that were not there.
    let drawn = |rank: u64| numbers(rank as usize).take(keys as usize).map(move |x| (x % (ranks * keys + 10), x >> 40));
    let mut updates = map.updates(&add)?;
    drawn(me).try_for_each(|(key, by)| updates.add(key, by))?;
    updates.finish()?;

    let mut model: HashMap<u64, u64> = (0..ranks * keys).map(|key| (key, 1)).collect();
    (0..ranks).flat_map(drawn).for_each(|(key, by)| *model.entry(key).or_default() += by);
    // The keys of this rank by gets, and all that it owns.
    let own: Vec<u64> = drawn(me).map(|(key, _)| key).take(1000).collect();
    let start = Instant::now();
    let values = map.get_all(&own)?;
    let got = start.elapsed();
    let wrong = own.iter().zip(&values).find(|(key, value)| **value != model.get(*key).copied());
    let wrong =
        wrong.map(|(key, _)| *key).or(map.local()?.iter().find(|(k, v)| model.get(*k) != Some(*v)).map(|(k, _)| *k));
    if let Some(key) = wrong {
        return Err(format!("key {key} has another value than on one rank").into());
    }
    if map.len()? != model.len() {
        return Err(format!("{} keys, {} expected", map.len()?, model.len()).into());
    }
    // One update of its own, with a result.
    let next = map.update(u64::MAX - me, &add, 5)? + map.remove(u64::MAX - me)?.unwrap_or(0);
    if next != 10 || map.get(&(u64::MAX - me))?.is_some() {
        return Err("an entry that was made and removed is still there, or had another value".into());
    }
    if me == 0 {
        let rate = |count: u64, time: std::time::Duration| count as f64 / time.as_secs_f64().max(1e-9) / 1e6;
        println!(
            "{} keys: {:.2} million inserts and {:.2} million gets a second",
            model.len(),
            rate(ranks * keys, inserted),
            rate(ranks * own.len() as u64, got)
        );
    }
    Ok(map.free()?)
}
