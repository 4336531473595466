#![allow(unsafe_code)]
//! Messages in transit, and their effect at the target.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::network::{Passage, Time};
use super::trace::Line;
use crate::device::loopback::Loopback;
use crate::device::owned::Owned;
use crate::device::request::length;
use crate::device::{Block, Change, Device, Operation, OwnedTransfer, Place, Placement, Update, WorkRequest};
use crate::error::{ErrorKind, Result};
use crate::memory::copy;

impl Owned {
    /// Number of blocks of the origin's list in the message, and in its answer.
    fn blocks(&self) -> [usize; 2] {
        match self {
            Self::Transfer(OwnedTransfer { write: true, local, .. }) | Self::List { send: true, local } => {
                [local.len(), 1]
            }
            Self::Transfer(transfer) => [1, transfer.local.len()],
            _ => [1, 1],
        }
    }

    /// Bytes of the message, and of its answer; `None` if the answer is only an acknowledgement.
    pub(super) fn bytes(&self) -> (usize, Option<usize>) {
        match self {
            Self::Packet(bytes) => (bytes.borrow().len(), None),
            Self::Transfer(transfer) if transfer.write => (transfer.len(), None),
            Self::Transfer(transfer) => (1, Some(transfer.len())),
            Self::Update(Update { change, len, old, .. }) => match change {
                Change::Add(_) => (8, Some(8)),
                Change::CompareSwap { .. } => (2 * len, Some(*len)),
                Change::Accumulate { .. } => (*len, (!old.is_null()).then_some(*len)),
            },
            Self::Signal { .. } => (8, None),
            Self::List { local, .. } => (length(local), None),
        }
    }
}

/// Buffers of packets that were received, for reuse.
#[derive(Default)]
pub(super) struct Buffers(RefCell<Vec<Vec<u8>>>);

impl Buffers {
    /// Maximum number of buffers that are stored.
    const MAX_KEPT: usize = 4096;

    /// An empty buffer.
    pub(super) fn take(&self) -> Vec<u8> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    pub(super) fn recycle(&self, mut buffer: Vec<u8>) {
        let mut kept = self.0.borrow_mut();
        if kept.len() < Self::MAX_KEPT {
            buffer.clear();
            kept.push(buffer);
        }
    }
}

/// A packet or a completion for a rank.
pub(super) enum Incoming {
    Packet {
        source: u32,
        bytes: Vec<u8>,
    },
    Completed {
        flight: Rc<Flight>,
        result: Result<()>,
    },
    /// A completion of a request to the in-switch barrier.
    Answered {
        id: u64,
        result: Result<()>,
    },
}

/// A write that has arrived at its target's interface and is not in the target's memory yet.
pub(super) struct UnplacedWrite {
    target: u32,
    at: Place,
    bytes: Vec<u8>,
    device: Rc<Loopback>,
}

impl UnplacedWrite {
    /// Writes the bytes to the target's memory. Memory that the target has released in the meantime stays as it is.
    pub(super) fn place(self) {
        let from = [Block::of(self.bytes.as_ptr(), self.bytes.len())];
        let request =
            WorkRequest { peer: self.target, operation: Operation::write(&from, self.at), notify: None, id: 0 };
        // SAFETY: the bytes live during the call.
        let _ = unsafe { self.device.perform_and_notify(&request) };
    }
}

/// A message in transit.
pub(super) struct Flight {
    pub(super) origin: u32,
    pub(super) target: u32,
    pub(super) id: u64,
    /// A receiving list is not a message; its target is the rank whose lists it receives.
    pub(super) operation: Owned,
    notify: Option<(Place, u64)>,
    /// The device of the origin, which has imported the regions.
    device: Rc<Loopback>,
    back: Cell<bool>,
    cancelled: Cell<bool>,
    result: RefCell<Result<()>>,
    /// The times at which the message was posted, entered the network, and reached its receiver's interface; for an
    /// answer, its own times.
    pub(super) times: Cell<[Time; 3]>,
}

impl Flight {
    pub(super) fn new(device: &Rc<Loopback>, origin: u32, request: &WorkRequest<'_>, operation: Owned) -> Rc<Self> {
        Rc::new(Self {
            origin,
            target: request.peer,
            id: request.id,
            operation,
            notify: request.notify,
            device: Rc::clone(device),
            back: Cell::new(false),
            cancelled: Cell::new(false),
            result: RefCell::new(Ok(())),
            times: Cell::default(),
        })
    }

    /// Records the time at which the message passes a stage, which is not before the earlier stages.
    pub(super) fn pass(&self, which: usize, time: Time) {
        let mut times = self.times.get();
        times[which..].fill(time);
        self.times.set(times);
    }

