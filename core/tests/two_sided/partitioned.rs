//! Partitioned messages: rounds, partitionings that differ, offers before and after their receives, misuse.

use farside_core::two_sided::{MAX_PARTITIONS, PartitionedReceive};

use super::*;

/// Starts a round of a partitioned receive whose sink is a buffer that the test keeps until the round has ended.
fn start_partitioned(job: &Job, receive: &PartitionedReceive) -> Result<()> {
    // SAFETY: each test waits for the round, or forgets it, before the buffer is dropped.
    unsafe { receive.start(job) }
}

#[test]
fn partitions_arrive_in_every_round_however_both_sides_divide_the_message() {
    const LEN: usize = 24_000;
    over(2, |job| {
        for (number, early) in [(1, true), (6, false), (8, true), (24, false)] {
            let mut into = vec![0; LEN];
            if job.rank_number() == 0 {
                let data = bytes(number as usize, LEN);
                let send =
                    job.partitioned_send(Some(1), (CONTEXT, 4), Source::of(&data), number, job.new_context()?)?;
                if !early {
                    barrier(job)?;
                }
                for round in 0..3 {
                    send.start()?;
                    assert!(!send.is_done() && send.outcome()?.is_none());
                    for partition in (0..number).rev() {
                        // SAFETY: the data is kept until the round has ended.
                        unsafe { send.ready(job, (partition + round) % number) }?;
                    }
                    job.wait("a partitioned send", || send.outcome())?;
                    barrier(job)?;
                }
                continue;
            }
            // SAFETY: the buffer is kept until the last round has ended.
            let sink = unsafe { Sink::memory(into.as_mut_ptr(), LEN) };
            if !early {
                barrier(job)?;
            }
            let receive = job.partitioned_receive(Some(0), (CONTEXT, 4), sink)?;
            for _ in 0..3 {
                start_partitioned(job, &receive)?;
                job.wait("half of a message", || Ok(receive.has_arrived(0..LEN as u64 / 2).then_some(())))?;
                let status = job.wait("a partitioned receive", || receive.outcome())?;
                assert_eq!(status, Status { source: 0, tag: status.tag, len: LEN, kept: LEN });
                assert!(into == bytes(number as usize, LEN), "{number} partitions");
                into.fill(0);
                barrier(job)?;
            }
        }
        assert_eq!(job.two_sided().waiting(), (0, 0));
        Ok(())
    });
}

#[test]
fn partitioned_messages_that_are_misused_given_up_or_too_long() {
    over(2, |job| {
        let (me, other) = (job.rank_number(), 1 - job.rank_number());
        let data = bytes(me as usize, 300);
        for number in [0, 7, MAX_PARTITIONS + 1] {
            let made = job.partitioned_send(Some(other), (CONTEXT, 0), Source::of(&data), number, 77);
            assert_eq!(made.unwrap_err().kind(), ErrorKind::BadArgument, "{number} partitions");
        }
        let none = job.partitioned_receive(Some(2), (CONTEXT, 0), Sink::discard());
        assert_eq!(none.unwrap_err().kind(), ErrorKind::NoSuchRank);
        // An abandoned receive is matched with the first send.
        let first = job.partitioned_receive(Some(other), (CONTEXT, 0), Sink::discard())?;
        start_partitioned(job, &first)?;
        assert_eq!(start_partitioned(job, &first).unwrap_err().kind(), ErrorKind::BadArgument);
        first.forget(job);
        assert_eq!(first.outcome().unwrap_err().kind(), ErrorKind::Aborted);
        let mut into = [0; 250];
        // SAFETY: the buffer is kept until the round has ended.
        let sink = unsafe { Sink::memory(into.as_mut_ptr(), into.len()) };
        let second = job.partitioned_receive(Some(other), (CONTEXT, 0), sink)?;
        start_partitioned(job, &second)?;
        let make = || job.partitioned_send(Some(other), (CONTEXT, 0), Source::of(&data), 3, job.new_context()?);
        let (unused, send) = (make()?, make()?);
        // SAFETY: the data is kept until the round has ended.
        let ready = |partition| unsafe { send.ready(job, partition) };
        assert_eq!(ready(0).unwrap_err().kind(), ErrorKind::BadArgument, "not started");
        send.start()?;
        (0..3).try_for_each(ready)?;
        for again in [0, 3] {
            assert_eq!(ready(again).unwrap_err().kind(), ErrorKind::BadArgument);
        }
        let status = job.wait("a partitioned receive", || second.outcome())?;
        assert_eq!((status.source, status.len, status.kept), (other, 300, 250));
        assert!(into == bytes(other as usize, 300)[..250]);
        job.wait("a partitioned send", || send.outcome())?;
        job.wait("an unused send", || unused.outcome())?;
        barrier(job)?;
        assert_eq!(job.two_sided().waiting(), (0, 0));
        Ok(())
    });
}

