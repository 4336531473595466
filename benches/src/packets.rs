//! Packets of every epoch and operation over verbs: both directions, including acknowledgements, from the counters of
//! the devices, which are exact and reproducible; compared with the minimum that the protocol needs.
//!
//! All ranks are on one machine, as in the emulated one of `ci/rxe`, so that one rank can read the counters of all
//! devices.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::{Args, value_parser};
use farside_core::error::{Error, ErrorKind, Result};
use farside_core::settings::Settings;
use farside_core::stats::Kind;
use farside_core::{Job, Team, coll};
use farside_rma::raw::{Options, RawWindow};
use farside_rma::{Assert, LockKind};

use crate::options::{Libraries, TimeLimit};
use crate::plan::Plan;
use crate::record::{Key, Library, Op, Record, Suite, Sync, Window};
use crate::session::Task;
use crate::settings_with;
use crate::table::{number, text};

/// Counts packets of every epoch, operation and size of message over verbs, and compares them with the minimum that the
/// protocol needs and, with `--peers`, with MPI libraries; and packets of calls of 3 and 4 ranks, compared with their
/// formulas. Needs FARSIDE_DEVICE=verbs, and all ranks on one machine whose RDMA devices count packets, such as the
/// emulated machine of ci/rxe. Fails if Farside needs more than it should.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    libraries: Libraries,
    /// Job sizes (ranks) whose calls are compared with formulas.
    #[arg(long, value_delimiter = ',', default_value = "2,3,4", value_parser = value_parser!(u32).range(2..=4))]
    ranks: Vec<u32>,
    #[command(flatten)]
    limit: TimeLimit,
    /// The records as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<bool> {
        let suites = vec![Suite::Epoch, Suite::Op, Suite::Am, Suite::Barrier];
        let (packets, windows) = (true, vec![Window::Allocated]);
        let plan = Plan { ranks: 2, suites, windows, sizes: vec![8], packets, ..Plan::new(true) };
        // Two messages each way, of 8 bytes, 4 KiB, 64 KiB and 1 MiB.
        let (windows, counts) = (Vec::new(), vec![2, 1 << 10, 1 << 14, 1 << 18]);
        let messages = Plan { suites: vec![Suite::Ghost], windows, counts, packets, ..plan.clone() };
        let (title, plans) = ("Farside: packets".to_owned(), vec![plan, messages]);
        let task = Task { title, plans, libraries: self.libraries.list(), ..Task::default() };
        let (results, _) = task.measure(1, self.limit.duration())?;
        println!("{}\n{}", results.machine.line(), display(&results.records));
        results.print_notes();
        if let Some(file) = &self.json {
            results.write_json(file)?;
        }
        let missed = over_goal(&results.records).len();
        let goal_packets = |key: &Key| goal(key).or_else(|| best_peer(&results.records, key));
        let has_goal = |record: &&Record| record.library == Library::Farside && goal_packets(&record.key).is_some();
        let counted = results.records.iter().filter(has_goal).count();
        println!("{} of {counted} rows at their goal, or at most at the best peer's\n", counted - missed);
        let rows = self.ranks.into_iter().map(calls).collect::<Result<Vec<_>>>()?.concat();
        let equal = rows.iter().filter(|row| row.matches_formula()).count();
        println!("{}\n{equal} of {} rows equal the formula", display_calls(&rows), rows.len());
        Ok(results.check()? && missed == 0 && equal == rows.len())
    }
}

/// The number of iterations of the runs of either length; a tenth of it if an iteration transfers more than
/// `SMALL_BYTES` bytes.
const SHORT_RUN: u64 = 40;
const LONG_RUN: u64 = 140;
const SMALL_BYTES: u64 = 16_384;
/// The factor by which a count may exceed the best peer's: a few packets in a thousand are acknowledgements that
/// devices may or may not coalesce.
const MARGIN: f64 = 1.02;
/// Maximum number of pairs of runs; two in a row must agree.
const TRIES: usize = 8;

