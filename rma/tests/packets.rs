#![allow(unsafe_code)]
//! Packets of every operation over verbs, both directions, acknowledgements included, from the counters of the
//! devices, exact and reproducible. Two ranks on two devices, as threads.
//!
//! Runs where `FARSIDE_DEVICE=verbs` and the devices are software devices whose counters this process can read, as in
//! the emulated machine of `ci/rxe`; elsewhere the test is skipped with a message.

use std::cell::Cell;
use std::fs;
use std::rc::Rc;
use std::sync::Barrier;
use std::time::Duration;

use farside_rma::core::am::{self, Counters, Delivery, HandlerId, OnComplete, Sink, Source};
use farside_rma::core::coll;
use farside_rma::core::job::Track;
use farside_rma::core::settings::Settings;
use farside_rma::core::stats::Kind;
use farside_rma::raw::{Options, RawWindow};
use farside_rma::{Assert, Job, LockKind, Op, Result, Team};

const NONE: Assert = Assert::empty();
/// Elements of a long accumulate.
const LONG_ELEMENTS: usize = 1024;

/// Packets that the devices have sent.
fn sent() -> Option<u64> {
    let mut sum = None;
    for device in fs::read_dir("/sys/class/infiniband").ok()?.flatten() {
        let path = device.path().join("ports/1/hw_counters/sent_pkts");
        if let Ok(text) = fs::read_to_string(path) {
            sum = Some(sum.unwrap_or(0) + text.trim().parse::<u64>().ok()?);
        }
    }
    sum
}

fn is_verbs() -> bool {
    std::env::var("FARSIDE_DEVICE").is_ok_and(|d| d == "verbs")
}

/// Returns the cost of one call of `f` at both ranks, from runs of two lengths, so that the cost of the setup cancels
/// out.
fn slope(team: &Team, meeting: &Barrier, mut f: impl FnMut() -> Result<()>) -> Result<(u64, u64, u64)> {
    const SHORT_RUN: u64 = 40;
    const LONG_RUN: u64 = 90;
    // The counters are read while neither rank sends: the ranks synchronize outside of the device.
    let look = || {
        meeting.wait();
        let now = (sent().unwrap_or(0), team.job().stats());
        meeting.wait();
        now
    };
    let mut run = |times: u64| -> Result<(u64, u64)> {
        team.barrier()?;
        std::thread::sleep(Duration::from_millis(30));
        let before = look();
        (0..times).try_for_each(|_| f())?;
        team.barrier()?;
        // Allows time for acknowledgements for which no call waits.
        std::thread::sleep(Duration::from_millis(30));
        let after = look();
        Ok((after.0 - before.0, (after.1 - before.1).count(Kind::Post)))
    };
    run(SHORT_RUN)?;
    let mut cost = (0, 0, 0);
    // A rank that waits for seconds, as on a loaded machine, checks whether its peer is alive; these packets are not
    // those of the call.
    for _ in 0..5 {
        let (short, long) = (run(SHORT_RUN)?, run(LONG_RUN)?);
        let packets = long.0.saturating_sub(short.0);
        cost = (
            packets / (LONG_RUN - SHORT_RUN),
            packets % (LONG_RUN - SHORT_RUN),
            (long.1 - short.1) / (LONG_RUN - SHORT_RUN),
        );
        let odd = coll::allgather(team, &[u8::from(cost.1 != 0)])?;
        if odd.iter().all(|o| o[..] == [0]) {
            break;
        }
    }
    Ok(cost)
}