    /// The operation, or its answer.
    fn name(&self) -> &'static str {
        match &self.operation {
            Owned::Packet(_) => "packet",
            Owned::Transfer(transfer) if transfer.write => {
                if self.notify.is_some() {
                    "write and signal"
                } else {
                    "write"
                }
            }
            Owned::Transfer(_) if self.is_back() => "answer of a read",
            Owned::Transfer(_) => "read",
            _ if self.is_back() => "answer of an atomic",
            Owned::Update(update) => update.name(),
            Owned::Signal { .. } => "signal",
            Owned::List { send: true, .. } => "gather",
            Owned::List { .. } => "scatter",
        }
    }

    /// The message in a trace, complete at `time`.
    pub(super) fn line(&self, time: Time) -> Line {
        let Passage { from, to, bytes, .. } = self.passage();
        let [posted, entered, arrived] = self.times.get();
        Line { from, to, what: self.name(), bytes, times: [posted, entered, arrived, time] }
    }

    /// The word that the interface changes, if this is an atomic on an 8-byte word that is exposed.
    pub(super) fn word(&self) -> Option<*mut u64> {
        match self.operation {
            Owned::Update(update) if update.is_integer() && update.len == 8 && !self.is_cancelled() => {
                self.device.word(self.target, update.at)
            }
            _ => None,
        }
    }

    /// Whether the target's processor sees the effect of the operation without another message.
    pub(super) fn is_seen_at_once(&self) -> bool {
        self.notify.is_some() || self.origin == self.target
    }

    /// Whether the operation ends with a completion.
    pub(super) fn completes(&self) -> bool {
        !matches!(self.operation, Owned::Packet(_) | Owned::Signal { .. })
    }

    /// The message in the form that the network model takes.
    pub(super) fn passage(&self) -> Passage {
        let ((there, back), [blocks, blocks_back]) = (self.operation.bytes(), self.operation.blocks());
        if self.back.get() {
            let bytes = back.unwrap_or_default();
            let (from, to) = (self.target, self.origin);
            return Passage { from, to, bytes, blocks: blocks_back, ordered: false, loose: false };
        }
        let bytes = there + if self.notify.is_some() { 8 } else { 0 };
        let ordered = self.notify.is_some() || !matches!(self.operation, Owned::Transfer(_));
        let loose = self.is_placed(Placement::AtCompletion);
        Passage { from: self.origin, to: self.target, bytes, blocks, ordered, loose }
    }

    /// Whether this is a write to another rank, without a notification, that is visible there as `placement` says.
    pub(super) fn is_placed(&self, placement: Placement) -> bool {
        let is_write = matches!(&self.operation, Owned::Transfer(transfer) if transfer.write);
        let is_alone = self.notify.is_none() && self.origin != self.target;
        is_write && is_alone && self.device.capabilities().placement == placement
    }

    /// Whether the message pushes earlier writes to the target's memory: a read or an atomic.
    pub(super) fn pushes(&self) -> bool {
        match &self.operation {
            Owned::Transfer(transfer) => !transfer.write,
            Owned::Update(_) => true,
            Owned::Signal { .. } | Owned::Packet(_) | Owned::List { .. } => false,
        }
    }

    /// Takes the bytes of a write, which is complete before it is placed; `None` if the write cannot be placed.
    pub(super) fn take_write(&self) -> Option<UnplacedWrite> {
        let Owned::Transfer(transfer) = &self.operation else { return None };
        let [range] = transfer.ranges[..] else { return None };
        let at = Place { region: transfer.region, offset: range.offset };
        if let Err(e) = self.device.is_exposed(self.target, at, range.len) {
            self.set_result(Err(e));
            return None;
        }
        let mut bytes = Vec::with_capacity(range.len);
        // SAFETY: local memory is valid until the request has completed or is cancelled, by the contract of `post`.
        unsafe { copy::gather(&[], &transfer.local, &mut bytes) };
        Some(UnplacedWrite { target: self.target, at, bytes, device: Rc::clone(&self.device) })
    }

    /// Whether the message needs a posted receive of its target; `Some(true)` if it is a packet.
    pub(super) fn takes_receive(&self) -> Option<bool> {
        match self.operation {
            Owned::Packet(_) => Some(true),
            Owned::Signal { .. } => Some(false),
            _ => self.notify.map(|_| false),
        }
    }

    /// Prevents the message from accessing the origin's memory.
    pub(super) fn cancel(&self) {
        self.cancelled.set(true);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.get()
    }

    pub(super) fn is_back(&self) -> bool {
        self.back.get()
    }

    /// Turns the message into its answer, if it has one; returns whether it has.
    pub(super) fn turn_back(&self) -> bool {
        let answers = self.operation.bytes().1.is_some() && self.result.borrow().is_ok();
        self.back.set(answers);
        answers
    }

    /// Executes the operation on the target's memory, or returns the packet.
    pub(super) fn land(&self) -> Option<Incoming> {
        let operation = match &self.operation {
            Owned::Packet(bytes) => return Some(Incoming::Packet { source: self.origin, bytes: bytes.take() }),
            Owned::List { .. } => return None,
            _ if self.is_cancelled() => return None,
            operation => operation.operation()?,
        };
        let request = WorkRequest { peer: self.target, operation, notify: self.notify, id: self.id };
        // SAFETY: local memory is valid until the request has completed or is cancelled, by the contract of `post`.
        let done = unsafe { self.device.perform_and_notify(&request) };
        if let Err(e) = &done
            && !self.completes()
        {
            tracing::error!("a signal to rank {} has failed: {e}", self.target);
        }
        *self.result.borrow_mut() = done;
        None
    }

    /// Fails the message, since the target is lost.
    pub(super) fn miss(&self) {
        let e = self.device.fail(ErrorKind::PeerLost, "post to a rank", self.target);
        self.set_result(Err(e.cause("the peer ended without leaving the job")));
    }

    pub(super) fn set_result(&self, result: Result<()>) {
        *self.result.borrow_mut() = result;
    }

    pub(super) fn take_result(&self) -> Result<()> {
        self.result.replace(Ok(()))
    }
}
