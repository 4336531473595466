//! Header handlers, and what they see and decide. `J` is the job that completions after the dispatcher get.

use std::fmt;
use std::rc::Rc;

use super::sink::{Received, Sink};
use crate::error::{Error, ErrorKind, Result};

/// Names a handler; the same on every rank. A program has the numbers below [`RUNTIME`](Self::RUNTIME).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandlerId(pub u16);

impl HandlerId {
    /// From here on the numbers are those of the runtime's own handlers, which trust what they get: safe calls refuse them.
    pub const RUNTIME: u16 = 1 << 15;

    /// Refuses a number of the runtime.
    #[inline(always)]
    pub(super) fn check(self, operation: &'static str) -> Result<()> {
        if self.0 < Self::RUNTIME { Ok(()) } else { Err(self.reserved(operation)) }
    }

    #[cold]
    fn reserved(self, operation: &'static str) -> Error {
        let e = Error::new(ErrorKind::BadArgument, operation).cause(format!("handler {} is the runtime's", self.0));
        e.remedy(format!("use a number below {}", Self::RUNTIME))
    }
}

/// A handler that has a number of the runtime ([`listen`](super::ActiveMessages::listen)).
#[derive(Debug, PartialEq, Eq)]
pub struct Listening(pub(super) HandlerId);

impl Listening {
    /// Its number, by which other ranks send to it.
    #[must_use]
    pub fn id(&self) -> HandlerId {
        self.0
    }
}

/// Names a message of which a part is still to come, at the rank that receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    pub(super) source: u32,
    pub(super) number: u32,
}

/// What a header handler sees.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The sending rank of the job.
    pub source: u32,
    pub(super) number: u32,
    /// The user header.
    pub header: &'a [u8],
    /// Length of the data in bytes.
    pub len: usize,
    /// The data, if all of it is here with the header.
    pub data: Option<&'a [u8]>,
    /// Whether the data waits at the sender, so that the handler may [hold](Delivery::Hold) the message.
    pub waits: bool,
}

impl<'a> Message<'a> {
    /// One that is here.
    #[inline]
    pub(crate) fn whole(source: u32, header: &'a [u8], data: &'a [u8]) -> Self {
        Self { source, number: 0, header, len: data.len(), data: Some(data), waits: false }
    }

    /// By which [`deliver`](super::deliver) and [`abandon`](super::abandon) name the message: one that waits, or whose data
    /// has not all come.
    #[must_use]
    pub fn token(&self) -> Token {
        Token { source: self.source, number: self.number }
    }
}

/// What a header handler decides.
#[derive(Debug)]
pub enum Delivery<J> {
    /// The message is complete: the handler has taken what it needs from `data`. Data that is not here is not fetched, or is
    /// discarded.
    Done,
    /// The data goes into this sink, and then the completion runs.
    Into(Sink, Then<J>),
    /// The data stays at the sender until [`deliver`](super::deliver) says where it goes. For a message that
    /// [waits](Message::waits).
    Hold,
}

/// A completion without waiting or sending.
pub type QuickFn = Box<dyn FnOnce(Result<Received>)>;

/// A completion that may send and wait.
pub type LaterFn<J> = Box<dyn FnOnce(&J, Result<Received>) -> Result<()>>;

/// What runs when the data is complete, or will not come: then it gets the error, which names the other rank. From then on
/// the memory of the sink is not touched.
pub enum Then<J> {
    /// In the dispatcher: short, without waiting or sending.
    Quick(QuickFn),
    /// After the dispatcher, with the job: may send and wait. While it waits up to some ten others run, but none while it
    /// sends. Its error is that of the wait in which it runs.
    Later(LaterFn<J>),
}

impl<J> Then<J> {
    /// A [`Quick`](Self::Quick) one.
    #[must_use]
    pub fn quick(f: impl FnOnce(Result<Received>) + 'static) -> Self {
        Self::Quick(Box::new(f))
    }

    /// A [`Later`](Self::Later) one.
    #[must_use]
    pub fn later(f: impl FnOnce(&J, Result<Received>) -> Result<()> + 'static) -> Self {
        Self::Later(Box::new(f))
    }
}

impl<J> fmt::Debug for Then<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Then::Quick(_) => "Quick",
            Then::Later(_) => "Later",
        })
    }
}

pub(super) type Handler<J> = Rc<dyn Fn(Message<'_>) -> Delivery<J>>;

/// Handlers by number, a page for each upper byte that is in use: those of the runtime have the highest numbers.
pub(super) struct Handlers<J>(Vec<Option<Box<Page<J>>>>);

impl<J> Default for Handlers<J> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

type Page<J> = [Option<Handler<J>>; 256];

impl<J> Handlers<J> {
    #[inline(always)]
    pub(super) fn get(&self, id: u16) -> Option<Handler<J>> {
        let [low, high] = id.to_le_bytes();
        self.0.get(usize::from(high))?.as_ref()?[usize::from(low)].clone()
    }

    /// The place of a number.
    pub(super) fn place(&mut self, id: u16) -> &mut Option<Handler<J>> {
        let [low, high] = id.to_le_bytes().map(usize::from);
        if self.0.len() <= high {
            self.0.resize_with(high + 1, || None);
        }
        &mut self.0[high].get_or_insert_with(|| Box::new([const { None }; 256]))[low]
    }
}
