//! The interface between a device and the target service, and the layout of the service's memory.

use std::fmt::Debug;
use std::sync::atomic::AtomicU32;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::Result;
use crate::memory::segment::{Mapping, page_up};
use crate::stats::Stats;

/// A cache line.
pub(super) const LINE: usize = 64;
/// Maximum number of outstanding requests of one rank at one target.
pub(super) const SLOTS: usize = 16;
/// The part of a device that the service uses: memory of every rank that all ranks map from start-up on, and ways to
/// wake their threads. The rank's thread and its agent's thread call it.
pub(crate) trait SharedMemory: Send + Sync + 'static {
    /// The number of this rank.
    fn me(&self) -> usize;

    /// The memory of rank `number`, which may be this rank.
    fn memory(&self, number: usize) -> &Mapping;

    /// The layout of the service's part of each rank's memory, which is initially zero.
    fn layout(&self) -> &Layout;

    /// Wakes rank `number` if it sleeps. The caller has issued a full fence before.
    fn wake(&self, number: usize, stats: &Stats);

    /// Sleeps while `doorbell`, a word of the shared memory, equals `expected`, for at most `limit`.
    fn wait(&self, doorbell: &AtomicU32, expected: u32, limit: Duration);

    /// Wakes the thread that waits at `doorbell`.
    fn ring(&self, doorbell: &AtomicU32);

    /// Starts the agent's thread, which calls `run`.
    ///
    /// # Errors
    /// `System` if the thread cannot be started.
    fn start_agent(&self, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>>;
}

/// The service's part of a rank's memory.
///
/// ```text
/// start  progress counter of this rank, while peers may need its help
///        doorbell of this rank's agent (futex), written by peers that wake it
///        request slots, SLOTS for each origin
///        bounce buffer
/// ```
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(super) start: usize,
    pub(super) bounce: usize,
    pub(super) bounce_len: usize,
}

impl Layout {
    /// The layout from byte `start`, a multiple of a cache line, for `ranks` ranks and a bounce buffer of `bounce_len`
    /// bytes.
    pub(crate) fn new(start: usize, ranks: usize, bounce_len: usize) -> Self {
        let end_of_slots = Self { start, bounce: 0, bounce_len }.request(ranks, 0);
        Self { start, bounce: page_up(end_of_slots), bounce_len }
    }

    pub(super) fn turns(&self) -> usize {
        self.start
    }

    pub(super) fn doorbell(&self) -> usize {
        self.start + LINE
    }

    pub(super) fn request(&self, source: usize, slot: usize) -> usize {
        self.start + (2 + source * SLOTS + slot) * LINE
    }

    /// One past the last byte.
    pub(crate) fn end(&self) -> usize {
        self.bounce + self.bounce_len
    }
}
