#![allow(unsafe_code)]
//! Active messages: integrity and order, counters, completions that send and wait, and malformed packets.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use farside_core::am::{self, Counter, Counters, Delivery, HandlerId, MAX_HEADER, OnComplete, Sink, Source};
use farside_core::device::{Block, Operation, Posted, WorkRequest};
use farside_core::job::Track;
use farside_core::settings::Settings;
use farside_core::signal::SignalArray;
use farside_core::{ErrorKind, Job, Result, coll};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

const ID: HandlerId = HandlerId(7);
const PREFIX: usize = 24;

fn settings(set: &[(&str, &str)]) -> Settings {
    // The device comes from the environment.
    let machine = |name: &str| {
        let device = matches!(name, "FARSIDE_DEVICE" | "FARSIDE_DEVICES" | "FARSIDE_TEST_NODES")
            || name.starts_with("FARSIDE_VERBS_")
            || name.starts_with("FARSIDE_TCP_")
            || name.starts_with("FARSIDE_OFI_");
        device.then(|| std::env::var(name).ok()).flatten()
    };
    let given = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    Settings::from_lookup(|name| given(name).or_else(|| machine(name))).unwrap()
}

/// Runs with the default settings, and with the smallest rings and ranks that sleep immediately.
fn over_rings(ranks: u32, f: impl Fn(&Job) -> Result<()> + Sync) {
    for set in [&[][..], &[("FARSIDE_SHM_RING", "8192"), ("FARSIDE_WAIT", "park")]] {
        Job::threads_with(ranks as usize, &settings(set), &f).unwrap_or_else(|e| panic!("{set:?}: {e}"));
    }
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + i / 251) ^ (seed * 17 + 1)) as u8).collect()
}

fn wait_for(job: &Job, counter: &Counter, value: u64) -> Result<()> {
    job.wait("a counter", || Ok((counter.value() >= value).then_some(())))
}

/// Whether to run shorter tests, for emulated machines.
fn quick() -> bool {
    std::env::var_os("FARSIDE_TEST_QUICK").is_some()
}

#[test]
fn messages_of_every_length_arrive_completely_and_in_order() {
    over_rings(3, |job| {
        // Ranks with more ranks on their node may have shorter packets.
        let most = coll::allgather(&job.world()?, &job.device().capabilities().max_packet.to_le_bytes())?;
        let most = most.iter().map(|most| usize::from_le_bytes(most[..].try_into().unwrap())).min().unwrap();
        let around = |n: usize| n.saturating_sub(MAX_HEADER + PREFIX + 2)..n + 2;
        let lens = (0..200).chain(around(most)).chain(around(2 * most)).step_by(if quick() { 3 } else { 1 });
        let lens: Vec<usize> = lens.chain([100_000, 0, 1 << 20, 1]).collect();
        // Handlers run in the order of sending; data that is read from the sender's memory may arrive later.
        let got = Rc::new(RefCell::new(vec![Vec::<(Vec<u8>, Option<Vec<u8>>)>::new(); 3]));
        let into = got.clone();
        job.active_messages().register(ID, move |m| {
            let (into, source) = (into.clone(), m.source as usize);
            into.borrow_mut()[source].push((m.header.to_vec(), None));
            let at = into.borrow()[source].len() - 1;
            // The buffer that a handler provides may have any contents.
            let then = OnComplete::inline(move |r| into.borrow_mut()[source][at].1 = Some(r.unwrap().buffer));
            Delivery::Into(Sink::buffer(vec![9; 50]), then)
        })?;
        job.world()?.barrier()?;
        let (to, from) = ((job.rank_number() + 1) % 3, (job.rank() + 2) % 3);
        let header = |i: usize| pattern(i, i % (MAX_HEADER + 1));
        for (i, len) in lens.iter().enumerate() {
            am::send(job, to, ID, &header(i), &pattern(i, *len), Counters::default())?;
        }
        let all_arrived = || got.borrow()[from].iter().filter(|(_, data)| data.is_some()).count() == lens.len();
        job.wait("messages", || Ok(all_arrived().then_some(())))?;
        for (i, (h, data)) in got.borrow()[from].iter().enumerate() {
            assert!(*h == header(i) && *data == Some(pattern(i, lens[i])), "message {i} of {} bytes", lens[i]);
        }
        job.world()?.barrier()
    });
}

