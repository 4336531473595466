//! One accumulate that takes several steps, as a value: what is asked for, and how far it has come.

use std::collections::VecDeque;

use crate::device::Place;
use crate::error::Error;
use crate::memory::keys::AccumulateFn;

/// Elements of 8 bytes that are worked on at once.
const WORDS: usize = 256;
/// Bytes that are read, or updated under the lock, at once.
const PIECE: usize = (64 << 10) - 128;

/// What is done to the elements.
#[derive(Clone, Copy, Debug)]
pub(super) enum UpdateKind {
    /// Their values are read.
    Read,
    /// Integers of 8 bytes are added.
    Add,
    /// Elements of 8 bytes, by a function.
    Words(AccumulateFn, u32),
    /// Elements of any size, by a function, under the lock.
    Locked(AccumulateFn, u32),
    /// An integer is compared and swapped: of 8 bytes by itself, shorter ones under the lock.
    Swap { expected: u64, desired: u64 },
}

/// What is posted next, or under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// A ticket of the lock is taken.
    Lock,
    /// The lock word is read until the ticket's turn has come.
    Wait,
    /// The elements are read.
    Read,
    /// Atomics on words.
    Change,
    /// Elements are written back under the lock.
    WriteBack,
    /// The lock is given back.
    Unlock,
}

/// One update of elements at one target.
#[derive(Debug)]
pub(super) struct Update {
    /// The id of the request; none once it has been cancelled.
    pub(super) id: Option<u64>,
    pub(super) at: Place,
    /// The lock word that guards elements of less than 8 bytes.
    pub(super) lock: Place,
    pub(super) what: UpdateKind,
    pub(super) operand: Vec<u8>,
    /// Where the former values go, or null.
    pub(super) old: *mut u8,
    pub(super) len: usize,
    pub(super) notify: Option<(Place, u64)>,
    pub(super) former: Vec<u8>,
    /// Bytes of whole pieces that are done.
    pub(super) done: usize,
    pub(super) stage: Stage,
    /// Whether all requests of the stage have been posted; those that are not complete.
    pub(super) posted: bool,
    pub(super) open: usize,
    /// The present piece as it was read, from `start` on, where addresses are those of the elements modulo 16.
    data: Box<[u8]>,
    start: usize,
    /// By element of the present piece, what its atomic has found; the last two are of the lock.
    pub(super) found: Vec<u64>,
    /// Elements of the present piece that are to be changed; those under way.
    pub(super) pending: VecDeque<usize>,
    pub(super) under_way: Vec<usize>,
    /// Its ticket of the lock, and the turns to let pass before the lock word is read again.
    pub(super) ticket: u32,
    pub(super) pause: u32,
    pub(super) error: Option<Error>,
}

impl Update {
    /// An update of `len` bytes, whose address at the target is `alignment` modulo 16.
    pub(super) fn new(id: u64, at: Place, alignment: usize, lock: Place, what: UpdateKind, len: usize) -> Self {
        let mut update = Self {
            id: Some(id),
            at,
            lock,
            what,
            operand: Vec::new(),
            old: std::ptr::null_mut(),
            len,
            notify: None,
            former: Vec::new(),
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
        matches!(self.what, UpdateKind::Locked(..)) || matches!(self.what, UpdateKind::Swap { .. } if self.len < 8)
    }

    /// Bytes of the present piece.
    pub(super) fn piece(&self) -> usize {
        let most = if matches!(self.what, UpdateKind::Read | UpdateKind::Locked(..)) { PIECE } else { 8 * WORDS };
        (self.len - self.done).min(most)
    }

    /// The present piece at the target, from its byte `offset` on.
    pub(super) fn place(&self, offset: usize) -> Place {
        Place { offset: self.at.offset + self.done + offset, ..self.at }
    }

    /// The present piece here. Its length is a multiple of 16 but for the last, so that all start at the same byte.
    pub(super) fn data(&mut self) -> &mut [u8] {
        let piece = self.piece();
        &mut self.data[self.start..][..piece]
    }

    /// Keeps former values of the present piece, from its byte `offset` on.
    pub(super) fn keep(&mut self, offset: usize, bytes: &[u8]) {
        if !self.old.is_null() {
            let at = self.done + offset;
            self.former[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// What the lock's atomic finds: the first word asks for it, the second gives it back.
    pub(super) fn lock_word(&mut self, second: bool) -> &mut u64 {
        let at = self.found.len() - 2 + usize::from(second);
        &mut self.found[at]
    }

    /// Starts the next piece.
    pub(super) fn begin(&mut self) {
        self.posted = false;
        if self.is_locked() {
            self.stage = Stage::Lock;
            return;
        }
        match self.what {
            UpdateKind::Read | UpdateKind::Words(..) | UpdateKind::Locked(..) => self.stage = Stage::Read,
            UpdateKind::Add | UpdateKind::Swap { .. } => self.change_all(),
        }
    }

    /// Every element of the piece is to be changed.
    pub(super) fn change_all(&mut self) {
        self.stage = Stage::Change;
        self.posted = false;
        self.pending = (0..self.piece().div_ceil(8)).collect();
    }

    /// Goes on with another stage.
    pub(super) fn turn_to(&mut self, stage: Stage) {
        self.stage = stage;
        self.posted = false;
    }
}
