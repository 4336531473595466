#![allow(unsafe_code)]
//! Several ranks that request the same lock: the lock excludes, no wakeup is lost, and waiting ranks send few messages.

use farside_rma::core::coll;
use farside_rma::core::stats::Kind;
use farside_rma::raw::{Options, RawWindow};
use farside_rma::{Assert, CasElement, LockKind, Op, Result, Team};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::checks::config::{self, within};
use crate::checks::values::Value;

const NONE: Assert = Assert::empty();
const SIZES: &[u32] = &[2, 3, 4];

/// Adds 1 to the first word of `target` with a get and a put, which only an exclusive lock makes atomic; under a shared
/// lock reads the word twice, with the same result.
fn entries(w: &RawWindow, rank: usize, target: usize, rounds: u64) -> Result<u64> {
    let mut added = 0;
    let mut rng = StdRng::seed_from_u64(rank as u64);
    for _ in 0..rounds {
        let (mut first, mut second) = (0u64, 0u64);
        let kind = if rng.random_ratio(1, 4) { LockKind::Shared } else { LockKind::Exclusive };
        w.lock(kind, target, NONE)?;
        // SAFETY: the variables outlive the flushes.
        unsafe { w.get((&raw mut first).cast(), 8, target, 0) }?;
        w.flush(target)?;
        if kind == LockKind::Exclusive {
            w.put_value(first + 1, target, 0)?;
            added += 1;
        } else {
            // SAFETY: as above.
            unsafe { w.get((&raw mut second).cast(), 8, target, 0) }?;
            w.flush(target)?;
            assert_eq!(first, second, "rank {rank}: a writer beside a reader");
        }
        w.unlock(target)?;
    }
    Ok(added)
}

#[test]
fn lock_of_readers_and_writers_in_line_excludes_and_forgets_no_rank() {
    let rounds = if config::quick() { 25 } else { 200 };
    for config in config::these(&[config::MAPPED, config::POSTED]) {
        for n in SIZES {
            let run = move || {
                config.run(*n, |team| {
                    let w = RawWindow::allocate(team, 8, Options::default())?;
                    // All ranks lock one target, and then each rank locks all targets.
                    let mut added = entries(&w, team.rank(), 0, rounds)?;
                    for target in 0..team.size() {
                        let more = entries(&w, team.rank(), target, rounds / 5)?;
                        added += if target == 0 { more } else { 0 };
                    }
                    let all = coll::allgather(team, &added.to_le_bytes())?;
                    let sum: u64 = all.iter().map(|b| u64::from_le_bytes(b[..].try_into().unwrap())).sum();
                    let mut found = 0u64;
                    w.lock(LockKind::Exclusive, 0, NONE)?;
                    // SAFETY: the variable outlives the lock.
                    unsafe { w.get((&raw mut found).cast(), 8, 0, 0) }?;
                    w.unlock(0)?;
                    assert_eq!(found, sum, "rank {}: an addition was lost", team.rank());
                    w.free()
                })
            };
            within(120, "locks in line", run).unwrap_or_else(|e| panic!("{}, {n} ranks: {e}", config.name));
        }
    }
}

/// Counts the messages that waiters send while another rank holds the lock, and those of the lock as a whole.
fn messages_while_waiting(team: &Team, kind: LockKind) -> Result<()> {
    let w = RawWindow::allocate(team, 8, Options::default())?;
    let stats = || team.job().stats();
    if team.rank() == 0 {
        w.lock(LockKind::Exclusive, 0, NONE)?;
        w.put_value(1u64, 0, 0)?;
        w.flush(0)?;
        team.barrier()?;
        // The time suffices for thousands of polls.
        std::thread::sleep(std::time::Duration::from_millis(200));
        w.unlock(0)?;
        team.barrier()?;
    } else {
        team.barrier()?;
        let before = stats();
        w.lock(kind, 0, NONE)?;
        w.put_value(1u64, 0, 0)?;
        w.unlock(0)?;
        let spent = stats() - before;
        team.barrier()?;
        if !w.is_mapped() && !config::served() {
            // The messages are ticket, queue entry and read; the put; the release; two reads after notifications, of
            // which one may be stale; a read of the next slot, and its signal. A reader also reads the word before it
            // takes a ticket, enters with an addition, and then reads the next slot and signals.
            let most = 5 + 2 + 2 + if kind == LockKind::Shared { 4 } else { 0 };
            let messages = spent.messages();
            assert!(
                messages <= most,
                "rank {}: {messages} messages to lock, put, unlock, {most} expected",
                team.rank()
            );
            assert_eq!(spent.count(Kind::Send), 0);
        }
    }
    w.free()
}

#[test]
fn lock_that_is_held_costs_who_waits_a_few_messages_however_long_it_takes() {
    for config in config::these(&[config::MAPPED, config::POSTED]) {
        for n in SIZES {
            for kind in [LockKind::Exclusive, LockKind::Shared] {
                let run = move || config.run(*n, |team| messages_while_waiting(team, kind)).map(|_| ());
                within(30, "a lock that is held", run).unwrap_or_else(|e| panic!("{}, {n} ranks: {e}", config.name));
            }
        }
    }
}