#[test]
fn counters_count_each_message_once_and_the_completion_after_the_handler() {
    over_rings(2, |job| {
        let (origin, target, completion) = (Counter::new(), Counter::new(), Counter::new());
        let number = job.active_messages().expose(&target);
        let ran = Rc::new(Cell::new(0u64));
        let later = ran.clone();
        job.active_messages().register(ID, move |m| {
            let ran = later.clone();
            match m.header[0] {
                0 => Delivery::Done,
                1 => Delivery::Into(Sink::discard(), OnComplete::inline(move |_| ran.set(ran.get() + 1))),
                _ => Delivery::Into(
                    Sink::buffer(Vec::new()),
                    OnComplete::deferred(move |_, _| {
                        ran.set(ran.get() + 1);
                        Ok(())
                    }),
                ),
            }
        })?;
        let team = job.world()?;
        let signals = SignalArray::new(&team, 0)?;
        let peer = 1 - job.rank_number();
        for (i, len) in [0, 10, 50_000, 3].into_iter().cycle().take(60).enumerate() {
            let counters = Counters { origin: Some(&origin), target: Some(number), completion: Some(&completion) };
            am::send(job, peer, ID, &[i as u8 % 3], &pattern(i, len), counters)?;
            assert_eq!(origin.value(), i as u64 + 1, "the buffer is free when send returns");
        }
        // Tests each counter alone.
        am::send(job, peer, ID, &[0], &[], Counters { origin: Some(&origin), ..Counters::default() })?;
        am::send(job, peer, ID, &[0], &[], Counters { target: Some(number), ..Counters::default() })?;
        am::send(job, peer, ID, &[0], &[], Counters { completion: Some(&completion), ..Counters::default() })?;
        wait_for(job, &completion, 61)?;
        wait_for(job, &target, 61)?;
        signals.set(peer as usize, 1, 1)?;
        job.wait("the peer", || Ok((signals.get(peer as usize, 1) == 1).then_some(())))?;
        // The peer has received its completions, so every handler here has run.
        assert_eq!(ran.get(), 40);
        team.barrier()?;
        assert_eq!((origin.value(), target.value(), completion.value()), (61, 61, 61));
        Ok(())
    });
}

#[test]
fn later_completions_send_while_both_rings_are_full() {
    over_rings(2, |job| {
        // Every message of generation g is answered by one of generation g - 1, so the rings stay full.
        let (got, sent) = (Rc::new(Cell::new(0u32)), 3 * job.settings().ring(2) / 8192);
        let count = got.clone();
        job.active_messages().register(ID, move |m| {
            let (generation, source, count) = (m.header[0], m.source, count.clone());
            Delivery::Into(
                Sink::buffer(Vec::new()),
                OnComplete::deferred(move |job, received| {
                    count.set(count.get() + 1);
                    assert!(received?.buffer == pattern(generation as usize, 3000));
                    if generation > 0 {
                        let next = generation - 1;
                        am::send(job, source, ID, &[next], &pattern(next as usize, 3000), Counters::default())?;
                    }
                    Ok(())
                }),
            )
        })?;
        job.world()?.barrier()?;
        for _ in 0..sent {
            am::send(job, 1 - job.rank_number(), ID, &[19], &pattern(19, 3000), Counters::default())?;
        }
        job.wait("all generations", || Ok((got.get() == sent as u32 * 20).then_some(())))?;
        job.world()?.barrier()
    });
}

