#![allow(unsafe_code)]
//! Two-sided messages: results of receives, completion of sends, probes, cancelled receives, bounds.

mod partitioned;

use std::rc::Rc;

use farside_core::am::{Sink, Source};
use farside_core::matching::Pattern;
use farside_core::settings::Settings;
use farside_core::two_sided::{Matched, Mode, Receive, Sending, Status, UNEXPECTED};
use farside_core::{ErrorKind, Job, Result};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const CONTEXT: u32 = 5;

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

fn over(ranks: u32, f: impl Fn(&Job) -> Result<()> + Sync) {
    let reading = [
        ("FARSIDE_SHM_RING", "8192"),
        ("FARSIDE_WAIT", "park"),
        ("FARSIDE_TRANSFER", "eager:0,read-intra:1,read-inter:1"),
    ];
    for set in [&[][..], &reading] {
        Job::threads_with(ranks as usize, &settings(set), &f).unwrap_or_else(|e| panic!("{set:?}: {e}"));
    }
}

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + i / 251) ^ (seed * 17 + 1)) as u8).collect()
}

fn from(source: u32, tag: i32) -> Pattern {
    Pattern::new(CONTEXT, Some(source), Some(tag))
}

const ANY: Pattern = Pattern::new(CONTEXT, None, None);

/// # Safety
/// The memory of the sink is valid and used by no other code until the receive is complete or forgotten.
unsafe fn start(job: &Job, pattern: Pattern, sink: Sink) -> Result<Rc<Receive>> {
    let receive = Receive::new();
    // SAFETY: the same contract.
    unsafe { job.start_receive(&receive, pattern, sink) }.map(|()| receive)
}

/// # Safety
/// The contract of `Job::receive_message`.
unsafe fn receive_taken(job: &Job, message: Matched, sink: Sink) -> Result<Rc<Receive>> {
    let receive = Receive::new();
    // SAFETY: the same contract.
    unsafe { job.receive_message(&receive, message, sink) }.map(|()| receive)
}

fn post(job: &Job, pattern: Pattern, buffer: &mut [u8]) -> Result<Rc<Receive>> {
    // SAFETY: each test waits for the receive, or forgets it, before the buffer is dropped.
    unsafe { start(job, pattern, Sink::memory(buffer.as_mut_ptr(), buffer.len())) }
}

fn send(job: &Job, to: u32, tag: i32, data: &[u8], mode: Mode) -> Result<Sending> {
    // SAFETY: each test waits for the send, or forgets it, before the data is dropped.
    unsafe { job.start_message(to, CONTEXT, tag, Source::of(data), mode) }
}

fn finish(job: &Job, receive: &Receive) -> Result<Status> {
    job.wait("a receive", || receive.outcome())
}

fn sent(job: &Job, sending: &Sending) -> Result<()> {
    job.wait("a send", || sending.outcome())
}

/// Waits for all ranks. Messages sent before it have arrived when it returns.
fn barrier(job: &Job) -> Result<()> {
    job.world()?.barrier()
}

#[test]
fn every_length_posted_before_and_after_its_message_in_both_modes() {
    over(2, |job| {
        let other = 1 - job.rank_number();
        for (i, len) in [0, 1, 8, 15, 16, 17, 100, 4000, 5000, 70_000, 1 << 20].into_iter().enumerate() {
            for mode in [Mode::Standard, Mode::Synchronous] {
                for late in [false, true] {
                    let data = bytes(i + job.rank(), len);
                    let mut into = vec![0; len];
                    let mut posted = None;
                    if !late {
                        posted = Some(post(job, from(other, 3), &mut into)?);
                        barrier(job)?;
                    }
                    let sending = send(job, other, 3, &data, mode)?;
                    if late {
                        if mode == Mode::Synchronous {
                            assert!(!sending.is_done(), "{len} bytes");
                        }
                        barrier(job)?;
                        posted = Some(post(job, from(other, 3), &mut into)?);
                    }
                    let status = finish(job, &posted.unwrap())?;
                    sent(job, &sending)?;
                    assert_eq!(status, Status { source: other, tag: 3, len, kept: len });
                    assert!(into == bytes(i + other as usize, len), "{len} bytes, {mode:?}, late {late}");
                }
            }
        }
        barrier(job)?;
        assert_eq!(job.two_sided().waiting(), (0, 0));
        Ok(())
    });
}

