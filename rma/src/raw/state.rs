//! The state of a window: of each kind of synchronization, of its own operations, and of the operations that it serves
//! for peers.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use farside_core::service::records::Records;

use super::item::{Queued, Request};
use super::layouts::Planner;
use super::packed::Listener;
use super::published::PublishedFlag;
use super::sgrs::Sgrs;
use super::target::OpenExposure;

/// The current access epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    None,
    /// Between two fences; the number of the fence that opened it.
    Fence(u64),
    /// Between start and complete.
    Start,
    /// Under locks of single targets; the number of locks.
    Lock(usize),
    /// Under the shared locks of all targets.
    LockAll,
}

/// The epoch number outside of an access epoch.
pub(super) const NO_EPOCH: u64 = u64::MAX;

/// State of fence.
#[derive(Default)]
pub(super) struct FenceState {
    /// Number of fences so far.
    pub(super) count: Cell<u64>,
    /// Number of barriers of closing fences so far. The numbers have no gaps, since signals alternate between cells for
    /// even and odd numbers and a mark is read after its number has arrived.
    pub(super) barriers: Cell<u64>,
    /// Number of the fence that this rank is currently closing; 0 outside of closing calls.
    pub(super) closing: Cell<u64>,
    /// Number of the fence that opened the epoch of a run whose body this rank is executing; 0 outside of such bodies.
    pub(super) inside: Cell<u64>,
    /// Whether all ranks are known to have reached the last fence.
    pub(super) synchronized: Cell<bool>,
}

/// State of post, start, complete and wait.
#[derive(Default)]
pub(super) struct GroupState {
    /// The targets of the started access epoch.
    pub(super) started: RefCell<Vec<usize>>,
    /// The origins of the posted exposure epoch.
    pub(super) posted: RefCell<OpenExposure>,
    /// Whether this rank is closing its access epoch.
    pub(super) completing: Cell<bool>,
}

/// Sets a cell and restores it on drop, even on panic.
pub(super) struct Replaced<'a, T: Copy>(&'a Cell<T>, T);

impl<'a, T: Copy> Replaced<'a, T> {
    pub(super) fn replace(cell: &'a Cell<T>, value: T) -> Self {
        Self(cell, cell.replace(value))
    }
}

impl<T: Copy> Drop for Replaced<'_, T> {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

/// State of lock, unlock and flush. The state of each lock is in [`super::Target`].
pub(super) struct LockingState {
    /// This rank's number in the team.
    pub(super) claimant: usize,
    /// Index of the first claim word.
    pub(super) claims: usize,
    /// Whether waiters for a lock join its queue ([`super::lockqueue`]), because not all ranks map the lock words.
    pub(super) uses_queue: bool,
    /// The target whose lock the current call waits for.
    pub(super) waits_for: Cell<Option<usize>>,
    /// Whether an attempt to enter a lock is in progress: it may wait for messages, during which other threads of the
    /// process may make calls.
    pub(super) entering: Cell<bool>,
    /// Also set by other threads, to make the next flush check the peers.
    pub(super) flushes: AtomicU32,
}

/// The operations of the epoch. Operations in progress are tracked in [`super::Target`].
pub(super) struct OperationState {
    /// Number of operations that are being posted.
    pub(super) posting: Cell<u32>,
    /// Operations queued for targets that are not ready.
    pub(super) queue: RefCell<Vec<Queued>>,
    /// Whether operations wait for their targets to be ready: in the queue, or taken from it to be started.
    pub(super) queued: PublishedFlag,
    /// Whether a request was ever posted, or an operation has failed. Mapped windows post no requests.
    pub(super) requests: PublishedFlag,
    /// Whether the queue is being processed. Its operations are then in neither buffer; other threads of the process
    /// may make calls meanwhile, since starting an operation may wait for messages.
    pub(super) starting: Cell<bool>,
    /// Buffer that is swapped with the queue while it is processed.
    pub(super) queue_scratch: RefCell<Vec<Queued>>,
    /// The request of the operation that is being issued.
    pub(super) current_request: RefCell<Option<Request>>,
    /// Plans transfers between datatypes.
    pub(super) planner: Planner,
    /// Transfers with scatter-gather lists on both sides, if the devices of all ranks have them.
    pub(super) sgrs: Option<Sgrs>,
    /// Copies of buffers that do not outlive the call of their operation.
    pub(super) copies: RefCell<Vec<Box<[u8]>>>,
    /// Whether stores to mapped memory may still be in this CPU's store buffer.
    pub(super) stored: Cell<bool>,
    /// Whether this rank may have shares of element locks.
    pub(super) shares: AtomicBool,
    /// Whether other threads of this rank may operate on the memory.
    pub(super) threads: Cell<bool>,
    /// Whether packed pieces were sent for whose acknowledgements no call has waited yet.
    pub(super) packed: Cell<bool>,
    /// Whether a track may have an error although the window is mapped, so that closing calls must check the tracks.
    pub(super) failed: Cell<bool>,
}

impl OperationState {
    pub(super) fn new(planner: Planner) -> Self {
        Self {
            posting: Cell::new(0),
            queue: RefCell::default(),
            queued: PublishedFlag::default(),
            requests: PublishedFlag::default(),
            starting: Cell::new(false),
            queue_scratch: RefCell::default(),
            current_request: RefCell::default(),
            planner,
            sgrs: None,
            copies: RefCell::default(),
            stored: Cell::new(false),
            shares: AtomicBool::new(false),
            threads: Cell::new(false),
            packed: Cell::new(false),
            failed: Cell::new(false),
        }
    }
}

/// State of operations that the target's CPU applies: at this rank for peers, and at peers for this rank.
pub(super) struct ServedState {
    /// Receives packed pieces, records and replies for this rank.
    pub(super) listener: Listener,
    /// A number that distinguishes this window from others of the team, the same at all ranks.
    pub(super) unique: u64,
    /// Whether the CPU of each target applies the accumulates of fence and PSCW epochs.
    pub(super) accumulates: bool,
    /// The accumulates of those epochs.
    pub(super) records: Rc<Records>,
    /// The number of begun aggregated updates, which owners apply by their processors, while the device's atomics are not
    /// coherent with these.
    pub(super) aggregated: Cell<u32>,
}
