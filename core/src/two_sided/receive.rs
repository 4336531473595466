#![allow(unsafe_code)]
//! Receives and probes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::{Posted, check, wrong};
use crate::am::{self, Received, Sink, Then, Token};
use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;
use crate::matching::{Envelope, Pattern};

/// What was received, or is there to be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// An early message.
pub(super) enum Early {
    /// All of it is here; whether it was counted by its sender.
    Whole(Box<[u8]>, bool),
    /// It waits at its sender; its length.
    Held(Token, usize),
    /// Its bytes are coming into a buffer; its length.
    Coming(Rc<Coming>, usize),
}

impl Early {
    fn len(&self) -> usize {
        match self {
            Self::Whole(data, _) => data.len(),
            Self::Held(_, len) | Self::Coming(_, len) => *len,
        }
    }

    /// A message whose bytes come, and what is to run when they are here.
    pub(super) fn coming(envelope: Envelope, len: usize) -> (Self, Then) {
        let coming = Rc::new(Coming::default());
        let filled = Rc::clone(&coming);
        let then = Then::quick(move |received| {
            let data = received.map(|r| r.buffer);
            // The receive that has taken it meanwhile gets it at once.
            match filled.receive.take() {
                Some((receive, sink)) => receive.complete(envelope, data.and_then(|data| sink.take_whole(&data))),
                None => _ = filled.data.replace(Some(data)),
            }
        });
        (Self::Coming(coming, len), then)
    }
}

/// An early message whose bytes are coming.
#[derive(Default)]
pub(super) struct Coming {
    data: RefCell<Option<Result<Vec<u8>>>>,
    receive: Cell<Option<(Rc<Receive>, Sink)>>,
}

/// An early message that was taken out of matching for a receive of its own ([`Job::take_message`]). One that is dropped is
/// lost, and its sender may wait for ever.
#[must_use]
pub struct Matched {
    envelope: Envelope,
    early: Early,
}

impl std::fmt::Debug for Matched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matched").field("envelope", &self.envelope).field("len", &self.early.len()).finish()
    }
}

impl Matched {
    /// What will be received.
    #[must_use]
    pub fn status(&self) -> Status {
        status(&self.envelope, &self.early)
    }
}

fn status(envelope: &Envelope, early: &Early) -> Status {
    let len = early.len();
    Status { source: envelope.source, tag: envelope.tag, len, kept: len }
}

#[derive(Debug, Default)]
enum State {
    /// Posted: where the bytes are to go.
    Posted(Sink),
    /// Its message was found, and the bytes are coming; by which name, if they come from another rank in packets.
    Coming(Option<Token>),
    Ended(Result<Status>),
    #[default]
    Taken,
}

/// A receive that has been started.
#[derive(Debug, Default)]
pub struct Receive {
    state: RefCell<State>,
    ticket: Cell<Posted>,
    done: Cell<bool>,
}

impl Receive {
    fn coming(token: Option<Token>) -> Rc<Self> {
        Rc::new(Self { state: RefCell::new(State::Coming(token)), ..Self::default() })
    }

    /// Whether it has ended: its memory is not touched any more.
    #[must_use]
    #[inline]
    pub fn is_done(&self) -> bool {
        self.done.get()
    }

    /// How it has ended, if it has; once.
    ///
    /// # Errors
    /// What the message failed with; `BadArgument` if that was asked before.
    pub fn outcome(&self) -> Result<Option<Status>> {
        if !self.is_done() {
            return Ok(None);
        }
        match std::mem::take(&mut *self.state.borrow_mut()) {
            State::Ended(result) => result.map(Some),
            _ => Err(wrong("receive a message", "its outcome has been taken".into())),
        }
    }

    /// Its message has been found: gives its sink.
    #[inline]
    pub(super) fn matched(&self, token: Option<Token>) -> Sink {
        match self.state.replace(State::Coming(token)) {
            State::Posted(sink) => sink,
            _ => Sink::discard(),
        }
    }

    /// Its message is here.
    #[inline]
    pub(super) fn complete(&self, envelope: Envelope, received: Result<Received>) {
        let ended = received.map(|r| Status { source: envelope.source, tag: envelope.tag, len: r.len, kept: r.kept });
        self.end(ended);
    }

    fn end(&self, ended: Result<Status>) {
        let former = self.state.replace(State::Ended(ended));
        self.done.set(true);
        // What a layout holds may come back here.
        drop(former);
    }
}

impl Job {
    /// Starts a receive: the first message that fits `pattern` goes to `sink`, and what is longer than it is left out, which
    /// the [`Status`] shows. Does not wait.
    ///
    /// # Safety
    /// The memory of the sink is as [`Sink::memory`] says, until the receive [is done](Receive::is_done) or
    /// [`forget_receive`](Self::forget_receive) has returned.
    ///
    /// # Errors
    /// `NoSuchRank`, `Freed`; what sending fails with.
    pub unsafe fn start_receive(&self, pattern: Pattern, sink: Sink) -> Result<Rc<Receive>> {
        check(self, "receive a message", &pattern)?;
        self.give_credit()?;
        if let Some(matched) = self.take_early(&pattern) {
            // SAFETY: the same contract.
            return unsafe { self.receive_message(matched, sink) };
        }
        let receive = Rc::new(Receive { state: RefCell::new(State::Posted(sink)), ..Receive::default() });
        let ticket = self.two_sided().matching.borrow_mut().post(pattern, Rc::clone(&receive));
        receive.ticket.set(Some(ticket));
        Ok(receive)
    }