#[test]
fn messages_of_one_sender_are_received_in_their_order_whatever_way_they_take() {
    over(2, |job| {
        let lens = [10, 300_000, 0, 5000, 17, 1 << 20, 3, 60_000];
        let data: Vec<Vec<u8>> = lens.iter().enumerate().map(|(i, len)| bytes(i, *len)).collect();
        if job.rank_number() == 0 {
            let sends: Vec<Sending> = data.iter().map(|d| send(job, 1, 0, d, Mode::Standard)).collect::<Result<_>>()?;
            return sends.iter().try_for_each(|s| sent(job, s));
        }
        for (i, want) in data.iter().enumerate() {
            let mut into = vec![0; want.len()];
            let receive = post(job, if i % 2 == 0 { ANY } else { from(0, 0) }, &mut into)?;
            assert_eq!(finish(job, &receive)?.len, want.len());
            assert!(into == *want, "message {i}");
        }
        Ok(())
    });
}

#[test]
fn random_traffic_with_wildcards_is_all_received_once() {
    let seed = rand::random();
    println!("seed {seed}");
    over(3, |job| {
        const MESSAGES: usize = 300;
        let mut random = StdRng::seed_from_u64(seed);
        // The list of all messages, the same at all ranks: source, target, tag, length.
        let plan: Vec<(u32, u32, i32, usize)> = (0..3 * MESSAGES)
            .map(|i| {
                let long = random.random_range(0..20) == 0;
                let len = random.random_range(0..if long { 200_000 } else { 3000 });
                ((i % 3) as u32, random.random_range(0..3), random.random_range(0..4), len)
            })
            .collect();
        let mut own = StdRng::seed_from_u64(seed ^ u64::from(job.rank_number() + 1));
        let mut sends = Vec::new();
        let data: Vec<Vec<u8>> = plan.iter().enumerate().map(|(i, m)| bytes(i, m.3)).collect();
        let mut receives: Vec<(Rc<Receive>, Vec<u8>)> = Vec::new();
        let expected = plan.iter().filter(|m| m.1 == job.rank_number()).count();
        let mut mine = plan.iter().enumerate().filter(|(_, m)| m.0 == job.rank_number());
        let mut open = true;
        while open || receives.len() < expected {
            if own.random_range(0..2) == 0 {
                match mine.next() {
                    Some((i, (_, to, tag, _))) => {
                        let mode = if own.random_range(0..4) == 0 { Mode::Synchronous } else { Mode::Standard };
                        sends.push(send(job, *to, *tag, &data[i], mode)?);
                    }
                    None => open = false,
                }
            } else if receives.len() < expected {
                // Receives any message: a narrower pattern could wait for a message that is never sent.
                let mut into = vec![0; 200_000];
                receives.push((post(job, ANY, &mut into)?, into));
            }
            job.progress()?;
        }
        // Each received message is the first to this rank from its sender with its tag that was not yet received.
        let mut left: Vec<usize> = (0..plan.len()).filter(|i| plan[*i].1 == job.rank_number()).collect();
        for (receive, into) in &receives {
            let status = finish(job, receive)?;
            let fits = |i: &usize| plan[*i].0 == status.source && plan[*i].2 == status.tag;
            let at = left.iter().position(fits).expect("a message that was not sent");
            let i = left.remove(at);
            assert_eq!((status.len, status.kept), (plan[i].3, plan[i].3), "message {i}");
            assert!(into[..status.len] == data[i], "message {i}");
        }
        sends.iter().try_for_each(|s| sent(job, s))?;
        barrier(job)?;
        assert_eq!(job.two_sided().waiting(), (0, 0));
        Ok(())
    });
}

