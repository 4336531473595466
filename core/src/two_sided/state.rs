//! State of a rank's two-sided messages: posted receives, unexpected messages, credits.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use super::credit::Credits;
use super::offers::Offers;
use crate::am::{self, Payload, Received, Sink, Token};
use crate::bill::{Account, Awaited};
use crate::error::{Error, ErrorKind, Result};
use crate::matching::{Envelope, Matching, Pattern, Ticket};

/// Name of the operation in the bill.
pub(super) const RECEIVE: &str = "receive";

/// The two-sided messages of a rank.
pub struct TwoSided {
    pub(super) matching: RefCell<Matching<Rc<Receive>, Unexpected>>,
    pub(super) offers: RefCell<Offers>,
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
        Self { matching: RefCell::default(), offers: RefCell::default(), credits }
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

    /// Numbers of posted receives and of unexpected messages.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        let matching = self.matching.borrow();
        (matching.posted(), matching.unexpected())
    }
}

/// A message that was received, or can be received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The sender, as a rank of the job.
    pub source: u32,
    /// The tag.
    pub tag: i32,
    /// Length of the message in bytes.
    pub len: usize,
    /// Number of bytes received: fewer than `len` if the receive was shorter than the message.
    pub kept: usize,
}

/// An unexpected message.
pub(super) struct Unexpected {
    pub(super) body: am::Unexpected,
    /// Whether the sender has counted the message against its credits.
    pub(super) counted: bool,
}

/// An unexpected message that was removed from matching for a separate receive
/// ([`Mailbox::take_message`](super::Mailbox::take_message)). If it is dropped, the message is lost, and its sender may
/// wait forever.
#[must_use]
pub struct Matched {
    pub(super) envelope: Envelope,
    pub(super) unexpected: Unexpected,
}

impl std::fmt::Debug for Matched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matched").field("envelope", &self.envelope).field("len", &self.unexpected.body.len()).finish()
    }
}

impl Matched {
    /// The status of the message that will be received.
    #[must_use]
    pub fn status(&self) -> Status {
        status(&self.envelope, &self.unexpected)
    }
}

pub(super) fn status(envelope: &Envelope, unexpected: &Unexpected) -> Status {
    let len = unexpected.body.len();
    Status { source: envelope.source, tag: envelope.tag, len, kept: len }
}

/// State of a receive.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    /// The receive is not started, or its outcome has been returned.
    #[default]
    Idle,
    Ended,
    Failed,
    Posted,
    /// The receive is matched; the bytes are arriving.
    Coming,
}

/// The numbers of watched receives that have ended, in this order.
#[derive(Debug, Default)]
pub struct EndedReceives(RefCell<VecDeque<u32>>);

impl EndedReceives {
    /// Removes and returns the number of the receive that ended first.
    #[must_use]
    pub fn take(&self) -> Option<u32> {
        self.0.borrow_mut().pop_front()
    }

    /// Adds the number of a receive that has ended.
    pub fn add(&self, number: u32) {
        self.0.borrow_mut().push_back(number);
    }
}

/// A receive. It can be started again after each end.
#[derive(Default)]
pub struct Receive {
    stage: Cell<Stage>,
    /// Whether the end is added to the list `watch`.
    is_watched: Cell<bool>,
    watch: Cell<Option<(Rc<EndedReceives>, u32)>>,
    /// Destination of the bytes, while the receive is posted. Its memory is not accessed after the end.
    sink: Cell<Sink>,
    /// Token of the message whose bytes are arriving.
    token: Cell<Option<Token>>,
    /// The result, if it has ended.
    status: Cell<Status>,
    /// The error, if it has failed.
    error: Cell<Option<Error>>,
    pub(super) ticket: Cell<Option<Ticket>>,
    /// The pattern with which it was last posted, or that of the message with which it was started.
    pub(super) pattern: Cell<Option<Pattern>>,
}

impl fmt::Debug for Receive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receive").field("ticket", &self.ticket).field("open", &!self.is_done()).finish_non_exhaustive()
    }
}

impl Receive {
    /// The wait of the receive: its team and sender.
    #[must_use]
    pub fn awaits(&self) -> Awaited {
        self.pattern.get().map_or(Awaited::unknown(RECEIVE), |pattern| {
            let account = Some(Account::team(pattern.context()));
            Awaited { account, operation: RECEIVE, call: 0, from: pattern.source() }
        })
    }

    /// A receive that has not been started. It may be started again after each end.
    #[must_use]
    pub fn new() -> Rc<Self> {
        Rc::default()
    }

    /// Adds `number` to `ended` when the receive ends, or immediately if it has ended. The list of an earlier call is
    /// no longer used. Only the next end of the receive is added.
    pub fn watch(&self, ended: &Rc<EndedReceives>, number: u32) {
        if self.is_done() {
            return ended.add(number);
        }
        self.is_watched.set(true);
        self.watch.set(Some((Rc::clone(ended), number)));
    }

    #[cold]
    fn note_end(&self) {
        self.is_watched.set(false);
        if let Some((ended, number)) = self.watch.take() {
            ended.add(number);
        }
    }

