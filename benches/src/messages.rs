//! Messages of every synchronization call, counted beside the formulas of `farside_rma::raw`.
//!
//! Every rank has k neighbours, the k ranks after it, and puts 8 bytes to each of them. A message is everything that a
//! network would carry as one: a write, a signal, an atomic, a packet; a notification that travels with a write is
//! none of its own.

use farside_core::Job;
use farside_core::coll::log2_up;
use farside_core::error::Result;
use farside_core::settings::Settings;
use farside_core::stats::Kind;
use farside_rma::raw::RawWindow;
use farside_rma::{Assert, LockKind};

/// Numbers of ranks of the table.
pub const RANKS: [u32; 5] = [2, 3, 4, 5, 8];

/// How a window is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Every rank maps every other's memory.
    Mapped,
    /// Operations are messages, as on a network (`FARSIDE_FAULT=unmapped`).
    Unmapped,
}

/// What a rank has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Messages.
    pub messages: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was called.
    pub call: &'static str,
    /// How the window is reached.
    pub memory: Memory,
    /// Ranks of the window.
    pub ranks: usize,
    /// Neighbours of each rank.
    pub neighbours: usize,
    /// What each rank has sent.
    pub measured: Vec<Cost>,
    /// What each should send.
    pub formula: Cost,
}

impl Row {
    /// Whether every rank has sent what the formula says.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.measured.iter().all(|cost| *cost == self.formula)
    }

    /// The cost of the rank that has sent the most.
    #[must_use]
    pub fn most(&self) -> Cost {
        self.measured.iter().copied().max_by_key(|cost| (cost.messages, cost.bytes)).unwrap_or_default()
    }
}

/// Counts all calls with `ranks` ranks, which are threads, and `neighbours` neighbours, fewer than there are ranks.
///
/// # Errors
/// What the calls fail with.
pub fn rows(memory: Memory, ranks: u32, neighbours: usize) -> Result<Vec<Row>> {
    let settings = Settings::from_lookup(|name| match (name, memory) {
        ("FARSIDE_FAULT", Memory::Unmapped) => Some("unmapped".to_owned()),
        _ => None,
    })?;
    let counted = Job::threads_with(ranks, &settings, |job| Ok((count(job, neighbours)?, job.world()?.is_crowded())))?;
    let crowded = counted.iter().any(|(_, crowded)| *crowded);
    let p = ranks as usize;
    let row = |(i, call): (usize, &&'static str)| Row {
        call,
        memory,
        ranks: p,
        neighbours,
        measured: counted.iter().map(|(of_rank, _)| of_rank[i].1).collect(),
        formula: formula(call, memory, p as u64, neighbours as u64, crowded),
    };
    let calls: Vec<&'static str> =
        counted.first().map_or(Vec::new(), |(first, _)| first.iter().map(|(c, _)| *c).collect());
    Ok(calls.iter().enumerate().map(row).collect())
}

