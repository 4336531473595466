//! Active messages: a header handler at the target says where the data goes, a completion handler runs when it
//! is there (LAPI; Banikazemi et al., "MPI-LAPI").
//!
//! Header handlers, and the `Quick` completions, run in the dispatcher's own context, one at a time: they must
//! not wait and cannot send, for they are not given the job. `Later` completions run after the dispatcher has
//! returned, get the job, and may send and wait.
//!
//! | message | packets |
//! |---|---|
//! | header and data fit into one packet | 1 |
//! | longer, up to the device's [`eager`](crate::device::MessageCutOffs::eager) bytes | ⌈bytes / packet⌉ |
//! | longer still: rendezvous | a request to send (RTS) with the header; when the handler, or later [`deliver`], has named a sink, a clear to send (CTS); the data |
//! | the same where the target [reads](crate::device::MessageCutOffs) the sender's memory | RTS, and when the data has been read, the end (FIN) |
//! | to the rank itself | none: one copy from the source to the sink |
//!
//! The handlers of messages to one target run in the order of sending, whatever becomes of their data. [`try_send`] and
//! [`start_send`] never wait: what finds no room is queued, and goes out from any wait.

mod counter;
mod data;
mod handler;
mod outgoing;
mod own;
mod packet;
mod read;
mod receive;
mod send;
mod sink;
mod turn;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;

use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;

pub use counter::{Counter, Counters};
pub use handler::{Delivery, HandlerId, LaterFn, Message, QuickFn, Received, Then, Token};
pub use receive::{abandon, deliver, is_held};
pub(crate) use send::{eager, try_send_short};
pub use send::{send, start_rendezvous, start_send, try_send};
pub use sink::{Layout, Sink, Source};

use handler::{Handler, Handlers};
use outgoing::Outgoing;
use own::OwnMessages;
use packet::Prefix;
use receive::Arrivals;

/// Longest user header in bytes.
pub const MAX_HEADER: usize = 128;

/// Messages of this rank to itself.
const OWN: u8 = 1;
/// Messages that are to be read out of their senders' memory.
const READ: u8 = 2;
/// Packets.
const OUT: u8 = 4;
/// Completions after the dispatcher.
const LATER: u8 = 8;
/// Reads that found no room at the device.
const NO_ROOM: u8 = 16;

/// What runs after the dispatcher.
type Deferred = Box<dyn FnOnce(&Job) -> Result<()>>;

/// The active messages of a job.
#[derive(Default)]
pub struct ActiveMessages {
    handlers: RefCell<Handlers>,
    exposed: RefCell<Vec<Counter>>,
    arrivals: RefCell<Arrivals>,
    outgoing: RefCell<Outgoing>,
    own: RefCell<OwnMessages>,
    deferred: RefCell<VecDeque<Deferred>>,
    /// What is queued, or is to run: the sum of [`OWN`], [`READ`], [`OUT`], [`LATER`], [`NO_ROOM`].
    work: Cell<u8>,
    /// Whether messages of this rank to itself are being delivered.
    delivering: Cell<bool>,
    last_number: Cell<u32>,
}

impl fmt::Debug for ActiveMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActiveMessages").field("deferred", &self.deferred.borrow().len()).finish_non_exhaustive()
    }
}

