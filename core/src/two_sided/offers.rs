//! Offers of partitioned messages, and their matching receives.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use super::state::{Receive, Status, TwoSided};
use crate::am::Sink;
use crate::error::{Error, ErrorKind, Result};
use crate::matching::{Envelope, Matching, Pattern};

/// Maximum number of partitions of a message.
pub const MAX_PARTITIONS: u32 = 1 << 24;

/// Posted partitioned receives, and offers whose receive is not posted yet.
pub(super) type Offers = Matching<Rc<PartitionedReceive>, Offer>;

/// The partitioning of a send, and the context of its partitions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) context: u32,
    pub(super) number: u32,
    /// Length of a partition in bytes.
    pub(super) len: u64,
}

impl Offer {
    pub(super) fn new(context: u32, number: u32, len: u64) -> Option<Self> {
        let total = u64::from(number).checked_mul(len)?;
        (number <= MAX_PARTITIONS && total <= i64::MAX as u64).then_some(Self { context, number, len })
    }

    /// The header of the offer of a send in `context` with `tag`.
    pub(super) fn header(&self, context: u32, tag: i32) -> [u8; 24] {
        let mut header = [0; 24];
        let words = [context, tag.cast_unsigned(), self.context, self.number];
        for (at, word) in header.chunks_exact_mut(4).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        header[16..].copy_from_slice(&self.len.to_le_bytes());
        header
    }

    /// Parses the header of an offer from rank `source`.
    fn parse(source: u32, header: &[u8]) -> Option<(Envelope, Self)> {
        let header: &[u8; 24] = header.try_into().ok()?;
        let word = |at: usize| header[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        let len = u64::from(word(16)) | u64::from(word(20)) << 32;
        let envelope = Envelope { context: word(0), source, tag: word(4).cast_signed() };
        Some((envelope, Self::new(word(8), word(12), len)?))
    }
}

impl TwoSided {
    /// Header handler: passes an offer to its receive, or stores it until there is one.
    pub(super) fn offered(&self, source: u32, header: &[u8]) {
        let Some((envelope, offer)) = Offer::parse(source, header) else {
            tracing::warn!("a malformed offer of a partitioned message from rank {source} was dropped");
            return;
        };
        let posted = self.offers.borrow_mut().take_posted(&envelope);
        match posted {
            Some(receive) => receive.take(envelope.source, offer, self),
            None => _ = self.offers.borrow_mut().keep(envelope, offer),
        }
    }
}

/// Whether all of `n` operations are complete; those before `first` are known to be.
pub(super) fn all_done(first: &Cell<usize>, n: usize, is_done: impl Fn(usize) -> bool) -> bool {
    let open = (first.get()..n).find(|at| !is_done(*at)).unwrap_or(n);
    first.set(open);
    open == n
}

/// State of a partitioned receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// The receive is not started, has failed, or its outcome has been returned.
    #[default]
    Idle,
    /// The receive is started, but its offer has not arrived.
    Waiting,
    /// The receives of all partitions are posted.
    Posted,
    /// The receive has failed, and no later round would be matched with a round of its send.
    Ended,
}

/// A partitioned receive. It is started for each round, which ends when all partitions of its send have arrived.
pub struct PartitionedReceive {
    pub(super) source: Option<u32>,
    pub(super) sink: Sink,
    pub(super) stage: Cell<Stage>,
    pub(super) offer: Cell<Option<Offer>>,
    /// The receive of each partition of the send.
    pub(super) round: RefCell<Vec<Rc<Receive>>>,
    /// All receives before this index are known to be complete.
    pub(super) done: Cell<usize>,
    /// The error, if the round has failed.
    pub(super) error: Cell<Option<Error>>,
}

impl fmt::Debug for PartitionedReceive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, offer, stage) = (&self.source, self.offer.get(), self.stage.get());
        let mut shown = f.debug_struct("PartitionedReceive");
        shown.field("source", source).field("offer", &offer).field("stage", &stage).finish_non_exhaustive()
    }
}

impl PartitionedReceive {
    /// Matches the offer; posts the receives of the partitions if a round waits for it.
    fn take(&self, source: u32, offer: Offer, two_sided: &TwoSided) {
        self.offer.set(Some(offer));
        if self.stage.get() != Stage::Waiting {
            return;
        }
        let posted = self.post(source, offer, |receive, pattern, sink| {
            receive.post(&mut two_sided.matching.borrow_mut(), pattern, sink);
            Ok(())
        });
        debug_assert!(posted.is_ok());
    }

    /// Posts the receives of all partitions.
    pub(super) fn post(
        &self,
        source: u32,
        offer: Offer,
        mut post: impl FnMut(&Rc<Receive>, Pattern, Sink) -> Result<()>,
    ) -> Result<()> {
        self.done.set(0);
        let mut round = self.round.borrow_mut();
        round.resize_with(offer.number as usize, Receive::new);
        for (receive, partition) in round.iter().zip(0..) {
            let pattern = Pattern::new(offer.context, Some(source), Some(partition));
            let from = partition as usize * offer.len as usize;
            post(receive, pattern, self.sink.part(from, offer.len as usize))?;
        }
        self.stage.set(Stage::Posted);
        Ok(())
    }

    /// Whether no round is in progress.
    #[must_use]
    pub fn is_done(&self) -> bool {
        match self.stage.get() {
            Stage::Idle | Stage::Ended => true,
            Stage::Waiting => false,
            Stage::Posted => {
                let round = self.round.borrow();
                all_done(&self.done, round.len(), |at| round[at].is_done())
            }
        }
    }

    /// Whether these bytes of the message have arrived in this round. An empty range arrives when all bytes have.
    #[must_use]
    pub fn has_arrived(&self, bytes: Range<u64>) -> bool {
        let Some(offer) = self.offer.get().filter(|_| self.stage.get() == Stage::Posted) else {
            return self.is_done();
        };
        let is_beside = |from: u64| !bytes.is_empty() && (from >= bytes.end || from + offer.len <= bytes.start);
        let round = self.round.borrow();
        round.iter().zip(0..).all(|(receive, partition)| receive.is_done() || is_beside(partition * offer.len))
    }

    /// Returns the outcome of a round that has ended, once; `None` before its end. The source and the tag are those of
    /// the last partition; the lengths are those of the whole message.
    ///
    /// # Errors
    /// The error of a partition; `BadArgument` if the outcome was returned before.
    pub fn outcome(&self) -> Result<Option<Status>> {
        if !self.is_done() {
            return Ok(None);
        }
        if self.stage.get() != Stage::Posted {
            let taken = || wrong("receive a partitioned message", "the result of the receive was already taken");
            return Err(self.error.take().unwrap_or_else(taken));
        }
        self.stage.set(Stage::Idle);
        let mut all = Status::default();
        for receive in &*self.round.borrow() {
            let part = receive.outcome()?.unwrap_or_default();
            all = Status { len: all.len + part.len, kept: all.kept + part.kept, ..part };
        }
        Ok(Some(all))
    }

    /// Ends the round, or with [`Stage::Ended`] all rounds, without a message.
    pub(super) fn fail(&self, why: &str, stage: Stage) {
        self.stage.set(stage);
        self.error.set(Some(Error::new(ErrorKind::Aborted, "receive a partitioned message").cause(why)));
    }
}

#[cold]
pub(super) fn wrong(operation: &'static str, cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::BadArgument, operation).cause(cause)
}