/// A completion that panics in a wait, from which its rank recovers, does not keep later ones from running.
#[test]
fn later_completions_run_after_one_that_panicked() {
    Job::threads(1, |job| {
        let done = Rc::new(Cell::new(0));
        let count = done.clone();
        job.active_messages().register(HandlerId(7), move |m| {
            let (panics, count) = (m.header == b"panic", count.clone());
            Delivery::Into(
                Sink::buffer(Vec::new()),
                OnComplete::deferred(move |_, _| {
                    if panics {
                        std::panic::resume_unwind(Box::new("on purpose"));
                    }
                    count.set(count.get() + 1);
                    Ok(())
                }),
            )
        })?;
        let send = |header: &[u8]| am::send(job, 0, HandlerId(7), header, &[], Counters::default());
        send(b"panic")?;
        let waits = || job.wait("a completion", || Ok((done.get() > 0).then_some(())));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(waits)).expect_err("the panic goes on");
        send(b"")?;
        waits()
    })
    .unwrap();
}

#[test]
fn later_completions_wait_for_the_completion_of_what_they_send() {
    over_rings(2, |job| {
        let done = Rc::new(Cell::new(0u32));
        let count = done.clone();
        job.active_messages().register(ID, move |m| {
            let (source, count) = (m.source, count.clone());
            if m.header[0] == 1 {
                return Delivery::Done;
            }
            Delivery::Into(
                Sink::buffer(Vec::new()),
                OnComplete::deferred(move |job, _| {
                    // Both ranks wait here at the same time, and each needs the other's acknowledgement to continue.
                    let completion = Counter::new();
                    let counters = Counters { completion: Some(&completion), ..Counters::default() };
                    am::send(job, source, ID, &[1], &[], counters)?;
                    let done = || Ok((completion.value() == 1).then_some(()));
                    job.within(std::time::Duration::from_secs(30), || job.wait("a completion", done))?;
                    count.set(count.get() + 1);
                    Ok(())
                }),
            )
        })?;
        job.world()?.barrier()?;
        for _ in 0..50 {
            am::send(job, 1 - job.rank_number(), ID, &[0], &[], Counters::default())?;
        }
        job.wait("all", || Ok((done.get() == 50).then_some(())))?;
        job.world()?.barrier()
    });
}

#[test]
fn messages_to_oneself_arrive() {
    over_rings(1, |job| {
        let (got, completion) = (Rc::new(Cell::new(0usize)), Counter::new());
        let count = got.clone();
        job.active_messages().register(ID, move |_| {
            let count = count.clone();
            Delivery::Into(
                Sink::buffer(Vec::new()),
                OnComplete::inline(move |r| count.set(count.get() + r.unwrap().buffer.len())),
            )
        })?;
        let counters = Counters { completion: Some(&completion), ..Counters::default() };
        am::send(job, 0, ID, &[], &pattern(0, 300_000), counters)?;
        wait_for(job, &completion, 1)?;
        assert_eq!(got.get(), 300_000);
        Ok(())
    });
}

#[test]
fn bad_sends_and_registrations_are_refused() {
    over_rings(2, |job| {
        job.active_messages().register(ID, |_| Delivery::Done)?;
        let e = job.active_messages().register(ID, |_| Delivery::Done).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::BadArgument);
        job.world()?.barrier()?;
        let e = am::send(job, 0, ID, &[0; MAX_HEADER + 1], &[], Counters::default()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::BadArgument);
        let e = am::send(job, 2, ID, &[], &[], Counters::default()).unwrap_err();
        assert_eq!((e.kind(), e.blamed()), (ErrorKind::NoSuchRank, Some(2)));
        am::send(job, 1 - job.rank_number(), ID, &[1; MAX_HEADER], &[], Counters::default())?;
        job.world()?.barrier()
    });
}

fn send_raw(job: &Job, to: u32, bytes: &[u8]) -> Result<()> {
    let body = [Block::of(bytes.as_ptr(), bytes.len())];
    let operation = Operation::send(&[], &body);
    // SAFETY: a packet is copied before the call returns.
    let posted = unsafe { job.device().post(&WorkRequest { peer: to, operation, notify: None, id: 0 }) }?;
    assert_eq!(posted, Posted::Done, "the ring is empty");
    Ok(())
}

