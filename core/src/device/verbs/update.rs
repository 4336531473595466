//! One accumulate that takes several steps, as a value: what is asked for, and how far it has come.

use super::buffers::{Chunk, LARGEST, PACKET};
use super::engine::Notice;
use super::regions::Import;
use crate::error::Error;
use crate::memory::keys::AccumulateFn;

/// Elements of 8 bytes that are worked on at once: their values, and what the card found.
pub(super) const WORDS: usize = PACKET / 16;
/// Where the data of a locked update starts in its chunk, before alignment.
const DATA: usize = 64;
/// Bytes that are updated under the lock at once.
const LOCKED: usize = LARGEST - 2 * DATA;

/// What is done to the elements.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// Their values are read.
    Read,
    /// Integers of 8 bytes are added.
    Add,
    /// Elements of 8 bytes, by a function.
    Words(AccumulateFn, u32),
    /// Elements of any size, by a function, under the lock.
    Locked(AccumulateFn, u32),
    /// An integer of less than 8 bytes is compared and swapped, under the lock.
    SwapLocked { expected: u64, desired: u64 },
    /// One of 8 bytes, in its turn.
    Swap { expected: u64, desired: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The next step is to be started.
    Idle,
    /// The elements are being read.
    Reading,
    /// The card compares and swaps, or adds.
    Changing,
    /// The lock is asked for.
    Locking,
    /// The elements are being written, and the lock given back.
    Unlocking,
    /// As before, and the update has failed.
    Failing,
}

/// One update.
#[derive(Debug)]
pub(super) struct Update {
    pub(super) id: Option<u64>,
    pub(super) import: Import,
    pub(super) offset: usize,
    pub(super) what: What,
    pub(super) operand: Vec<u8>,
    /// Where the former values go, or null.
    pub(super) old: *mut u8,
    pub(super) len: usize,
    pub(super) notice: Option<Notice>,
    pub(super) former: Vec<u8>,
    pub(super) done: usize,
    pub(super) stage: Stage,
    pub(super) chunk: Option<Chunk>,
    /// Elements of the present piece that are still to be changed; those under way.
    pub(super) pending: Vec<usize>,
    pub(super) under_way: Vec<usize>,
    /// Turns to let pass before the lock is asked for again.
    pub(super) pause: u32,
    pub(super) tries: u32,
    pub(super) error: Option<Error>,
}

impl Update {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn new(
        id: u64,
        import: Import,
        offset: usize,
        what: What,
        operand: Vec<u8>,
        old: *mut u8,
        len: usize,
        notice: Option<Notice>,
    ) -> Self {
        Self {
            id: Some(id),
            import,
            offset,
            what,
            operand,
            old,
            len,
            notice,
            former: Vec::new(),
            done: 0,
            stage: Stage::Idle,
            chunk: None,
            pending: Vec::new(),
            under_way: Vec::new(),
            pause: 0,
            tries: 0,
            error: None,
        }
    }

    /// Whether no completion will take it further.
    pub(super) fn is_waiting(&self) -> bool {
        self.stage == Stage::Idle
    }

    pub(super) fn address(&self) -> u64 {
        self.import.address(self.offset + self.done)
    }

    /// Bytes of the present piece.
    pub(super) fn piece(&self) -> usize {
        let most = match self.what {
            What::Read => LARGEST,
            What::Locked(..) | What::SwapLocked { .. } => LOCKED,
            What::Add | What::Words(..) | What::Swap { .. } => 8 * WORDS,
        };
        (self.len - self.done).min(most)
    }

    /// Where the elements are in the chunk of a locked update: at the alignment that they have at the target.
    pub(super) fn data(&self) -> usize {
        DATA + (self.address() % DATA as u64) as usize
    }

    pub(super) fn chunk_size(&self) -> usize {
        match self.what {
            What::Read => self.piece(),
            What::Locked(..) | What::SwapLocked { .. } => self.piece() + 2 * DATA,
            What::Add | What::Words(..) | What::Swap { .. } => PACKET,
        }
    }
}
