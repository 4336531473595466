#![allow(unsafe_code)]
//! Partitioned messages (MPI-5.0 chapter 4): one message whose partitions are sent when they are ready.
//!
//! | call | messages |
//! |---|---|
//! | [`Mailbox::partitioned_send`] | an *offer*: an active message without data, with the partitioning and a context for the partitions. It is matched with a [`Mailbox::partitioned_receive`] by context, source and tag, in the order of these calls |
//! | [`PartitionedSend::start`], [`PartitionedReceive::start`] | none |
//! | [`PartitionedSend::ready`] | the partition: a two-sided message, whose tag is the partition's number. It is received at its position in the receiver's memory, which may be partitioned differently |
//!
//! The order of messages separates rounds. If a receive starts before its offer has arrived, the handler of the offer
//! posts its receives. No message can precede these receives, since the partitions of a send follow its offer.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use super::mailbox::Mailbox;
use super::offers::{MAX_PARTITIONS, Offer, PartitionedReceive, Stage, all_done, wrong};
use super::send::{Mode, Sending};
use super::{OFFER, check};
use crate::am::{self, Counters, Sink, Source};
use crate::error::{Error, ErrorKind, Result};
use crate::matching::Pattern;
use crate::tracked::Track;

/// A partitioned send. It is started for each round, which ends when all partitions have been declared ready and their
/// memory is reusable.
pub struct PartitionedSend {
    target: Option<u32>,
    offer: Offer,
    source: Source,
    /// Counts the message with the offer.
    offered: Rc<Track>,
    /// The send of each ready partition; empty before the first start.
    round: RefCell<Vec<Option<Sending>>>,
    /// All sends before this index are known to be complete.
    done: Cell<usize>,
}

impl fmt::Debug for PartitionedSend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionedSend")
            .field("target", &self.target)
            .field("offer", &self.offer)
            .finish_non_exhaustive()
    }
}

impl PartitionedSend {
    /// Starts a round. Sends nothing.
    ///
    /// # Errors
    /// `BadArgument` if the previous round has not ended.
    pub fn start(&self) -> Result<()> {
        // The offer may still be queued; it is sent before the partitions, whose context it names.
        let mut round = self.round.borrow_mut();
        if !self.has_ended(&round) {
            return Err(wrong("start a partitioned send", "the previous round of the request has not completed"));
        }
        round.clear();
        round.resize(self.offer.number as usize, None);
        self.done.set(0);
        Ok(())
    }

    /// Declares a partition ready, and starts to send it. Does not wait.
    ///
    /// # Safety
    /// The memory of the partition stays valid and is not written until the round [is done](Self::is_done) or
    /// [`forget`](Self::forget) has returned.
    ///
    /// # Errors
    /// `BadArgument` for a partition that does not exist or was ready already in this round, and before the first
    /// start; an error of sending.
    pub unsafe fn ready(&self, job: &Mailbox, partition: u32) -> Result<()> {
        let at = partition as usize;
        let bad = |why: &str| Err(wrong("declare a partition ready", format!("partition {partition} {why}")));
        match self.round.borrow().get(at) {
            None if partition < self.offer.number => return bad("belongs to a send that is not active"),
            None => return bad(&format!("is out of range: the message has {}", self.offer.number)),
            Some(Some(_)) => return bad("has already been declared ready in this round"),
            Some(None) => {}
        }
        let len = self.offer.len as usize;
        let sending = match self.target {
            None => Sending::Done,
            Some(target) => {
                let (source, tag) = (self.source.part(at * len, len), partition.cast_signed());
                // SAFETY: the same contract.
                unsafe { job.start_message(target, self.offer.context, tag, source, Mode::Standard) }?
            }
        };
        self.round.borrow_mut()[at] = Some(sending);
        Ok(())
    }

    /// Whether no round is in progress, and the offer has been sent.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.offered.open() == 0 && self.has_ended(&self.round.borrow())
    }

    fn has_ended(&self, round: &[Option<Sending>]) -> bool {
        all_done(&self.done, round.len(), |at| round[at].as_ref().is_some_and(Sending::is_done))
    }

    /// Returns the result of a round that has ended; `None` before its end.
    ///
    /// # Errors
    /// The first error of the offer and the partitions.
    pub fn outcome(&self) -> Result<Option<()>> {
        if !self.is_done() {
            return Ok(None);
        }
        let sent = |sending: &Sending| sending.outcome().map(|_| ());
        let ended = self.round.borrow().iter().flatten().map(sent).fold(self.offered.check(), Result::and);
        ended.map(Some)
    }

    /// Abandons the send in any state: its memory is no longer read. It must not be started again, since cancelled
    /// partitions are missing in the receiver's round.
    pub fn forget(&self, job: &Mailbox) {
        job.cancel(&self.offered);
        self.round.borrow().iter().flatten().for_each(|sending| job.forget_send(sending));
    }
}