#[test]
fn longer_message_is_truncated_and_writes_nothing_past_the_buffer() {
    over(2, |job| {
        for len in [10, 3000, 100_000, 1 << 20] {
            for late in [false, true] {
                if job.rank_number() == 0 {
                    let data = bytes(1, len);
                    let sending = send(job, 1, 1, &data, Mode::Standard)?;
                    barrier(job)?;
                    sent(job, &sending)?;
                } else {
                    let mut into = vec![0xee; len];
                    let half = len / 2;
                    if late {
                        barrier(job)?;
                    }
                    let receive = post(job, from(0, 1), &mut into[..half])?;
                    if !late {
                        barrier(job)?;
                    }
                    let status = finish(job, &receive)?;
                    assert_eq!((status.len, status.kept), (len, half));
                    assert!(into[..half] == bytes(1, len)[..half] && into[half..].iter().all(|b| *b == 0xee));
                }
            }
        }
        barrier(job)
    });
}

#[test]
fn probes_see_the_message_that_a_receive_would_get_and_taken_ones_are_not_seen() {
    over(2, |job| {
        for len in [5, 5000, 500_000] {
            if job.rank_number() == 0 {
                let data = [bytes(0, len), bytes(1, len)];
                let first = send(job, 1, 7, &data[0], Mode::Standard)?;
                let second = send(job, 1, 8, &data[1], Mode::Standard)?;
                sent(job, &first)?;
                sent(job, &second)?;
            } else {
                assert_eq!(job.probe(&from(0, 9))?, None);
                let status = job.wait("a probe", || job.probe(&ANY))?;
                assert_eq!(status, Status { source: 0, tag: 7, len, kept: len });
                let taken = job.wait("a probe", || job.take_message(&from(0, 7)))?;
                assert_eq!(taken.status().len, len);
                assert_eq!(job.probe(&from(0, 7))?, None);
                let mut into = vec![0; len];
                let mut other = vec![0; len];
                let receive = post(job, ANY, &mut other)?;
                assert_eq!(finish(job, &receive)?.tag, 8);
                // SAFETY: the buffer lives until the receive has ended.
                let receive = unsafe { receive_taken(job, taken, Sink::memory(into.as_mut_ptr(), len)) }?;
                assert_eq!(finish(job, &receive)?.tag, 7);
                assert!(into == bytes(0, len) && other == bytes(1, len));
            }
            // The next message of the same tag is sent only later.
            barrier(job)?;
        }
        Ok(())
    });
}

#[test]
fn cancelled_receive_gets_nothing_and_the_next_one_does() {
    over(2, |job| {
        if job.rank_number() == 0 {
            barrier(job)?;
            let data = bytes(3, 100);
            return sent(job, &send(job, 1, 0, &data, Mode::Standard)?);
        }
        let (mut first, mut second) = (vec![0xee; 100], vec![0; 100]);
        let cancelled = post(job, ANY, &mut first)?;
        let receive = post(job, ANY, &mut second)?;
        assert!(job.cancel_receive(&cancelled));
        assert!(!job.cancel_receive(&cancelled));
        assert_eq!(cancelled.outcome().unwrap_err().kind(), ErrorKind::Aborted);
        barrier(job)?;
        finish(job, &receive)?;
        assert!(second == bytes(3, 100) && first.iter().all(|b| *b == 0xee));
        assert!(!job.cancel_receive(&receive));
        Ok(())
    });
}

