#![allow(unsafe_code)]
//! Faults: refused requests, memory that is released during requests, and links that lose packets, go down, or are cut.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::regions::{exchange_regions, forget, release};
use farside_core::am::{self, Counters, Delivery, HandlerId};
use farside_core::device::{Block, Operation, Place};
use farside_core::job::Track;
use farside_core::signal::SignalArray;
use farside_core::{Error, ErrorKind, Job, Result};

use crate::strict::failures::{self, Silent};
use crate::{region, two, two_with, well};

/// Writes, signals and packets posted after a refused write arrive once and in order, and only the refused write fails.
#[test]
fn refused_write_fails_alone_and_what_is_behind_it_arrives_in_order() {
    const ID: HandlerId = HandlerId(9);
    const PACKETS: u32 = 20;
    well(two(|job| {
        let team = job.world()?;
        let signals = SignalArray::new(&team, 0)?;
        let got = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let sink = got.clone();
        job.active_messages().register(ID, move |m| {
            sink.borrow_mut().push(u32::from_le_bytes(m.data().unwrap().try_into().unwrap()));
            Delivery::Done
        })?;
        let mut memory = vec![0u8; 100_000];
        // SAFETY: the memory is valid until it is released, and is read after that.
        let own = unsafe { job.device().register(region(memory.as_mut_ptr(), memory.len())) };
        let (own, remotes) = exchange_regions(&team, own, None)?;
        let good = job.device().allocate(farside_core::device::Region::allocated(4096));
        let (good, good_remotes) = exchange_regions(&team, good, None)?;
        if job.rank_number() == 1 {
            // The region is released while rank 0 still has the key.
            release(job, own.handle)?;
            team.barrier()?;
            job.wait("packets", || Ok((got.borrow().len() == PACKETS as usize).then_some(())))?;
            job.wait("signals", || Ok((signals.get(0, 1) == u64::from(PACKETS)).then_some(())))?;
            assert_eq!(*got.borrow(), (0..PACKETS).collect::<Vec<_>>());
            assert!(memory.iter().all(|b| *b == 0), "memory that was taken back was written");
        } else {
            team.barrier()?;
            let bytes = vec![7u8; 50_000];
            let from = [Block::of(bytes.as_ptr(), bytes.len())];
            let word = 5u64.to_le_bytes();
            let short = [Block::of(word.as_ptr(), 8)];
            let (bad, fine) = (Track::new(), Track::new());
            // SAFETY: the buffers outlive the waits below.
            unsafe {
                let to = Place { region: remotes[1].handle, offset: 100 };
                job.post(1, Operation::write(&from, to), None, &[&bad])?;
                for i in 0..PACKETS {
                    am::send(job, 1, ID, &[], &i.to_le_bytes(), Counters::default())?;
                    signals.set(1, 1, u64::from(i) + 1)?;
                    let to = Place { region: good_remotes[1].handle, offset: 8 * i as usize };
                    job.post(1, Operation::write(&short, to), None, &[&fine])?;
                }
            }
            job.wait("writes", || Ok((bad.open() + fine.open() == 0).then_some(())))?;
            let e = bad.check().unwrap_err();
            assert_eq!((e.kind(), e.blamed()), (ErrorKind::BadKey, Some(1)), "{e}");
            assert!(e.to_string().contains("REM_ACCESS_ERR"), "{e}");
            fine.check()?;
            release(job, own.handle)?;
        }
        team.barrier()?;
        if job.rank_number() == 1 {
            let mut words = vec![0u64; PACKETS as usize];
            // SAFETY: memory of this rank of that length, which is no longer written.
            unsafe { std::ptr::copy_nonoverlapping(good.base, words.as_mut_ptr().cast(), 8 * words.len()) };
            assert_eq!(words, vec![5; PACKETS as usize]);
        }
        good_remotes.iter().for_each(|r| forget(job, r.handle));
        release(job, good.handle)?;
        drop(signals);
        team.barrier()
    }));
}

