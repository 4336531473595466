//! The base segments of the ranks of a node, in which requests for unmapped memory are passed.

use std::sync::atomic::AtomicU32;
use std::thread::JoinHandle;
use std::time::Duration;

use super::park;
use crate::device::target::{Layout, SharedMemory};
use crate::error::{Error, Result};
use crate::memory::segment::{Mapping, Segment};
use crate::stats::Stats;

/// One rank's mappings of the base segments, for its own thread, its agent's thread and its wakers.
pub(super) struct Segments {
    pub(super) me: usize,
    /// The ranks of the job that this device connects, by number.
    pub(super) ranks: Vec<u32>,
    pub(super) service: Layout,
    pub(super) own: Segment,
    /// The segments of all ranks, including this rank's, by number.
    pub(super) peers: Vec<Mapping>,
}

impl SharedMemory for Segments {
    fn me(&self) -> usize {
        self.me
    }

    fn memory(&self, number: usize) -> &Mapping {
        &self.peers[number]
    }

    fn layout(&self) -> &Layout {
        &self.service
    }

    fn wake(&self, number: usize, stats: &Stats) {
        park::wake_if_asleep(&self.peers[number], stats);
    }

    fn wait(&self, doorbell: &AtomicU32, expected: u32, limit: Duration) {
        park::futex_wait(doorbell, expected, limit);
    }

    fn ring(&self, doorbell: &AtomicU32) {
        park::futex_wake(doorbell);
    }

    fn start_agent(&self, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
        std::thread::Builder::new()
            .name(format!("farside-agent-{}", self.ranks[self.me]))
            .spawn(run)
            .map_err(|e| Error::system("start the agent thread", e))
    }
}
