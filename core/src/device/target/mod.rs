//! The target side of memory that its origins cannot map: the target's rank serves their requests while it is inside
//! the runtime, and its agent serves them while the rank computes.
//!
//! [`shared_memory`]: the interface to the device. [`request`]: the slots for requests, and how the target
//! serves them. [`transfer`]: the origin's side. [`agent`]: the thread that serves while its rank computes.

mod agent;
mod request;
mod shared_memory;
mod transfer;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::Result;
use crate::memory::keys::Exposures;
use crate::stats::Stats;
use agent::Target;
use request::Server;
use transfer::Transfers;

pub(crate) use request::{Code, failure, status};
pub(crate) use shared_memory::{Layout, SharedMemory};
pub(crate) use transfer::{Piece, Pieces};

/// Maximum sleep of a rank with requests in progress before it checks again whether their targets have made progress.
const MAX_SLEEP: Duration = Duration::from_micros(50);

/// Both roles of one rank: its requests to targets, and its service as a target. The owner of the exposed memory drops
/// this first, since that ends the agent.
pub(crate) struct TargetService<M: SharedMemory> {
    target: Arc<Target<M>>,
    transfers: RefCell<Transfers>,
    agent: RefCell<Option<JoinHandle<()>>>,
    /// Whether a region of this rank may need the rank's help.
    serving: Cell<bool>,
}

impl<M: SharedMemory> TargetService<M> {
    /// The service of a rank in a group of `ranks`, including itself.
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

    /// The regions that requests may access.
    pub(crate) fn exposures(&self) -> &Exposures {
        &self.target.exposures
    }

    /// Starts serving: this rank serves whenever it polls and, if `passive`, its agent serves at any time.
    ///
    /// # Errors
    /// `System` if the agent cannot be started.
    pub(crate) fn start(&self, passive: bool) -> Result<()> {
        // Peers do not see this rank as inside the runtime yet, since it may continue computing right after the
        // registration. If the registration happens inside a wait, the agent serves too until the next wait.
        self.serving.set(true);
        let mut agent = self.agent.borrow_mut();
        if passive && agent.is_none() {
            *agent = Some(agent::start(self.target.clone())?);
        }
        Ok(())
    }

    /// Whether this rank's agent runs.
    pub(crate) fn has_agent(&self) -> bool {
        self.agent.borrow().as_ref().is_some_and(|agent| !agent.is_finished())
    }

    /// Whether the transfer table is full.
    pub(crate) fn is_full(&self) -> bool {
        self.transfers.borrow().is_full()
    }

    /// Whether transfers to `peer` are in progress.
    pub(crate) fn any_to(&self, peer: u32) -> bool {
        self.transfers.borrow().any_to(peer)
    }

    /// Requests `pieces` from rank `peer`, calls `meanwhile`, and requests `last`, which the peer executes after all of
    /// them. [`poll`](Self::poll) reports completion under `id`.
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

    /// Drops the transfers that `which` selects. The target still serves requests already sent, but their results are
    /// discarded.
    pub(crate) fn cancel(&self, which: &dyn Fn(u64) -> bool) {
        self.transfers.borrow_mut().cancel(which);
    }

    /// Whether [`poll`](Self::poll) may have something to do.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.serving.get() || !self.transfers.borrow().is_idle()
    }

    /// Serves the requests of other ranks and advances this rank's transfers; `completed` gets the ids of finished
    /// transfers. Returns whether anything happened.
    #[cold]
    pub(crate) fn poll(&self, stats: &Stats, mut completed: impl FnMut(u64, Result<()>)) -> bool {
        let mut any = false;
        if self.serving.get() {
            let turns = self.target.own().half(self.target.memory.layout().turns());
            // Relaxed, both: only this thread writes it, and a peer that reads a stale value at most wakes the agent
            // once too often.
            turns.store(turns.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            any |= self.target.serve(stats);
        }
        if self.transfers.borrow_mut().poll_served(&*self.target.memory, stats) {
            let finished = self.transfers.borrow_mut().advance(&*self.target.memory, stats);
            for (id, result) in finished {
                any = true;
                completed(id, result);
            }
        }
        any
    }

    /// Whether a request is pending at this rank, or a request of this rank has been served.
    pub(crate) fn ready(&self) -> bool {
        let memory = &*self.target.memory;
        (self.serving.get() && self.target.server.ready(self.target.own(), memory.layout()))
            || self.transfers.borrow().any_served(memory)
    }

    /// Makes sure that requests in progress are served while this rank sleeps. Returns how long it may sleep, at most
    /// `limit`.
    pub(crate) fn before_sleep(&self, limit: Duration, stats: &Stats) -> Duration {
        let mut transfers = self.transfers.borrow_mut();
        if transfers.is_idle() || transfers.wake_agents(&*self.target.memory, stats) {
            limit
        } else {
            limit.min(MAX_SLEEP)
        }
    }

    /// Counters of the agent.
    pub(crate) fn agent_stats(&self) -> &Stats {
        &self.target.agent_stats
    }
}

impl<M: SharedMemory> Drop for TargetService<M> {
    fn drop(&mut self) {
        if let Some(thread) = self.agent.take() {
            agent::stop(&self.target, thread);
        }
    }
}