/// Packets that all RDMA devices of this machine have sent.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if none of them counts.
pub(crate) fn packets_sent() -> Result<u64> {
    let devices = fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    let counts = devices.filter_map(|device| {
        let text = fs::read_to_string(device.path().join("ports/1/hw_counters/sent_pkts")).ok()?;
        text.trim().parse::<u64>().ok()
    });
    counts.reduce(|sum, count| sum + count).ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "count packets")
            .cause("no RDMA device of this machine has packet counters")
            .remedy("run it in the emulated machine: ci/rxe")
    })
}

/// The cost of one iteration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count {
    /// Packets of all ranks.
    pub(crate) packets: f64,
    /// Work requests of all ranks.
    pub(crate) requests: f64,
    /// The time in microseconds, which is of little significance here.
    pub(crate) us: f64,
    /// Iterations that were counted.
    pub(crate) iterations: u64,
}

/// Counts the packets of one iteration of `run`, with messages of `bytes`: runs of two lengths, whose difference
/// cancels the overhead, until two in a row agree. Collective; valid on rank 0.
///
/// # Errors
/// [`ErrorKind::Unsupported`] without devices that count; the errors of `run`.
pub(crate) fn of_one(team: &Team, bytes: u64, run: &mut dyn FnMut(u64) -> Result<()>) -> Result<Count> {
    let [short, long] = [SHORT_RUN, LONG_RUN].map(|n| if bytes > SMALL_BYTES { n / 10 } else { n });
    run(short)?;
    let mut last = None;
    let mut count = None;
    for _ in 0..TRIES {
        let (less, _) = of_many(team, short, run)?;
        let (more, us) = of_many(team, long, run)?;
        let each = [0, 1].map(|i| more[i].saturating_sub(less[i]));
        let [packets, requests] = each.map(|n| n as f64 / (long - short) as f64);
        count = Some(Count { packets, requests, us, iterations: long - short });
        let done = last == Some(each);
        last = Some(each);
        if coll::allgather(team, &[u8::from(done)])?[0][..] == [1] {
            break;
        }
    }
    count.ok_or_else(|| Error::new(ErrorKind::Protocol, "count packets"))
}

/// Packets and requests of `iterations` iterations with their overhead (on rank 0), and the time of one iteration.
fn of_many(team: &Team, iterations: u64, run: &mut dyn FnMut(u64) -> Result<()>) -> Result<([u64; 2], f64)> {
    let posts = || team.job().stats().count(Kind::Post);
    team.barrier()?;
    let (before, requests) = (pause(team)?, posts());
    let start = Instant::now();
    run(iterations)?;
    let us = start.elapsed().as_secs_f64() * 1e6 / iterations as f64;
    team.barrier()?;
    let requests = posts() - requests;
    let packets = pause(team)? - before;
    let all = coll::allgather(team, &requests.to_le_bytes())?;
    let requests = all.iter().map(|b| b[..].try_into().map_or(0, u64::from_le_bytes)).sum();
    Ok(([packets, requests], us))
}

/// Rank 0 reads the counters while no rank sends, since the other ranks pause for longer.
fn pause(team: &Team) -> Result<u64> {
    if team.rank() > 0 {
        sleep(Duration::from_millis(100));
        return Ok(0);
    }
    sleep(Duration::from_millis(40));
    packets_sent()
}

/// The minimum number of packets that the protocol needs for two ranks, where each request has a reply. `None` if there
/// is no goal for `key`.
pub(crate) fn goal(key: &Key) -> Option<f64> {
    if key.ranks != 2 {
        return None;
    }
    Some(match (key.suite, key.sync, key.op) {
        // One write and its acknowledgement in each direction; the notification is combined with the put.
        (Suite::Barrier, ..) | (Suite::Epoch, Sync::Fence | Sync::Pscw, _) => 4.0,
        // One message locks, and one puts and unlocks.
        (Suite::Epoch, Sync::LockExclusive, _) => 6.0,
        (Suite::Op, Sync::Flush, Op::Put | Op::Get | Op::FetchOp | Op::Cas | Op::Accumulate) => 2.0,
        _ => return None,
    })
}