fn prefix(kind: u8, header_len: u8, handler: u16, message: u32, number: u64, target: u32, completion: u32) -> Vec<u8> {
    let mut b = vec![kind, header_len];
    b.extend(handler.to_le_bytes());
    b.extend(target.to_le_bytes());
    b.extend(number.to_le_bytes());
    b.extend((u64::from(message) << 1 | u64::from(completion != 0)).to_le_bytes());
    b
}

#[test]
fn stream_of_short_messages_takes_one_poll_for_sixteen() {
    const STREAM: usize = 32;
    Job::threads_with(2, &settings(&[("FARSIDE_DEVICE", "shm"), ("FARSIDE_TEST_NODES", "1")]), |job| {
        let (team, words) = (job.world()?, Rc::new(RefCell::new(Vec::new())));
        let signals = SignalArray::new(&team, 0)?;
        let into = words.clone();
        job.active_messages().register(ID, move |m| {
            into.borrow_mut().push(u64::from_le_bytes(m.data().unwrap().try_into().unwrap()));
            Delivery::Done
        })?;
        team.barrier()?;
        let send =
            |word: u64| am::send(job, 1 - job.rank_number(), ID, &[7; 8], &word.to_le_bytes(), Counters::default());
        // The reply line belongs to the rank that receives a packet last, so the stream goes through the ring.
        if job.rank_number() == 1 {
            look_until(job, || signals.get(0, 1) > 0)?;
            while job.progress()? {}
            assert_eq!(words.take(), [99], "a single message takes one poll");
            signals.set(0, 1, 1)?;
            look_until(job, || signals.get(0, 1) > 1)?;
            let polls = std::iter::from_fn(|| Some(job.progress().unwrap())).take_while(|any| *any).count();
            assert_eq!((polls, words.take()), (STREAM / 16, (0..STREAM as u64).collect()));
        } else {
            send(99)?;
            signals.set(1, 1, 1)?;
            look_until(job, || signals.get(1, 1) > 0)?;
            (0..STREAM as u64).try_for_each(send)?;
            signals.set(1, 1, 2)?;
        }
        team.barrier()
    })
    .unwrap();
}

#[test]
fn unknown_handler_is_an_error_at_the_receiver_that_names_the_sender() {
    over_rings(2, |job| {
        let team = job.world()?;
        let signals = SignalArray::new(&team, 0)?;
        if job.rank_number() == 0 {
            look_until(job, || signals.get(1, 1) > 0)?;
            am::send(job, 1, ID, b"x", b"y", Counters::default())?;
            signals.set(1, 1, 1)?;
        } else {
            signals.set(0, 1, 1)?;
            look_until(job, || signals.get(0, 1) > 0)?;
            let e = job.progress().unwrap_err();
            assert_eq!((e.kind(), e.blamed()), (ErrorKind::Protocol, Some(0)));
            assert!(e.to_string().contains("register the handler"), "{e}");
        }
        // The next message arrives as usual.
        team.barrier()
    });
}

/// Reads memory only, so that nothing is dispatched meanwhile; fails if a peer is lost.
fn look_until(job: &Job, ready: impl Fn() -> bool) -> Result<()> {
    while !ready() {
        job.check_peers()?;
        std::thread::yield_now();
    }
    Ok(())
}