#[test]
fn withdrawn_send_is_not_received_and_a_matched_one_continues() {
    over(2, |job| {
        let mut into = vec![0; 200_000];
        for len in [0, 100, 200_000] {
            let data = bytes(4, len);
            if job.rank_number() == 0 {
                let first = send(job, 1, 0, &data, Mode::Synchronous)?;
                let second = send(job, 1, 0, &data, Mode::Synchronous)?;
                // The first message has arrived, and no receive takes it.
                barrier(job)?;
                job.withdraw_send(&first);
                let failed = sent(job, &first).unwrap_err();
                assert_eq!(failed.kind(), ErrorKind::Aborted, "{failed}");
                barrier(job)?;
                // The second message has been matched.
                barrier(job)?;
                job.withdraw_send(&second);
                barrier(job)?;
                sent(job, &second)?;
            } else {
                let found = job.wait("a probe", || job.probe(&from(0, 0)))?;
                assert_eq!(found.len, len);
                barrier(job)?;
                barrier(job)?;
                let taken = job.take_message(&from(0, 0))?.unwrap();
                assert_eq!(job.probe(&ANY)?, None);
                barrier(job)?;
                barrier(job)?;
                // SAFETY: the receive is waited for immediately.
                let receive = unsafe { receive_taken(job, taken, Sink::memory(into.as_mut_ptr(), into.len())) }?;
                assert_eq!(finish(job, &receive)?.len, len);
                assert!(into[..len] == data);
            }
        }
        let own = send(job, job.rank_number(), 1, &[1; 100], Mode::Synchronous)?;
        while job.progress()? {}
        assert!(job.probe(&from(job.rank_number(), 1))?.is_some());
        job.withdraw_send(&own);
        assert_eq!(own.outcome().unwrap_err().kind(), ErrorKind::Aborted);
        assert_eq!(job.probe(&ANY)?, None);
        Ok(())
    });
}

/// The sender gets one answer for both calls; a second one would be an error at the sender.
#[test]
fn send_that_is_withdrawn_and_then_given_up_ends_once() {
    over(2, |job| {
        for len in [0, 100, 200_000] {
            if job.rank_number() == 0 {
                let data = bytes(4, len);
                let sending = send(job, 1, 0, &data, Mode::Synchronous)?;
                barrier(job)?;
                job.withdraw_send(&sending);
                job.forget_send(&sending);
                // The next message would overtake both cancellations.
                job.wait("the queue", || Ok(job.active_messages().is_quiet().then_some(())))?;
                sent(job, &send(job, 1, 1, &[], Mode::Standard)?)?;
            } else {
                job.wait("a probe", || job.probe(&from(0, 0)))?;
                barrier(job)?;
                // A probe would drop the message when the first of both calls has been processed at this rank.
                finish(job, &*post(job, from(0, 1), &mut [])?)?;
                assert_eq!(job.probe(&ANY)?, None);
            }
            barrier(job)?;
            while job.progress()? {}
            barrier(job)?;
        }
        Ok(())
    });
}

#[test]
fn message_that_was_taken_and_then_given_up_by_its_sender_is_aborted() {
    over(2, |job| {
        let data = bytes(4, 100);
        // The first message is from the rank to itself, the second from the other rank.
        for to in [job.rank_number(), 1 - job.rank_number()] {
            let sending = send(job, to, 0, &data, Mode::Synchronous)?;
            let taken = job.wait("a message", || job.take_message(&ANY))?;
            barrier(job)?;
            job.forget_send(&sending);
            barrier(job)?;
            let mut into = [0; 100];
            // SAFETY: the receive is waited for immediately.
            let receive = unsafe { receive_taken(job, taken, Sink::memory(into.as_mut_ptr(), into.len())) }?;
            assert_eq!(finish(job, &receive).unwrap_err().kind(), ErrorKind::Aborted, "to rank {to}");
            assert!(into == [0; 100]);
        }
        Ok(())
    });
}

