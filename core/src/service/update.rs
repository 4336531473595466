#![allow(unsafe_code)]
//! State of one accumulate that takes several steps.

use std::collections::VecDeque;

use crate::device::{Place, Update, imports};
use crate::error::Error;
use crate::memory::keys::AccumulateFn;

/// One ticket, in the upper half of a lock word.
pub(super) const TICKET: u64 = 1 << 32;
/// One released ticket, in the lower half of a lock word.
const RELEASED: u32 = 2;
/// Bit of a lock word: elements of 8 bytes are updated by atomics.
pub(super) const SHARED: u64 = 1;
/// Number of polls to skip before the lock word is read again, per rank that waits between the holder and this rank.
const TURNS: u32 = 16;
/// Number of elements of 8 bytes in one segment.
const WORDS: usize = 256;
/// Number of bytes of one segment that is read, or updated under the lock.
const PIECE: usize = (64 << 10) - 128;

/// How an update changes the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpdateKind {
    /// Reads their values.
    Read,
    /// Adds integers of 8 bytes.
    Add,
    /// Compares and swaps one integer of 8 bytes.
    Swap,
    /// Applies the region's function to elements of 8 bytes.
    Words,
    /// Applies the region's function, or a compare-and-swap, to elements of any size, under the lock.
    Locked,
}

/// The step of an update that is posted next or in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Takes a ticket of the lock.
    Lock,
    /// Reads the lock word until the ticket's turn has come.
    Wait,
    /// Reads the elements.
    Read,
    /// Changes words by atomics.
    Change,
    /// Writes elements back, under the lock.
    WriteBack,
    /// Releases the lock.
    Unlock,
}

/// A peer's region, with the data that the steps need.
#[derive(Clone, Copy, Debug)]
pub(super) struct SteppedRegion {
    pub(super) peer: u32,
    pub(super) len: usize,
    pub(super) accumulate: Option<AccumulateFn>,
    /// Address of the region modulo 16.
    pub(super) alignment: usize,
    pub(super) lock: Place,
    /// Whether elements of 8 bytes are known to be updated only by atomics.
    pub(super) shared: bool,
}

impl imports::ImportedRegion for SteppedRegion {
    fn peer(&self) -> u32 {
        self.peer
    }

    fn len(&self) -> usize {
        self.len
    }
}

/// One update of elements at one target.
#[derive(Debug)]
pub(super) struct SteppedUpdate {
    /// Id of the request; `None` once it has been cancelled.
    pub(super) id: Option<u64>,
    pub(super) at: Place,
    /// The lock word of its region.
    pub(super) lock: Place,
    pub(super) kind: UpdateKind,
    /// The update's kind if the lock word is shared.
    pub(super) shared_kind: UpdateKind,
    pub(super) code: u32,
    pub(super) accumulate: Option<AccumulateFn>,
    pub(super) operand: Vec<u8>,
    /// Destination of the previous values, or null.
    pub(super) old: *mut u8,
    pub(super) len: usize,
    pub(super) notify: Option<(Place, u64)>,
    pub(super) former: Vec<u8>,
    /// Number of bytes of the segments completed so far.
    pub(super) done: usize,
    pub(super) stage: Stage,
    /// Whether all requests of the stage have been posted; `open` counts those not yet complete.
    pub(super) posted: bool,
    pub(super) open: usize,
    /// The current segment as read, from `start` on, which gives the elements the same address modulo 16 as at the
    /// target.
    data: Box<[u8]>,
    start: usize,
    /// Per element of the current segment, the value that its atomic found; the last two are the lock's.
    pub(super) found: Vec<u64>,
    /// Elements of the current segment that are to be changed; `under_way` holds those whose atomic is posted.
    pub(super) pending: VecDeque<usize>,
    pub(super) under_way: Vec<usize>,
    /// Ticket of the lock, and polls to skip before the lock word is read again.
    pub(super) ticket: u32,
    pub(super) pause: u32,
    /// Whether the update makes the lock word shared when it releases the lock.
    pub(super) shares: bool,
    pub(super) error: Option<Error>,
}