/// Memory is released while writes and reads of it are outstanding: from some operation on they fail with the reason,
/// and communication between the ranks continues.
#[test]
fn memory_released_under_running_operations_fails_them_and_nothing_else() {
    const LEN: usize = 256 << 10;
    well(two(|job| {
        let team = job.world()?;
        let signals = SignalArray::new(&team, 0)?;
        let mut memory = vec![0u8; LEN];
        // SAFETY: the memory is valid until it is released, and is not accessed before that.
        let own = unsafe { job.device().register(region(memory.as_mut_ptr(), LEN)) };
        let (own, remotes) = exchange_regions(&team, own, None)?;
        if job.rank_number() == 1 {
            job.wait("some writes", || Ok((signals.get(0, 1) >= 3).then_some(())))?;
            release(job, own.handle)?;
            // The memory belongs to this rank alone again.
            memory.fill(9);
            job.wait("an error", || Ok((signals.get(0, 2) == 1).then_some(())))?;
            assert!(memory.iter().all(|b| *b == 9), "memory that was taken back was written");
        } else {
            let bytes = vec![7u8; LEN];
            // The read has one packet only: Soft-RoCE loses the refusal of a longer read that was answered in part,
            // because the refusal has the number of the first packet and the requester treats it as an old one.
            let mut back = [0u8; 4096];
            let to = Place { region: remotes[1].handle, offset: 0 };
            let mut round = 0;
            let error = loop {
                let (writes, reads) = (Track::new(), Track::new());
                let from = [Block::of(bytes.as_ptr(), LEN)];
                let into = [Block { base: back.as_mut_ptr(), len: back.len() }];
                // SAFETY: the buffers outlive the wait below.
                unsafe {
                    job.post(1, Operation::write(&from, to), None, &[&writes])?;
                    job.post(1, Operation::read(&into, to), None, &[&reads])?;
                }
                round += 1;
                signals.set(1, 1, round)?;
                job.wait("operations", || Ok((writes.open() + reads.open() == 0).then_some(())))?;
                if let Err(e) = writes.check().and_then(|()| reads.check()) {
                    break e;
                }
            };
            assert_eq!((error.kind(), error.blamed()), (ErrorKind::BadKey, Some(1)), "{error}");
            signals.set(1, 2, 1)?;
            release(job, own.handle)?;
        }
        remotes.iter().for_each(|r| forget(job, r.handle));
        team.barrier()
    }));
    nothing_is_left();
}

/// Connections are re-established to a rank that computes and has not yet polled for messages of the former
/// connections: no notification, packet or receive buffer is lost, though queue pairs are destroyed as by mlx5.
#[test]
fn deliveries_not_polled_when_connections_restart_are_all_received() {
    const ID: HandlerId = HandlerId(9);
    const ROUNDS: u64 = 4;
    const PACKETS: u64 = 6;
    let computes = std::sync::Arc::new(AtomicBool::new(true));
    // Each round uses 7 of 32 buffers.
    well(two_with(&[("FARSIDE_VERBS_RECEIVES", "32")], move |job| {
        let team = job.world()?;
        let signals = SignalArray::new(&team, 0)?;
        let got = std::rc::Rc::new(std::cell::Cell::new(0));
        let sink = got.clone();
        job.active_messages().register(ID, move |_| {
            sink.set(sink.get() + 1);
            Delivery::Done
        })?;
        let own = job.device().allocate(farside_core::device::Region::allocated(64));
        let (own, remotes) = exchange_regions(&team, own, None)?;
        let mut lent = [0u8; 64];
        // SAFETY: the memory is valid until it is released, and is not accessed before that.
        let released = unsafe { job.device().register(region(lent.as_mut_ptr(), lent.len())) };
        let (released, refusing) = exchange_regions(&team, released, None)?;
        let word = 5u64.to_le_bytes();
        let from = [Block::of(word.as_ptr(), 8)];
        let write = |region: u64, notify| {
            let track = Track::new();
            let to = Place { region, offset: 0 };
            // SAFETY: the bytes outlive the wait.
            unsafe { job.post(1, Operation::write(&from, to), notify, &[&track]) }?;
            job.wait("a write", || Ok((track.open() == 0).then_some(())))?;
            track.check()
        };
        if job.rank_number() == 1 {
            release(job, released.handle)?;
            let before = left_behind("qp").len();
            team.barrier()?;
            while computes.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            job.wait("notifications", || Ok((signals.get(0, 1) == ROUNDS).then_some(())))?;
            job.wait("packets", || Ok((got.get() == ROUNDS * PACKETS).then_some(())))?;
            job.wait("the end of former queue pairs", || Ok((left_behind("qp").len() <= before).then_some(())))?;
        } else {
            team.barrier()?;
            for round in 1..=ROUNDS {
                for _ in 0..PACKETS {
                    am::send(job, 1, ID, &[], &word, Counters::default())?;
                }
                write(remotes[1].handle, Some((signals.cell_at(1, 1, round), round)))?;
                // The write is refused, so later requests use another connection.
                assert_eq!(write(refusing[1].handle, None).unwrap_err().kind(), ErrorKind::BadKey);
            }
            write(remotes[1].handle, None)?;
            computes.store(false, Ordering::SeqCst);
            release(job, released.handle)?;
        }
        // These packets need every buffer once more.
        for _ in 0..20 {
            team.barrier()?;
        }
        remotes.iter().chain(&refusing).for_each(|r| forget(job, r.handle));
        release(job, own.handle)?;
        drop(signals);
        team.barrier()
    }));
    nothing_is_left();
}