impl PartitionedReceive {
    /// Starts a round. Sends no messages except those that receives send, such as a clear to send.
    ///
    /// # Safety
    /// The memory of the sink satisfies the contract of [`Sink::memory`], until the round [is done](Self::is_done) or
    /// [`forget`](Self::forget) has returned.
    ///
    /// # Errors
    /// `BadArgument` if the previous round has not ended; `Freed` if the team was freed, or a round was abandoned or
    /// failed after some of its partitions could arrive; an error of receiving.
    pub unsafe fn start(&self, job: &Mailbox) -> Result<()> {
        if !self.is_done() {
            return Err(wrong("start a partitioned receive", "the previous round of the request has not completed"));
        }
        if self.stage.get() == Stage::Ended {
            let freed = Error::new(ErrorKind::Freed, "start a partitioned receive");
            return Err(freed.cause("the request's team was freed, or an earlier round was abandoned"));
        }
        self.error.set(None);
        let (Some(source), Some(offer)) = (self.source, self.offer.get()) else {
            self.stage.set(if self.source.is_none() { Stage::Posted } else { Stage::Waiting });
            return Ok(());
        };
        self.post(source, offer, |receive, pattern, sink| {
            // SAFETY: the same contract.
            unsafe { job.start_receive(receive, pattern, sink) }
        })
        .inspect_err(|_| {
            self.fail("the request's receives could not be posted", Stage::Ended);
            self.forget(job);
        })
    }

    /// Abandons a round in any state: its memory is no longer accessed. A receive whose offer has not arrived is still
    /// matched with it, so that later receives are matched with later sends. Once the offer has arrived, the receive
    /// cannot be started again, since it may have received some of the partitions of the round.
    pub fn forget(&self, job: &Mailbox) {
        if !self.is_done() {
            let waits = self.stage.get() == Stage::Waiting;
            self.fail("the request was abandoned", if waits { Stage::Idle } else { Stage::Ended });
        }
        self.round.borrow().iter().for_each(|receive| job.forget_receive(receive));
    }
}

impl Mailbox {
    /// Makes a partitioned send of `number` equal partitions of `source` to rank `target` of the job, and offers it to
    /// the receiver. `partitions` is a context for this send alone ([`Job::new_context`](crate::Job::new_context)).
    /// Partitions without a target are not sent.
    ///
    /// # Errors
    /// `BadArgument` if `number` is 0, above [`MAX_PARTITIONS`] or does not divide the length; `NoSuchRank`,
    /// `PeerLost`, `Freed`.
    pub fn partitioned_send(
        &self,
        target: Option<u32>,
        (context, tag): (u32, i32),
        source: Source,
        number: u32,
        partitions: u32,
    ) -> Result<PartitionedSend> {
        const OP: &str = "make a partitioned send";
        let total = source.len() as u64;
        let offer = total.checked_div(number.into()).and_then(|len| Offer::new(partitions, number, len));
        let Some(offer) = offer.filter(|offer| u64::from(number) * offer.len == total) else {
            return Err(wrong(
                OP,
                format!(
                    "{total} bytes cannot be divided into {number} equal partitions; 1 to {MAX_PARTITIONS} are allowed"
                ),
            ));
        };
        let offered = Track::new();
        if let Some(target) = target {
            let header = offer.header(context, tag);
            let (nothing, counters) = (Source::of(&[]), Counters::default());
            // SAFETY: the message has no data, and its header is what the handler expects.
            unsafe { am::start_send(self, target, OFFER, &header, nothing, counters, &offered) }?;
        }
        let (round, done) = Default::default();
        Ok(PartitionedSend { target, offer, source, offered, round, done })
    }

    /// Makes a partitioned receive of the message of rank `source` of the job that has this context and tag. `sink` is
    /// memory or a layout; the part of the message that exceeds it is discarded, which the [`Status`](super::Status)
    /// shows. Without a source, every round ends when it starts.
    ///
    /// # Errors
    /// `NoSuchRank`, `Freed`.
    pub fn partitioned_receive(
        &self,
        source: Option<u32>,
        (context, tag): (u32, i32),
        sink: Sink,
    ) -> Result<Rc<PartitionedReceive>> {
        let pattern = Pattern::new(context, source, Some(tag));
        check(self, "make a partitioned receive", &pattern)?;
        let (stage, offer, round, done, error) = Default::default();
        let receive = Rc::new(PartitionedReceive { source, sink, stage, offer, round, done, error });
        if source.is_some() {
            let mut offers = self.two_sided().offers.borrow_mut();
            match offers.take_unexpected(&pattern) {
                Some((_, offer)) => receive.offer.set(Some(offer)),
                None => _ = offers.post(pattern, Rc::clone(&receive)),
            }
        }
        Ok(receive)
    }
}
