#![allow(unsafe_code)]
//! Point-to-point messages: their memory, their operations, and the messages that a probe has matched.

use std::cell::{Cell, OnceCell, RefCell, UnsafeCell};
use std::ffi::c_int;
use std::rc::Rc;

use farside_core::bill::Awaited;
use farside_core::two_sided::{self, EndedReceives, Matched, Receive, Sending};
use farside_rma::raw::TypedMemory;

use super::CommObject;
use crate::arguments::StatusOut;
use crate::constants::*;
use crate::fail::{Fail, Result};
use crate::handle::{NONE, Objects, Request, freed, index_of, taken, unused};

/// The status and the error of an operation that has ended.
#[derive(Clone)]
pub struct Outcome {
    pub status: Status,
    pub failed: Option<Fail>,
}

impl From<Status> for Outcome {
    fn from(status: Status) -> Self {
        Self { status, failed: None }
    }
}

impl Outcome {
    /// Writes the status, and returns the error.
    #[inline]
    pub fn put(self, status: StatusOut) -> Result {
        status.set(self.status);
        self.failed.map_or(Ok(()), Err)
    }
}

/// The mode of a send operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Standard,
    Buffered,
    Synchronous,
    Ready,
}

/// The other side of a message.
#[derive(Clone, Copy, Debug)]
pub enum Partner {
    /// `MPI_PROC_NULL`.
    ProcNull,
    /// The target of a message, as a rank of the job.
    To(u32, Mode),
    /// The source of a message, as a rank of the job; `None` for any.
    From(Option<u32>),
}

/// The memory of a message.
#[derive(Clone)]
pub struct Data {
    /// The first byte, if the memory is contiguous.
    pub base: *mut u8,
    /// Bytes of the message.
    pub len: usize,
    /// The layout of memory that is not contiguous.
    pub layout: Option<Rc<TypedMemory>>,
}

/// The state of an operation.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Stage {
    /// The operation is not started, or has been completed.
    #[default]
    Inactive,
    /// Its outcome is known.
    Known,
    /// The operation's peer is `MPI_PROC_NULL`.
    ProcNull,
    Sending,
    Receiving,
}

/// A send or receive operation, which a persistent request starts several times.
pub struct PointToPoint {
    /// `None` while the operation is unused, and for `MPI_MESSAGE_NO_PROC`.
    pub comm: Option<(Comm, Rc<CommObject>)>,
    /// The message that a persistent operation sends or receives.
    pub again: Option<(Partner, c_int, Data)>,
    pub stage: Cell<Stage>,
    /// The send in core, and its target.
    pub sending: RefCell<Sending>,
    pub target: Cell<u32>,
    /// The receive in core, once it has been created.
    receive: OnceCell<Rc<Receive>>,
    pub cancelled: Cell<bool>,
    /// An outcome that has been read but not consumed.
    pub known: Cell<Option<Box<Outcome>>>,
}

impl PointToPoint {
    /// Creates an operation that is not started. A persistent one starts the message `again`.
    pub fn new(comm: Option<(Comm, Rc<CommObject>)>, again: Option<(Partner, c_int, Data)>) -> Self {
        let (stage, target, receive, cancelled, known) = Default::default();
        Self { comm, again, stage, sending: RefCell::new(Sending::Done), target, receive, cancelled, known }
    }

    /// The receive in core.
    pub fn receive(&self) -> &Rc<Receive> {
        self.receive.get_or_init(Receive::new)
    }

    /// An operation at a stage.
    pub fn at(comm: Option<(Comm, Rc<CommObject>)>, stage: Stage) -> Rc<Self> {
        Rc::new(Self { stage: Cell::new(stage), ..Self::new(comm, None) })
    }
}

/// The receives of requests that are not persistent. Each occupies a slot of the table that its handle identifies,
/// without an allocation. A receive becomes an operation of its own when the program cancels or frees its request or
/// reads its status.
pub struct Receives {
    /// No reference is held while code outside this module runs, except that of [`next`](Self::next).
    slots: UnsafeCell<Vec<ReceiveSlot>>,
    /// The first free slot, or `NONE`.
    free: Cell<u32>,
}

/// A slot of [`Receives`].
pub struct ReceiveSlot {
    /// The handle, or [`freed`].
    value: usize,
    /// In a free slot, the next free slot.
    next: u32,
    /// `None` in a free slot.
    comm: Option<(Comm, Rc<CommObject>)>,
    /// The receive in core, which the next request in this slot reuses.
    pub receive: Rc<Receive>,
    operation: Option<Rc<PointToPoint>>,
}

impl ReceiveSlot {
    /// Replaces a receive to which other references still exist.
    #[cold]
    fn renew(&mut self) {
        self.receive = Receive::new();
    }
}

/// The communicator of a receive that has ended, and its outcome.
pub type Received = ((Comm, Rc<CommObject>), farside_core::Result<Option<two_sided::Status>>);

impl Default for Receives {
    fn default() -> Self {
        Self { slots: UnsafeCell::default(), free: Cell::new(NONE) }
    }
}

impl Receives {
    /// The first index of receives in handles of requests.
    const FIRST: usize = 1 << 30;

    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // the table is not `Sync`, and its methods do not call each other with a reference
    fn slots(&self) -> &mut Vec<ReceiveSlot> {
        // SAFETY: no other reference is held, as the field states.
        unsafe { &mut *self.slots.get() }
    }

