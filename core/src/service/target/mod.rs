//! The target side of memory that its origins cannot map: the target's rank serves their requests whenever it is inside
//! the runtime, and its agent while it computes.
//!
//! [`request`]: the slots in which requests travel, and how the target serves them. [`transfer`]: the origin's side.
//! [`agent`]: the thread that serves while its rank computes.

mod agent;
mod request;
mod transfer;

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::Result;
use crate::memory::keys::Exposures;
use crate::memory::segment::{Mapping, page_up};
use crate::stats::{Kind, Snapshot, Stats};
use request::Server;
use transfer::Transfers;

pub(crate) use request::Code;
pub(crate) use transfer::{Piece, Pieces};

/// A cache line.
const LINE: usize = 64;
/// Requests that one rank may have outstanding at another.
const SLOTS: usize = 16;
/// How long a rank with requests in progress sleeps before it asks whether their targets have turned meanwhile.
const NAP: Duration = Duration::from_micros(50);

/// What a device lends the service: memory of every rank that all of them map from start-up on, and ways to wake their
/// threads. The rank's thread uses it, and its agent's.
pub(crate) trait SharedMemory: Debug + Send + Sync + 'static {
    /// The number of this rank.
    fn me(&self) -> usize;

    /// The memory of rank `number`, this one's too.
    fn memory(&self, number: usize) -> &Mapping;

    /// Where the service's part of each rank's memory is, zeros at first.
    fn layout(&self) -> &Layout;

    /// Wakes rank `number` if it sleeps. The caller has put a full fence before.
    fn wake(&self, number: usize, stats: &Stats);

    /// Sleeps while `doorbell`, a word of lent memory, is `expected`, for at most `limit`.
    fn wait(&self, doorbell: &AtomicU32, expected: u32, limit: Duration);

    /// Wakes the thread that waits at `doorbell`.
    fn ring(&self, doorbell: &AtomicU32);

    /// Starts the agent's thread, which does `run`.
    ///
    /// # Errors
    /// `System` if the system starts none.
    fn start_agent(&self, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>>;
}

/// The service's part of a rank's memory.
///
/// ```text
/// start  turns of this rank's progress, while peers may need its help
///        doorbell of this rank's agent (futex), written by peers that wake it
///        request slots, SLOTS for each origin
///        bounce buffer
/// ```
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    start: usize,
    bounce: usize,
    bounce_len: usize,
}

impl Layout {
    /// From byte `start`, a multiple of a cache line, on: requests of `ranks` ranks, a bounce buffer of `bounce_len` bytes.
    pub(crate) fn new(start: usize, ranks: usize, bounce_len: usize) -> Self {
        let end_of_slots = Self { start, bounce: 0, bounce_len }.request(ranks, 0);
        Self { start, bounce: page_up(end_of_slots), bounce_len }
    }

    fn turns(&self) -> usize {
        self.start
    }

    fn doorbell(&self) -> usize {
        self.start + LINE
    }

    fn request(&self, source: usize, slot: usize) -> usize {
        self.start + (2 + source * SLOTS + slot) * LINE
    }

    /// The first byte behind it.
    pub(crate) fn end(&self) -> usize {
        self.bounce + self.bounce_len
    }
}

/// What a rank and its agent share.
#[derive(Debug)]
struct Target<M> {
    memory: Arc<M>,
    exposures: Exposures,
    server: Server,
    agent_stats: Stats,
    agent_stops: AtomicBool,
}

impl<M: SharedMemory> Target<M> {
    fn own(&self) -> &Mapping {
        self.memory.memory(self.memory.me())
    }

    /// Serves waiting requests; whether there were any.
    fn serve(&self, stats: &Stats) -> bool {
        let (own, memory) = (self.own(), &self.memory);
        let perform =
            |source, at| request::perform(own, at, memory.memory(source), memory.layout(), &self.exposures, stats);
        self.server.serve(own, memory.layout(), perform, |source| {
            stats.add(Kind::Served, 0);
            // Full fence: pairs with the sleeper's barrier. Either the origin sees the marker, or this thread sees that
            // it sleeps. The same for this rank itself, which may wait for a cell that was just set.
            fence(Ordering::SeqCst);
            memory.wake(source, stats);
            memory.wake(memory.me(), stats);
        })
    }
}

/// Both sides of one rank: what it asks of targets, and what it serves as one. Who owns the memory that it exposes drops
/// this first, since that ends its agent.
#[derive(Debug)]
pub(crate) struct TargetService<M: SharedMemory> {
    target: Arc<Target<M>>,
    transfers: RefCell<Transfers>,
    agent: RefCell<Option<JoinHandle<()>>>,
    /// Whether some region of this rank may need its help.
    serving: Cell<bool>,
}

