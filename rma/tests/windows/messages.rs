//! Counts the messages of each synchronization call: the formulas of the doc comments of `raw/fence.rs`,
//! `raw/pscw.rs` and `raw/lock.rs`, on mapped and on posted windows, and the messages that each assert saves.
//!
//! `cargo test -p farside-rma --test operations windows::messages -- --nocapture` prints the table.

use std::collections::BTreeMap;
use std::sync::Mutex;

use farside_rma::core::coll::log2_up;
use farside_rma::core::stats::{Kind, Snapshot};
use farside_rma::raw::{Options, RawWindow};
use farside_rma::{Assert, LockKind, Result, Team};

use crate::checks::config::{self, Config, within};

const SIZES: &[u32] = &[2, 3, 4, 5, 8];
const NONE: Assert = Assert::empty();
const WORD: usize = 8;

/// Messages and bytes of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    messages: usize,
    bytes: usize,
}

/// The cost of `messages` messages of a word each.
fn words(messages: usize) -> Cost {
    Cost { messages, bytes: messages * WORD }
}

/// Number of signals of a barrier, and of a fence of a mapped window.
fn rounds(team: &Team) -> usize {
    if team.is_oversubscribed() { 1 } else { log2_up(team.size()) }
}

fn cost(d: &Snapshot) -> Cost {
    use Kind::*;
    let kinds = [Write, Read, Accumulate, FetchAdd, CompareSwap, Signal, Send];
    let bytes = kinds.iter().map(|k| d.bytes(*k)).sum::<u64>() as usize;
    Cost { messages: d.messages() as usize, bytes }
}

/// Window, call, ranks, neighbours.
type Row = (&'static str, String, usize, usize);

/// Rank 0's costs.
#[derive(Default)]
struct Table(Mutex<BTreeMap<Row, Cost>>);

impl Table {
    fn print(&self) {
        println!("{:<8} {:<44} {:>2} {:>10} {:>8} {:>6}", "window", "call", "P", "neighbours", "messages", "bytes");
        for ((window, call, p, k), c) in self.0.lock().unwrap().iter() {
            println!("{window:<8} {call:<44} {p:>2} {k:>10} {:>8} {:>6}", c.messages, c.bytes);
        }
    }
}

/// One rank with its window and its neighbours.
struct Bench<'a> {
    window: &'a RawWindow,
    team: &'a Team,
    config: &'static str,
    table: &'a Table,
    p: usize,
    /// The ranks that this rank accesses. The ranks that access it are at the same distances.
    targets: Vec<usize>,
    origins: Vec<usize>,
}

impl Bench<'_> {
    /// Runs `f` and compares its messages with `expected`.
    fn count(&self, call: &str, expected: Cost, f: impl FnOnce() -> Result<()>) -> Result<()> {
        // Wait for packets of earlier calls that are still queued, so that they are not counted for this one.
        let job = self.team.job();
        job.wait("send queued packets", || Ok(job.active_messages().is_quiet().then_some(())))?;
        let before = self.team.job().stats();
        f()?;
        let found = cost(&(self.team.job().stats() - before));
        let k = self.targets.len();
        assert_eq!(found, expected, "{call}: {} window, {} ranks, {k} neighbours", self.config, self.p);
        if self.team.rank() == 0 {
            self.table.0.lock().unwrap().insert((self.config, call.to_owned(), self.p, k), found);
        }
        Ok(())
    }

    fn put_each(&self) -> Result<()> {
        self.targets.iter().try_for_each(|t| self.window.put_value(1u64, *t, WORD * self.team.rank()))
    }

    /// Runs `f` at the ranks one after the other, so that no rank waits for the lock of another.
    fn in_turn(&self, mut f: impl FnMut() -> Result<()>) -> Result<()> {
        for turn in 0..self.p {
            if turn == self.team.rank() {
                f()?;
            }
            self.team.barrier()?;
        }
        Ok(())
    }
}