    /// Checks that the receive may be started.
    ///
    /// # Errors
    /// `BadArgument` if its previous start has not ended.
    #[inline]
    pub(super) fn check_free(&self) -> Result<()> {
        if self.is_done() { Ok(()) } else { Err(wrong("the previous receive of this request has not completed")) }
    }

    /// Posts the receive: its message has not arrived.
    #[inline(always)]
    pub(super) fn post(self: &Rc<Self>, matching: &mut Matching<Rc<Self>, Unexpected>, pattern: Pattern, sink: Sink) {
        let former = self.sink.replace(sink);
        debug_assert!(former.is_discard());
        // The old sink owns nothing, since a receive that ends gives up its sink; so its drop is skipped.
        std::mem::forget(former);
        self.stage.set(Stage::Posted);
        self.pattern.set(Some(pattern));
        self.ticket.set(Some(matching.post(pattern, Rc::clone(self))));
    }

    /// Starts the receive as matched: its message is arriving.
    #[inline]
    pub(super) fn start_matched(&self, token: Option<Token>) {
        self.token.set(token);
        self.ticket.set(None);
        self.stage.set(Stage::Coming);
    }

    /// Whether the receive has ended or was not started, so that its memory is no longer accessed.
    #[must_use]
    #[inline]
    pub fn is_done(&self) -> bool {
        matches!(self.stage.get(), Stage::Idle | Stage::Ended | Stage::Failed)
    }

    /// Returns the outcome of a receive that has ended, once; `None` before its end.
    ///
    /// # Errors
    /// The error of the message; `BadArgument` if the outcome was returned before.
    #[inline]
    pub fn outcome(&self) -> Result<Option<Status>> {
        if !self.is_done() {
            return Ok(None);
        }
        match self.stage.replace(Stage::Idle) {
            Stage::Ended => Ok(Some(self.status.get())),
            _ => Err(self.error.take().unwrap_or_else(|| wrong("the result of the receive was already taken"))),
        }
    }

    /// The status of a receive that has ended without an error and whose outcome has not been returned.
    #[must_use]
    #[inline(always)]
    pub fn status(&self) -> Option<Status> {
        (self.stage.get() == Stage::Ended).then(|| self.status.get())
    }

    /// Marks the receive as matched, and returns its sink.
    #[inline]
    pub(super) fn matched(&self, token: Option<Token>) -> Sink {
        self.start_matched(token);
        self.sink.take()
    }

    /// Ends a posted receive with a message that has arrived completely.
    #[inline(always)]
    pub(super) fn take(&self, envelope: Envelope, data: Payload<'_>) {
        let sink = self.sink.take();
        match (sink.take_into_memory(data), data) {
            (Some(kept), _) => {
                // A memory sink owns nothing, so its drop is skipped.
                std::mem::forget(sink);
                self.end_with(envelope, data.len(), kept);
            }
            // `fill_bytes` takes its arguments in registers.
            (None, Payload::Bytes(bytes)) => self.fill_bytes(envelope.source, envelope.tag, sink, bytes),
            (None, data) => self.fill(envelope, sink, data),
        }
    }

    /// [`fill`](Self::fill) with bytes.
    #[inline(never)]
    fn fill_bytes(&self, source: u32, tag: i32, sink: Sink, bytes: &[u8]) {
        // `fill` does not use the context.
        self.fill(Envelope { context: 0, source, tag }, sink, Payload::Bytes(bytes));
    }

    /// Removes and returns the token of the message whose bytes are arriving, if any.
    pub(super) fn take_arriving(&self) -> Option<Token> {
        self.token.take()
    }

    /// Ends the receive with a message that has arrived completely; its data goes to `sink`.
    pub(super) fn fill(&self, envelope: Envelope, sink: Sink, data: Payload<'_>) {
        if let Some(kept) = sink.take_into_memory(data) {
            return self.end_with(envelope, data.len(), kept);
        }
        match sink.take_whole(data) {
            Ok(kept) => self.end_with(envelope, data.len(), kept),
            Err(e) => self.fail(e),
        }
    }

    /// Ends the receive: the first `kept` of `len` bytes are in the sink.
    #[inline(always)]
    fn end_with(&self, envelope: Envelope, len: usize, kept: usize) {
        self.status.set(Status { source: envelope.source, tag: envelope.tag, len, kept });
        self.stage.set(Stage::Ended);
        if self.is_watched.get() {
            self.note_end();
        }
    }

    /// Ends the receive with data that is in its sink, or an error.
    pub(super) fn complete(&self, envelope: Envelope, received: Result<Received>) {
        match received {
            Ok(received) => self.end_with(envelope, received.len, received.kept),
            Err(e) => self.fail(e),
        }
    }

    /// Ends the receive without a message.
    #[cold]
    pub(super) fn fail(&self, error: Error) {
        self.error.set(Some(error));
        self.stage.set(Stage::Failed);
        if self.is_watched.get() {
            self.note_end();
        }
        // The sink is dropped last: dropping a layout may reenter this module.
        drop(self.sink.take());
    }
}

#[cold]
fn wrong(cause: &'static str) -> Error {
    Error::new(ErrorKind::BadArgument, "receive a message").cause(cause)
}