impl SteppedUpdate {
    /// Creates the update of an accumulate, by `accumulate`, under the lock at `lock`, of the first of `kinds`, or of
    /// the second if the lock word is shared. The address of its elements at the target is `alignment` modulo 16.
    ///
    /// # Safety
    /// The operand is valid for reads.
    pub(super) unsafe fn new(
        id: u64,
        a: &Update,
        (kind, shared_kind): (UpdateKind, UpdateKind),
        (accumulate, lock, alignment): (Option<AccumulateFn>, Place, usize),
    ) -> Self {
        let &Update { at, len, old, .. } = a;
        let mut operand = Vec::new();
        // SAFETY: valid by the contract.
        unsafe { a.append_operand(len, &mut operand) };
        // An operation that only reads has no operand.
        operand.resize(operand.len().max(len), 0);
        let mut update = Self {
            id: Some(id),
            at,
            lock,
            kind,
            shared_kind,
            code: a.code(),
            accumulate,
            operand,
            old,
            len,
            notify: None,
            former: vec![0; if old.is_null() { 0 } else { len }],
            done: 0,
            stage: Stage::Read,
            posted: false,
            open: 0,
            data: Box::default(),
            start: 0,
            found: Vec::new(),
            pending: VecDeque::new(),
            under_way: Vec::new(),
            ticket: 0,
            pause: 0,
            shares: false,
            error: None,
        };
        update.data = vec![0; update.piece() + 16].into_boxed_slice();
        update.start = alignment.wrapping_sub(update.data.as_ptr().addr()) % 16;
        update.found = vec![0; update.piece().div_ceil(8).min(WORDS) + 2];
        update.begin();
        update
    }

    /// Whether the lock is needed.
    pub(super) fn is_locked(&self) -> bool {
        self.kind == UpdateKind::Locked
    }

    /// The word of the operand at byte `at`.
    pub(super) fn word(&self, at: usize) -> u64 {
        self.operand.get(at..).and_then(|o| o.first_chunk().copied()).map(u64::from_ne_bytes).unwrap_or_default()
    }

    /// Number of bytes of the current segment.
    pub(super) fn piece(&self) -> usize {
        let most = if matches!(self.kind, UpdateKind::Read | UpdateKind::Locked) { PIECE } else { 8 * WORDS };
        (self.len - self.done).min(most)
    }

    /// Remote address of the current segment, from its byte `offset` on.
    pub(super) fn place(&self, offset: usize) -> Place {
        Place { offset: self.at.offset + self.done + offset, ..self.at }
    }

    /// The local copy of the current segment. All segments but the last are multiples of 16 bytes, so all start at the
    /// same byte.
    pub(super) fn data(&mut self) -> &mut [u8] {
        let piece = self.piece();
        &mut self.data[self.start..][..piece]
    }

    /// Stores previous values of the current segment, from its byte `offset` on.
    pub(super) fn keep(&mut self, offset: usize, bytes: &[u8]) {
        if !self.old.is_null() {
            let at = self.done + offset;
            self.former[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// The word that receives the lock's previous value: the first for taking a ticket, the second for the release.
    pub(super) fn lock_word(&mut self, second: bool) -> &mut u64 {
        let at = self.found.len() - 2 + usize::from(second);
        &mut self.found[at]
    }

    /// The stage after the lock word was found to be `word`. If the word is shared, the update changes to its kind for
    /// shared words; an update of a single element makes the word shared.
    pub(super) fn enter(&mut self, word: u64) -> Stage {
        let before = self.ticket.wrapping_sub(word as u32 / RELEASED) & u32::MAX >> 1;
        // The minimum bounds the pause to that of 256 waiting ranks, even if a peer has damaged the word.
        self.pause = TURNS * before.saturating_sub(1).min(255);
        let is_shared = word & SHARED != 0;
        if before > 0 {
            Stage::Wait
        } else if self.shared_kind == UpdateKind::Locked || !is_shared && self.len > 8 {
            Stage::Read
        } else {
            self.kind = self.shared_kind;
            self.shares = !is_shared;
            Stage::Unlock
        }
    }

    /// The number whose addition to the lock word releases the lock.
    pub(super) fn unlocking(&self) -> u64 {
        // Adding one to a count of all ones carries into the upper half; subtracting one ticket cancels the carry.
        let carry = if self.ticket | 1 << 31 == u32::MAX { TICKET } else { 0 };
        (u64::from(RELEASED) | u64::from(self.shares)).wrapping_sub(carry)
    }

    /// Starts the next segment.
    pub(super) fn begin(&mut self) {
        self.posted = false;
        match self.kind {
            UpdateKind::Locked => self.stage = Stage::Lock,
            UpdateKind::Read | UpdateKind::Words => self.stage = Stage::Read,
            UpdateKind::Add | UpdateKind::Swap => self.change_all(),
        }
    }

    /// Marks every element of the segment as still to be changed.
    pub(super) fn change_all(&mut self) {
        self.stage = Stage::Change;
        self.posted = false;
        self.pending = (0..self.piece().div_ceil(8)).collect();
    }

    /// Changes to another stage.
    pub(super) fn turn_to(&mut self, stage: Stage) {
        self.stage = stage;
        self.posted = false;
    }
}
