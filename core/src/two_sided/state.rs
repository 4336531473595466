//! What a rank has of two-sided messages: receives that are posted, unexpected messages, credits.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use smallvec::SmallVec;

use super::credit::Credits;
use crate::am::{Received, Sink, Token};
use crate::bill::Awaited;
use crate::error::{Error, ErrorKind, Result};
use crate::matching::{Envelope, Matching, Ticket};

/// The two-sided messages of a rank.
pub struct TwoSided {
    pub(super) matching: RefCell<Matching<Rc<Receive>, Unexpected>>,
    pub(super) credits: Credits,
}

impl fmt::Debug for TwoSided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let matching = self.matching.borrow();
        f.debug_struct("TwoSided")
            .field("posted", &matching.posted())
            .field("unexpected", &matching.unexpected())
            .finish()
    }
}

impl TwoSided {
    pub(super) fn new(credits: Credits) -> Self {
        Self { matching: RefCell::default(), credits }
    }

    /// Whether credits are to be advertised to a peer.
    #[inline]
    pub(crate) fn owes_credit(&self) -> bool {
        self.credits.owes()
    }

    #[inline]
    pub(super) fn has_unexpected(&self) -> bool {
        self.matching.borrow().unexpected() > 0
    }

    /// Receives that are posted, and unexpected messages.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        let matching = self.matching.borrow();
        (matching.posted(), matching.unexpected())
    }
}

/// What was received, or is there to be received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The sender, as a rank of the job.
    pub source: u32,
    /// The tag.
    pub tag: i32,
    /// Length of the message in bytes.
    pub len: usize,
    /// How many of its first bytes were received: fewer than `len` if the receive was shorter than the message.
    pub kept: usize,
}

/// Longest data that needs no memory of its own.
const SHORT: usize = 16;

/// An unexpected message.
pub(super) enum Unexpected {
    /// All of it is here; whether it was counted by its sender.
    Whole(SmallVec<[u8; SHORT]>, bool),
    /// It waits at its sender; its length.
    Held(Token, usize),
    /// Its bytes are coming into a buffer; its length.
    Coming(Rc<Coming>, Token, usize),
}

impl Unexpected {
    fn len(&self) -> usize {
        match self {
            Self::Whole(data, _) => data.len(),
            Self::Held(_, len) | Self::Coming(_, _, len) => *len,
        }
    }
}

/// An unexpected message whose bytes are coming.
#[derive(Default)]
pub(super) struct Coming {
    pub(super) data: RefCell<Option<Result<Vec<u8>>>>,
    pub(super) receive: Cell<Option<(Rc<Receive>, Sink)>>,
}

/// An unexpected message that was taken out of matching for a receive of its own
/// ([`Mailbox::take_message`](crate::Job::take_message)). One that is dropped is
/// lost, and its sender may wait for ever.
#[must_use]
pub struct Matched {
    pub(super) envelope: Envelope,
    pub(super) unexpected: Unexpected,
}

impl std::fmt::Debug for Matched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matched").field("envelope", &self.envelope).field("len", &self.unexpected.len()).finish()
    }
}

impl Matched {
    /// What will be received.
    #[must_use]
    pub fn status(&self) -> Status {
        status(&self.envelope, &self.unexpected)
    }
}

pub(super) fn status(envelope: &Envelope, unexpected: &Unexpected) -> Status {
    let len = unexpected.len();
    Status { source: envelope.source, tag: envelope.tag, len, kept: len }
}

/// What a receive is at.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    /// It was not started, or its outcome has been taken.
    #[default]
    Idle,
    Ended,
    Failed,
    Posted,
    /// Its message was found, and the bytes are coming.
    Coming,
}

/// A receive: started, ended, and started again.
#[derive(Default)]
pub struct Receive {
    stage: Cell<Stage>,
    /// Of one that is posted: where the bytes are to go. Memory that it names is not used after the end.
    sink: RefCell<Sink>,
    /// The name of the message whose bytes are coming, if they come from another rank in packets.
    token: Cell<Option<Token>>,
    /// Of one that has ended.
    status: Cell<Status>,
    /// Of one that has failed.
    error: Cell<Option<Error>>,
    pub(super) ticket: Cell<Option<Ticket>>,
    /// For the bill, if one is kept: what it waits for.
    pub(super) awaited: Cell<Option<Awaited>>,
}