/// The minimum number of packets of a peer for the same messages. `None` without peers, and if `key` has no messages.
pub(crate) fn best_peer(records: &[Record], key: &Key) -> Option<f64> {
    let same = |r: &&Record| Library::PEERS.contains(&r.library) && r.key == *key && key.suite == Suite::Ghost;
    records.iter().filter(same).filter_map(|r| r.packets).reduce(f64::min)
}

/// Farside's records that exceed their goal, or the best peer's count for the same messages.
pub(crate) fn over_goal(records: &[Record]) -> Vec<&Record> {
    let over = |r: &&Record| {
        let most = goal(&r.key).or_else(|| best_peer(records, &r.key).map(|best| best * MARGIN));
        most.zip(r.packets).is_some_and(|(most, is)| is > most)
    };
    records.iter().filter(|r| r.library == Library::Farside).filter(over).collect()
}

/// The table for a terminal.
pub(crate) fn display(records: &[Record]) -> String {
    let of = |library, key: &Key| records.iter().find(|r| r.library == library && r.key == *key);
    let has = |library: &&Library| records.iter().any(|r| r.library == **library);
    let peers: Vec<Library> = Library::PEERS.iter().filter(has).copied().collect();
    let header = ["suite", "synchronization", "operation", "bytes", "ranks", "Farside", "goal", "requests"];
    let header: Vec<_> = header.into_iter().chain(peers.iter().map(|peer| peer.label())).collect();
    let row = |record: &Record| {
        let key = record.key;
        let mut cells = [key.suite.name(), key.sync.label(), key.op.label()].map(str::to_owned).to_vec();
        cells.extend([key.bytes.to_string(), key.ranks.to_string()]);
        cells.extend([record.packets, goal(&key), record.requests].map(count));
        cells.extend(peers.iter().map(|peer| count(of(*peer, &key).and_then(|r| r.packets))));
        cells
    };
    let rows = records.iter().filter(|r| r.library == Library::Farside).map(row);
    format!(
        "Packets of one epoch, operation or exchange of two messages each way, both directions, acknowledgements included; work \
         requests of all ranks.\n{}",
        text(&header, 3, rows)
    )
}

/// A count, without decimals if it is whole.
fn count(value: Option<f64>) -> String {
    match value {
        Some(n) if n.fract() == 0.0 => format!("{n:.0}"),
        value => number(value),
    }
}

/// A call of several ranks, and its packets and requests.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The call.
    pub(crate) call: &'static str,
    /// Ranks P.
    pub(crate) ranks: u32,
    /// Packets of all ranks.
    pub(crate) packets: f64,
    /// Work requests of all ranks: each is a packet and its reply.
    pub(crate) requests: f64,
    /// The formula of the packets.
    pub(crate) formula: &'static str,
    /// The value of the formula.
    pub(crate) expected: u64,
}

impl Call {
    /// Whether the packets are those of the formula.
    pub(crate) fn matches_formula(&self) -> bool {
        self.packets == self.expected as f64
    }
}

/// Counts calls of `ranks` ranks, at most 4, which are threads of this process.
///
/// # Errors
/// [`ErrorKind::Unsupported`] without devices that count; the errors of the calls.
pub(crate) fn calls(ranks: u32) -> Result<Vec<Call>> {
    Ok(Job::threads_with(ranks as usize, &verbs_settings()?, count_calls)?.swap_remove(0))
}

/// The settings of the environment for ranks that are threads over verbs, with a timeout so long that no HCA
/// retransmits if the machine stalls for a moment.
///
/// # Errors
/// [`ErrorKind::BadArgument`] for a setting that does not exist.
pub(crate) fn verbs_settings() -> Result<Settings> {
    settings_with(&[("FARSIDE_DEVICE", "verbs"), ("FARSIDE_VERBS_TIMEOUT", "23")])
}

