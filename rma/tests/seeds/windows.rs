//! Steps with windows.

use farside_rma::{Assert, LockKind, LockWindow, Op, Result, Window};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::steps::{Kind, Rank, equal, value, values};
use crate::checks::config::Memory;
use crate::checks::random::window;

const NONE: Assert = Assert::empty();

/// A window of a random type, in random epochs of one synchronization, with every operation.
pub(crate) const EPOCHS: Kind = Kind {
    name: "epochs",
    weight: 4,
    run: epochs,
    describe: |_, rng| format!("a window of words of {} bits", 8 << rng.random_range(0..4)),
};

fn epochs(rank: &mut Rank<'_>, rng: &mut StdRng) -> Result<()> {
    let lens = [3, 60, 600];
    let bits = rng.random_range(0..4);
    let (team, config) = (rank.team(rng), &rank.config);
    match bits {
        0 => window::<u8>(&team, config, &lens, rng),
        1 => window::<u16>(&team, config, &lens, rng),
        2 => window::<u32>(&team, config, &lens, rng),
        _ => window::<u64>(&team, config, &lens, rng),
    }
    .map(drop)
}

/// Puts and sums in epochs between random groups.
pub(crate) const PSCW: Kind = Kind {
    name: "pscw",
    weight: 2,
    run: pscw,
    describe: |ranks, rng| {
        let (len, rounds) = pscw_plan(ranks, rng);
        format!("parts of {len}, targets of each rank {rounds:?}")
    },
};

/// The number of elements of a part, and the targets of each rank in each round.
fn pscw_plan(ranks: usize, rng: &mut StdRng) -> (usize, Vec<Vec<Vec<usize>>>) {
    let len = *[1, 5, 200, 2000].choose(rng).unwrap();
    let mut targets =
        || -> Vec<Vec<usize>> { (0..ranks).map(|_| (0..ranks).filter(|_| rng.random_bool(0.4)).collect()).collect() };
    let rounds = (0..3).map(|_| targets()).collect();
    (len, rounds)
}

fn pscw(rank: &mut Rank<'_>, rng: &mut StdRng) -> Result<()> {
    let team = &rank.world;
    let (p, me) = (team.size(), team.rank());
    let (len, rounds) = pscw_plan(p, rng);
    // The window has a part for each origin, and a sum.
    let size = p * len + 1;
    let mut w = match rank.config.memory {
        Memory::Allocated => Window::<u64>::allocate(team, size)?,
        Memory::Vector => Window::from_vec(team, vec![0; size])?,
    };
    let mut model = vec![0; size];
    for (round, targets) in rounds.iter().enumerate() {
        let origins: Vec<usize> = (0..p).filter(|origin| targets[*origin].contains(&me)).collect();
        let data: Vec<Vec<u64>> = targets[me].iter().map(|t| values((round * p + t) as u64, me, len)).collect();
        let one = [me as u64 + 1];
        w.expose(&origins, NONE, |exposed| {
            exposed.start(&targets[me], NONE, |epoch| {
                for (target, data) in targets[me].iter().zip(&data) {
                    epoch.put(data, *target, me * len)?;
                    epoch.accumulate(Op::Sum, &one, *target, p * len)?;
                }
                Ok(())
            })
        })?;
        for origin in origins {
            model[origin * len..][..len].copy_from_slice(&values((round * p + me) as u64, origin, len));
            model[p * len] += origin as u64 + 1;
        }
        equal("memory after an exposure", w.local()?, &model)?;
    }
    w.free()
}

/// Atomics, and changes under exclusive locks, of one word by many ranks, under every lock.
pub(crate) const ATOMICS: Kind =
    Kind { name: "atomics", weight: 4, run: atomics, describe: |ranks, rng| format!("{:?}", plan(ranks, rng)) };

/// A change of a word of a target. Each origin has its own word, except under exclusive locks.
#[derive(Clone, Copy, Debug)]
enum Change {
    FetchAdd,
    Accumulate,
    CompareSwap,
    Exclusive,
    Local,
    Ticket,
    Xor,
}

const CHANGES: [Change; 7] = [
    Change::FetchAdd,
    Change::Accumulate,
    Change::CompareSwap,
    Change::Exclusive,
    Change::Local,
    Change::Ticket,
    Change::Xor,
];

impl Change {
    fn word(self) -> usize {
        match self {
            Self::FetchAdd => 0,
            Self::Accumulate => 1,
            Self::CompareSwap => 2,
            Self::Exclusive | Self::Local => 3,
            Self::Ticket => 4,
            Self::Xor => 5,
        }
    }
}

const WORDS: usize = 6;