/// A rank sends itself more messages than it copies at a time, so the offers are queued.
#[test]
fn partitioned_sends_start_while_their_offers_are_queued() {
    const NUMBER: usize = 1100;
    over(1, |job| {
        let (data, mut into) = (bytes(1, 8 * NUMBER), vec![0; 8 * NUMBER]);
        let make = |at: usize| {
            let source = Source::of(&data[8 * at..][..8]);
            job.partitioned_send(Some(0), (CONTEXT, at as i32), source, 2, job.new_context()?)
        };
        let sends = (0..NUMBER).map(make).collect::<Result<Vec<_>>>()?;
        sends.iter().try_for_each(|send| send.start())?;
        assert!(!sends[NUMBER - 1].is_done() && sends[NUMBER - 1].start().is_err());
        for send in &sends {
            // SAFETY: the data is kept until the rounds have ended.
            (0..2).try_for_each(|partition| unsafe { send.ready(job, partition) })?;
        }
        let mut receives = Vec::new();
        for (at, part) in into.chunks_mut(8).enumerate() {
            // SAFETY: the buffer is kept until the rounds have ended.
            let sink = unsafe { Sink::memory(part.as_mut_ptr(), part.len()) };
            let receive = job.partitioned_receive(Some(0), (CONTEXT, at as i32), sink)?;
            start_partitioned(job, &receive)?;
            receives.push(receive);
        }
        receives.iter().try_for_each(|receive| job.wait("a receive", || receive.outcome()).map(drop))?;
        sends.iter().try_for_each(|send| job.wait("a send", || send.outcome()))?;
        assert!(into == data);
        assert_eq!(job.two_sided().waiting(), (0, 0));
        Ok(())
    });
}

/// The partitions of messages that no rank receives are dropped with the context, and their sender gets its credits
/// back.
#[test]
fn dropped_context_drops_the_partitions_and_receives_of_its_messages() {
    over(2, |job| {
        let data = vec![1; UNEXPECTED as usize / 4];
        for round in 0..8 {
            if job.rank_number() == 0 {
                let send = job.partitioned_send(Some(1), (CONTEXT, 0), Source::of(&data), 64, job.new_context()?)?;
                send.start()?;
                // SAFETY: the data is kept until the round has ended.
                (0..64).try_for_each(|partition| unsafe { send.ready(job, partition) })?;
                barrier(job)?;
                job.wait("a partitioned send", || send.outcome())?;
            } else {
                barrier(job)?;
                job.wait("the partitions", || Ok((job.two_sided().waiting() == (0, 64)).then_some(())))?;
                job.forget_context(CONTEXT);
                assert_eq!(job.two_sided().waiting(), (0, 0), "round {round}");
                while job.progress()? {}
            }
            barrier(job)?;
        }
        if job.rank_number() == 0 {
            while job.progress()? {}
            assert!(send(job, 1, 9, &data[..8], Mode::Standard)?.is_done(), "no room");
        }
        let unmatched = job.partitioned_receive(Some(1 - job.rank_number()), (CONTEXT, 1), Sink::discard())?;
        start_partitioned(job, &unmatched)?;
        job.forget_context(CONTEXT);
        assert_eq!(start_partitioned(job, &unmatched).unwrap_err().kind(), ErrorKind::Freed);
        assert_eq!(unmatched.outcome().unwrap_err().kind(), ErrorKind::Aborted);
        assert_eq!(start_partitioned(job, &unmatched).unwrap_err().kind(), ErrorKind::Freed);
        Ok(())
    });
}

#[test]
fn receive_that_is_cancelled_after_its_offer_arrived_does_not_start() {
    over(1, |job| {
        let data = bytes(1, 8);
        let send = job.partitioned_send(Some(0), (CONTEXT, 0), Source::of(&data), 2, job.new_context()?)?;
        let receive = job.partitioned_receive(Some(0), (CONTEXT, 0), Sink::discard())?;
        send.start()?;
        start_partitioned(job, &receive)?;
        // SAFETY: the data outlives the send, which has ended or is abandoned at the end.
        unsafe { send.ready(job, 0) }?;
        job.wait("half of a message", || Ok(receive.has_arrived(0..4).then_some(())))?;
        receive.forget(job);
        assert_eq!(start_partitioned(job, &receive).unwrap_err().kind(), ErrorKind::Freed);
        assert_eq!(receive.outcome().unwrap_err().kind(), ErrorKind::Aborted);
        assert_eq!(job.two_sided().waiting(), (0, 0));
        send.forget(job);
        Ok(())
    });
}
