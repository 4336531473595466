//! Header handlers, their arguments and their decisions. `J` is the job type that deferred completions get.

use std::fmt;
use std::rc::Rc;

use super::payload::Payload;
use super::sink::{Received, Sink};
use crate::error::{Error, ErrorKind, Result};

/// Identifies a handler; the same on every rank. Programs use the numbers below [`RUNTIME`](Self::RUNTIME).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandlerId(pub u16);

impl HandlerId {
    /// First number of the runtime's own handlers, which trust their input: safe calls refuse these numbers.
    pub const RUNTIME: u16 = 1 << 15;

    /// Refuses a number that is reserved for the runtime.
    #[inline(always)]
    pub(super) fn check(self, operation: &'static str) -> Result<()> {
        if self.0 < Self::RUNTIME { Ok(()) } else { Err(self.reserved(operation)) }
    }

    #[cold]
    fn reserved(self, operation: &'static str) -> Error {
        let e = Error::new(ErrorKind::BadArgument, operation)
            .cause(format!("handler number {} is reserved for the runtime", self.0));
        e.remedy(format!("use a number below {}", Self::RUNTIME))
    }
}

/// A handler with a number of the runtime's range (`ActiveMessages::listen`).
#[derive(Debug, PartialEq, Eq)]
pub struct Listening(pub(super) HandlerId, pub(super) u64);

impl Listening {
    /// The handler's number, by which other ranks send to it.
    #[must_use]
    pub fn id(&self) -> HandlerId {
        self.0
    }

    /// A number that no other handler or message of this rank ever has, while the handler's own number may be used
    /// again.
    #[must_use]
    pub fn unique(&self) -> u64 {
        self.1
    }
}

/// Identifies, at the receiving rank, a message that has not arrived completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    pub(super) source: u32,
    pub(super) number: u64,
}

/// The argument of a header handler.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The sending rank, as a rank of the job.
    pub source: u32,
    pub(super) number: u64,
    /// The user header.
    pub header: &'a [u8],
    /// Length of the data in bytes.
    pub len: usize,
    /// The data, if all of it arrived with the header.
    pub(crate) payload: Option<Payload<'a>>,
    /// Whether the data waits at the sender until the handler, or [`deliver`](super::deliver), names a sink.
    pub waits: bool,
}

impl<'a> Message<'a> {
    /// A message that has arrived completely.
    #[inline(always)]
    pub(crate) fn whole(source: u32, header: &'a [u8], payload: Payload<'a>) -> Self {
        Self { source, number: 0, header, len: payload.len(), payload: Some(payload), waits: false }
    }

    /// The data, if all of it arrived with the header. That of a long packet is copied for this, once, while a
    /// sink (`Delivery::Into`) takes it without a further copy.
    #[must_use]
    #[inline]
    pub fn data(&self) -> Option<&'a [u8]> {
        self.payload.map(Payload::bytes)
    }

    /// Identifies the message for [`deliver`](super::deliver) and [`abandon`](super::abandon), if it waits or has not
    /// arrived completely.
    #[must_use]
    pub fn token(&self) -> Token {
        Token { source: self.source, number: self.number }
    }
}

/// The decision of a header handler.
#[derive(Debug)]
pub enum Delivery<J> {
    /// The message is complete: the handler has read what it needs from `data`. Data that has not arrived is discarded,
    /// or not fetched.
    Done,
    /// The data goes into this sink, and then the completion runs.
    Into(Sink, OnComplete<J>),
    /// The message waits until [`deliver`](super::deliver) names a sink: at its sender if it [waits](Message::waits)
    /// there, else in a buffer of this rank. Only for a message that waits, or has not arrived completely.
    Hold,
}

/// A completion that must not wait or send ([`Callback::Handler`](crate::callback::Callback)).
pub type InlineFn = Box<dyn FnOnce(Result<Received>)>;

/// A completion that may send and wait.
pub(crate) type DeferredFn<J> = Box<dyn FnOnce(&J, Result<Received>) -> Result<()>>;

/// A completion: runs when the data is complete, or with an error, which names the other rank, if the data will not
/// arrive. From then on the memory of the sink is not accessed.
pub enum OnComplete<J> {
    /// Runs in the dispatcher: short, without waiting or sending.
    Inline(InlineFn),
    /// Runs after the dispatcher, with the job: may send and wait. While it waits, or sends a message that has to wait
    /// for room, other completions may run, nested at most 8 deep. Its error is returned by the wait in which it runs.
    Deferred(DeferredFn<J>),
}

impl<J> OnComplete<J> {
    /// A [`Inline`](Self::Inline) completion that runs `f`.
    #[must_use]
    pub fn inline(f: impl FnOnce(Result<Received>) + 'static) -> Self {
        Self::Inline(Box::new(f))
    }

    /// A [`Deferred`](Self::Deferred) completion that runs `f`.
    #[must_use]
    pub fn deferred(f: impl FnOnce(&J, Result<Received>) -> Result<()> + 'static) -> Self {
        Self::Deferred(Box::new(f))
    }
}

impl<J> fmt::Debug for OnComplete<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OnComplete::Inline(_) => "Inline",
            OnComplete::Deferred(_) => "Deferred",
        })
    }
}

pub(super) type Handler<J> = Rc<dyn Fn(Message<'_>) -> Delivery<J>>;

/// Handlers by number, in one page for each value of the upper byte in use, since the runtime's handlers have high
/// numbers.
pub(super) struct Handlers<J> {
    pages: Vec<Option<Box<Page<J>>>>,
    /// Numbers of the runtime's range that are free again, and the lowest number that was never used.
    freed: Vec<u16>,
    unused: u16,
}

impl<J> Default for Handlers<J> {
    fn default() -> Self {
        Self { pages: Vec::new(), freed: Vec::new(), unused: HandlerId::RUNTIME }
    }
}

type Page<J> = [Option<Handler<J>>; 256];

impl<J> Handlers<J> {
    #[inline(always)]
    pub(super) fn get(&self, id: u16) -> Option<Handler<J>> {
        let [low, high] = id.to_le_bytes();
        self.pages.get(usize::from(high))?.as_ref()?[usize::from(low)].clone()
    }

    /// The slot of a number.
    pub(super) fn place(&mut self, id: u16) -> &mut Option<Handler<J>> {
        let [low, high] = id.to_le_bytes().map(usize::from);
        if self.pages.len() <= high {
            self.pages.resize_with(high + 1, || None);
        }
        &mut self.pages[high].get_or_insert_with(|| Box::new([const { None }; 256]))[low]
    }

    /// A free number of the runtime's range, if there is one.
    pub(super) fn take_free(&mut self) -> Option<u16> {
        if let Some(freed) = self.freed.pop() {
            return Some(freed);
        }
        let free = (self.unused..u16::MAX).find(|id| self.get(*id).is_none())?;
        self.unused = free + 1;
        Some(free)
    }

    /// Whether a number of the runtime's range was allocated and released.
    pub(super) fn is_free(&self, id: u16) -> bool {
        self.freed.contains(&id)
    }

    /// Returns a number that [`take_free`](Self::take_free) has allocated.
    pub(super) fn release(&mut self, id: u16) {
        self.freed.push(id);
    }
}