/// Ranks 2 and 3 hold their own locks while ranks 0 and 1, as readers, request both locks in opposite orders. Then each
/// reader first waits for the lock that the other has requested first: readers do not wait for each other.
fn crossing(team: &Team, all: bool) -> Result<()> {
    let w = RawWindow::allocate(team, 16, Options::default())?;
    let rank = team.rank();
    if rank >= 2 {
        w.lock_local()?;
        (0..3).try_for_each(|_| team.barrier())?;
        w.unlock(rank)?;
    } else {
        team.barrier()?;
        let (first, second) = (2 + rank, 3 - rank);
        if all {
            w.lock_all(NONE)?;
        } else {
            w.lock(LockKind::Shared, first, NONE)?;
        }
        w.put_value(7u64, first, 8 * rank)?;
        team.barrier()?;
        if !all {
            w.lock(LockKind::Shared, second, NONE)?;
        }
        w.put_value(9u64, second, 8 * rank)?;
        team.barrier()?;
        w.flush(second)?;
        w.flush(first)?;
        if all {
            w.unlock_all()?;
        } else {
            w.unlock(first)?;
            w.unlock(second)?;
        }
    }
    team.barrier()?;
    // SAFETY: no rank accesses the window any more.
    let own = unsafe { std::slice::from_raw_parts(w.base().cast::<u64>(), 2) };
    match rank {
        2 => assert_eq!(own, [7, 9]),
        3 => assert_eq!(own, [9, 7]),
        _ => assert_eq!(own, [0, 0]),
    }
    team.barrier()?;
    w.free()
}

#[test]
fn readers_that_wait_for_two_ranks_in_different_orders_do_not_wait_for_each_other() {
    for config in config::these(&[config::MAPPED, config::POSTED]) {
        for all in [true, false] {
            let run = move || config.run(4, |team| crossing(team, all)).map(|_| ());
            within(30, "readers in different orders", run).unwrap_or_else(|e| panic!("{}: {e}", config.name));
        }
    }
}

/// Rank 0 has requested a lock that rank 2 holds, and waits for rank 1 in a barrier; meanwhile rank 1 gets the same
/// lock.
#[test]
fn reader_that_has_asked_and_waits_for_something_else_keeps_no_reader_waiting() {
    for config in config::these(&[config::MAPPED, config::POSTED]) {
        let run = move || {
            let body = |team: &Team| {
                let w = RawWindow::allocate(team, 16, Options::default())?;
                let rank = team.rank();
                if rank == 2 {
                    w.lock_local()?;
                    (0..3).try_for_each(|_| team.barrier())?;
                    w.unlock(rank)?;
                    team.barrier()?;
                } else {
                    team.barrier()?;
                    // Rank 0 takes the lock first.
                    for turn in 0..2 {
                        if rank == turn {
                            w.lock(LockKind::Shared, 2, NONE)?;
                            w.put_value(5u64, 2, 8 * rank)?;
                        }
                        team.barrier()?;
                    }
                    if rank == 1 {
                        w.unlock(2)?;
                    }
                    team.barrier()?;
                    if rank == 0 {
                        w.unlock(2)?;
                    }
                }
                team.barrier()?;
                // SAFETY: no rank accesses the window any more.
                let own = unsafe { std::slice::from_raw_parts(w.base().cast::<u64>(), 2) };
                assert_eq!(own, if rank == 2 { [5, 5] } else { [0, 0] });
                team.barrier()?;
                w.free()
            };
            config.run(3, body).map(|_| ())
        };
        within(30, "a reader behind one that waits elsewhere", run).unwrap_or_else(|e| panic!("{}: {e}", config.name));
    }
}