/// Rank 0 sends each packet to rank 1; `expect` is whether rank 1 must reject it (`None`: either is allowed).
fn hostile(packets: &[(Vec<u8>, Option<bool>)]) {
    Job::threads_with(2, &settings(&[]), |job| {
        let team = job.world()?;
        let signals = SignalArray::new(&team, 0)?;
        job.active_messages().register(ID, |m| match m.header.first() {
            None => Delivery::Done,
            Some(_) => Delivery::Into(Sink::buffer(Vec::new()), OnComplete::inline(drop)),
        })?;
        let _ = job.active_messages().expose(&Counter::new());
        let meet = |round: u64| {
            let peer = 1 - team.rank();
            signals.set(peer, 2, round)?;
            look_until(job, || signals.get(peer, 2) >= round)
        };
        for (i, (packet, expect)) in packets.iter().enumerate() {
            let round = 2 * i as u64 + 1;
            meet(round)?;
            if job.rank_number() == 0 {
                send_raw(job, 1, packet)?;
            }
            meet(round + 1)?;
            if job.rank_number() == 0 {
                // Rank 0 may receive acknowledgements of messages that it never sent. If requests occupy queue entries,
                // a turn of progress frees them.
                let _ = job.progress();
            } else {
                // The second call would see a packet after the first.
                let results = [job.progress(), job.progress()];
                let refused = results.iter().any(Result::is_err);
                for e in results.into_iter().filter_map(Result::err) {
                    assert_eq!((e.kind(), e.blamed()), (ErrorKind::Protocol, Some(0)), "{packet:02x?}: {e}");
                }
                assert!(expect.is_none_or(|e| e == refused), "{packet:02x?}: refused: {refused}");
            }
        }
        // Rank 0 gets an error for each acknowledgement that the malformed packets have requested, since it never sent
        // those messages. Afterwards communication works as before.
        meet(1 << 40)?;
        while job.progress().is_err() {}
        signals.set(1 - team.rank(), 3, 1)?;
        look_until(job, || signals.get(1 - team.rank(), 3) > 0)?;
        while !matches!(job.progress(), Ok(false)) {}
        team.barrier()
    })
    .unwrap();
}

