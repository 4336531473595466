//! Resources that a rank over verbs holds, and packets that it sends, as the number of ranks grows: queue pairs and
//! registered memory as counted by the kernel (`rdma resource`), and the packets until all ranks are connected.
//!
//! The ranks are threads of this process, on the devices of this machine; no other process may use these devices
//! meanwhile.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::process::Command;
use std::rc::Rc;
use std::sync::Barrier;
use std::thread::sleep;
use std::time::Duration;

use clap::{Args, value_parser};
use farside_core::Job;
use farside_core::am::{self, Counters, Delivery, HandlerId};
use farside_core::coll::log2_up;
use farside_core::error::{Error, ErrorKind, Result};

use crate::packets::{packets_sent, verbs_settings};
use crate::table::text;

const HANDLER: HandlerId = HandlerId(3);

/// Counts the resources that a rank over verbs holds and the packets that it sends, and compares them with the
/// formulas; fails if one differs. Runs where RDMA devices count their packets, as in the emulated machine of ci/rxe.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Job sizes (ranks) to measure.
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,4,6,8,12,16", value_parser = value_parser!(u32).range(1..=64))]
    ranks: Vec<u32>,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<bool> {
        let all = self.ranks.into_iter().map(measure).collect::<Result<Vec<_>>>()?;
        println!("{}", display(&all));
        Ok(all.iter().all(Growth::matches_formulas) && memory_matches_formula(&all))
    }
}

/// The stages at which the counters are read.
pub(crate) const STAGES: [&str; 3] = ["started", "after a barrier", "after a message to all"];

/// The resources of all ranks together at a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resources {
    /// Queue pairs.
    pub(crate) pairs: u64,
    /// Bytes of registered memory.
    pub(crate) memory: u64,
    /// Packets since the start.
    pub(crate) packets: u64,
}

/// The measurements with one number of ranks.
#[derive(Clone, Debug)]
pub(crate) struct Growth {
    /// Ranks P.
    pub(crate) ranks: u32,
    /// The resources at each of [`STAGES`].
    pub(crate) held: Vec<Resources>,
}

/// The number of peers to which a rank has sent up to each stage: after the start, the ranks below, in the rounds of
/// its allgathers; after a barrier, also the ranks above; at last all other ranks.
fn targets(ranks: u32) -> [u64; 3] {
    let rounds = log2_up(ranks as usize);
    let below: BTreeSet<u32> = (0..rounds).map(|k| ranks - (1 << k)).collect();
    let above = (0..rounds).map(|k| 1 << k);
    let both: BTreeSet<u32> = below.iter().copied().chain(above).collect();
    [below.len() as u64, both.len() as u64, u64::from(ranks) - 1]
}

impl Growth {
    /// Queue pairs of all ranks: each rank has one for datagrams, one for each peer to which it sends, and one for each
    /// peer from which it receives.
    pub(crate) fn pairs(&self) -> [u64; 3] {
        targets(self.ranks).map(|s| u64::from(self.ranks) * (1 + 2 * s))
    }

    /// Packets of all ranks: two datagrams for each queue pair that sends, and two packets for each signal or message;
    /// the start has two messages per round, the barrier one signal per round.
    pub(crate) fn packets(&self) -> [u64; 3] {
        let p = u64::from(self.ranks);
        let rounds = log2_up(self.ranks as usize) as u64;
        let messages = [2 * rounds, 3 * rounds, 3 * rounds + p - 1];
        let targets = targets(self.ranks);
        [0, 1, 2].map(|i| 2 * p * (targets[i] + messages[i]))
    }

    /// Whether the number of queue pairs equals the formula, connections registered no memory, and the packets equal
    /// the formula. If the machine stalls, connection datagrams are retransmitted, so more packets are possible.
    pub(crate) fn matches_formulas(&self) -> bool {
        self.held.iter().map(|h| h.pairs).eq(self.pairs())
            && self.held.iter().all(|h| h.memory == self.held[0].memory)
            && self.held.iter().zip(self.packets()).all(|(h, formula)| h.packets >= formula)
    }

    /// Number of retransmitted datagrams of all ranks.
    pub(crate) fn retransmissions(&self) -> u64 {
        self.held.last().map_or(0, |h| h.packets).saturating_sub(self.packets()[2])
    }
}

/// Measures `ranks` ranks. Tries up to three times if datagrams were retransmitted, as they are after a stall of the
/// machine.
///
/// # Errors
/// [`ErrorKind::Unsupported`] without the `rdma` command or devices that count; the errors of the calls.
pub(crate) fn measure(ranks: u32) -> Result<Growth> {
    let mut growth = measure_once(ranks)?;
    for _ in 0..2 {
        if growth.matches_formulas() && growth.retransmissions() == 0 {
            break;
        }
        growth = measure_once(ranks)?;
    }
    Ok(growth)
}

fn measure_once(ranks: u32) -> Result<Growth> {
    let meeting = Barrier::new(ranks as usize);
    // The baseline includes the kernel's own queue pairs and is read after the previous job's devices have stopped
    // sending.
    let before = read_counters(Duration::from_millis(200))?;
    let mut held = Job::threads_with(ranks as usize, &verbs_settings()?, |job| stages(job, &meeting))?.swap_remove(0);
    for h in &mut held {
        h.pairs -= before.pairs;
        h.memory -= before.memory;
        h.packets -= before.packets;
    }
    Ok(Growth { ranks, held })
}

