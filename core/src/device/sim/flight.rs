#![allow(unsafe_code)]
//! Messages on their way: what they do where they land.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use smallvec::SmallVec;

use super::network::{Passage, Time};
use super::trace::Line;
use crate::device::loopback::Loopback;
use crate::device::{Block, Operation, Place, WorkRequest};
use crate::error::{ErrorKind, Result};
use crate::stats::Kind;

type Blocks = SmallVec<[Block; 2]>;

/// An operation with blocks of its own.
#[derive(Debug)]
pub(super) enum Action {
    Packet(RefCell<Vec<u8>>),
    Write {
        from: Blocks,
        to: Place,
    },
    Read {
        into: Blocks,
        from: Place,
    },
    FetchAdd {
        at: Place,
        add: u64,
        old: *mut u64,
    },
    CompareSwap {
        at: Place,
        len: usize,
        expected: u64,
        desired: u64,
        old: *mut u8,
    },
    Accumulate {
        at: Place,
        code: u32,
        operand: Block,
        old: *mut u8,
    },
    Signal {
        at: Place,
        value: u64,
    },
    /// Lists on both sides; a scatter is no message, and its target is the rank whose gathers it receives.
    Gather {
        from: Blocks,
    },
    Scatter {
        into: Blocks,
    },
}

impl Action {
    /// An operation on memory of a peer; `None` for one that the device does not have.
    pub(super) fn of(operation: &Operation<'_>) -> Option<Self> {
        Some(match *operation {
            Operation::Write { from, to } => Self::Write { from: Blocks::from_slice(from), to },
            Operation::Read { into, from } => Self::Read { into: Blocks::from_slice(into), from },
            Operation::FetchAdd { at, add, old } => Self::FetchAdd { at, add, old },
            Operation::CompareSwap { at, len, expected, desired, old } => {
                Self::CompareSwap { at, len, expected, desired, old }
            }
            Operation::Accumulate { at, code, operand, old } => Self::Accumulate { at, code, operand, old },
            Operation::Signal { at, value } => Self::Signal { at, value },
            Operation::Gather { from } => Self::Gather { from: Blocks::from_slice(from) },
            Operation::Scatter { into } => Self::Scatter { into: Blocks::from_slice(into) },
            _ => return None,
        })
    }

    fn operation(&self) -> Option<Operation<'_>> {
        Some(match self {
            Self::Packet(_) | Self::Gather { .. } | Self::Scatter { .. } => return None,
            Self::Write { from, to } => Operation::Write { from, to: *to },
            Self::Read { into, from } => Operation::Read { into, from: *from },
            Self::FetchAdd { at, add, old } => Operation::FetchAdd { at: *at, add: *add, old: *old },
            Self::CompareSwap { at, len, expected, desired, old } => {
                let (len, expected, desired) = (*len, *expected, *desired);
                Operation::CompareSwap { at: *at, len, expected, desired, old: *old }
            }
            Self::Accumulate { at, code, operand, old } => {
                Operation::Accumulate { at: *at, code: *code, operand: *operand, old: *old }
            }
            Self::Signal { at, value } => Operation::Signal { at: *at, value: *value },
        })
    }

    /// The kind of the operation and its bytes, for the counters.
    pub(super) fn counted(&self) -> (Kind, usize) {
        let sum = |blocks: &Blocks| blocks.iter().map(|block| block.len).sum::<usize>();
        match self {
            Self::Packet(bytes) => (Kind::Send, bytes.borrow().len()),
            Self::Write { from, .. } => (Kind::Write, sum(from)),
            Self::Read { into, .. } => (Kind::Read, sum(into)),
            Self::FetchAdd { .. } => (Kind::FetchAdd, 8),
            Self::CompareSwap { len, .. } => (Kind::CompareSwap, *len),
            Self::Accumulate { operand, .. } => (Kind::Accumulate, operand.len),
            Self::Signal { .. } => (Kind::Signal, 8),
            Self::Gather { from } => (Kind::Gather, sum(from)),
            Self::Scatter { into } => (Kind::Scatter, sum(into)),
        }
    }

    /// Blocks of the origin's list on the way there, and back.
    fn blocks(&self) -> [usize; 2] {
        match self {
            Self::Write { from, .. } | Self::Gather { from } => [from.len(), 1],
            Self::Read { into, .. } => [1, into.len()],
            _ => [1, 1],
        }
    }

    /// Bytes on the way there, and back; `None` if nothing but an acknowledgement comes back.
    pub(super) fn bytes(&self) -> (usize, Option<usize>) {
        let sum = |blocks: &Blocks| blocks.iter().map(|block| block.len).sum::<usize>();
        match self {
            Self::Packet(bytes) => (bytes.borrow().len(), None),
            Self::Write { from, .. } => (sum(from), None),
            Self::Read { into, .. } => (1, Some(sum(into))),
            Self::FetchAdd { .. } => (8, Some(8)),
            Self::CompareSwap { len, .. } => (2 * len, Some(*len)),
            Self::Accumulate { operand, old, .. } => (operand.len, (!old.is_null()).then_some(operand.len)),
            Self::Signal { .. } => (8, None),
            Self::Gather { from: blocks } | Self::Scatter { into: blocks } => (sum(blocks), None),
        }
    }
}