impl fmt::Debug for Receive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receive").field("ticket", &self.ticket).field("open", &!self.is_done()).finish_non_exhaustive()
    }
}

impl Receive {
    /// What it waits for, if a bill is kept.
    #[must_use]
    pub fn awaits(&self) -> Awaited {
        self.awaited.get().unwrap_or(Awaited::unknown("receive"))
    }

    /// One that has not been started. It may be started again after each end.
    #[must_use]
    pub fn new() -> Rc<Self> {
        Rc::default()
    }

    /// Checks that it may be started.
    ///
    /// # Errors
    /// `BadArgument` if the receive before has not ended.
    #[inline]
    pub(super) fn check_free(&self) -> Result<()> {
        if self.is_done() { Ok(()) } else { Err(wrong("the receive before it has not ended")) }
    }

    /// It begins, and its message has not come.
    #[inline]
    pub(super) fn post(&self, sink: Sink) {
        *self.sink.borrow_mut() = sink;
        self.stage.set(Stage::Posted);
    }

    /// It begins, and its message is coming.
    #[inline]
    pub(super) fn come(&self, token: Option<Token>) {
        self.token.set(token);
        self.ticket.set(None);
        self.stage.set(Stage::Coming);
    }

    /// Whether it has ended, or was not started: its memory is not touched any more.
    #[must_use]
    #[inline]
    pub fn is_done(&self) -> bool {
        matches!(self.stage.get(), Stage::Idle | Stage::Ended | Stage::Failed)
    }

    /// How it has ended, if it has; once.
    ///
    /// # Errors
    /// What the message failed with; `BadArgument` if that was asked before.
    #[inline]
    pub fn outcome(&self) -> Result<Option<Status>> {
        if !self.is_done() {
            return Ok(None);
        }
        match self.stage.replace(Stage::Idle) {
            Stage::Ended => Ok(Some(self.status.get())),
            _ => Err(self.error.take().unwrap_or_else(|| wrong("its outcome has been taken"))),
        }
    }

    /// Its message has been found: gives its sink.
    #[inline]
    pub(super) fn matched(&self, token: Option<Token>) -> Sink {
        self.come(token);
        self.sink.take()
    }

    /// Its message has been found, and is here.
    #[inline(always)]
    pub(super) fn take(&self, envelope: Envelope, data: &[u8]) {
        let kept = self.sink.borrow().take_into_memory(data);
        match kept {
            Some(kept) => self.came(envelope, data.len(), kept),
            None => self.fill(envelope, self.sink.take(), data),
        }
    }

    /// The name of the message whose bytes are coming, once, if they come in packets.
    pub(super) fn coming(&self) -> Option<Token> {
        self.token.take()
    }

    /// Its message is here, and goes to `sink`.
    pub(super) fn fill(&self, envelope: Envelope, sink: Sink, data: &[u8]) {
        if let Some(kept) = sink.take_into_memory(data) {
            return self.came(envelope, data.len(), kept);
        }
        match sink.take_whole(data) {
            Ok(kept) => self.came(envelope, data.len(), kept),
            Err(e) => self.fail(e),
        }
    }

    /// Its message is where it belongs: the first `kept` of `len` bytes.
    #[inline(always)]
    fn came(&self, envelope: Envelope, len: usize, kept: usize) {
        self.status.set(Status { source: envelope.source, tag: envelope.tag, len, kept });
        self.stage.set(Stage::Ended);
    }

    /// Its message has come into a buffer, or will not come.
    pub(super) fn complete_whole(&self, envelope: Envelope, sink: Sink, data: Result<Vec<u8>>) {
        match data {
            Ok(data) => self.fill(envelope, sink, &data),
            Err(e) => self.fail(e),
        }
    }

    /// The bytes of its message are where they belong, or will not come.
    pub(super) fn complete(&self, envelope: Envelope, received: Result<Received>) {
        match received {
            Ok(received) => self.came(envelope, received.len, received.kept),
            Err(e) => self.fail(e),
        }
    }

    /// It ends without its message.
    #[cold]
    pub(super) fn fail(&self, error: Error) {
        self.error.set(Some(error));
        self.stage.set(Stage::Failed);
        // What a layout holds may come back here.
        drop(self.sink.take());
    }
}

#[cold]
fn wrong(cause: &'static str) -> Error {
    Error::new(ErrorKind::BadArgument, "receive a message").cause(cause)
}