/// The changes of each rank: kind and target.
fn plan(ranks: usize, rng: &mut StdRng) -> Vec<Vec<(Change, usize)>> {
    // There are few words and targets, so that ranks conflict.
    let changes: Vec<Change> = (0..rng.random_range(1..=3)).map(|_| *CHANGES.choose(rng).unwrap()).collect();
    let targets: Vec<usize> = (0..2).map(|_| rng.random_range(0..ranks)).collect();
    let mut one = |rank: usize| {
        let change = *changes.choose(rng).unwrap();
        let target = if matches!(change, Change::Local) { rank } else { *targets.choose(rng).unwrap() };
        (change, target)
    };
    (0..ranks).map(|rank| (0..4).map(|_| one(rank)).collect()).collect()
}

fn atomics(rank: &mut Rank<'_>, rng: &mut StdRng) -> Result<()> {
    let team = &rank.world;
    let (p, me) = (team.size(), team.rank());
    if rank.window.is_none() {
        let window = match rank.config.memory {
            Memory::Allocated => LockWindow::<u64>::allocate(team, WORDS)?,
            Memory::Vector => LockWindow::from_vec(team, vec![0; WORDS])?,
        };
        rank.window = Some((window, vec![vec![0; WORDS]; p]));
    }
    let Some((w, model)) = &mut rank.window else { return Ok(()) };
    let plan = plan(p, rng);
    let operand = |rank: usize, i: usize, change: Change| match change {
        Change::Ticket => 1,
        _ => value(7, rank, i) >> 8,
    };
    // For each target the number of tickets, their sum, and the sum of their squares.
    let mut tickets = vec![[0u64; 3]; p];
    for (i, (change, target)) in plan[me].iter().copied().enumerate() {
        let (x, at) = (operand(me, i, change), change.word());
        let operand = [x];
        match change {
            Change::FetchAdd => {
                w.lock_all(NONE, |epoch| epoch.fetch_and_op_blocking(Op::Sum, x, target, at).map(drop))?;
            }
            Change::Accumulate => w.lock(LockKind::Shared, target, NONE, |epoch| {
                epoch.accumulate(Op::Sum, &operand, target, at).and_then(|()| epoch.flush(target))
            })?,
            Change::CompareSwap => w.lock_all(NONE, |epoch| {
                let mut seen = epoch.get_blocking(target, at)?;
                loop {
                    let old = epoch.compare_and_swap_blocking(seen, seen.wrapping_add(x), target, at)?;
                    if old == seen {
                        return Ok(());
                    }
                    seen = old;
                }
            })?,
            Change::Exclusive => w.lock(LockKind::Exclusive, target, NONE, |epoch| {
                let sum = epoch.get_blocking(target, at)?.wrapping_add(x);
                epoch.put_blocking(&[sum], target, at)
            })?,
            Change::Local => w.with_local(|words| {
                words[at] = words[at].wrapping_add(x);
                Ok(())
            })?,
            Change::Ticket => {
                let ticket = w.lock(LockKind::Shared, target, NONE, |epoch| {
                    epoch.fetch_and_op_blocking(Op::Sum, x, target, at)
                })?;
                for (sum, add) in tickets[target].iter_mut().zip([1, ticket, ticket * ticket]) {
                    *sum += add;
                }
            }
            Change::Xor => w.lock_all(NONE, |epoch| epoch.fetch_and_op_blocking(Op::Bxor, x, target, at).map(drop))?,
        }
    }
    let mut issued = vec![[0u64; 3]; p];
    for (rank, changes) in plan.iter().enumerate() {
        for (i, (change, target)) in changes.iter().copied().enumerate() {
            let (x, word) = (operand(rank, i, change), &mut model[target][change.word()]);
            if matches!(change, Change::Ticket) {
                for (sum, add) in issued[target].iter_mut().zip([1, *word, *word * *word]) {
                    *sum += add;
                }
            }
            *word = if matches!(change, Change::Xor) { *word ^ x } else { word.wrapping_add(x) };
        }
    }
    use farside_rma::Collectives;
    let mut all = tickets.concat();
    team.allreduce(&mut all, Op::Sum)?;
    equal("tickets of all ranks", &all, &issued.concat())?;
    let words = w.with_local(|words| Ok(words.to_vec()))?;
    equal("words after atomics", &words, &model[me])?;
    team.barrier()
}

/// The end of the window of atomics.
pub(crate) const FREE: Kind =
    Kind { name: "free", weight: 1, run: free, describe: |_, _| "the window of atomics".to_owned() };

fn free(rank: &mut Rank<'_>, _: &mut StdRng) -> Result<()> {
    rank.window.take().map_or(Ok(()), |(window, _)| window.free())
}
