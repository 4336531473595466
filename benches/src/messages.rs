//! Messages of every synchronization call, counted and compared with the formulas of `farside_rma::raw`.
//!
//! Every rank has k neighbours, the k ranks after it, and puts 8 bytes to each of them. A message is anything that a
//! network would send as a unit: a write, a signal, an atomic, a packet. A notification that is combined with a write
//! is not counted.

use clap::{Args, value_parser};
use farside_core::Job;
use farside_core::coll::log2_up;
use farside_core::error::Result;
use farside_core::settings::Settings;
use farside_core::stats::Kind;
use farside_rma::raw::RawWindow;
use farside_rma::{Assert, LockKind};

use crate::table::text;

/// Counts what every synchronization call sends, by ranks P and neighbours k, on windows that are mapped and on windows
/// that are not, and compares it with the formula. Fails if one differs.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Job sizes (ranks) to measure.
    #[arg(long, value_delimiter = ',', default_values_t = RANKS, value_parser = value_parser!(u32).range(2..=64))]
    ranks: Vec<u32>,
    /// Neighbour counts; only those below the job size are used. Default: 1 and P - 1.
    #[arg(long, value_delimiter = ',')]
    neighbours: Vec<usize>,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<bool> {
        let rows = all(&self.ranks, &self.neighbours)?;
        let equal = rows.iter().filter(|row| row.matches_formula()).count();
        println!("{}\n{equal} of {} rows equal the formula on every rank", display(&rows), rows.len());
        Ok(equal == rows.len())
    }
}

/// The job sizes of the table.
pub(crate) const RANKS: [u32; 5] = [2, 3, 4, 5, 8];

/// How a window is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Every rank maps every other's memory.
    Mapped,
    /// Operations are messages, as on a network (`FARSIDE_TEST_FAULT=unmapped`).
    Unmapped,
}

/// The messages that a rank has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// The number of messages.
    pub(crate) messages: u64,
    /// Bytes in them.
    pub(crate) bytes: u64,
}

/// One row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The call.
    pub(crate) call: &'static str,
    /// How the window is accessed.
    pub(crate) memory: Memory,
    /// The number of ranks of the window.
    pub(crate) ranks: usize,
    /// The number of neighbours of each rank.
    pub(crate) neighbours: usize,
    /// The messages that each rank has sent.
    pub(crate) measured: Vec<Cost>,
    /// The messages that each rank should send.
    pub(crate) formula: Cost,
}

impl Row {
    /// Whether every rank has sent as many messages as the formula predicts.
    pub(crate) fn matches_formula(&self) -> bool {
        self.measured.iter().all(|cost| *cost == self.formula)
    }

    /// The cost of the rank that has sent the most.
    pub(crate) fn most(&self) -> Cost {
        self.measured.iter().copied().max_by_key(|cost| (cost.messages, cost.bytes)).unwrap_or_default()
    }
}

