//! What a device lends the service, and how the service lays it out.

use std::fmt::Debug;
use std::sync::atomic::AtomicU32;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::Result;
use crate::memory::segment::{Mapping, page_up};
use crate::stats::Stats;

/// A cache line.
pub(super) const LINE: usize = 64;
/// Requests that one rank may have outstanding at another.
pub(super) const SLOTS: usize = 16;
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
    pub(super) start: usize,
    pub(super) bounce: usize,
    pub(super) bounce_len: usize,
}

impl Layout {
    /// From byte `start`, a multiple of a cache line, on: requests of `ranks` ranks, a bounce buffer of `bounce_len` bytes.
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

    /// The first byte behind it.
    pub(crate) fn end(&self) -> usize {
        self.bounce + self.bounce_len
    }
}