/// The HCA reports no completions: a cancelled transfer and a cancelled list end nevertheless, once their queue pairs
/// are destroyed, and the rank can use its memory again.
#[test]
fn operations_cancelled_while_no_completion_comes_end_with_their_queue_pairs() {
    const LEN: usize = 256 << 10;
    let done = std::sync::Arc::new(AtomicBool::new(false));
    let errors = two(move |job| {
        let team = job.world()?;
        let own = job.device().allocate(farside_core::device::Region::allocated(LEN));
        let (_, remotes) = exchange_regions(&team, own, None)?;
        team.barrier()?;
        if job.rank_number() == 1 {
            while !done.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            return team.barrier();
        }
        let (mut back, mut list) = (vec![0u8; LEN], vec![0u8; LEN]);
        let into = [Block { base: back.as_mut_ptr(), len: LEN }];
        let scatter = [Block { base: list.as_mut_ptr(), len: LEN }];
        let before = left_behind("qp").len();
        let (read, received) = (Track::new(), Track::new());
        let silent = Silent::new();
        // SAFETY: the buffers live until the operations are cancelled.
        unsafe {
            let from = Place { region: remotes[1].handle, offset: 0 };
            job.post(1, Operation::read(&into, from), None, &[&read])?;
            job.post(1, Operation::scatter(&scatter), None, &[&received])?;
        }
        job.device().cancel(&|_| true);
        // There is one queue pair for requests fewer; that of the list was created and destroyed in between.
        let after = left_behind("qp").len();
        drop(silent);
        assert!(before == 0 || after == before - 1, "{before} queue pairs before, {after} after");
        done.store(true, Ordering::SeqCst);
        team.barrier()
    });
    for (rank, e) in errors.into_iter().flatten().enumerate() {
        let e = e.expect("a barrier with a rank that was given up");
        assert_eq!((e.kind(), e.blamed_number()), (ErrorKind::PeerLost, Some(1 - rank as u32)), "{e}");
    }
    nothing_is_left();
}

/// Queue pairs (or completion queues, regions, domains) that processes hold; tests run one at a time.
fn left_behind(kind: &str) -> Vec<String> {
    let Ok(shown) = Command::new("rdma").args(["res", "show", kind]).output() else { return Vec::new() };
    let text = String::from_utf8_lossy(&shown.stdout);
    text.lines().filter(|l| l.contains(" pid ")).map(str::to_owned).collect()
}

pub(crate) fn nothing_is_left() {
    for kind in ["qp", "cq", "mr", "pd"] {
        assert_eq!(left_behind(kind), Vec::<String>::new(), "left behind");
    }
}

/// Controls `rxe-link` of the emulated machine; restores all links when dropped.
pub(crate) struct Links;

impl Links {
    /// Returns `None`, with a message, if links cannot be controlled.
    pub(crate) fn new() -> Option<Self> {
        let there = Command::new("rxe-link").arg("show").output().is_ok_and(|o| o.status.success());
        if !there {
            println!("skipped: rxe-link is not there, as in the machine of ci/rxe");
        }
        there.then_some(Self)
    }

    pub(crate) fn change(arguments: &[&str]) {
        let status = Command::new("rxe-link").args(arguments).status();
        assert!(status.as_ref().is_ok_and(|s| s.success()), "rxe-link {arguments:?}: {status:?}");
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        for mend in [&["loss", "all", "0%"][..], &["drop", "all", "0"], &["up", "all"]] {
            let _ = Command::new("rxe-link").args(mend).status();
        }
    }
}