/// Messages without a receive are stored beyond the first credits, so that sends complete that the receiver does not
/// expect yet; when they have been received, their memory is released.
#[test]
fn unexpected_messages_are_stored_while_there_is_memory() {
    let run = |job: &Job| {
        const LEN: usize = 1000;
        let count = 4 * UNEXPECTED as usize / LEN;
        if job.rank_number() == 0 {
            let data = bytes(1, LEN);
            for _ in 0..count {
                sent(job, &send(job, 1, 0, &data, Mode::Standard)?)?;
            }
            sent(job, &send(job, 1, 1, &data, Mode::Standard)?)?;
            barrier(job)?;
            while job.progress()? {}
            assert!(send(job, 1, 1, &data[..8], Mode::Standard)?.is_done());
            return Ok(());
        }
        let mut into = vec![0; LEN];
        finish(job, &*post(job, from(0, 1), &mut into)?)?;
        assert_eq!(job.two_sided().waiting(), (0, count));
        for i in 0..count {
            let mut into = vec![0; LEN];
            finish(job, &*post(job, from(0, 0), &mut into)?)?;
            assert!(into == bytes(1, LEN), "message {i}");
        }
        while job.progress()? {}
        barrier(job)?;
        let mut into = vec![0; 8];
        finish(job, &*post(job, ANY, &mut into)?).map(|_| ())
    };
    Job::threads_with(2, &settings(&[]), run).unwrap();
}

#[test]
fn messages_to_the_rank_itself_in_any_order_of_send_and_receive() {
    over(1, |job| {
        for len in [0, 8, 100, 60_000, 1 << 20] {
            let data = bytes(2, len);
            let mut into = vec![0; len];
            let receive = post(job, from(0, 1), &mut into)?;
            let sending = send(job, 0, 1, &data, Mode::Synchronous)?;
            finish(job, &receive)?;
            sent(job, &sending)?;
            assert!(into == data);
            into.fill(0);
            let sending = send(job, 0, 1, &data, Mode::Standard)?;
            if len <= 60_000 {
                sent(job, &sending)?;
            }
            finish(job, &*post(job, ANY, &mut into)?)?;
            sent(job, &sending)?;
            assert!(into == data);
        }
        Ok(())
    });
}

#[test]
fn bad_calls_are_errors_that_name_the_rank() {
    over(2, |job| {
        let mut into = [0; 4];
        let e = post(job, from(9, 0), &mut into).unwrap_err();
        assert_eq!((e.kind(), e.blamed()), (ErrorKind::NoSuchRank, Some(9)));
        let e = send(job, 9, 0, &into, Mode::Standard).unwrap_err();
        assert_eq!((e.kind(), e.blamed()), (ErrorKind::NoSuchRank, Some(9)));
        assert_eq!(job.probe(&from(2, 0)).unwrap_err().kind(), ErrorKind::NoSuchRank);
        Ok(())
    });
}

#[test]
fn context_that_ends_takes_its_receives_and_messages_with_it() {
    over(2, |job| {
        if job.rank_number() == 0 {
            let data = bytes(1, 300_000);
            let long = send(job, 1, 0, &data, Mode::Standard)?;
            let short = send(job, 1, 0, &data[..10], Mode::Standard)?;
            barrier(job)?;
            sent(job, &long)?;
            return sent(job, &short);
        }
        let mut into = vec![0; 10];
        let posted = post(job, Pattern::new(CONTEXT, None, Some(4)), &mut into)?;
        barrier(job)?;
        job.wait("both messages", || Ok((job.two_sided().waiting() == (1, 2)).then_some(())))?;
        job.forget_context(CONTEXT);
        assert_eq!(job.two_sided().waiting(), (0, 0));
        assert_eq!(posted.outcome().unwrap_err().kind(), ErrorKind::Aborted);
        Ok(())
    });
}