#[test]
fn hostile_packets_of_every_sort_are_refused() {
    let with = |mut p: Vec<u8>, data: usize| {
        p.resize(p.len() + data, 1);
        p
    };
    let packets = [
        (vec![], Some(true)),
        (vec![1; PREFIX - 1], Some(true)),
        (prefix(0, 0, 7, 1, 0, 0, 0), Some(true)),
        (prefix(11, 0, 7, 1, 0, 0, 0), Some(true)),
        // Packets with a header longer than the packet, more data than announced, an unknown handler, unknown counters.
        (prefix(1, 1, 7, 1, 0, 0, 0), Some(true)),
        (with(prefix(1, 0, 7, 1, 3, 0, 0), 4), Some(true)),
        (prefix(1, 0, 8, 1, 0, 0, 0), Some(true)),
        (prefix(1, 0, 7, 1, 0, 2, 0), Some(true)),
        (prefix(1, 0, 7, 1, 0, u32::MAX, 0), Some(true)),
        // Messages whose lengths cannot be allocated.
        (with(prefix(1, 1, 7, 1, u64::MAX, 0, 0), 1), Some(true)),
        (with(prefix(1, 1, 7, 1, 1 << 40, 0, 0), 1), None),
        // A segment of an unknown message; then the segments of a message: empty, out of place, too long, correct,
        // repeated.
        (with(prefix(2, 0, 7, 5, 0, 0, 0), 4), Some(true)),
        (with(prefix(1, 1, 7, 6, 10, 0, 0), 3), Some(false)),
        (with(prefix(2, 0, 7, 6, 2, 0, 0), 0), Some(true)),
        (with(prefix(2, 0, 7, 6, 3, 0, 0), 4), Some(true)),
        (with(prefix(2, 0, 7, 6, 2, 0, 0), 9), Some(true)),
        (with(prefix(2, 0, 7, 6, 2, 0, 0), 8), Some(false)),
        (with(prefix(2, 0, 7, 6, 2, 0, 0), 8), Some(true)),
        // The same packets with long segments.
        (with(prefix(2, 0, 7, 5, 0, 0, 0), 2000), Some(true)),
        (with(prefix(1, 1, 7, 6, 3000, 0, 0), 1001), Some(false)),
        (with(prefix(2, 0, 7, 6, 2000, 0, 0), 1000), Some(true)),
        (with(prefix(2, 0, 7, 6, 1000, 0, 0), 2001), Some(true)),
        (with(prefix(2, 0, 7, 6, 1000, 0, 0), 2000), Some(false)),
        (with(prefix(2, 0, 7, 6, 1000, 0, 0), 2000), Some(true)),
        // Acknowledgements of messages that were never sent.
        (prefix(3, 0, 0, 1, 0, 0, 0), Some(true)),
        (prefix(3, 0, 0, 0, 0, 0, 0), Some(true)),
        // A sink for a message that was never sent; a report about segments of a message that may have ended.
        (prefix(8, 0, 0, 1, 0, 0, 0), Some(true)),
        (with(prefix(8, 0, 0, 1, 0, 0, 0), 40), Some(true)),
        (prefix(9, 0, 0, 1, 1, 0, 0), Some(false)),
        // Requests to send: too long, to an unknown handler, with a repeated message number.
        (with(prefix(4, 1, 7, 20, 1 << 41, 0, 0), 1), Some(true)),
        (prefix(4, 1, 7, 20, 10, 0, 0), Some(true)),
        (prefix(4, 0, 8, 20, 10, 0, 0), Some(true)),
        (with(prefix(4, 1, 7, 20, 10, 0, 0), 1), Some(false)),
        (with(prefix(4, 1, 7, 20, 10, 0, 0), 1), Some(true)),
        // Malformed addresses of the data; then the data of message 20: out of order, in order, too long, the
        // remainder.
        (with(prefix(4, 1, 7, 22, 10, 0, 0), 2), Some(true)),
        (with(prefix(4, 1, 7, 23, 10, 0, 0), 30), Some(true)),
        (with(prefix(2, 0, 0, 20, 4, 0, 0), 6), Some(true)),
        (with(prefix(2, 0, 0, 20, 0, 0, 0), 6), Some(false)),
        (with(prefix(2, 0, 0, 20, 6, 0, 0), 5), Some(true)),
        (with(prefix(2, 0, 0, 20, 6, 0, 0), 4), Some(false)),
        (prefix(7, 0, 0, 20, 0, 0, 0), Some(false)),
        // A message that is cancelled while its data arrives, and a segment that arrives afterwards.
        (with(prefix(4, 1, 7, 21, 10, 0, 0), 1), Some(false)),
        (prefix(7, 0, 0, 21, 0, 0, 0), Some(false)),
        (with(prefix(2, 0, 0, 21, 0, 0, 0), 6), Some(true)),
        // A clear to send, and ends, of messages that were never sent.
        (prefix(5, 0, 0, 1, 5, 0, 0), Some(true)),
        (prefix(5, 0, 0, 0, 0, 0, 0), Some(true)),
        (prefix(6, 0, 0, 1, 0, 0, 0), Some(true)),
        (prefix(6, 0, 0, 1, u64::MAX, 0, 0), Some(true)),
        // Whole messages: shorter than the prefix, a header longer than the packet, an unknown handler.
        (vec![10; 7], Some(true)),
        (vec![10, 2, 7, 0, 0, 0, 0, 0, 1], Some(true)),
        (vec![10, 0, 8, 0, 0, 0, 0, 0], Some(true)),
        // Well-formed packets.
        (vec![10, 0, 7, 0, 0, 0, 0, 0], Some(false)),
        (vec![10, 2, 7, 0, 0, 0, 0, 0, 1, 1, 1], Some(false)),
        (prefix(1, 0, 7, 9, 0, 1, 0), Some(false)),
        (with(prefix(1, 2, 7, 9, 5, 0, 0), 7), Some(false)),
    ];
    hostile(&packets);
}

#[test]
fn hostile_packets_at_random_never_panic() {
    let field = prop_oneof![Just(0u64), Just(1), Just(7), Just(100), Just(u64::MAX), 0u64..300, any::<u64>()];
    let fields = prop::collection::vec(field, 7);
    let structured = (fields, prop::collection::vec(any::<u8>(), 0..200)).prop_map(|(f, data)| {
        let handler = if f[2] % 3 == 0 { u16::MAX } else { 7 };
        let mut p = prefix(f[0] as u8 % 12, f[1] as u8, handler, f[3] as u32 % 4, f[4], f[5] as u32 % 3, f[6] as u32);
        p.extend(data.repeat(if f[6] % 4 == 0 { 10 } else { 1 }));
        p
    });
    let packet = prop_oneof![3 => structured, 1 => prop::collection::vec(any::<u8>(), 0..400)];
    let cases = if quick() { 2 } else { 12 };
    let mut runner = TestRunner::new_with_rng(
        ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() },
        TestRng::deterministic_rng(RngAlgorithm::ChaCha),
    );
    runner
        .run(&prop::collection::vec(packet.prop_map(|p| (p, None)), 300), |packets| {
            hostile(&packets);
            Ok(())
        })
        .unwrap();
}