/// Writes of every length class, reads, atomics, signals and packets; compares each result.
pub(crate) fn exchange(job: &Job, rounds: u64) -> Result<()> {
    const ID: HandlerId = HandlerId(9);
    const LEN: usize = 64 << 10;
    let team = job.world()?;
    let got = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let sink = got.clone();
    job.active_messages().register(ID, move |m| {
        sink.borrow_mut().push(u64::from_le_bytes(m.data().unwrap().try_into().unwrap()));
        Delivery::Done
    })?;
    let own = job.device().allocate(farside_core::device::Region::allocated(LEN + 8));
    let (own, remotes) = exchange_regions(&team, own, None)?;
    let signals = SignalArray::new(&team, 0)?;
    let me = job.rank_number();
    let peer = 1 - me;
    let at = |offset| Place { region: remotes[peer as usize].handle, offset };
    for round in 1..=rounds {
        let len = [8, 300, 4096, 9000, LEN][round as usize % 5];
        let bytes = vec![round as u8 ^ (me as u8) << 7; len];
        let mut back = vec![0u8; len];
        let (from, into) = ([Block::of(bytes.as_ptr(), len)], [Block { base: back.as_mut_ptr(), len }]);
        let mut old = 0;
        // SAFETY: the buffers outlive the calls, which complete the operations.
        unsafe {
            job.complete("write", peer, Operation::write(&from, at(0)))?;
            job.complete("read", peer, Operation::read(&into, at(0)))?;
            job.complete("add", peer, Operation::fetch_add(at(LEN), 3, &raw mut old))?;
        }
        assert!(back == bytes, "round {round}: {len} bytes came back changed");
        assert_eq!(old, 3 * (round - 1), "round {round}: an addition was lost or done twice");
        am::send(job, peer, ID, &[], &round.to_le_bytes(), Counters::default())?;
        signals.set(peer as usize, 1, round)?;
        job.wait("the signal", || Ok((signals.get(peer as usize, 1) >= round).then_some(())))?;
    }
    job.wait("the packets", || Ok((got.borrow().len() as u64 == rounds).then_some(())))?;
    assert_eq!(*got.borrow(), (1..=rounds).collect::<Vec<_>>(), "packets");
    team.barrier()?;
    remotes.iter().for_each(|r| forget(job, r.handle));
    release(job, own.handle)
}

fn exchange_with_loss(loss: &str) {
    let Some(_links) = Links::new() else { return };
    Links::change(&["loss", "all", loss]);
    // Lost packets are repeated after 67 ms instead of two seconds.
    well(two_with(&[("FARSIDE_VERBS_TIMEOUT", "14")], |job| exchange(job, 100)));
    nothing_is_left();
}

#[test]
fn one_packet_of_a_hundred_lost_changes_no_result() {
    exchange_with_loss("1%");
}

#[test]
fn one_packet_of_twenty_lost_changes_no_result() {
    exchange_with_loss("5%");
}

/// Every third response to a read or an atomic is lost, in operations of several steps and in operations after reads
/// that notify: all retransmissions succeed, and no addition is executed twice. A read whose response was lost is
/// executed again by its responder, so it may see the addition that was posted behind it.
#[test]
fn lost_answers_of_operations_in_steps_stop_nothing() {
    const ROUNDS: u64 = 12;
    let Some(_links) = Links::new() else { return };
    for answer in ["10", "12"] {
        Links::change(&["drop", "all", "3", answer]);
        well(two_with(&[("FARSIDE_VERBS_TIMEOUT", "14")], |job| {
            let team = job.world()?;
            let own = job.device().allocate(farside_core::device::Region::allocated(64));
            let (own, remotes) = exchange_regions(&team, own, None)?;
            let signals = SignalArray::new(&team, 0)?;
            let peer = 1 - job.rank_number();
            let at = |offset| Place { region: remotes[peer as usize].handle, offset };
            for round in 1..=ROUNDS {
                let (mut old, mut sum, mut back) = ([0u8; 4], 0u64, 0u64);
                let into = [Block { base: (&raw mut back).cast(), len: 8 }];
                let cell = Some((signals.cell_at(peer as usize, 1, round), round));
                let track = Track::new();
                let (expected, desired) = (round - 1, round);
                let swap = Operation::compare_swap(at(4), 4, [expected, desired], old.as_mut_ptr());
                // SAFETY: the variables outlive the wait.
                unsafe {
                    job.post(peer, swap, None, &[&track])?;
                    job.post(peer, Operation::read(&into, at(8)), cell, &[&track])?;
                    let add = Operation::fetch_add(at(8), 1, &raw mut sum);
                    job.post(peer, add, None, &[&track])?;
                }
                job.wait("operations in steps", || Ok((track.open() == 0).then_some(())))?;
                track.check()?;
                let swapped = u64::from(u32::from_le_bytes(old));
                assert_eq!((swapped, sum), (round - 1, round - 1), "round {round}");
                assert!([round - 1, round].contains(&back), "round {round}: the read saw {back}");
                job.wait("the signal", || Ok((signals.get(peer as usize, 1) >= round).then_some(())))?;
            }
            team.barrier()?;
            remotes.iter().for_each(|r| forget(job, r.handle));
            release(job, own.handle)
        }));
    }
}