#[test]
fn messages_that_were_received_leave_room_for_as_many_early_ones_to_a_rank_that_only_sends() {
    /// These messages with their envelopes take less than three quarters of the credits, since up to a quarter of the
    /// credits may not be advertised yet.
    const MESSAGES: usize = 10_000;
    over(2, |job| {
        let send_all = |tag| (0..MESSAGES).try_for_each(|_| sent(job, &send(job, 1, tag, &[1; 8], Mode::Standard)?));
        for _ in 0..3 {
            let mut into = vec![[0; 8]; 2 * MESSAGES];
            let (posted, late) = into.split_at_mut(MESSAGES);
            if job.rank_number() == 0 {
                barrier(job)?;
                send_all(1)?;
                barrier(job)?;
                // No message is received before all are sent.
                send_all(2)?;
                barrier(job)?;
                continue;
            }
            let receives: Vec<Rc<Receive>> =
                posted.iter_mut().map(|into| post(job, from(0, 1), into)).collect::<Result<_>>()?;
            barrier(job)?;
            receives.iter().try_for_each(|receive| finish(job, receive).map(|_| ()))?;
            barrier(job)?;
            barrier(job)?;
            for into in late {
                finish(job, &*post(job, from(0, 2), into)?)?;
            }
            assert!(into.iter().all(|into| *into == [1; 8]));
        }
        Ok(())
    });
}

#[test]
fn receive_of_a_half_arrived_message_is_cancelled_and_its_memory_not_written() {
    let set =
        [("FARSIDE_SHM_RING", "8192"), ("FARSIDE_TRANSFER", "eager:900000,read-intra:1000000,read-inter:1000000")];
    let started = std::sync::Barrier::new(2);
    let run = |job: &Job| {
        let data = bytes(6, 500_000);
        if job.rank_number() == 0 {
            let sending = send(job, 1, 0, &data, Mode::Standard)?;
            assert!(!sending.is_done(), "the ring has room for all of it");
            started.wait();
            started.wait();
            sent(job, &sending)?;
            return barrier(job);
        }
        started.wait();
        let unexpected = job.wait("the first packets", || job.probe(&ANY))?;
        assert_eq!(unexpected.len, data.len());
        let mut into = vec![0xee; data.len()];
        let receive = post(job, ANY, &mut into)?;
        assert!(!receive.is_done(), "all of it is here");
        job.forget_receive(&receive);
        assert_eq!(receive.outcome().unwrap_err().kind(), ErrorKind::Aborted);
        let before = into.clone();
        // The receive may be started again.
        let mut next = vec![0; 8];
        // SAFETY: the receive is cancelled before the buffer is dropped.
        unsafe { job.start_receive(&receive, from(0, 9), Sink::memory(next.as_mut_ptr(), next.len())) }?;
        started.wait();
        barrier(job)?;
        assert!(into == before && into[data.len() / 2..].iter().all(|b| *b == 0xee) && !receive.is_done());
        assert!(job.cancel_receive(&receive));
        Ok(())
    };
    Job::threads_with(2, &settings(&set), run).unwrap();
}

#[test]
fn cancelled_sends_return_their_credit_to_others() {
    // The receiver enters the runtime only after the sends.
    let started = std::sync::Barrier::new(2);
    over(2, |job| {
        if job.rank_number() == 0 {
            let data = bytes(1, 2000);
            let room = UNEXPECTED as usize / data.len();
            for round in 0..2 * room {
                let sending = send(job, 1, 0, &data, Mode::Standard)?;
                if !sending.is_done() {
                    if round % 2 == 0 {
                        job.withdraw_send(&sending);
                    } else {
                        job.forget_send(&sending);
                    }
                }
            }
            started.wait();
            barrier(job)?;
            barrier(job)?;
            while job.progress()? {}
            assert!(send(job, 1, 1, &data[..8], Mode::Standard)?.is_done(), "no room");
            return Ok(());
        }
        started.wait();
        barrier(job)?;
        // Receives all messages that have arrived.
        while job.probe(&from(0, 0))?.is_some() {
            let mut into = vec![0; 2000];
            match finish(job, &*post(job, from(0, 0), &mut into)?) {
                Ok(_) => assert!(into == bytes(1, 2000)),
                Err(e) => assert_eq!(e.kind(), ErrorKind::Aborted, "{e}"),
            }
        }
        barrier(job)?;
        finish(job, &*post(job, from(0, 1), &mut [0; 8])?).map(|_| ())
    });
}