    /// Takes the early message that a pattern gets. What its sender has withdrawn is dropped.
    fn take_early(&self, pattern: &Pattern) -> Option<Matched> {
        loop {
            let (envelope, early) = self.two_sided().matching.borrow_mut().take_early(pattern)?;
            if !self.drop_withdrawn(&early, true) {
                return Some(Matched { envelope, early });
            }
        }
    }

    /// Whether an early message was withdrawn; its rest is dropped then. With `claim` it is not withdrawn from now on.
    fn drop_withdrawn(&self, early: &Early, claim: bool) -> bool {
        match early {
            Early::Held(token, _) if !am::is_held(self, *token, claim) => {
                am::abandon(self, *token);
                true
            }
            _ => false,
        }
    }

    /// Receives a message that was taken out of matching.
    ///
    /// # Safety
    /// As [`start_receive`](Self::start_receive).
    ///
    /// # Errors
    /// What sending fails with.
    pub unsafe fn receive_message(&self, message: Matched, sink: Sink) -> Result<Rc<Receive>> {
        let Matched { envelope, early } = message;
        let credits = &self.two_sided().credits;
        match early {
            Early::Whole(data, counted) => {
                if counted {
                    credits.taken(envelope.source, data.len());
                    self.give_credit()?;
                }
                let receive = Receive::coming(None);
                receive.complete(envelope, sink.take_whole(&data));
                Ok(receive)
            }
            Early::Held(token, _) => {
                let receive = Receive::coming(Some(token));
                let to = Rc::clone(&receive);
                am::deliver(self, token, sink, Then::quick(move |received| to.complete(envelope, received)))?;
                Ok(receive)
            }
            Early::Coming(coming, len) => {
                credits.taken(envelope.source, len);
                self.give_credit()?;
                let receive = Receive::coming(None);
                match coming.data.take() {
                    Some(data) => receive.complete(envelope, data.and_then(|data| sink.take_whole(&data))),
                    None => coming.receive.set(Some((Rc::clone(&receive), sink))),
                }
                Ok(receive)
            }
        }
    }

    /// Ends a receive whose message has not come; `false` if it has: then it ends as it would.
    #[must_use]
    pub fn cancel_receive(&self, receive: &Receive) -> bool {
        let Some(ticket) = receive.ticket.get() else { return false };
        let cancelled = self.two_sided().matching.borrow_mut().cancel(ticket).is_some();
        if cancelled {
            receive.end(Err(Error::new(ErrorKind::Aborted, "receive a message").cause("it was cancelled")));
        }
        cancelled
    }

    /// Gives up a receive, whatever it is at: its memory is not touched any more. The message that it may have got is lost.
    pub fn forget_receive(&self, receive: &Receive) {
        if receive.is_done() || self.cancel_receive(receive) {
            return;
        }
        let token = match &*receive.state.borrow() {
            State::Coming(token) => *token,
            _ => None,
        };
        if let Some(token) = token {
            am::abandon(self, token);
        }
        receive.end(Err(Error::new(ErrorKind::Aborted, "receive a message").cause("it was given up")));
    }

    /// The message that a receive of `pattern` would get now. Makes no progress: see [`wait`](Self::wait) and
    /// [`progress`](Self::progress).
    ///
    /// # Errors
    /// `NoSuchRank`, `Freed`.
    pub fn probe(&self, pattern: &Pattern) -> Result<Option<Status>> {
        check(self, "probe for a message", pattern)?;
        loop {
            let mut matching = self.two_sided().matching.borrow_mut();
            let Some((ticket, envelope, early)) = matching.probe(pattern) else { return Ok(None) };
            if !self.drop_withdrawn(early, false) {
                return Ok(Some(status(&envelope, early)));
            }
            let _ = matching.take(ticket);
        }
    }

    /// Takes the message that a receive of `pattern` would get now, so that no other receive or probe finds it (matched probe).
    ///
    /// # Errors
    /// As [`probe`](Self::probe).
    pub fn take_message(&self, pattern: &Pattern) -> Result<Option<Matched>> {
        check(self, "take a message", pattern)?;
        Ok(self.take_early(pattern))
    }

    /// Forgets all posted receives and early messages of a context, whose team ends.
    pub fn forget_context(&self, context: u32) {
        let (receives, messages) = self.two_sided().matching.borrow_mut().drain(context);
        for receive in receives {
            receive.end(Err(Error::new(ErrorKind::Aborted, "receive a message").cause("its team has ended")));
        }
        for early in messages {
            if let Early::Held(token, _) = early {
                am::abandon(self, token);
            }
        }
    }
}
