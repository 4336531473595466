//! The active messages of a job: handlers, queues, and deferred completions.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use super::arrivals::{Arrival, Arrivals};
use super::claims::ClaimTable;
use super::counter::Counter;
use super::handler::{Delivery, Handler, HandlerId, Handlers, Listening, Message};
use super::outgoing::SendQueues;
use super::own::OwnMessages;
use super::packet::{ACKNOWLEDGE, Prefix};
use super::tasks::Tasks;
use crate::error::{Error, ErrorKind, Result};
use crate::tracked::Track;

/// Work: messages of this rank to itself.
pub(super) const OWN: u8 = 1;
/// Work: messages to be read from their senders' memory.
pub(super) const READ: u8 = 2;
/// Work: packets to send.
pub(super) const PACKETS: u8 = 4;
/// Work: deferred completions.
pub(super) const DEFERRED: u8 = 8;
/// Work: reads that wait because the device is full.
pub(super) const NO_ROOM: u8 = 16;

/// A completion that runs after the dispatcher.
type Deferred<J> = Box<dyn FnOnce(&J) -> Result<()>>;

/// The active messages of a job.
pub struct ActiveMessages<J> {
    pub(super) handlers: RefCell<Handlers<J>>,
    pub(super) exposed: RefCell<Vec<Counter>>,
    pub(super) arrivals: RefCell<Arrivals<J>>,
    /// Counts the reads of messages in progress, at most one of each message.
    pub(super) reads: Rc<Track>,
    pub(super) outgoing: RefCell<SendQueues>,
    pub(super) own: RefCell<OwnMessages>,
    pub(super) claims: RefCell<ClaimTable>,
    pub(super) deferred: RefCell<VecDeque<Deferred<J>>>,
    tasks: Tasks,
    /// Pending work: a bit set of [`OWN`], [`READ`], [`PACKETS`], [`DEFERRED`], [`NO_ROOM`].
    pub(super) work: Cell<u8>,
    /// Whether messages of this rank to itself are being delivered.
    pub(super) delivering: Cell<bool>,
    pub(super) last_number: Cell<u64>,
}

impl<J> Default for ActiveMessages<J> {
    fn default() -> Self {
        Self {
            handlers: Default::default(),
            exposed: Default::default(),
            arrivals: Default::default(),
            reads: Default::default(),
            outgoing: Default::default(),
            own: Default::default(),
            claims: Default::default(),
            deferred: Default::default(),
            tasks: Default::default(),
            work: Default::default(),
            delivering: Default::default(),
            last_number: Default::default(),
        }
    }
}

impl<J> fmt::Debug for ActiveMessages<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActiveMessages").field("deferred", &self.deferred.borrow().len()).finish_non_exhaustive()
    }
}