/// What one rank sends in each call.
fn count(job: &Job, neighbours: usize) -> Result<Vec<(&'static str, Cost)>> {
    let team = job.world()?;
    let (p, me) = (team.size(), team.rank());
    let window = RawWindow::allocate(&team, 8 * p, farside_rma::raw::Options::default())?;
    let targets: Vec<usize> = (1..=neighbours).map(|d| (me + d) % p).collect();
    let origins: Vec<usize> = (1..=neighbours).map(|d| (me + p - d) % p).collect();
    let puts = || targets.iter().try_for_each(|target| window.put_value(me as u64, *target, 8 * me));
    let mut costs = Vec::new();
    let mut call = |name: &'static str, run: &dyn Fn() -> Result<()>| -> Result<()> {
        let before = job.stats();
        run()?;
        let sent = job.stats() - before;
        let kinds =
            [Kind::Write, Kind::Read, Kind::Accumulate, Kind::FetchAdd, Kind::CompareSwap, Kind::Signal, Kind::Send];
        let bytes = kinds.iter().map(|kind| sent.bytes(*kind)).sum();
        costs.push((name, Cost { messages: sent.messages(), bytes }));
        Ok(())
    };
    let none = Assert::empty();

    call("barrier", &|| team.barrier())?;
    call("fence NOPRECEDE, opening", &|| window.fence(Assert::NOPRECEDE))?;
    call("k puts, fence", &|| puts().and_then(|()| window.fence(none)))?;
    call("k puts, fence, exposure known", &|| puts().and_then(|()| window.fence(none)))?;
    call("fence without operations, exposure known", &|| window.fence(none))?;
    call("k puts, fence NOSTORE NOPUT NOSUCCEED, exposure known", &|| {
        puts()?;
        window.fence(Assert::NOSTORE | Assert::NOPUT | Assert::NOSUCCEED)
    })?;
    call("fence NOPRECEDE NOSUCCEED", &|| window.fence(Assert::NOPRECEDE | Assert::NOSUCCEED))?;

    team.barrier()?;
    call("post", &|| window.post(&origins, none))?;
    call("start", &|| window.start(&targets, none))?;
    call("k puts, complete", &|| puts().and_then(|()| window.complete()))?;
    call("wait", &|| window.wait())?;
    call("post NOCHECK", &|| window.post(&origins, Assert::NOCHECK))?;
    team.barrier()?;
    call("start NOCHECK", &|| window.start(&targets, Assert::NOCHECK))?;
    call("k puts, complete after NOCHECK", &|| puts().and_then(|()| window.complete()))?;
    window.wait()?;

    // One rank after the other, so that no lock is contended.
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
        call("lock shared, put, unlock", &|| locked(LockKind::Shared, none, 1))?;
        call("lock exclusive, put, unlock", &|| locked(LockKind::Exclusive, none, 1))?;
        call("lock NOCHECK, put, unlock", &|| locked(LockKind::Exclusive, Assert::NOCHECK, 1))?;
        call("lock exclusive, unlock", &|| locked(LockKind::Exclusive, none, 0))?;
        call("lock_all", &|| window.lock_all(none))?;
        call("k puts, the first to each target", &puts)?;
        call("k puts, further ones", &puts)?;
        call("flush_all", &|| window.flush_all())?;
        call("unlock_all", &|| window.unlock_all())?;
        call("lock_all, unlock_all", &|| window.lock_all(none).and_then(|()| window.unlock_all()))?;
    }
    team.barrier()?;
    window.free()?;
    Ok(costs)
}

/// Bytes of a signal, an atomic on a word, and a put of this table.
const WORD: u64 = 8;
/// Bytes of a packet of a collective besides its data: prefix of the active message, and which call and round it is.
const PACKET: u64 = 24 + 16;

/// The formulas, from the documentation of `farside_rma::raw::{fence, pscw, lock}`.
fn formula(call: &str, memory: Memory, p: u64, k: u64, crowded: bool) -> Cost {
    let rounds = log2_up(p as usize) as u64;
    let words = |messages| Cost { messages, bytes: WORD * messages };
    let mapped = memory == Memory::Mapped;
    // Of a barrier, and of a fence of mapped windows.
    let together = if crowded { 1 } else { rounds };
    // The reduce-scatter of 32-bit counts: P - 1 of them in all.
    let reduce_scatter =
        |words: u64| Cost { messages: rounds + words, bytes: rounds * PACKET + 4 * (p - 1) + WORD * words };
    let fence_known = |puts: u64| match memory {
        Memory::Mapped => words(puts + together),
        Memory::Unmapped if p <= 4 => words(p - 1),
        Memory::Unmapped => reduce_scatter(puts),
    };
    match call {
        "barrier" => words(together),
        "k puts, fence" if mapped => words(k + together),
        "k puts, fence" => reduce_scatter(k),
        "k puts, fence, exposure known" | "k puts, fence NOSTORE NOPUT NOSUCCEED, exposure known" => fence_known(k),
        "fence without operations, exposure known" => fence_known(0),
        "post" => words(k),
        // The notification is a message where the put is none, and travels with it where it is one.
        "k puts, complete" | "k puts, complete after NOCHECK" => words(if mapped { 2 * k } else { k }),
        "lock shared, put, unlock" => words(if mapped { 3 } else { 4 }),
        "lock exclusive, put, unlock" => words(3),
        "lock NOCHECK, put, unlock" => words(1),
        "lock exclusive, unlock" => words(if mapped { 2 } else { 0 }),
        "k puts, the first to each target" => words(if mapped { 2 * k } else { 3 * k }),
        "k puts, further ones" | "unlock_all" => words(k),
        _ => words(0),
    }
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
                        assert!(row.holds(), "{row:?}");
                    }
                }
            }
        }
    }
}