/// Buffers of packets that were taken, for later ones.
#[derive(Debug, Default)]
pub(super) struct Buffers(RefCell<Vec<Vec<u8>>>);

impl Buffers {
    /// The most that are kept.
    const MAX_KEPT: usize = 4096;

    /// An empty buffer.
    pub(super) fn take(&self) -> Vec<u8> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    pub(super) fn give_back(&self, mut buffer: Vec<u8>) {
        let mut kept = self.0.borrow_mut();
        if kept.len() < Self::MAX_KEPT {
            buffer.clear();
            kept.push(buffer);
        }
    }
}

/// A packet or a completion for a rank.
#[derive(Debug)]
pub(super) enum Incoming {
    Packet {
        source: u32,
        bytes: Vec<u8>,
    },
    Completed {
        flight: Rc<Flight>,
        result: Result<()>,
    },
    /// A completion of a request to the barrier in the switch.
    Answered {
        id: u64,
        result: Result<()>,
    },
}

/// A message on its way.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) origin: u32,
    pub(super) target: u32,
    pub(super) id: u64,
    pub(super) action: Action,
    notify: Option<(Place, u64)>,
    /// The device of the origin, which knows the regions.
    device: Rc<Loopback>,
    back: Cell<bool>,
    cancelled: Cell<bool>,
    result: RefCell<Result<()>>,
    /// When it was posted, entered the network, and was at its receiver's interface; of an answer, when that was.
    pub(super) times: Cell<[Time; 3]>,
}

impl Flight {
    pub(super) fn new(device: &Rc<Loopback>, origin: u32, request: &WorkRequest<'_>, action: Action) -> Rc<Self> {
        Rc::new(Self {
            origin,
            target: request.peer,
            id: request.id,
            action,
            notify: request.notify,
            device: Rc::clone(device),
            back: Cell::new(false),
            cancelled: Cell::new(false),
            result: RefCell::new(Ok(())),
            times: Cell::default(),
        })
    }

    /// Records the time of a passage, which is not before the earlier ones.
    pub(super) fn pass(&self, which: usize, time: Time) {
        let mut times = self.times.get();
        times[which..].fill(time);
        self.times.set(times);
    }