/// Name, expected number of packets, and the measured cost.
type Row = (&'static str, u64, (u64, u64, u64));

fn measure(job: &Job, meeting: &Barrier) -> Result<Vec<Row>> {
    let team = job.world()?;
    let me = team.rank();
    let window = RawWindow::allocate(&team, 64 + 8 * LONG_ELEMENTS, Options::default())?;
    let w = &window;
    let mut rows: Vec<Row> = Vec::new();
    let row = |name, expected, f: &mut dyn FnMut() -> Result<()>| Ok((name, expected, slope(&team, meeting, f)?));

    rows.push(row("barrier", 4, &mut || team.barrier())?);
    w.fence(NONE)?;
    rows.push(row("put + fence", 4, &mut || {
        if me == 0 {
            w.put_value(7u64, 1, 0)?;
        }
        w.fence(NONE)
    })?);
    rows.push(row("both put + fence", 4, &mut || {
        w.put_value(7u64, 1 - me, 0)?;
        w.fence(NONE)
    })?);
    rows.push(row("both put to themselves + fence", 4, &mut || {
        w.put_value(7u64, me, 0)?;
        w.fence(NONE)
    })?);
    // Records for the target's CPU: packets of 494 elements, the last of which is the notification.
    let (doubles, nowhere) = (vec![1.5f64; LONG_ELEMENTS], std::ptr::null_mut());
    // SAFETY: the elements outlive the epoch.
    let sum = |n, to| unsafe { w.accumulate(Op::Sum, doubles.as_ptr(), nowhere, n, to, 64) };
    rows.push(row("accumulate (128 doubles) + fence", 4, &mut || {
        if me == 0 {
            sum(128, 1)?;
        }
        w.fence(NONE)
    })?);
    // Both ranks send, so that neither requests credits.
    rows.push(row("both accumulate (1024 doubles) + fence", 12, &mut || {
        sum(LONG_ELEMENTS, 1 - me)?;
        w.fence(NONE)
    })?);
    let (mut former, one) = (0u64, 3u64);
    let former = &raw mut former;
    rows.push(row("fetch_and_op (64-bit sum) + fence", 6, &mut || {
        if me == 0 {
            // SAFETY: the variables outlive the epoch.
            unsafe { w.accumulate(Op::Sum, &raw const one, former, 1, 1, 8) }?;
        }
        w.fence(NONE)
    })?);
    w.fence(Assert::NOSUCCEED)?;
    rows.push(row("post, start, accumulate (128 doubles), complete, wait", 4, &mut || {
        if me == 1 {
            w.post(&[0], NONE)?;
            return w.wait();
        }
        w.start(&[1], NONE)?;
        sum(128, 1)?;
        w.complete()
    })?);
    for (name, puts) in [("post, start, put, complete, wait", 1), ("empty post, start, complete, wait", 0)] {
        rows.push(row(name, 4, &mut || {
            if me == 1 {
                w.post(&[0], NONE)?;
                return w.wait();
            }
            w.start(&[1], NONE)?;
            (0..puts).try_for_each(|_| w.put_value(7u64, 1, 0))?;
            w.complete()
        })?);
    }
    rows.push(row("lock exclusive, put, unlock", 6, &mut || {
        if me == 1 {
            return Ok(());
        }
        w.lock(LockKind::Exclusive, 1, NONE)?;
        w.put_value(7u64, 1, 0)?;
        w.unlock(1)
    })?);
    w.lock_all(NONE)?;
    let (mut old, mut half) = (0u64, 0u32);
    let (one, few) = (3u64, 3u32);
    let (old, half) = (&raw mut old, &raw mut half);
    let mut under_lock = |name, expected, f: &dyn Fn() -> Result<()>| -> Result<()> {
        let row = row(name, expected, &mut || {
            if me == 1 {
                return Ok(());
            }
            f()?;
            w.flush(1)
        })?;
        rows.push(row);
        Ok(())
    };
    // SAFETY: the variables outlive the flush that ends each operation.
    unsafe {
        under_lock("put + flush", 2, &|| w.put_value(7u64, 1, 0))?;
        under_lock("get + flush", 2, &|| w.get(old.cast(), 8, 1, 0))?;
        under_lock("fetch_and_op (64-bit sum) + flush", 2, &|| w.accumulate(Op::Sum, &raw const one, old, 1, 1, 8))?;
        under_lock("compare_and_swap (64-bit) + flush", 2, &|| w.compare_and_swap(1u64, 1, old, 1, 16))?;
        under_lock("accumulate (one 64-bit sum) + flush", 2, &|| {
            w.accumulate(Op::Sum, &raw const one, std::ptr::null_mut(), 1, 1, 8)
        })?;
        under_lock("get_accumulate (64-bit no-op) + flush", 2, &|| {
            w.accumulate(Op::NoOp, &raw const one, old, 1, 1, 8)
        })?;
        under_lock("accumulate (one 64-bit max) + flush", 4, &|| {
            w.accumulate(Op::Max, &raw const one, std::ptr::null_mut(), 1, 1, 24)
        })?;
        under_lock("accumulate (one 32-bit sum) + flush", 8, &|| {
            w.accumulate(Op::Sum, &raw const few, std::ptr::null_mut(), 1, 1, 32)
        })?;
        under_lock("compare_and_swap (32-bit) + flush", 8, &|| w.compare_and_swap(1u32, 1, half, 1, 36))?;
    }
    let mut arrived = 0u64;
    rows.push(row("put to itself, flush, get from itself, flush", 0, &mut || {
        w.put_value(arrived + 1, me, 40)?;
        w.flush(me)?;
        let (before, into) = (arrived, &raw mut arrived);
        // SAFETY: the variable outlives the flush.
        unsafe { w.get(into.cast(), 8, me, 40)? };
        w.flush(me)?;
        assert_eq!(arrived, before + 1);
        Ok(())
    })?);
    w.unlock_all()?;
    let got = Rc::new(Cell::new(0u64));
    let sink = Rc::clone(&got);
    job.active_messages().register(HandlerId(77), move |m| {
        assert_eq!(m.data().map(<[u8]>::len), Some(8));
        sink.set(sink.get() + 1);
        Delivery::Done
    })?;
    team.barrier()?;
    let gone = Cell::new(0u64);
    rows.push(row("message to itself", 0, &mut || {
        gone.set(gone.get() + 1);
        am::send(job, me as u32, HandlerId(77), &[], &gone.get().to_le_bytes(), Counters::default())
    })?);
    job.wait("own messages", || Ok((got.get() == gone.get()).then_some(())))?;
    let come = Rc::new(Cell::new(0u64));
    let (count, mut memory) = (Rc::clone(&come), vec![0u8; 1 << 20]);
    let (base, data) = (memory.as_mut_ptr(), vec![1u8; 1 << 20]);
    job.active_messages().register(HandlerId(78), move |m| {
        let count = Rc::clone(&count);
        // SAFETY: the memory outlives the messages.
        let sink = unsafe { Sink::memory(base, m.len) };
        Delivery::Into(sink, OnComplete::inline(move |_| count.set(count.get() + 1)))
    })?;
    team.barrier()?;
    // Each send has its acknowledgement; a send of 4 KiB is two packets with its header. Long messages: the request to
    // send and its end, one read request, its responses of 4096 bytes, and the word that says whether the memory was
    // deregistered.
    for (name, len, each) in [
        ("message of 8 bytes and back", 8, 2),
        ("message of 4 KiB and back", 4 << 10, 2 + 1),
        ("message of 64 KiB and back", 64 << 10, 2 + 1 + 16 + 2 + 2),
        ("message of 1 MiB and back", 1 << 20, 2 + 1 + 256 + 2 + 2),
    ] {
        rows.push(row(name, 2 * each, &mut || {
            let awaited = come.get() + 1;
            let send = || {
                let track = Track::new();
                let (to, data) = (1 - me as u32, Source::of(&data[..len]));
                // SAFETY: the data outlives the track.
                unsafe { am::start_send(job, to, HandlerId(78), &[], data, Counters::default(), &track) }?;
                job.wait("send a queued message", || Ok((track.open() == 0).then_some(())))?;
                track.check()
            };
            if me == 0 {
                send()?;
            }
            job.wait("a message", || Ok((come.get() == awaited).then_some(())))?;
            if me == 1 { send() } else { Ok(()) }
        })?);
    }
    window.free()?;
    Ok(rows)
}

#[test]
fn packets_of_every_operation_are_as_few_as_the_protocol_needs() {
    if !is_verbs() || sent().is_none() {
        println!("skipped: FARSIDE_DEVICE is not verbs, or no RDMA device here has packet counters");
        return;
    }
    // Retransmissions of the NIC after seconds of load would be counted too, so its timeout is long.
    let find = |name: &str| std::env::var(name).ok().or_else(|| (name == "FARSIDE_VERBS_TIMEOUT").then(|| "23".into()));
    let settings = Settings::from_lookup(find).unwrap();
    let meeting = Barrier::new(2);
    let rows = Job::threads_with(2, &settings, |job| measure(job, &meeting)).unwrap().remove(0);
    println!("{:<44} {:>8} {:>8} {:>9}", "operation, two ranks", "packets", "expected", "requests");
    let mut wrong = Vec::new();
    for (name, expected, (packets, rest, requests)) in &rows {
        println!("{name:<44} {packets:>8} {expected:>8} {requests:>9}");
        if (packets, *rest) != (expected, 0) {
            wrong.push(format!("{name}: {packets} and {rest} left over, {expected} expected"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