/// Packets are lost for a while, without an error report: all operations complete as usual.
#[test]
fn link_that_is_cut_for_a_second_changes_no_result() {
    // On a slow machine the link may be down so long that ranks are rightly reported lost: then the test is repeated.
    const MAX_CUT: Duration = Duration::from_secs(2);
    for _ in 0..3 {
        let Some(_links) = Links::new() else { return };
        let (cut, mended) = std::sync::mpsc::channel();
        let errors = two(move |job| {
            exchange(job, 10)?;
            if job.rank_number() == 0 {
                let (since, cut) = (Instant::now(), cut.clone());
                Links::change(&["cut", "rxe0"]);
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_secs(1));
                    Links::change(&["up", "rxe0"]);
                    let _ = cut.send(since.elapsed());
                });
            }
            let team = job.world()?;
            (0..100).try_for_each(|_| team.barrier())
        });
        let took = mended.recv().unwrap_or_default();
        if took < MAX_CUT || errors.iter().flatten().all(Option::is_none) {
            return well(errors);
        }
        println!("the link was down for {took:?}");
    }
    panic!("the machine is too slow to mend a link within {MAX_CUT:?}");
}

/// The queue pairs for datagrams enter the error state, as Soft-RoCE's do when a datagram is sent while the port is
/// down. Afterwards datagrams work again, and a connection can be re-established.
#[test]
fn datagrams_go_on_after_their_queue_pairs_have_failed() {
    well(two(|job| {
        let team = job.world()?;
        let mut lent = [0u8; 64];
        // SAFETY: the memory is valid until it is released, and not read before.
        let own = unsafe { job.device().register(region(lent.as_mut_ptr(), lent.len())) };
        let (own, remotes) = exchange_regions(&team, own, None)?;
        release(job, own.handle)?;
        team.barrier()?;
        if job.rank_number() == 0 {
            failures::fail_datagrams();
            let word = [0u8; 8];
            let from = [Block::of(word.as_ptr(), 8)];
            let to = Place { region: remotes[1].handle, offset: 0 };
            // SAFETY: the bytes outlive the call, which completes the operation.
            let refused = unsafe { job.complete("write", 1, Operation::write(&from, to)) };
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::BadKey);
        }
        team.barrier()?;
        remotes.iter().for_each(|r| forget(job, r.handle));
        exchange(job, 10)
    }));
    nothing_is_left();
}

/// From some time on no packet arrives: both ranks report that the other is lost.
#[test]
fn link_cut_for_good_is_a_lost_peer_at_both_ends() {
    let Some(links) = Links::new() else { return };
    let errors = two(|job| {
        let team = job.world()?;
        team.barrier()?;
        if job.rank_number() == 0 {
            Links::change(&["cut", "rxe0"]);
        }
        loop {
            team.barrier()?;
        }
    });
    drop(links);
    for (rank, e) in errors.into_iter().flatten().enumerate() {
        let e = e.expect("a barrier over a link that is cut");
        assert_eq!((e.kind(), e.blamed_number()), (ErrorKind::PeerLost, Some(1 - rank as u32)), "{e}");
    }
    nothing_is_left();
}

/// The cable is unplugged: both ranks report that their port is down, not that the other rank is lost.
#[test]
fn port_that_stays_down_is_reported_at_both_ends() {
    let Some(links) = Links::new() else { return };
    let errors = two(|job| {
        let team = job.world()?;
        team.barrier()?;
        if job.rank_number() == 0 {
            Links::change(&["down", "rxe0"]);
        }
        loop {
            team.barrier()?;
        }
    });
    drop(links);
    let errors = errors.into_iter().flatten().map(|e| e.expect("a barrier over a port that is down"));
    let errors = errors.collect::<Vec<_>>();
    // Both ranks must report this, since the rank whose port is down sends the cause to the other.
    let is_said =
        |e: &Error| e.kind() == ErrorKind::System && ["is down", "ip link"].iter().all(|s| e.to_string().contains(s));
    assert!(errors.iter().all(is_said), "{errors:#?}");
    nothing_is_left();
}
