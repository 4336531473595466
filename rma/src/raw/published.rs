#![allow(unsafe_code)]
//! Window state that other threads of the rank may read.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Access;

/// A number that calls on the window read and write, and that other threads may read concurrently. The calls use plain
/// loads, since they are the only writers.
#[derive(Debug, Default)]
pub(super) struct Published {
    value: AtomicU64,
    /// Not `Sync`: calls on a window are serialized.
    one_call: PhantomData<Cell<()>>,
}

impl Published {
    pub(super) const fn new(value: u64) -> Self {
        Self { value: AtomicU64::new(value), one_call: PhantomData }
    }

    /// The number, for calls on the window.
    #[inline(always)]
    pub(super) fn get(&self) -> u64 {
        // SAFETY: the type is not `Sync`, so the only writer is this thread.
        unsafe { *self.value.as_ptr() }
    }

    #[inline(always)]
    pub(super) fn set(&self, value: u64) {
        // Relaxed: as in `read`.
        self.value.store(value, Ordering::Relaxed);
    }

    /// The number, for other threads.
    #[inline(always)]
    pub(super) fn read(&self) -> u64 {
        // Relaxed: pairs with nothing. A program orders the operations of its threads after the call that opens their
        // epoch and before the one that closes it.
        self.value.load(Ordering::Relaxed)
    }
}

/// A flag that calls on the window read and write, and that other threads may read concurrently.
#[derive(Debug, Default)]
pub(super) struct PublishedFlag(Published);

impl PublishedFlag {
    /// Whether the flag is set, for calls on the window.
    #[inline(always)]
    pub(super) fn get(&self) -> bool {
        self.0.get() != 0
    }

    #[inline(always)]
    pub(super) fn set(&self, holds: bool) {
        self.0.set(holds.into());
    }

    /// Whether the flag is set, for other threads.
    #[inline(always)]
    pub(super) fn read(&self) -> bool {
        self.0.read() != 0
    }
}

/// The current access epoch.
#[derive(Debug, Default)]
pub(super) struct CurrentAccess {
    kind: Published,
    /// In a fence epoch the sequence number of the fence, in a lock epoch the count of held locks.
    number: Cell<u64>,
}

const NONE: u64 = 0;
const FENCE: u64 = 1;
const START: u64 = 2;
const LOCK: u64 = 3;
const LOCK_ALL: u64 = 4;

impl CurrentAccess {
    #[inline(always)]
    pub(super) fn get(&self) -> Access {
        match self.kind.get() {
            NONE => Access::None,
            FENCE => Access::Fence(self.number.get()),
            START => Access::Start,
            LOCK => Access::Lock(self.number.get() as usize),
            _ => Access::LockAll,
        }
    }

    #[inline(always)]
    pub(super) fn set(&self, access: Access) {
        let (kind, number) = match access {
            Access::None => (NONE, None),
            Access::Fence(number) => (FENCE, Some(number)),
            Access::Start => (START, None),
            Access::Lock(count) => (LOCK, Some(count as u64)),
            Access::LockAll => (LOCK_ALL, None),
        };
        if let Some(number) = number {
            self.number.set(number);
        }
        self.kind.set(kind);
    }

    /// Whether the epoch is a passive-target epoch. Other threads may call this.
    #[inline(always)]
    pub(super) fn reads_passive(&self) -> bool {
        matches!(self.kind.read(), LOCK | LOCK_ALL)
    }
}

/// The number of handles by which threads access the memory. While it is nonzero, exclusive local access is refused.
#[derive(Debug, Default)]
pub(crate) struct Handles(AtomicUsize);

impl Handles {
    pub(crate) fn add(&self) {
        // Relaxed: pairs with nothing. A handle is counted before it is passed to another thread.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self) {
        // Release: pairs with the Acquire of `is_empty`.
        self.0.fetch_sub(1, Ordering::Release);
    }

    pub(super) fn is_empty(&self) -> bool {
        // Acquire: pairs with the Release of `remove`.
        self.0.load(Ordering::Acquire) == 0
    }
}
