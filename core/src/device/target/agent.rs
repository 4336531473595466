//! The agent: a thread that serves requests while its rank computes. It is started with the first region for which
//! peers may need help at any time (a lockable window over memory that is not mapped); without such a region it is
//! never started.
//!
//! Its doorbell is a futex in the rank's memory: 0 without an agent, odd after one was started.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::JoinHandle;
use std::time::Duration;

use super::request::{self, Server};
use super::shared_memory::SharedMemory;
use crate::error::Result;
use crate::memory::keys::Exposures;
use crate::memory::segment::Mapping;
use crate::stats::{Kind, Stats};

/// State that a rank and its agent share.
pub(super) struct Target<M> {
    pub(super) memory: Arc<M>,
    pub(super) exposures: Exposures,
    pub(super) server: Server,
    pub(super) agent_stats: Stats,
    pub(super) agent_stops: AtomicBool,
}

impl<M: SharedMemory> Target<M> {
    pub(super) fn own(&self) -> &Mapping {
        self.memory.memory(self.memory.me())
    }

    /// Serves pending requests; returns whether there were any.
    pub(super) fn serve(&self, stats: &Stats) -> bool {
        let (own, memory) = (self.own(), &self.memory);
        let perform =
            |source, at| request::perform(own, at, memory.memory(source), memory.layout(), &self.exposures, stats);
        self.server.serve(own, memory.layout(), perform, |source| {
            stats.add(Kind::Served, 0);
            // Full fence: pairs with the sleeper's barrier. Either the origin sees the marker, or this thread sees that
            // the origin sleeps. The same holds for this rank itself, which may wait for a cell that was just set.
            fence(Ordering::SeqCst);
            memory.wake(source, stats);
            memory.wake(memory.me(), stats);
        })
    }
}

pub(super) fn start<M: SharedMemory>(target: Arc<Target<M>>) -> Result<JoinHandle<()>> {
    let served = target.clone();
    let thread = target.memory.start_agent(move || run(&served))?;
    target.own().half(target.memory.layout().doorbell()).store(1, Ordering::SeqCst);
    Ok(thread)
}

fn run<M: SharedMemory>(target: &Target<M>) {
    let doorbell = target.own().half(target.memory.layout().doorbell());
    loop {
        let rung = doorbell.load(Ordering::SeqCst);
        if target.agent_stops.load(Ordering::SeqCst) {
            return;
        }
        target.serve(&target.agent_stats);
        target.memory.wait(doorbell, rung, Duration::from_secs(1));
    }
}

/// Wakes the agent of the rank whose memory `target` is, if it has one.
pub(super) fn wake(memory: &impl SharedMemory, target: &Mapping, stats: &Stats) {
    let doorbell = target.half(memory.layout().doorbell());
    // Relaxed: a stale 0 only delays the wake-up until the origin's next check.
    if doorbell.load(Ordering::Relaxed) != 0 {
        doorbell.fetch_add(2, Ordering::SeqCst);
        memory.ring(doorbell);
        stats.add(Kind::Wake, 0);
    }
}

/// Ends this rank's agent, after it has served the requests in progress.
pub(super) fn stop<M: SharedMemory>(target: &Target<M>, thread: JoinHandle<()>) {
    target.agent_stops.store(true, Ordering::SeqCst);
    wake(&*target.memory, target.own(), &Stats::default());
    // The thread itself has already reported a panic.
    let _ = thread.join();
}