/// Updates of many elements and of single ones, by all ranks at the same time: none is lost. First each rank makes both
/// kinds in turn; then rank 0 makes only single-element updates, enough to take a share of the element lock, while the
/// other ranks continue; then all ranks make both again, each round under its own exclusive or shared lock.
fn updates<T: Value + CasElement>(team: &Team, config: &config::Config) -> Result<()> {
    const LEN: usize = 45;
    let (p, me, size) = (team.size(), team.rank(), size_of::<T>());
    let rounds = if config.seed.is_some() || config::quick() { 10 } else { 100 };
    let w = RawWindow::allocate(team, LEN * size, Options::default())?;
    let (one, ones) = (T::of(1), [T::of(1); LEN]);
    let none = std::ptr::null_mut();
    let mut added = [0u64; LEN];
    for round in 0..3 * rounds {
        let (phase, last) = (round / rounds, (round + 1) % rounds == 0);
        if phase == 2 {
            w.lock([LockKind::Shared, LockKind::Exclusive][(me + round) % 2], 0, NONE)?;
        } else if round % rounds == 0 {
            w.lock_all(NONE)?;
        }
        let alone = me == 0 && phase == 1;
        let (start, at) = ((me + round) % 5, (7 * me + round) % LEN);
        let (mut old, mut seen) = (T::of(0), [T::of(0); LEN]);
        // SAFETY: the variables outlive the flushes.
        unsafe {
            if !alone {
                let old = if round % 3 == 0 { seen.as_mut_ptr() } else { none };
                w.accumulate(Op::Sum, ones[start..].as_ptr(), old, LEN - start, 0, start * size)?;
                added[start..].iter_mut().for_each(|n| *n += 1);
            }
            w.accumulate(Op::Sum, &raw const one, if round % 2 == 0 { &raw mut old } else { none }, 1, 0, at * size)?;
            added[at] += 1;
            w.flush(0)?;
            // An addition by compare-and-swap.
            w.accumulate(Op::NoOp, &raw const one, &raw mut old, 1, 0, at * size)?;
            w.flush(0)?;
            let (expected, mut found) = (old, old);
            w.compare_and_swap(expected, expected.sum(one), &raw mut found, 0, at * size)?;
            w.flush(0)?;
            added[at] += u64::from(found == expected);
        }
        match phase {
            2 => w.unlock(0)?,
            _ if last => w.unlock_all()?,
            _ => {}
        }
    }
    let bytes: Vec<u8> = added.iter().flat_map(|n| n.to_le_bytes()).collect();
    let all = coll::allgather(team, &bytes)?;
    assert_eq!(all.len(), p);
    // SAFETY: the elements of this rank, which no rank accesses after the exchange.
    let own = unsafe { std::slice::from_raw_parts(w.base().cast::<T>(), LEN) };
    for (at, x) in own.iter().enumerate().filter(|_| me == 0) {
        let sum = all.iter().map(|b| u64::from_le_bytes(b[8 * at..][..8].try_into().unwrap())).sum();
        assert_eq!(*x, T::of(sum), "element {at}");
    }
    w.free()
}

#[test]
fn accumulate_of_many_elements_loses_no_single_update_meanwhile() {
    for config in config::table() {
        let run = move || {
            config.run(3, |team| {
                updates::<u8>(team, config)?;
                updates::<i32>(team, config)?;
                updates::<u64>(team, config)
            })
        };
        within(120, "updates", run).unwrap_or_else(|e| panic!("{}: {e}", config.name));
    }
}

/// An accumulate of any length on a mapped window is counted as one, and its lock as nothing: it sends no message.
#[test]
fn accumulate_on_a_mapped_window_costs_no_message_for_its_lock() {
    let run = |team: &Team| {
        let (ones, nowhere) = ([1.0f64; 512], std::ptr::null_mut());
        let w = RawWindow::allocate(team, size_of_val(&ones), Options::default())?;
        w.lock_all(Assert::NOCHECK)?;
        for n in [1, 2, 512] {
            let before = team.job().stats();
            // SAFETY: the operand outlives the flush.
            unsafe { w.accumulate(Op::Sum, ones.as_ptr(), nowhere, n, 1 - team.rank(), 0) }?;
            w.flush(1 - team.rank())?;
            let spent = team.job().stats() - before;
            if w.is_mapped() {
                let counted = (spent.messages(), spent.count(Kind::Accumulate), spent.bytes(Kind::Accumulate));
                assert_eq!(counted, (1, 1, 8 * n as u64));
            }
        }
        w.unlock_all()?;
        w.free()
    };
    for config in config::these(&[config::MAPPED]) {
        config.run(2, run).unwrap_or_else(|e| panic!("{}: {e}", config.name));
    }
}

/// Where memory is not mapped, an accumulate of many elements is one request of the device, or a read and a write under
/// a lock word, until a single-element update of the same elements uses an atomic.
#[test]
fn accumulate_of_many_elements_is_a_bounded_number_of_messages() {
    const LEN: usize = 5000;
    let run = |team: &Team| {
        let (ones, mut old) = (vec![1.0f64; LEN], vec![0.0f64; LEN]);
        let w = RawWindow::allocate(team, size_of_val(&ones[..]), Options::default())?;
        w.lock_all(Assert::NOCHECK)?;
        for former in [std::ptr::null_mut(), old.as_mut_ptr()].into_iter().filter(|_| team.rank() == 1) {
            let before = team.job().stats();
            // SAFETY: the buffers outlive the flush.
            unsafe { w.accumulate(Op::Sum, ones.as_ptr(), former, LEN, 0, 0) }?;
            w.flush(0)?;
            let spent = team.job().stats() - before;
            let counted = [Kind::Accumulate, Kind::FetchAdd, Kind::Read, Kind::Write].map(|kind| spent.count(kind));
            assert!(counted == [1, 0, 0, 0] || counted == [1, 2, 1, 1], "{counted:?}");
            let packets = if config::served() { spent.count(Kind::Send) } else { 0 };
            assert!(packets <= (LEN * 8).div_ceil(4096) as u64, "{packets}");
            assert_eq!(counted.iter().sum::<u64>() + packets, spent.messages());
        }
        assert!(team.rank() == 0 || old.iter().all(|value| *value == 1.0));
        w.unlock_all()?;
        w.free()
    };
    for config in config::table() {
        config.run(2, run).unwrap_or_else(|e| panic!("{}: {e}", config.name));
    }
}