impl ActiveMessages {
    /// Registers the header handler of `id`, on every rank that may receive such messages, before they come.
    ///
    /// # Errors
    /// `BadArgument` if the id is taken.
    pub fn register(&self, id: HandlerId, handler: impl Fn(Message<'_>) -> Delivery + 'static) -> Result<()> {
        let mut handlers = self.handlers.borrow_mut();
        let place = handlers.place(id.0);
        if place.is_some() {
            return Err(Error::new(ErrorKind::BadArgument, "register a handler").cause(format!("id {} is taken", id.0)));
        }
        *place = Some(std::rc::Rc::new(handler));
        Ok(())
    }

    /// Forgets a handler.
    pub fn unregister(&self, id: HandlerId) {
        let forgotten = self.handlers.borrow_mut().place(id.0).take();
        // What the handler holds may come back here.
        drop(forgotten);
    }

    /// Makes a counter addressable by other ranks; ranks that expose in the same order get the same numbers.
    #[must_use]
    pub fn expose(&self, counter: &Counter) -> u32 {
        let mut exposed = self.exposed.borrow_mut();
        exposed.push(counter.clone());
        exposed.len() as u32
    }

    #[inline(always)]
    fn handler(&self, id: u16) -> Option<Handler> {
        self.handlers.borrow().get(id)
    }

    /// The handler that a message of `source` is for.
    fn handler_for(&self, id: u16, source: u32) -> Result<Handler> {
        self.handler(id).ok_or_else(|| {
            Error::new(ErrorKind::Protocol, "receive an active message")
                .peer(source)
                .cause(format!("no handler {id}"))
                .remedy("register the handler on every rank before the first message to it")
        })
    }

    /// A number for a message that others have to name, which no other message has.
    fn next_number(&self, is_free: impl Fn(u32) -> bool) -> u32 {
        loop {
            let number = self.last_number.get().wrapping_add(1).max(1);
            self.last_number.set(number);
            if is_free(number) {
                return number;
            }
        }
    }

    /// Whether no message waits for room here, and no completion handler is to run.
    #[must_use]
    #[inline(always)]
    pub fn is_quiet(&self) -> bool {
        self.work.get() == 0
    }

    /// There is work of this kind.
    #[inline(always)]
    fn mark(&self, work: u8) {
        self.work.set(self.work.get() | work);
    }

    /// There is no more work of this kind.
    #[inline(always)]
    fn unmark(&self, work: u8) {
        self.work.set(self.work.get() & !work);
    }

    /// Whether something waits for room, of which no event tells.
    pub(crate) fn is_blocked(&self) -> bool {
        self.work.get() & (OUT | NO_ROOM) != 0
    }

    fn defer(&self, deferred: Deferred) {
        self.deferred.borrow_mut().push_back(deferred);
        self.mark(LATER);
    }

    /// The next thing to run after the dispatcher.
    pub(crate) fn next_deferred(&self) -> Option<Deferred> {
        let next = self.deferred.borrow_mut().pop_front();
        if next.is_none() {
            self.unmark(LATER);
        }
        next
    }

    /// Whether something is to run after the dispatcher.
    #[inline(always)]
    pub(crate) fn has_deferred(&self) -> bool {
        self.work.get() & LATER != 0
    }

    /// Sends what is queued and has room, and delivers the messages of this rank to itself; whether there was any.
    ///
    /// # Errors
    /// Of a message that nobody waits for; `Protocol` for one to a handler that there is not.
    pub(crate) fn carry_on(&self, job: &Job) -> Result<bool> {
        if self.work.get() & !LATER == OWN {
            return self.deliver_own(job);
        }
        let own = self.deliver_own(job);
        let read = self.read_offered(job);
        let sent = turn::drain(self, job);
        Ok(own? | read? | sent?)
    }

    /// Moves the counters of a message that is complete here.
    #[inline(always)]
    fn finished(&self, source: u32, target: u32, completion: u32) -> Result<()> {
        if target | completion == 0 { Ok(()) } else { self.count(source, target, completion) }
    }

    #[inline(never)]
    fn count(&self, source: u32, target: u32, completion: u32) -> Result<()> {
        if completion != 0 {
            self.control(source, &Prefix::about(packet::ACKNOWLEDGE, completion, 0));
        }
        if target == 0 {
            return Ok(());
        }
        match self.exposed.borrow().get(target as usize - 1) {
            Some(c) => c.increment(),
            None => {
                return Err(Error::new(ErrorKind::Protocol, "receive an active message")
                    .peer(source)
                    .cause(format!("no counter {target}")));
            }
        }
        Ok(())
    }
}
