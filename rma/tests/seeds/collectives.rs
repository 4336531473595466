//! Steps with collectives and teams.

use farside_rma::collectives::call;
use farside_rma::prelude::*;
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::steps::{Kind, Rank, equal, value, values};

/// Collectives of a random team.
pub(crate) const COLLECTIVE: Kind =
    Kind { name: "collectives", weight: 4, run: collective, describe: |_, rng| format!("{:?}", plan(rng)) };

const NAMES: [&str; 12] = [
    "barrier",
    "broadcast",
    "reduce",
    "allreduce",
    "gather",
    "allgather",
    "scatter",
    "alltoall",
    "scan",
    "exscan",
    "reduce_scatter",
    "two at once",
];

/// The names of collectives, and the number of elements of a block of each.
fn plan(rng: &mut StdRng) -> Vec<(&'static str, usize)> {
    let mut one = || (*NAMES.choose(rng).unwrap(), *[1, 2, 30, 700, 3000].choose(rng).unwrap());
    (0..4).map(|_| one()).collect()
}

fn collective(rank: &mut Rank<'_>, rng: &mut StdRng) -> Result<()> {
    let plan = plan(rng);
    let team = rank.team(rng);
    for (number, (name, n)) in plan.into_iter().enumerate() {
        let root = rng.random_range(0..team.size());
        one(&team, name, n, number as u64, root)?;
    }
    Ok(())
}

fn one(team: &Team, name: &'static str, n: usize, salt: u64, root: usize) -> Result<()> {
    let (p, me) = (team.size(), team.rank());
    let all = |of: std::ops::Range<usize>| of.map(|rank| values(salt, rank, n)).collect::<Vec<_>>();
    let sum = |of: std::ops::Range<usize>| -> Vec<u64> {
        (0..n).map(|i| of.clone().fold(0, |sum, rank| value(salt, rank, i).wrapping_add(sum))).collect()
    };
    let mut mine = values(salt, me, n);
    // Block `to` of rank `from`.
    let block = |from: usize, to: usize| values(salt + 1000 * (to as u64 + 1), from, n);
    let blocks: Vec<u64> = (0..p).flat_map(|to| block(me, to)).collect();
    let mut into = vec![0; p * n];
    match name {
        "barrier" => team.barrier(),
        "broadcast" => {
            team.broadcast(&mut mine, root)?;
            equal(name, &mine, &values(salt, root, n))
        }
        "reduce" => {
            team.reduce(&mut mine, Op::Sum, root)?;
            if me == root { equal(name, &mine, &sum(0..p)) } else { Ok(()) }
        }
        "allreduce" => {
            team.allreduce(&mut mine, Op::Sum)?;
            equal(name, &mine, &sum(0..p))
        }
        "gather" => {
            team.gather(&mine, if me == root { &mut into } else { &mut [] }, root)?;
            if me == root { equal(name, &into, &all(0..p).concat()) } else { Ok(()) }
        }
        "allgather" => {
            team.allgather(&mine, &mut into)?;
            equal(name, &into, &all(0..p).concat())
        }
        "scatter" => {
            team.scatter(if me == root { &blocks } else { &[] }, &mut mine, root)?;
            equal(name, &mine, &block(root, me))
        }
        "alltoall" => {
            team.alltoall(&blocks, &mut into)?;
            let expected: Vec<u64> = (0..p).flat_map(|from| block(from, me)).collect();
            equal(name, &into, &expected)
        }
        "scan" => {
            team.scan(&mut mine, Op::Sum)?;
            equal(name, &mine, &sum(0..me + 1))
        }
        "exscan" => {
            team.exscan(&mut mine, Op::Sum)?;
            // The result is undefined at the first rank.
            if me > 0 { equal(name, &mine, &sum(0..me)) } else { Ok(()) }
        }
        "reduce_scatter" => {
            team.reduce_scatter(&blocks, &mut mine, Op::Bxor)?;
            let expected: Vec<u64> = (0..n).map(|i| (0..p).fold(0, |all, from| all ^ block(from, me)[i])).collect();
            equal(name, &mine, &expected)
        }
        _ => {
            let mut largest = mine.clone();
            team.overlap(|calls| {
                let sums = calls.start(call::allreduce(&mut mine, Op::Sum))?;
                let most = calls.start(call::allreduce(&mut largest, Op::Max))?;
                most.wait()?;
                sums.wait().map(drop)
            })?;
            let most: Vec<u64> = (0..n).map(|i| (0..p).map(|rank| value(salt, rank, i)).max().unwrap()).collect();
            equal(name, &mine, &sum(0..p))?;
            equal(name, &largest, &most)
        }
    }
}

/// A team of the ranks of one color, in a random order.
pub(crate) const SPLIT: Kind = Kind {
    name: "split",
    weight: 1,
    run: split,
    describe: |ranks, rng| format!("color and key of each rank {:?}", colors(ranks, rng)),
};

fn colors(ranks: usize, rng: &mut StdRng) -> Vec<(u32, u32)> {
    let most = rng.random_range(1..4);
    (0..ranks).map(|_| (rng.random_range(0..most), rng.random_range(0..100))).collect()
}

fn split(rank: &mut Rank<'_>, rng: &mut StdRng) -> Result<()> {
    let me = rank.world.rank();
    let colors = colors(rank.world.size(), rng);
    let Some(team) = rank.world.split(Some(colors[me].0), colors[me].1)? else { return Ok(()) };
    let mut expected: Vec<usize> = (0..colors.len()).filter(|other| colors[*other].0 == colors[me].0).collect();
    expected.sort_by_key(|other| (colors[*other].1, *other));
    let members: Vec<usize> = team.members().iter().map(|member| *member as usize).collect();
    equal("members of a team", &members, &expected)?;
    rank.teams.push(team);
    Ok(())
}