/// Runs `f` for mapped and posted windows, all numbers of ranks, and 0, 1, 2 and 4 neighbours.
fn for_all(f: impl Fn(&Bench<'_>) -> Result<()> + Send + Sync + Copy + 'static) {
    let table = std::sync::Arc::new(Table::default());
    for config in config::these(&[config::MAPPED, config::POSTED]) {
        let sizes = if config::verbs() && config::quick() { &SIZES[..3] } else { SIZES };
        for n in sizes {
            for k in [0usize, 1, 2, 4] {
                let table = table.clone();
                let run = move || one(&config, *n, k, &table, f);
                within(30, "counting messages", run).unwrap_or_else(|e| panic!("{}, {n} ranks: {e}", config.name));
            }
        }
    }
    table.print();
}

fn one(config: &Config, n: u32, k: usize, table: &Table, f: impl Fn(&Bench<'_>) -> Result<()> + Sync) -> Result<()> {
    if k >= n as usize {
        return Ok(());
    }
    config.run(n, |team| {
        let (p, me) = (team.size(), team.rank());
        let window = RawWindow::allocate(team, WORD * p, Options::default())?;
        let targets = (1..=k).map(|d| (me + d) % p).collect();
        let origins = (1..=k).map(|d| (me + p - d) % p).collect();
        f(&Bench { window: &window, team, config: config.name, table, p, targets, origins })?;
        team.barrier()?;
        window.free()
    })?;
    Ok(())
}

#[test]
fn messages_of_fence() {
    for_all(|b| {
        let (p, k, mapped) = (b.p, b.targets.len(), b.window.is_mapped());
        let rounds = words(rounds(b.team));
        // Between two ranks, the notification is combined with an operation that is a message, and the closing call
        // posts it.
        let one = rounds.messages;
        // Where memory is mapped, a put is a copy when it is issued, and is counted as a write.
        let device = b.team.job().device();
        let shares = |t: &&usize| b.config != config::POSTED.name && device.shares_memory(b.team.members()[**t]);
        let copied = if mapped { k } else { b.targets.iter().filter(shares).count() };
        let (at_once, unknown) = match (mapped, p <= 2) {
            (true, _) => (k, rounds),
            (false, true) => (0, words(one + 1)),
            (false, false) => (k, words(2 * one + k - copied)),
        };
        for (name, asserts) in [("", NONE), (" NOSTORE", Assert::NOSTORE), (" NOPUT", Assert::NOPUT)] {
            b.count("fence NOPRECEDE, opening", words(0), || b.window.fence(Assert::NOPRECEDE))?;
            b.team.barrier()?;
            b.count("put, one to each, fence unknown", words(copied), || b.put_each())?;
            b.count(&format!("fence{name}, exposure not known before"), unknown, || b.window.fence(asserts))?;
            b.count("put, one to each, fence known", words(at_once), || b.put_each())?;
            b.count(&format!("fence{name}, exposure known"), rounds, || b.window.fence(asserts))?;
            b.count(&format!("fence{name}, no operations"), rounds, || b.window.fence(asserts | Assert::NOSUCCEED))?;
            b.count("fence NOPRECEDE NOSUCCEED", words(0), || b.window.fence(Assert::NOPRECEDE | Assert::NOSUCCEED))?;
            b.team.barrier()?;
        }
        Ok(())
    });
}

/// The notification is combined with the last of several operations to the other rank.
#[test]
fn messages_of_fence_several_operations() {
    for_all(|b| {
        let (p, k, mapped) = (b.p, b.targets.len(), b.window.is_mapped());
        b.window.fence(NONE)?;
        let issued = words(if mapped || p > 2 { 3 * k } else { 2 * k });
        b.count("put, three to each", issued, || (0..3).try_for_each(|_| b.put_each()))?;
        b.count("fence after three to each", words(rounds(b.team)), || b.window.fence(Assert::NOSUCCEED))
    });
}

#[test]
fn messages_of_pscw() {
    for_all(|b| {
        let (k, mapped) = (b.targets.len(), b.window.is_mapped());
        let half = k.div_ceil(2);
        for (name, asserts) in [("", NONE), (" NOCHECK", Assert::NOCHECK)] {
            let post = words(if asserts == NONE { k } else { 0 });
            let asserts = asserts | Assert::NOSTORE | Assert::NOPUT;
            b.count(&format!("post{name}"), post, || b.window.post(&b.origins, asserts))?;
            // All posts have arrived, so that operations start when they are issued.
            b.team.barrier()?;
            b.count(&format!("start{name}"), words(0), || b.window.start(&b.targets, asserts & Assert::NOCHECK))?;
            for t in &b.targets[..half] {
                b.window.put_value(1u64, *t, 0)?;
                b.window.put_value(2u64, *t, 0)?;
            }
            // Unmapped: half of the signals are combined with puts. Mapped: the puts have already been counted.
            let call = format!("complete{name}, two puts to half of the group");
            b.count(&call, words(k), || b.window.complete())?;
            b.count(&format!("wait{name}"), words(0), || b.window.wait())?;
            b.window.post(&b.origins, asserts)?;
            b.team.barrier()?;
            b.window.start(&b.targets, asserts & Assert::NOCHECK)?;
            b.count(&format!("complete{name}, no operations"), words(k), || b.window.complete())?;
            b.count(&format!("test{name} until true"), words(0), || {
                while !b.window.test()? {}
                Ok(())
            })?;
        }
        let _ = mapped;
        Ok(())
    });
}

#[test]
fn messages_of_lock() {
    if config::served() {
        return println!("skipped: updates are packets, as many as the operations before them need");
    }
    for_all(|b| {
        let mapped = b.window.is_mapped();
        for (kind, name) in [(LockKind::Shared, "shared"), (LockKind::Exclusive, "exclusive")] {
            // Unmapped: the lock request is deferred to the first operation; a shared lock then costs a read and a
            // compare-and-swap.
            let enter = if mapped || kind == LockKind::Exclusive { 1 } else { 2 };
            b.in_turn(|| {
                let Some(t) = b.targets.first().copied() else { return Ok(()) };
                b.count(&format!("lock {name}"), words(usize::from(mapped)), || b.window.lock(kind, t, NONE))?;
                let call = format!("unlock {name}, no operations");
                b.count(&call, words(usize::from(mapped)), || b.window.unlock(t))?;
                b.window.lock(kind, t, NONE)?;
                let first = 1 + if mapped { 0 } else { enter };
                b.count(&format!("first put under lock {name}"), words(first), || b.window.put_value(1u64, t, 0))?;
                b.count(&format!("second put under lock {name}"), words(1), || b.window.put_value(1u64, t, 0))?;
                b.count("flush", words(0), || b.window.flush(t))?;
                b.count("flush_local", words(0), || b.window.flush_local(t))?;
                b.count("sync", words(0), || b.window.sync())?;
                b.count(&format!("unlock {name}"), words(1), || b.window.unlock(t))?;
                b.count("lock NOCHECK", words(0), || b.window.lock(kind, t, Assert::NOCHECK))?;
                b.count("put under lock NOCHECK", words(1), || b.window.put_value(1u64, t, 0))?;
                b.count("unlock NOCHECK", words(0), || b.window.unlock(t))
            })?;
        }
        Ok(())
    });
}

#[test]
fn messages_of_lock_all() {
    if config::served() {
        return println!("skipped: updates are packets, as many as the operations before them need");
    }
    for_all(|b| {
        let (k, mapped) = (b.targets.len(), b.window.is_mapped());
        b.in_turn(|| {
            b.count("lock_all", words(0), || b.window.lock_all(NONE))?;
            b.count("unlock_all, no operations", words(0), || b.window.unlock_all())?;
            b.window.lock_all(NONE)?;
            let enter = if mapped { 1 } else { 2 };
            b.count("first put to each under lock_all", words(k * (1 + enter)), || b.put_each())?;
            b.count("second put to each under lock_all", words(k), || b.put_each())?;
            b.count("flush_all", words(0), || b.window.flush_all())?;
            b.count("flush_local_all", words(0), || b.window.flush_local_all())?;
            b.count("unlock_all", words(k), || b.window.unlock_all())?;
            b.count("lock_all NOCHECK", words(0), || b.window.lock_all(Assert::NOCHECK))?;
            b.count("put to each under lock_all NOCHECK", words(k), || b.put_each())?;
            b.count("unlock_all NOCHECK", words(0), || b.window.unlock_all())
        })
    });
}

/// Creating a window takes five allgathers, and freeing it a barrier.
#[test]
fn messages_of_creation_and_free() {
    for config in config::these(&[config::MAPPED, config::POSTED]) {
        let sizes = if config::verbs() && config::quick() { &SIZES[..3] } else { SIZES };
        for n in sizes {
            let run = move || {
                config.run(*n, |team| {
                    let rounds = log2_up(team.size()) as u64;
                    let start = team.job().stats();
                    let window = RawWindow::allocate(team, 64, Options::default())?;
                    let made = team.job().stats();
                    // The first barrier of a team that spans nodes makes its signals within them.
                    let spans = !team.is_on_one_node() && !team.job().device().capabilities().nodes.is_empty();
                    if spans {
                        team.barrier()?;
                    }
                    let before = team.job().stats();
                    window.free()?;
                    let free = (team.job().stats() - before).messages();
                    assert_eq!((made - start).count(Kind::Send), 5 * rounds);
                    assert_eq!((made - start).messages(), 5 * rounds);
                    let flat = super::messages::rounds(team) as u64;
                    // A leader sends between nodes and to its children.
                    assert!(
                        if spans { (1..=flat + 1).contains(&free) || team.size() == 1 } else { free == flat },
                        "{free}"
                    );
                    Ok(())
                })
            };
            within(30, config.name, run).unwrap_or_else(|e| panic!("{}, {n} ranks: {e}", config.name));
        }
    }
}
