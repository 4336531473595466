//! Steps with two-sided messages.

use std::time::Duration;

use farside_rma::prelude::*;
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};

use super::steps::{Kind, Rank, equal, values};

/// Lengths of messages in words: short, in one packet, and in several, with a rendezvous.
const COUNTS: [usize; 7] = [0, 1, 3, 100, 400, 2000, 12_000];

/// A message.
#[derive(Clone, Copy, Debug)]
struct Sent {
    from: usize,
    to: usize,
    tag: i32,
    count: usize,
}

/// Nonblocking messages between random ranks, received in another order than they are sent.
pub(crate) const TAGGED: Kind =
    Kind { name: "messages", weight: 4, run: tagged, describe: |ranks, rng| format!("{:?}", plan(ranks, rng)) };

fn plan(ranks: usize, rng: &mut StdRng) -> Vec<Sent> {
    let mut one = || Sent {
        from: rng.random_range(0..ranks),
        to: rng.random_range(0..ranks),
        tag: rng.random_range(0..4),
        count: *COUNTS.choose(rng).unwrap(),
    };
    (0..3 * ranks).map(|_| one()).collect()
}

fn tagged(rank: &mut Rank<'_>, rng: &mut StdRng) -> Result<()> {
    let team = &rank.world;
    let me = team.rank();
    let plan: Vec<(usize, Sent)> = plan(team.size(), rng).into_iter().enumerate().collect();
    let data = |(number, sent): &(usize, Sent)| values(*number as u64, sent.from, sent.count);
    let out: Vec<(Sent, Vec<u64>)> =
        plan.iter().filter(|(_, sent)| sent.from == me).map(|sent| (sent.1, data(sent))).collect();
    // The order is random, but messages of one source and tag are received in the order of the sends.
    let mut into: Vec<(usize, Sent)> = plan.iter().filter(|(_, sent)| sent.to == me).copied().collect();
    let mut order: Vec<(usize, i32)> = into.iter().map(|(_, sent)| (sent.from, sent.tag)).collect();
    order.shuffle(rng);
    let mut take = |key: &(usize, i32)| {
        let first = into.iter().position(|(_, sent)| (sent.from, sent.tag) == *key).unwrap();
        into.remove(first)
    };
    let into: Vec<(usize, Sent)> = order.iter().map(&mut take).collect();
    let mut buffers: Vec<Vec<u64>> = into.iter().map(|(_, sent)| vec![0; sent.count]).collect();
    let late = rng.random_range(0..2 * team.size());
    team.overlap(|messages| {
        let mut sends = Vec::new();
        let mut receives = Vec::new();
        let mut buffers = buffers.iter_mut();
        for turn in 0..2 {
            // Some ranks post their receives after the messages have arrived.
            if (me == late) != (turn == 0) {
                for ((_, sent), buffer) in into.iter().zip(&mut buffers) {
                    receives.push(messages.irecv(buffer, sent.from, sent.tag)?);
                }
            } else {
                for (sent, data) in &out {
                    sends.push(if sent.count % 3 == 1 {
                        messages.issend(data, sent.to, sent.tag)?
                    } else {
                        messages.isend(data, sent.to, sent.tag)?
                    });
                }
                rank.job.device().compute(Duration::from_micros(5));
            }
        }
        for (receive, (_, sent)) in receives.into_iter().zip(&into) {
            let (_, status) = receive.wait()?;
            equal(
                "source, tag and length of a message",
                &[(status.source, status.tag, status.len)],
                &[(sent.from, sent.tag, 8 * sent.count)],
            )?;
        }
        sends.into_iter().try_for_each(|send| send.wait())
    })?;
    for (sent, buffer) in into.iter().zip(&buffers) {
        equal("a message", buffer, &data(sent))?;
    }
    Ok(())
}

/// Messages of all ranks to one, which takes them from any source.
pub(crate) const TO_ONE: Kind = Kind {
    name: "messages to one",
    weight: 2,
    run: to_one,
    describe: |ranks, rng| {
        let (root, _, counts) = to_one_plan(ranks, rng);
        format!("to rank {root}, words of the messages of each rank {counts:?}")
    },
};

/// The receiver, the tag, which no other step has, and the words of the messages of each rank.
fn to_one_plan(ranks: usize, rng: &mut StdRng) -> (usize, i32, Vec<Vec<usize>>) {
    let (root, tag) = (rng.random_range(0..ranks), rng.random_range(100..i32::MAX));
    let counts =
        (0..ranks).map(|_| (0..rng.random_range(0..6)).map(|_| *COUNTS[..6].choose(rng).unwrap()).collect()).collect();
    (root, tag, counts)
}

fn to_one(rank: &mut Rank<'_>, rng: &mut StdRng) -> Result<()> {
    let team = &rank.world;
    let (root, tag, counts) = to_one_plan(team.size(), rng);
    let data = |from: usize, i: usize| values(i as u64, from, counts[from][i]);
    if team.rank() != root {
        return (0..counts[team.rank()].len()).try_for_each(|i| team.send(&data(team.rank(), i), root, tag));
    }
    let mut next = vec![0; team.size()];
    let others = (0..team.size()).filter(|from| *from != root);
    for _ in 0..others.map(|from| counts[from].len()).sum() {
        let (got, status) = team.recv_vec::<u64>(ANY_SOURCE, tag)?;
        let (from, i) = (status.source, next[status.source]);
        equal("messages of a source", &[i < counts[from].len()], &[true])?;
        equal("a message of any source", &got, &data(from, i))?;
        next[from] += 1;
    }
    Ok(())
}

/// Many unexpected messages.
pub(crate) const FLOOD: Kind = Kind {
    name: "flood",
    weight: 1,
    run: flood,
    describe: |ranks, rng| {
        let [from, to, messages, words] = flood_plan(ranks, rng);
        format!("{messages} messages of {words} words from rank {from} to {to}")
    },
};

fn flood_plan(ranks: usize, rng: &mut StdRng) -> [usize; 4] {
    let from = rng.random_range(0..ranks);
    let to = (from + rng.random_range(1..ranks)) % ranks;
    // Up to 5 MB, which is more than the unexpected messages of one rank may have.
    let messages = *[90, 300, 1300].choose(rng).unwrap();
    [from, to, messages, *[1, 20, 480].choose(rng).unwrap()]
}

fn flood(rank: &mut Rank<'_>, rng: &mut StdRng) -> Result<()> {
    let team = &rank.world;
    let [from, to, messages, words] = flood_plan(team.size(), rng);
    if team.rank() == from {
        return (0..messages).try_for_each(|i| team.send(&values(i as u64, from, words), to, 23));
    }
    if team.rank() == to {
        rank.job.device().compute(Duration::from_micros(20));
        let mut buffer = vec![0u64; words];
        for i in 0..messages {
            team.recv(&mut buffer, from, 23)?;
            equal("a message of many", &buffer, &values(i as u64, from, words))?;
        }
    }
    Ok(())
}