fn stages(job: &Job, meeting: &Barrier) -> Result<Vec<Resources>> {
    let team = job.world()?;
    let mut held = Vec::new();
    // These values stay outside of the device, since reading the counters must not cause packets.
    let mut stage = || -> Result<()> {
        meeting.wait();
        if job.rank() == 0 {
            held.push(read_counters(Duration::from_millis(100))?);
        }
        meeting.wait();
        Ok(())
    };
    let arrived = Rc::new(Cell::new(0));
    let count = arrived.clone();
    job.active_messages().register(HANDLER, move |_| {
        count.set(count.get() + 1);
        Delivery::Done
    })?;
    stage()?;
    team.barrier()?;
    stage()?;
    for to in (0..job.size_number()).filter(|to| *to != job.rank_number()) {
        am::send(job, to, HANDLER, &[], &[], Counters::default())?;
    }
    job.wait("receive messages", || Ok((arrived.get() + 1 == job.size()).then_some(())))?;
    stage()?;
    job.active_messages().unregister(HANDLER);
    Ok(held)
}

/// Reads the kernel's counters, after a pause for packets for which no rank waits.
fn read_counters(rest: Duration) -> Result<Resources> {
    sleep(rest);
    let packets = packets_sent()?;
    let pairs = resource("qp")?.len() as u64;
    let memory = resource("mr")?.iter().filter_map(|mr| mr["mrlen"].as_u64()).sum();
    Ok(Resources { pairs, memory, packets })
}

fn resource(kind: &str) -> Result<Vec<serde_json::Value>> {
    const OP: &str = "ask the kernel for RDMA resources";
    let output = Command::new("rdma").args(["-j", "resource", "show", kind]).output().map_err(|error| {
        Error::new(ErrorKind::Unsupported, OP)
            .cause(format!("cannot run the command rdma: {error}"))
            .remedy("apt-get install iproute2")
    })?;
    serde_json::from_slice(&output.stdout).map_err(|error| Error::system(OP, error.into()))
}

/// Registered bytes of a rank for each rank of the job: the three lines of its signal cells, and a packet counter.
pub(crate) const CELLS: u64 = 3 * 64 + 8;

/// Whether the registered memory of a rank is a constant plus [`CELLS`] for each rank of the job.
pub(crate) fn memory_matches_formula(all: &[Growth]) -> bool {
    let fixed = |g: &Growth| {
        let (p, memory) = (u64::from(g.ranks), g.held.first().map_or(0, |h| h.memory));
        (memory / p).checked_sub(CELLS * p)
    };
    all.windows(2).all(|two| fixed(&two[0]).is_some() && fixed(&two[0]) == fixed(&two[1]))
}

/// The table for a terminal, and the formulas.
pub(crate) fn display(all: &[Growth]) -> String {
    let rows = all.iter().flat_map(|growth| {
        let p = u64::from(growth.ranks);
        let verdict = match (growth.matches_formulas(), growth.retransmissions()) {
            (false, _) => "differs".to_owned(),
            (true, 0) => String::new(),
            (true, n) => format!("{n} repeated"),
        };
        growth.held.iter().enumerate().map(move |(i, held)| {
            let (pairs, packets) = (growth.pairs()[i], growth.packets()[i]);
            let numbers = [p, held.pairs / p, pairs / p, held.memory / p, held.packets, packets].map(|n| n.to_string());
            [STAGES[i].to_owned(), verdict.clone()].into_iter().chain(numbers).collect()
        })
    });
    let header = ["stage", "", "P", "queue pairs", "formula", "bytes", "packets", "formula"];
    format!(
        "Queue pairs and registered bytes of each of P ranks; packets of all since the start. A rank that sends to S and to which\n\
         S send has 1 + 2 S queue pairs; connecting takes 2 S datagrams, and each signal or message 2 packets. L = ceil(log2 P):\n\
         S = L after the start with 2 L messages; after a barrier the number of different ranks at distances +-2^k, k < L, with L\n\
         signals more; at last P - 1. Through the launcher goes one endpoint address of each rank. Registered memory: a constant + 200 P.\n{}",
        text(&header, 2, rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_of_four_ranks() {
        let held = |pairs, packets| Resources { pairs, memory: 4096, packets };
        let mut growth = Growth { ranks: 4, held: vec![held(20, 48), held(28, 72), held(28, 96)] };
        assert!(growth.matches_formulas(), "{:?} {:?}", growth.pairs(), growth.packets());
        growth.held[2].memory += 1;
        assert!(!growth.matches_formulas());
        let of = |ranks: u32, memory| Growth { ranks, held: vec![Resources { memory, ..Resources::default() }] };
        assert!(memory_matches_formula(&[of(1, 1200), of(2, 2 * 1400)]));
        assert!(!memory_matches_formula(&[of(1, 1200), of(2, 2 * 1401)]));
    }
}