impl<M: SharedMemory> TargetService<M> {
    /// The service of a rank that has `ranks` peers, itself among them.
    pub(crate) fn new(memory: Arc<M>, ranks: usize) -> Self {
        let (exposures, server) = (Exposures::default(), Server::new(ranks));
        let (agent_stats, agent_stops) = (Stats::default(), AtomicBool::new(false));
        Self {
            target: Arc::new(Target { memory, exposures, server, agent_stats, agent_stops }),
            transfers: RefCell::new(Transfers::new(ranks)),
            agent: RefCell::new(None),
            serving: Cell::new(false),
        }
    }

    /// The regions that requests may name.
    pub(crate) fn exposures(&self) -> &Exposures {
        &self.target.exposures
    }

    /// From now on this rank serves whenever it polls, and if `passive` its agent does at any time.
    ///
    /// # Errors
    /// `System` if the agent cannot be started.
    pub(crate) fn start(&self, passive: bool) -> Result<()> {
        // Peers do not count this rank as inside the runtime yet: after registering it may go on computing at once.
        // Where this is inside a wait, the agent serves too until the next one.
        self.serving.set(true);
        let mut agent = self.agent.borrow_mut();
        if passive && agent.is_none() {
            *agent = Some(agent::start(self.target.clone())?);
        }
        Ok(())
    }

    /// Whether there is no room for another transfer.
    pub(crate) fn is_full(&self) -> bool {
        self.transfers.borrow().is_full()
    }

    /// Whether transfers to `peer` are in progress.
    pub(crate) fn any_to(&self, peer: u32) -> bool {
        self.transfers.borrow().any_to(peer)
    }

    /// Has rank `peer` do `pieces`, calls `meanwhile`, and has it do `last` after all of them. `poll` completes it under `id`.
    #[inline]
    pub(crate) fn post(
        &self,
        (id, peer): (u64, u32),
        pieces: Pieces,
        meanwhile: impl FnOnce(),
        last: Option<Piece>,
        stats: &Stats,
    ) {
        let mut transfers = self.transfers.borrow_mut();
        transfers.add(id, peer, pieces);
        transfers.issue(&*self.target.memory, stats);
        meanwhile();
        if let Some(last) = last {
            transfers.append(last);
            transfers.issue(&*self.target.memory, stats);
        }
    }

    /// Drops the transfers chosen by `which`; requests already sent run out, but their results go nowhere.
    pub(crate) fn cancel(&self, which: &dyn Fn(u64) -> bool) {
        self.transfers.borrow_mut().cancel(which);
    }

    /// Whether [`poll`](Self::poll) may have something to do.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.serving.get() || !self.transfers.borrow().is_idle()
    }

    /// Serves others, and goes on with what they serve: `completed` gets the ids of finished transfers. Whether anything
    /// happened.
    #[cold]
    pub(crate) fn poll(&self, stats: &Stats, mut completed: impl FnMut(u64, Result<()>)) -> bool {
        let mut any = false;
        if self.serving.get() {
            let turns = self.target.own().half(self.target.memory.layout().turns());
            // Relaxed, both: written by this thread alone, and a late sight of it costs a peer one wake-up of the agent.
            turns.store(turns.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            any |= self.target.serve(stats);
        }
        if !self.transfers.borrow().is_idle() {
            let finished = self.transfers.borrow_mut().advance(&*self.target.memory, stats);
            for (id, result) in finished {
                any = true;
                completed(id, result);
            }
        }
        any
    }

    /// Whether a request waits to be served, or one of this rank's has been.
    pub(crate) fn ready(&self) -> bool {
        let memory = &*self.target.memory;
        (self.serving.get() && self.target.server.ready(self.target.own(), memory.layout()))
            || self.transfers.borrow().any_served(memory)
    }

    /// Makes sure that what is in progress will be served while this rank sleeps. How long it may sleep, at most `limit`.
    pub(crate) fn before_sleep(&self, limit: Duration, stats: &Stats) -> Duration {
        let mut transfers = self.transfers.borrow_mut();
        if transfers.is_idle() || transfers.wake_agents(&*self.target.memory, stats) { limit } else { limit.min(NAP) }
    }

    /// What the agent has counted.
    pub(crate) fn agent_counters(&self) -> Snapshot {
        self.target.agent_stats.snapshot()
    }
}

impl<M: SharedMemory> Drop for TargetService<M> {
    fn drop(&mut self) {
        if let Some(thread) = self.agent.take() {
            agent::stop(&self.target, thread);
        }
    }
}