    /// The slot of a request in use.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // as above
    fn slot(&self, request: Request) -> Option<&mut ReceiveSlot> {
        let at = index_of(request.0).wrapping_sub(Self::FIRST);
        self.slots().get_mut(at).filter(|slot| slot.value == request.0)
    }

    /// The slot for the next request; `None` if no slot is free.
    ///
    /// # Safety
    /// The reference is used only to start the receive and then for [`open`](Self::open).
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // as above
    pub unsafe fn next(&self) -> Option<&mut ReceiveSlot> {
        self.slots().get_mut(self.free.get() as usize)
    }

    /// The receive of the next request, in core.
    pub fn reserve(&self) -> Rc<Receive> {
        let slots = self.slots();
        if self.free.get() == NONE {
            let next = self.free.replace(slots.len() as u32);
            let value = unused::<Request>(Self::FIRST + slots.len());
            slots.push(ReceiveSlot { value, next, comm: None, receive: Receive::new(), operation: None });
        }
        Rc::clone(&slots[self.free.get() as usize].receive)
    }

    /// A request for the receive of `slot`: the [`next`](Self::next) slot, whose receive has been started.
    #[inline(always)]
    pub fn open(&self, slot: &mut ReceiveSlot, comm: (Comm, Rc<CommObject>)) -> Request {
        self.free.set(slot.next);
        slot.value = taken::<Request>(slot.value);
        // A free slot has no communicator to drop.
        std::mem::forget(slot.comm.replace(comm));
        Request(slot.value)
    }

    /// Whether a request refers to a receive in this table.
    #[inline(always)]
    pub fn has(&self, request: Request) -> bool {
        self.slot(request).is_some()
    }

    /// Whether the receive of a request has ended; also true for other kinds of requests and for freed ones.
    #[inline(always)]
    pub fn has_ended(&self, request: Request) -> bool {
        self.slot(request).is_none_or(|slot| slot.receive.is_done())
    }

    /// Adds `number` to `ended` when the receive of a request ends; `false` for other kinds of requests.
    pub fn watch(&self, request: Request, ended: &Rc<EndedReceives>, number: u32) -> bool {
        self.slot(request).map(|slot| slot.receive.watch(ended, number)).is_some()
    }

    /// The operation that a receive waits for.
    pub fn awaits(&self, request: Request) -> Option<Awaited> {
        self.slot(request).map(|slot| slot.receive.awaits())
    }

    /// Frees a request whose receive has ended, and returns its outcome; `None` if the request is an operation of its
    /// own.
    #[inline(always)]
    pub fn close(&self, request: Request) -> Option<Received> {
        let slot = self.slot(request).filter(|slot| slot.operation.is_none())?;
        let outcome = slot.receive.outcome();
        self.vacate(slot).map(|comm| (comm, outcome))
    }

    /// Frees a request whose receive has successfully received a whole message, after calling `note` with its status
    /// and communicator; returns whether it did. Any other request is unchanged.
    #[inline(always)]
    pub fn close_whole(&self, request: Request, note: impl FnOnce(&two_sided::Status, &CommObject)) -> bool {
        let Some(slot) = self.slot(request) else { return false };
        let whole = slot.receive.status().filter(|status| status.kept == status.len && slot.operation.is_none());
        let (Some(status), Some((_, comm))) = (whole, &slot.comm) else { return false };
        let _ = slot.receive.outcome();
        note(&status, comm);
        drop(self.vacate(slot));
        true
    }

    #[inline(always)]
    fn vacate(&self, slot: &mut ReceiveSlot) -> Option<(Comm, Rc<CommObject>)> {
        slot.next = self.free.replace((index_of(slot.value) - Self::FIRST) as u32);
        slot.value = freed(slot.value);
        if Rc::strong_count(&slot.receive) != 1 {
            slot.renew();
        }
        slot.comm.take()
    }

    /// The operation of a request; a receive in the table is first converted to an operation.
    pub fn operation(&self, request: Request) -> Option<Rc<PointToPoint>> {
        let slot = self.slot(request)?;
        let comm = slot.comm.as_ref()?;
        let make = || {
            let (stage, receive) = (Cell::new(Stage::Receiving), Rc::clone(&slot.receive).into());
            let comm = Some((comm.0, Rc::clone(&comm.1)));
            Rc::new(PointToPoint { stage, receive, ..PointToPoint::new(comm, None) })
        };
        Some(Rc::clone(slot.operation.get_or_insert_with(make)))
    }

    /// Frees a request, and returns its operation if it is an operation of its own.
    pub fn release(&self, request: Request) -> Option<Rc<PointToPoint>> {
        let slot = self.slot(request)?;
        let (operation, comm) = (slot.operation.take(), self.vacate(slot));
        // The communicator is dropped after the last access to the slot.
        drop(comm);
        operation
    }

    /// The request with this integer form, if it refers to a receive.
    pub fn of_int(&self, int: c_int) -> Option<Request> {
        let at = index_of(int as usize).wrapping_sub(Self::FIRST);
        self.slots().get(at).map(|slot| Request(slot.value & !(1 << 31)))
    }
}

/// A matched message.
pub struct MessageObject {
    /// `None` for `MPI_MESSAGE_NO_PROC`.
    pub comm: Option<(Comm, Rc<CommObject>)>,
    pub matched: Cell<Option<Matched>>,
}

/// Creates `MPI_MESSAGE_NO_PROC`.
pub fn no_proc(messages: &Objects<Message, MessageObject>) {
    let object = MessageObject { comm: None, matched: Cell::new(None) };
    messages.set_predefined(MPI_MESSAGE_NO_PROC, Some(Rc::new(object)));
}