/// The counts of rank 0.
fn count_calls(job: &Job) -> Result<Vec<Call>> {
    let team = job.world()?;
    let (p, me) = (team.size(), team.rank());
    let (ranks, rounds, others_of_one) = (p as u32, coll::log2_up(p) as u64, p as u64 - 1);
    let w = RawWindow::allocate(&team, 8 * p, Options::default())?;
    let none = Assert::empty();
    let (next, before) = ([(me + 1) % p], [(me + p - 1) % p]);
    let others: Vec<usize> = (1..p).map(|d| (me + d) % p).collect();
    let put = |targets: &[usize]| targets.iter().try_for_each(|t| w.put_value(7u64, *t, 8 * me));
    let mut calls = Vec::new();
    let mut count = |call, formula, expected, f: &dyn Fn() -> Result<()>| -> Result<()> {
        let Count { packets, requests, .. } = of_one(&team, 8, &mut |n| (0..n).try_for_each(|_| f()))?;
        calls.push(Call { call, ranks, packets, requests, formula, expected });
        Ok(())
    };
    let p = p as u64;
    count("barrier", "2 P ceil(log2 P)", 2 * p * rounds, &|| team.barrier())?;
    w.fence(none)?;
    let fence = |targets: &[usize]| put(targets).and_then(|()| w.fence(none));
    count("fence, each puts to the next", "2 P (P - 1)", 2 * p * others_of_one, &|| fence(&next))?;
    count("fence, each puts to all others", "2 P (P - 1)", 2 * p * others_of_one, &|| fence(&others))?;
    w.fence(Assert::NOSUCCEED)?;
    let pscw = |origins: &[usize], targets: &[usize]| {
        w.post(origins, none)?;
        w.start(targets, none)?;
        put(targets)?;
        w.complete()?;
        w.wait()
    };
    count("post, start, put to the next, complete, wait", "4 P", 4 * p, &|| pscw(&before, &next))?;
    count("the same with all others", "4 P (P - 1)", 4 * p * others_of_one, &|| pscw(&others, &others))?;
    let alone = |f: &dyn Fn() -> Result<()>| if me == 0 { f() } else { Ok(()) };
    let locked = || {
        w.lock(LockKind::Exclusive, 1, none)?;
        put(&[1])?;
        w.unlock(1)
    };
    count("lock exclusive, put, unlock by one", "6", 6, &|| alone(&locked))?;
    w.lock_all(none)?;
    count("put + flush by one", "2", 2, &|| alone(&|| put(&[1]).and_then(|()| w.flush(1))))?;
    count("put to all others + flush_all by one", "2 (P - 1)", 2 * others_of_one, &|| {
        alone(&|| put(&others).and_then(|()| w.flush_all()))
    })?;
    w.unlock_all()?;
    w.free()?;
    Ok(calls)
}

/// The calls as a table for a terminal.
pub(crate) fn display_calls(calls: &[Call]) -> String {
    let row = |c: &Call| {
        let verdict = if c.matches_formula() { "" } else { "differs" }.to_owned();
        let numbers = [c.packets, c.expected as f64, c.requests].map(|n| count(Some(n)));
        [c.call.to_owned(), c.formula.to_owned(), verdict, c.ranks.to_string()].into_iter().chain(numbers).collect()
    };
    let header = ["call", "formula", "", "P", "packets", "expected", "requests"];
    let about = "Packets of all P ranks together, P at most 4 (fences of more ranks count with a reduce-scatter).";
    format!("{about}\n{}", text(&header, 3, calls.iter().map(row)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn record_above_its_goal_is_missed() {
        let with = |library, packets| Record { packets: Some(packets), ..record(library, Op::Get, 8, 1.0) };
        let records = [with(Library::Farside, 2.0), with(Library::Mpich, 4.0), with(Library::Farside, 2.01)];
        assert_eq!(over_goal(&records), [&records[2]]);
        assert!(over_goal(&records[..2]).is_empty());
        let exchange = |library, packets| {
            let key = Key { suite: Suite::Ghost, sync: Sync::Twosided, op: Op::Ghost, ..records[0].key };
            Record { key, ..with(library, packets) }
        };
        let exchanges =
            [exchange(Library::Farside, 4.0), exchange(Library::Mpich, 3.0), exchange(Library::OpenMpi, 4.0)];
        assert_eq!(over_goal(&exchanges), [&exchanges[0]]);
        assert!(over_goal(&[exchanges[0].clone(), exchanges[2].clone()]).is_empty());
        let text = display(&records[..2]);
        assert!(text.contains("MPICH") && text.contains('4') && !text.contains("2.0"), "{text}");
    }
}
