//! What a window keeps for each way to synchronize, for its operations, and for those that others ask it to carry out.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::item::{Queued, Request};
use super::layouts::Planner;
use super::packed::Listener;
use super::records::Answers;
use super::sgrs::Sgrs;
use super::target::OpenExposure;

/// The present access epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    None,
    /// Between two fences; the number is that of the one that opened it.
    Fence(u64),
    /// Between start and complete.
    Start,
    /// Locks on single targets, how many.
    Lock(usize),
    /// Everyone's shared lock.
    LockAll,
}

/// The number of no epoch.
pub(super) const NO_EPOCH: u64 = u64::MAX;

/// Fence.
#[derive(Debug, Default)]
pub(super) struct FenceState {
    /// Fences so far.
    pub(super) count: Cell<u64>,
    /// Barriers of closing fences so far: numbers without a gap, since values of signals with even numbers and odd ones
    /// alternate, and a mark is read after its value has come.
    pub(super) barriers: Cell<u64>,
    /// Whether the last fence has shown that all ranks had come to it.
    pub(super) synchronized: Cell<bool>,
}

/// Post, start, complete and wait.
#[derive(Debug, Default)]
pub(super) struct GroupState {
    /// The members of the started access.
    pub(super) started: RefCell<Vec<usize>>,
    /// Those of the posted exposure.
    pub(super) posted: RefCell<OpenExposure>,
}

/// Lock, unlock and flush. What this rank holds of each lock is kept by target.
#[derive(Debug)]
pub(super) struct LockingState {
    /// This rank's number in the team.
    pub(super) claimant: usize,
    /// First of the claim words.
    pub(super) claims: usize,
    /// Ranks wait for a lock in line, since lock words are not mapped everywhere.
    pub(super) in_line: bool,
    /// The target for whose lock a call waits.
    pub(super) waits_for: Cell<Option<usize>>,
    pub(super) flushes: Cell<u32>,
}

/// The operations of the epoch. What is under way is kept by target.
#[derive(Debug)]
pub(super) struct OperationState {
    /// Those that wait for their target.
    pub(super) queue: RefCell<Vec<Queued>>,
    /// Memory for the queue's next turn.
    pub(super) queue_scratch: RefCell<Vec<Queued>>,
    /// The request that stands for what is issued at present.
    pub(super) current_request: RefCell<Option<Request>>,
    /// How transfers between layouts are planned.
    pub(super) planner: Planner,
    /// For those by lists on both sides, where the devices of all ranks have them.
    pub(super) sgrs: Option<Sgrs>,
    /// Bytes of operations whose buffer did not outlive the call.
    pub(super) copies: RefCell<Vec<Box<[u8]>>>,
    /// Stores to mapped memory may still be in this processor's buffer.
    pub(super) stored: Cell<bool>,
    /// Packed pieces were sent that no call has waited for.
    pub(super) packed: Cell<bool>,
    /// Some track may have an error of an operation on mapped memory, where closing calls look at no track else.
    pub(super) failed: Cell<bool>,
}

impl OperationState {
    pub(super) fn new(planner: Planner) -> Self {
        Self {
            queue: RefCell::default(),
            queue_scratch: RefCell::default(),
            current_request: RefCell::default(),
            planner,
            sgrs: None,
            copies: RefCell::default(),
            stored: Cell::new(false),
            packed: Cell::new(false),
            failed: Cell::new(false),
        }
    }
}

/// What the processor of a target carries out, here for others and at others for this rank.
#[derive(Debug)]
pub(super) struct ServedState {
    /// Receives packed pieces, records and answers for this rank.
    pub(super) listener: Listener,
    /// Whether the processor of each target carries out the accumulates of epochs in which it takes part.
    pub(super) accumulates: bool,
    /// The answers to those of this rank.
    pub(super) answers: Rc<Answers>,
}