/// Only the target of a message can acknowledge it.
#[test]
fn acknowledgement_by_another_rank_is_refused() {
    Job::threads_with(3, &settings(&[]), |job| {
        let team = job.world()?;
        let signals = SignalArray::new(&team, 0)?;
        job.active_messages().register(ID, |_| Delivery::Done)?;
        team.barrier()?;
        let cell = |from: usize, value: u64| look_until(job, || signals.get(from, 1) >= value);
        let counter = Counter::new();
        if job.rank_number() == 0 {
            // Rank 1 has left the barrier, so it does not acknowledge before it is permitted to.
            cell(1, 1)?;
            am::send(job, 1, ID, &[], &[], Counters { completion: Some(&counter), ..Counters::default() })?;
            signals.set(2, 1, 1)?;
            cell(2, 1)?;
            let e = job.progress().unwrap_err();
            assert_eq!((e.kind(), e.blamed()), (ErrorKind::Protocol, Some(2)), "{e}");
            while job.progress().is_err() {}
            assert_eq!(counter.value(), 0, "another rank acknowledged it");
            signals.set(1, 1, 1)?;
            wait_for(job, &counter, 1)?;
        } else if job.rank_number() == 1 {
            signals.set(0, 1, 1)?;
            cell(0, 1)?;
        } else {
            cell(0, 1)?;
            // The acknowledgement is refused with any message number.
            for message in 0..50 {
                send_raw(job, 0, &prefix(3, 0, 0, message, 0, 0, 0))?;
            }
            signals.set(0, 1, 1)?;
        }
        team.barrier()
    })
    .unwrap();
}

/// Well-formed addresses of data that does not exist, or is not memory of that peer: the receiver requests packets.
#[test]
fn hostile_places_of_data_are_not_read() {
    let offer = |key: &[u8], ranges: &[(u64, u64)]| {
        let mut p = prefix(4, 1, 7, 40, 100, 0, 0);
        p.push(1);
        p.extend((key.len() as u32).to_le_bytes());
        p.extend(key);
        ranges.iter().for_each(|(at, len)| [at, len].iter().for_each(|n| p.extend(n.to_le_bytes())));
        p
    };
    let key = |kind: u8, pid: u32, numbers: [u64; 5]| {
        let mut key = vec![kind];
        key.extend(pid.to_le_bytes());
        numbers.iter().for_each(|n| key.extend(n.to_le_bytes()));
        key
    };
    let me = std::process::id();
    let cancel = || (prefix(7, 0, 0, 40, 0, 0, 0), Some(false));
    let mut packets = vec![(offer(b"", &[(0, 99)]), Some(true)), (offer(b"", &[(0, u64::MAX), (0, 101)]), Some(true))];
    for key in [
        vec![],
        vec![0xff; 80],
        key(2, me, [8, 100, 1, 0, 0]),
        key(2, me, [u64::MAX - 50, 100, 1, 0, 0]),
        key(2, me, [u64::MAX / 2, 100, 1, 0, 0]),
        key(2, 1, [4096, 100, 1, 0, 0]),
        key(1, me, [4096, 1 << 62, 1, 0, 0]),
        key(0, me, [4096, 100, u64::MAX, 0, 0]),
        key(9, me, [4096, 100, 0, 100, 100]),
    ] {
        for ranges in [&[(0, 100)][..], &[(0, 50), (u64::MAX, 50)], &[(1 << 40, 100)], &[(0, 0), (50, 100)]] {
            packets.extend([(offer(&key, ranges), Some(false)), cancel()]);
        }
    }
    hostile(&packets);
}