/// Counts all calls between `ranks` threads, each with `neighbours` neighbours; there must be fewer neighbours than ranks.
pub(crate) fn rows(memory: Memory, ranks: u32, neighbours: usize) -> Result<Vec<Row>> {
    let settings = Settings::from_lookup(|name| match (name, memory) {
        ("FARSIDE_TEST_FAULT", Memory::Unmapped) => Some("unmapped".to_owned()),
        _ => None,
    })?;
    let counted = Job::threads_with(ranks as usize, &settings, |job| count(job, memory, neighbours))?;
    let row = |(i, &(call, formula, _)): (usize, &(&'static str, Cost, Cost))| Row {
        call,
        memory,
        ranks: ranks as usize,
        neighbours,
        measured: counted.iter().map(|of_rank| of_rank[i].2).collect(),
        formula,
    };
    Ok(counted[0].iter().enumerate().map(row).collect())
}

/// Bytes of a signal, an atomic on a word, and a put of this table.
const WORD: u64 = 8;

/// The messages of one rank in each call, and the predictions of the formulas in the documentation of
/// `farside_rma::raw::{fence, pscw, lock}`.
fn count(job: &Job, memory: Memory, neighbours: usize) -> Result<Vec<(&'static str, Cost, Cost)>> {
    let team = job.world()?;
    let (p, me) = (team.size(), team.rank());
    let window = RawWindow::allocate(&team, 8 * p, farside_rma::raw::Options::default())?;
    let targets: Vec<usize> = (1..=neighbours).map(|d| (me + d) % p).collect();
    let origins: Vec<usize> = (1..=neighbours).map(|d| (me + p - d) % p).collect();
    let puts = || targets.iter().try_for_each(|target| window.put_value(me as u64, *target, 8 * me));
    let mut costs = Vec::new();
    let mut call = |name: &'static str, formula: Cost, run: &dyn Fn() -> Result<()>| -> Result<()> {
        let before = job.stats();
        run()?;
        let sent = job.stats() - before;
        let kinds =
            [Kind::Write, Kind::Read, Kind::Accumulate, Kind::FetchAdd, Kind::CompareSwap, Kind::Signal, Kind::Send];
        let bytes = kinds.iter().map(|kind| sent.bytes(*kind)).sum();
        costs.push((name, formula, Cost { messages: sent.messages(), bytes }));
        Ok(())
    };
    let none = Assert::empty();
    let (k, rounds, mapped) = (neighbours as u64, log2_up(p) as u64, memory == Memory::Mapped);
    let words = |messages| Cost { messages, bytes: WORD * messages };
    let either = |of_mapped: u64, of_unmapped: u64| words(if mapped { of_mapped } else { of_unmapped });
    // The messages of a barrier, and of a fence of mapped windows.
    let together = if team.is_oversubscribed() { 1 } else { rounds };
    // Between two ranks the notification is combined with the last operation.
    let fence_known = |puts: u64| match memory {
        Memory::Unmapped if p <= 2 => words(1),
        _ => words(puts + together),
    };
    let first_fence = if mapped { words(k + together) } else { words(fence_known(k).messages + together) };
    // If a put is a copy, a message with the notification follows; if it is a message, the notification is combined
    // with it.
    let complete = either(2 * k, k);

    call("barrier", words(together), &|| team.barrier())?;
    call("fence NOPRECEDE, opening", words(0), &|| window.fence(Assert::NOPRECEDE))?;
    call("k puts, fence", first_fence, &|| puts().and_then(|()| window.fence(none)))?;
    call("k puts, fence, exposure known", fence_known(k), &|| puts().and_then(|()| window.fence(none)))?;
    call("fence without operations, exposure known", fence_known(0), &|| window.fence(none))?;
    call("k puts, fence NOSTORE NOPUT NOSUCCEED, exposure known", fence_known(k), &|| {
        puts()?;
        window.fence(Assert::NOSTORE | Assert::NOPUT | Assert::NOSUCCEED)
    })?;
    call("fence NOPRECEDE NOSUCCEED", words(0), &|| window.fence(Assert::NOPRECEDE | Assert::NOSUCCEED))?;

    team.barrier()?;
    call("post", words(k), &|| window.post(&origins, none))?;
    call("start", words(0), &|| window.start(&targets, none))?;
    call("k puts, complete", complete, &|| puts().and_then(|()| window.complete()))?;
    call("wait", words(0), &|| window.wait())?;
    call("post NOCHECK", words(0), &|| window.post(&origins, Assert::NOCHECK))?;
    team.barrier()?;
    call("start NOCHECK", words(0), &|| window.start(&targets, Assert::NOCHECK))?;
    call("k puts, complete after NOCHECK", complete, &|| puts().and_then(|()| window.complete()))?;
    window.wait()?;

    // The ranks lock one after the other, so that no lock is contended.
    for turn in 0..p {
        team.barrier()?;
        if turn != me {
            continue;
        }
        let target = (me + 1) % p;
        let locked = |kind, asserts, operations: usize| {
            window.lock(kind, target, asserts)?;
            (0..operations).try_for_each(|_| window.put_value(1u64, target, 8 * me))?;
            window.unlock(target)
        };
        let (shared, exclusive) = (LockKind::Shared, LockKind::Exclusive);
        call("lock shared, put, unlock", either(3, 4), &|| locked(shared, none, 1))?;
        call("lock exclusive, put, unlock", words(3), &|| locked(exclusive, none, 1))?;
        call("lock NOCHECK, put, unlock", words(1), &|| locked(exclusive, Assert::NOCHECK, 1))?;
        call("lock exclusive, unlock", either(2, 0), &|| locked(exclusive, none, 0))?;
        call("lock_all", words(0), &|| window.lock_all(none))?;
        call("k puts, the first to each target", either(2 * k, 3 * k), &puts)?;
        call("k puts, further ones", words(k), &puts)?;
        call("flush_all", words(0), &|| window.flush_all())?;
        call("unlock_all", words(k), &|| window.unlock_all())?;
        call("lock_all, unlock_all", words(0), &|| window.lock_all(none).and_then(|()| window.unlock_all()))?;
    }
    team.barrier()?;
    window.free()?;
    Ok(costs)
}

/// All rows for these numbers of ranks and of neighbours (1 and P - 1 if none are given), call by call.
pub(crate) fn all(ranks: &[u32], neighbours: &[usize]) -> Result<Vec<Row>> {
    let mut all = Vec::new();
    for (memory, &ranks) in [Memory::Mapped, Memory::Unmapped].iter().flat_map(|m| ranks.iter().map(move |r| (*m, r))) {
        let most = ranks as usize - 1;
        let mut neighbours = if neighbours.is_empty() { vec![1, most] } else { neighbours.to_vec() };
        neighbours.retain(|k| *k <= most);
        neighbours.dedup();
        for k in neighbours {
            all.extend(rows(memory, ranks, k)?);
        }
    }
    // Rows are sorted by the order in which the calls were made.
    let calls: Vec<&str> = all.iter().map(|row| row.call).collect();
    let place = |row: &Row| calls.iter().position(|call| *call == row.call);
    all.sort_by_key(|row| (row.memory == Memory::Unmapped, place(row)));
    Ok(all)
}

/// The table for a terminal.
pub(crate) fn display(rows: &[Row]) -> String {
    let row = |row: &Row| {
        let window = if row.memory == Memory::Mapped { "mapped" } else { "unmapped" };
        let verdict = if row.matches_formula() { "" } else { "differs" };
        let (most, formula) = (row.most(), row.formula);
        let ranks = [row.ranks, row.neighbours].map(|n| n as u64);
        let costs = [most.messages, formula.messages, most.bytes, formula.bytes];
        let numbers = ranks.into_iter().chain(costs).map(|n| n.to_string());
        [window, row.call, verdict].map(str::to_owned).into_iter().chain(numbers).collect()
    };
    let header = ["window", "call", "", "P", "k", "messages", "formula", "bytes", "formula"];
    let about = "Messages and bytes that each rank sends (the rank that sends most); puts are of 8 bytes.";
    format!("{about}\n{}", text(&header, 3, rows.iter().map(row)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_equal_the_formulas() {
        for memory in [Memory::Mapped, Memory::Unmapped] {
            for ranks in RANKS {
                for neighbours in [1, ranks as usize - 1] {
                    let rows = rows(memory, ranks, neighbours).unwrap();
                    assert_eq!(rows.len(), 24);
                    for row in rows {
                        assert_eq!(row.measured.len(), ranks as usize);
                        assert!(row.matches_formula(), "{row:?}");
                    }
                }
            }
        }
    }
}