    /// The operation, or its answer.
    fn name(&self) -> &'static str {
        match &self.action {
            Action::Packet(_) => "packet",
            Action::Write { .. } if self.notify.is_some() => "write and signal",
            Action::Write { .. } => "write",
            Action::Read { .. } if self.is_back() => "answer of a read",
            Action::Read { .. } => "read",
            _ if self.is_back() => "answer of an atomic",
            Action::FetchAdd { .. } => "fetch and add",
            Action::CompareSwap { .. } => "compare and swap",
            Action::Accumulate { .. } => "accumulate",
            Action::Signal { .. } => "signal",
            Action::Gather { .. } => "gather",
            Action::Scatter { .. } => "scatter",
        }
    }

    /// The message in a trace, landed at `time`.
    pub(super) fn line(&self, time: Time) -> Line {
        let Passage { from, to, bytes, .. } = self.passage();
        let [posted, entered, arrived] = self.times.get();
        Line { from, to, what: self.name(), bytes, times: [posted, entered, arrived, time] }
    }

    /// The word that the interface changes, if this is an atomic on a word of 8 bytes that is exposed.
    pub(super) fn word(&self) -> Option<*mut u64> {
        match self.action {
            Action::FetchAdd { at, .. } | Action::CompareSwap { at, len: 8, .. } if !self.is_cancelled() => {
                self.device.word(self.target, at)
            }
            _ => None,
        }
    }

    /// Whether the target's processor learns of the operation without another message.
    pub(super) fn is_seen_at_once(&self) -> bool {
        self.notify.is_some() || self.origin == self.target
    }

    /// Whether the operation ends with a completion.
    pub(super) fn completes(&self) -> bool {
        !matches!(self.action, Action::Packet(_) | Action::Signal { .. })
    }

    /// The message as the network sees it.
    pub(super) fn passage(&self) -> Passage {
        let ((there, back), [blocks, blocks_back]) = (self.action.bytes(), self.action.blocks());
        if self.back.get() {
            let bytes = back.unwrap_or_default();
            let (from, to) = (self.target, self.origin);
            return Passage { from, to, bytes, blocks: blocks_back, ordered: false };
        }
        let bytes = there + if self.notify.is_some() { 8 } else { 0 };
        let ordered = self.notify.is_some() || !matches!(self.action, Action::Write { .. } | Action::Read { .. });
        Passage { from: self.origin, to: self.target, bytes, blocks, ordered }
    }

    /// Whether the message takes a receive of its target, and whether as a packet.
    pub(super) fn takes_receive(&self) -> Option<bool> {
        match self.action {
            Action::Packet(_) => Some(true),
            Action::Signal { .. } => Some(false),
            _ => self.notify.map(|_| false),
        }
    }

    /// Keeps the message from accessing the origin's memory.
    pub(super) fn cancel(&self) {
        self.cancelled.set(true);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.get()
    }

    pub(super) fn is_back(&self) -> bool {
        self.back.get()
    }

    /// Whether an answer goes back now.
    pub(super) fn turn_back(&self) -> bool {
        let answers = self.action.bytes().1.is_some() && self.result.borrow().is_ok();
        self.back.set(answers);
        answers
    }

    /// Acts on the target's memory, or returns the packet.
    pub(super) fn land(&self) -> Option<Incoming> {
        let Some(operation) = self.action.operation() else {
            let Action::Packet(bytes) = &self.action else { return None };
            return Some(Incoming::Packet { source: self.origin, bytes: bytes.take() });
        };
        if self.is_cancelled() {
            return None;
        }
        let request = WorkRequest { peer: self.target, operation, notify: self.notify, id: self.id };
        // SAFETY: local memory is valid until the request has completed or is cancelled, by the contract of `post`.
        let done = unsafe { self.device.perform_and_notify(&request) };
        if let Err(e) = &done
            && !self.completes()
        {
            tracing::error!("a signal to rank {} has failed: {e}", self.target);
        }
        *self.result.borrow_mut() = done.map(drop);
        None
    }

    /// Fails, since the target is lost.
    pub(super) fn miss(&self) {
        let e = self.device.fail(ErrorKind::PeerLost, "reach a rank", self.target);
        self.set_result(Err(e.cause("it ended without leaving the job")));
    }

    pub(super) fn set_result(&self, result: Result<()>) {
        *self.result.borrow_mut() = result;
    }

    pub(super) fn take_result(&self) -> Result<()> {
        self.result.replace(Ok(()))
    }
}
