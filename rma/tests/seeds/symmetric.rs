//! Steps with symmetric memory, flags and remote calls.

use farside_rma::calls::Calls;
use farside_rma::prelude::*;
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::steps::{Kind, Rank, equal, values};

/// Notified puts around a ring, additions to a flag, and atomics.
pub(crate) const RING: Kind = Kind {
    name: "ring",
    weight: 3,
    run: ring,
    describe: |_, rng| {
        let (rounds, len) = plan(rng);
        format!("{rounds} rounds of {len} words")
    },
};

fn plan(rng: &mut StdRng) -> (u64, usize) {
    (rng.random_range(1..8), *[1, 9, 300, 3000].choose(rng).unwrap())
}

fn ring(rank: &mut Rank<'_>, rng: &mut StdRng) -> Result<()> {
    let (rounds, len) = plan(rng);
    let team = rank.team(rng);
    let (p, me) = (team.size(), team.rank());
    let (right, left) = ((me + 1) % p, (me + p - 1) % p);
    // One additional word is for the atomics.
    let (data, flags) = (Symmetric::<u64>::allocate(&team, len + 1)?, Flags::allocate(&team, 3)?);
    for round in 1..=rounds {
        let mine = values(round, me, len);
        if round % 2 == 0 {
            data.put_notify(&mine, right, 0, &flags, 0, round)?;
        } else {
            drop(data.put_notify_nbi(mine, right, 0, &flags, 0, round)?);
        }
        equal("flag", &[flags.wait_until(0, ge(round))?], &[round])?;
        let mut got = vec![0; len];
        data.local().read(0, &mut got)?;
        equal("data of a notification", &got, &values(round, left, len))?;
        // The left neighbour may overwrite the data now.
        flags.set(left, 1, round)?;
        flags.wait_until(1, ge(round))?;
        flags.add(0, 2, 1 + me as u64)?;
        data.atomic(right, len)?.fetch_add(round)?;
        // This includes the rank's own word, which the left neighbour changes concurrently.
        data.atomic(me, len)?.add(3)?;
    }
    if me == 0 {
        let all = rounds * (p * (p + 1) / 2) as u64;
        equal("flag of all ranks", &[flags.wait_until(2, ge(all))?], &[all])?;
    }
    data.quiet()?;
    team.barrier()?;
    equal("word of atomics", &[data.get_value(me, len)?], &[rounds * (rounds + 1) / 2 + 3 * rounds])?;
    equal("word of atomics as stored", &[data.local().load(len)?], &[rounds * (rounds + 1) / 2 + 3 * rounds])?;
    flags.free()?;
    data.free()
}

/// Remote calls.
pub(crate) const CALLS: Kind =
    Kind { name: "calls", weight: 1, run: calls, describe: |_, _| "two calls to each rank".to_owned() };

fn calls(rank: &mut Rank<'_>, rng: &mut StdRng) -> Result<()> {
    let team = rank.team(rng);
    let (p, me) = (team.size(), team.rank());
    let calls = Calls::new(&team)?;
    let function = calls.register(move |caller, n: u64| (caller.rank, values(n, me, n as usize)))?;
    let lens = [rng.random_range(0..20), rng.random_range(0..1500)];
    let to = |i: usize| (me + i) % p;
    let running: Vec<_> = (0..2 * p).map(|i| (i, calls.call(to(i), function, lens[i / p]))).collect();
    for (i, call) in running {
        let (caller, got) = call.wait()?;
        equal("caller", &[caller], &[me])?;
        equal("result of a call", &got, &values(lens[i / p], to(i), lens[i / p] as usize))?;
    }
    calls.quiesce()?;
    calls.free()
}