impl<J> ActiveMessages<J> {
    /// Registers the header handler of `id`. Every rank that may receive such messages must do so before they arrive.
    ///
    /// # Errors
    /// `BadArgument` if the id is in use, or belongs to the runtime ([`HandlerId::RUNTIME`]).
    pub fn register(&self, id: HandlerId, handler: impl Fn(Message<'_>) -> Delivery<J> + 'static) -> Result<()> {
        id.check("register a handler")?;
        self.register_any(id, handler)
    }

    /// Registers the header handler of any id, including the runtime's.
    pub(crate) fn register_any(
        &self,
        id: HandlerId,
        handler: impl Fn(Message<'_>) -> Delivery<J> + 'static,
    ) -> Result<()> {
        let mut handlers = self.handlers.borrow_mut();
        let place = handlers.place(id.0);
        if place.is_some() {
            return Err(Error::new(ErrorKind::BadArgument, "register a handler")
                .cause(format!("handler number {} is already in use", id.0)));
        }
        *place = Some(std::rc::Rc::new(handler));
        Ok(())
    }

    /// Registers a header handler under the first free number of the runtime's range, to which safe calls cannot send.
    ///
    /// # Errors
    /// `Limit` if all are in use.
    pub fn listen(&self, handler: impl Fn(Message<'_>) -> Delivery<J> + 'static) -> Result<Listening> {
        let id = self.handlers.borrow_mut().take_free();
        let none = || {
            Error::new(ErrorKind::Limit, "register a handler").cause("all handler numbers of the runtime are in use")
        };
        let id = HandlerId(id.ok_or_else(none)?);
        self.register_any(id, handler)?;
        Ok(Listening(id, self.next_number()))
    }

    /// Removes the handler.
    pub fn end(&self, listening: &Listening) {
        if self.forget(listening.0) {
            self.handlers.borrow_mut().release(listening.0.0);
        }
    }

    /// Removes a handler of the program.
    pub fn unregister(&self, id: HandlerId) {
        if id.check("unregister a handler").is_ok() {
            self.forget(id);
        }
    }

    /// Removes a handler; whether there was one.
    pub(crate) fn forget(&self, id: HandlerId) -> bool {
        let forgotten = self.handlers.borrow_mut().place(id.0).take();
        // Dropped last: dropping what the handler holds may reenter this module.
        forgotten.is_some()
    }

    /// Makes a counter addressable by other ranks; ranks that expose in the same order get the same numbers.
    #[must_use]
    pub fn expose(&self, counter: &Counter) -> u32 {
        let mut exposed = self.exposed.borrow_mut();
        exposed.push(counter.clone());
        exposed.len() as u32
    }

    #[inline(always)]
    pub(super) fn handler(&self, id: u16) -> Option<Handler<J>> {
        self.handlers.borrow().get(id)
    }

    /// The handler with number `id`, for a message from `source`.
    #[inline]
    pub(super) fn handler_for(&self, id: u16, source: u32) -> Result<Handler<J>> {
        self.handler(id).map_or_else(|| self.other_handler(id, source), Ok)
    }

    /// The result for a message from `source` to a number without a handler.
    #[cold]
    fn other_handler(&self, id: u16, source: u32) -> Result<Handler<J>> {
        // A peer that does not know yet that a listener has ended may send to it: its messages are dropped.
        if self.handlers.borrow().is_free(id) {
            return Ok(Rc::new(|_: Message<'_>| Delivery::Done));
        }
        Err(Error::new(ErrorKind::Protocol, "receive an active message")
            .peer(source)
            .cause(format!("this rank has no handler {id}"))
            .remedy("register the handler on every rank before any rank sends to it"))
    }

    /// A number that was never used before, for a message to which packets have to refer.
    pub(super) fn next_number(&self) -> u64 {
        self.last_number.set(self.last_number.get() + 1);
        self.last_number.get()
    }

    /// Whether no message is queued at this rank, and no completion is pending.
    #[must_use]
    #[inline(always)]
    pub fn is_quiet(&self) -> bool {
        self.work.get() == 0
    }

    /// Whether messages of this rank to itself are queued, so that the next one must queue behind them.
    #[inline(always)]
    pub(crate) fn has_own(&self) -> bool {
        self.work.get() & OWN != 0
    }

    /// Marks work of this kind as pending.
    #[inline(always)]
    pub(super) fn mark(&self, work: u8) {
        self.work.set(self.work.get() | work);
    }

    /// Marks work of this kind as done.
    #[inline(always)]
    pub(super) fn unmark(&self, work: u8) {
        self.work.set(self.work.get() & !work);
    }

    /// Whether work waits for queue space, or a task for another poll, which no event announces.
    pub(crate) fn is_blocked(&self) -> bool {
        self.work.get() & (PACKETS | NO_ROOM) != 0 || self.tasks.is_polled()
    }

    /// Whether bytes of a message from `source` are arriving.
    pub(crate) fn is_receiving(&self, source: u32) -> bool {
        let is_coming = |arrival: &Arrival<J>| match arrival {
            Arrival::Offered { .. } => true,
            Arrival::Coming { filling, expected, .. } => filling.filled < *expected,
            Arrival::Held { .. } | Arrival::Gone(_) => false,
        };
        self.arrivals.borrow().open.iter().any(|(token, arrival)| token.source == source && is_coming(arrival))
    }

    pub(crate) fn defer(&self, deferred: Deferred<J>) {
        self.deferred.borrow_mut().push_back(deferred);
        self.mark(DEFERRED);
    }

    /// The next deferred completion.
    pub(crate) fn next_deferred(&self) -> Option<Deferred<J>> {
        let next = self.deferred.borrow_mut().pop_front();
        if next.is_none() {
            self.unmark(DEFERRED);
        }
        next
    }

    /// Whether a deferred completion is pending.
    #[inline(always)]
    pub(crate) fn has_deferred(&self) -> bool {
        self.work.get() & DEFERRED != 0
    }

    /// Adds a task: a future that the turns of progress of this rank poll until it is ready, as soon as one after this
    /// call. A handle of this library that it awaits makes no progress of its own. Tasks are dropped at the end of the
    /// job. A panic of the task is resumed in the call that makes progress.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.tasks.add(Box::pin(task));
    }

    #[inline(always)]
    pub(crate) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Queues a packet of the runtime.
    pub(super) fn control(&self, target: u32, prefix: &Prefix) {
        self.outgoing.borrow_mut().control.entry(target).or_default().push_back(*prefix);
        self.mark(PACKETS);
    }

    /// Increments the target counter of a message that is complete here, and acknowledges it if `number` is not 0.
    #[inline(always)]
    pub(super) fn finished(&self, source: u32, target: u32, number: u64) -> Result<()> {
        if u64::from(target) | number == 0 { Ok(()) } else { self.count(source, target, number) }
    }

    #[inline(never)]
    fn count(&self, source: u32, target: u32, number: u64) -> Result<()> {
        if number != 0 {
            self.control(source, &Prefix::control(ACKNOWLEDGE, number, 0));
        }
        if target == 0 {
            return Ok(());
        }
        match self.exposed.borrow().get(target as usize - 1) {
            Some(c) => c.increment(),
            None => {
                return Err(Error::new(ErrorKind::Protocol, "receive an active message")
                    .peer(source)
                    .cause(format!("this rank has no counter {target}")));
            }
        }
        Ok(())
    }
}