/// Messages in several packets whose handler holds them: delivered and abandoned, while they arrive and afterwards, and
/// cancelled. All but the last are acknowledged.
#[test]
fn messages_that_arrive_in_packets_are_held_in_a_buffer() {
    const LEN: usize = 300_000;
    let eager = "eager:900000,read-intra:1000000,read-inter:1000000";
    let (stop, begun, open) = (std::sync::Barrier::new(2), AtomicBool::new(false), AtomicBool::new(false));
    let run = |job: &Job| {
        let held = Rc::new(RefCell::new(Vec::new()));
        let to = held.clone();
        job.active_messages().register(ID, move |m| {
            assert!(m.data().is_none() && !m.waits && m.len == LEN);
            to.borrow_mut().push(m.token());
            Delivery::Hold
        })?;
        job.world()?.barrier()?;
        if job.rank_number() == 0 {
            let (data, acknowledged) = ((0..5).map(|n| pattern(n, LEN)).collect::<Vec<_>>(), Counter::new());
            let start = |n: usize| -> Result<Rc<Track>> {
                let (track, data) = (Track::new(), Source::of(&data[n]));
                let counters = Counters { completion: Some(&acknowledged), ..Counters::default() };
                // SAFETY: the data outlives the message, which is complete or cancelled at the end.
                unsafe { am::start_send(job, 1, ID, &[], data, counters, &track) }?;
                Ok(track)
            };
            let complete = |track: &Track| job.wait("a track", || Ok((track.open() == 0).then_some(())));
            let first = start(0)?;
            stop.wait();
            stop.wait();
            [start(1)?, start(2)?, start(3)?, first].iter().try_for_each(|track| complete(track))?;
            wait_for(job, &acknowledged, 4)?;
            let last = start(4)?;
            // The queue may still be full of packets of the previous message.
            job.wait("the handler", || Ok(begun.load(Ordering::SeqCst).then_some(())))?;
            // A device whose target has room for all packets has sent them by now.
            open.store(last.open() > 0, Ordering::SeqCst);
            stop.wait();
            job.cancel(&last);
            return job.world()?.barrier();
        }
        let token = |n: usize| job.wait("a message", || Ok(held.borrow().get(n).copied()));
        let done = Rc::new(RefCell::new(Vec::new()));
        let deliver = |n: usize| {
            let done = done.clone();
            let then = OnComplete::inline(move |received| done.borrow_mut().push(received));
            am::deliver(job, held.borrow()[n], Sink::buffer(Vec::new()), then)
        };
        stop.wait();
        token(0)?;
        deliver(0)?;
        assert!(done.borrow().is_empty() && deliver(0).unwrap_err().kind() == ErrorKind::BadArgument);
        stop.wait();
        // The handler of the fourth message has run, so the second and the third one have arrived.
        let fourth = token(3)?;
        assert!(am::is_held(job, token(1)?, false) && am::abandon(job, token(2)?) && am::abandon(job, fourth));
        deliver(1)?;
        for (n, received) in done.borrow_mut().drain(..).enumerate() {
            assert!(received?.buffer == pattern(n, LEN), "message {n}");
        }
        assert!(!am::is_held(job, token(1)?, false));
        let last = token(4)?;
        assert!(am::is_held(job, last, true));
        begun.store(true, Ordering::SeqCst);
        stop.wait();
        let cancelled = open.load(Ordering::SeqCst);
        if cancelled {
            job.wait("the cancellation", || Ok((!am::is_held(job, last, true)).then_some(())))?;
        }
        deliver(4)?;
        match job.wait("the outcome", || Ok(done.borrow_mut().pop()))? {
            Err(e) if cancelled => assert_eq!((e.kind(), e.blamed()), (ErrorKind::Aborted, Some(0)), "{e}"),
            received => assert!(!cancelled && received?.buffer == pattern(4, LEN)),
        }
        assert!(cancelled || !job.device().capabilities().mapped);
        job.world()?.barrier()
    };
    let settings = settings(&[("FARSIDE_SHM_RING", "8192"), ("FARSIDE_TRANSFER", eager)]);
    Job::threads_with(2, &settings, run).unwrap();
}
