#![allow(unsafe_code)]
//! Operations on mapped memory by any thread of a rank, without a lock.
//!
//! A window belongs to one thread, or to the holder of a lock, since its operations are queued, are tracked, and make
//! progress. On memory that every rank maps, operations are copies and CPU atomics, which need only addresses and
//! lengths, which never change, and the set of ready targets in the current epoch ([`Published`](super::published)).
//! [`MappedWindow`] provides only these operations; everything else must be a call on the window itself.
//!
//! Elements are updated by CPU atomics, under a share of the element lock, so a thread that is descheduled during an
//! update does not block the updates of other threads.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use farside_core::memory::copy;
use farside_core::stats::Kind;
use farside_core::{Error, Result};

use super::element_lock::ElementAccess;
use super::item::{narrow, widen};
use super::published::Handles;
use super::state::LockingState;
use super::{NO_EPOCH, RawWindow, Target, word};
use crate::op::{CasElement, ElementType, Op, kernel};

/// Number of flushes, or of operations of a thread, after which a flush checks the peers.
pub(super) const CHECK_PEERS: u32 = 4096;

impl LockingState {
    /// The number of the next flush.
    #[inline(always)]
    pub(super) fn next_flush(&self) -> u32 {
        // Relaxed: a hint, which pairs with nothing.
        self.flushes.load(Ordering::Relaxed).wrapping_add(1)
    }

    #[inline(always)]
    pub(super) fn set_flushes(&self, flushes: u32) {
        // Relaxed: a hint, which pairs with nothing.
        self.flushes.store(flushes, Ordering::Relaxed);
    }
}

/// The operations on a window that any thread of its rank may make, concurrently with each other and with calls on the
/// window. Each of them is executed immediately, or does nothing and returns `false`: if the target is not ready in the
/// current epoch, if the range is out of bounds, or if a copy or a CPU atomic cannot do it. The caller then makes the
/// call on the window, which executes the operation or returns the error.
///
/// Operations of one thread on one element are in the order in which it issues them. The program orders the operations
/// of several threads, and all of them after the call that opens the epoch and before the call that closes it. An
/// operation is complete at the target after a flush by the thread that made it, or after the closing call, if the
/// program orders that call after the operation.
///
/// ```
/// use farside_rma::prelude::*;
/// use farside_rma::raw::{Options, RawWindow};
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let window = RawWindow::allocate(&team, 16, Options::default())?;
///     window.lock_all(Assert::NOCHECK)?;
///     let mapped = window.mapped().expect("ranks that are threads map all memory");
///     std::thread::scope(|scope| {
///         for place in 0..2 {
///             scope.spawn(move || {
///                 let data = [place as u8 + 1; 8];
///                 // SAFETY: `data` is valid during the call, after which it is not read.
///                 assert!(unsafe { mapped.try_put(data.as_ptr(), 8, 0, 8 * place) });
///                 assert!(mapped.try_flush(Some(0)));
///             });
///         }
///     });
///     window.unlock_all()?;
///     window.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MappedWindow<'a> {
    window: &'a RawWindow,
}

// SAFETY: the methods read fields that do not change after the window was made (the mapped memory and signal arrays of
// the targets, ranks, the address of the counters), published numbers by atomic loads, and counters that are atomics.
// They write the published number of flushes by an atomic store. None of them clones or drops a part of the window.
unsafe impl Send for MappedWindow<'_> {}
// SAFETY: as above.
unsafe impl Sync for MappedWindow<'_> {}

impl RawWindow {
    /// Whether operations wait for their targets to be ready.
    #[inline]
    pub(crate) fn has_queued(&self) -> bool {
        self.operations.queued.get()
    }

    /// Checks that no other thread accesses the memory.
    ///
    /// # Errors
    /// `WrongEpoch`.
    pub(crate) fn check_no_handles(&self, operation: &'static str) -> Result<()> {
        if self.handles.is_empty() {
            return Ok(());
        }
        let e = self.wrong_epoch(operation, "a handle for access by threads still exists, or updates are aggregated");
        Err(e.remedy("drop the handle returned by `shared`, or finish the updates, before this call"))
    }

    /// Counts the objects that may access the memory outside of calls on the window.
    pub(crate) fn handles(&self) -> &Handles {
        &self.handles
    }

    /// The operations that any thread of this rank may make; `None` if the memory of some rank is not mapped, so that
    /// operations on it are messages.
    #[must_use]
    pub fn mapped(&self) -> Option<MappedWindow<'_>> {
        self.operations.threads.set(true);
        self.mapped.then_some(MappedWindow { window: self })
    }
}

impl<'a> MappedWindow<'a> {
    /// The same value with a lifetime that the caller chooses.
    ///
    /// # Safety
    /// The window lives, and is not moved, until the last use of the result.
    #[must_use]
    pub unsafe fn outliving<'b>(self) -> MappedWindow<'b> {
        // SAFETY: by the contract.
        MappedWindow { window: unsafe { &*std::ptr::from_ref(self.window) } }
    }

    /// The counter of the handles for typed elements.
    pub(crate) fn handles(self) -> &'a Handles {
        &self.window.handles
    }

    /// This rank in the team.
    #[must_use]
    pub fn rank(self) -> usize {
        self.window.team.rank()
    }

    /// Checks that `len` bytes at `offset` of `target` may be accessed now.
    ///
    /// # Errors
    /// `NoSuchRank`, `OutOfRange`, `WrongEpoch`.
    #[cold]
    pub(crate) fn check(self, name: &'static str, target: usize, offset: usize, len: usize) -> Result<()> {
        self.window.check_range(name, target, offset, len)?;
        if self.direct(target, offset, len).is_some() { Ok(()) } else { Err(self.not_ready(name, target)) }
    }

    /// The error of an operation on a target outside an epoch.
    #[cold]
    pub(crate) fn not_ready(self, name: &'static str, target: usize) -> Error {
        let e = self.window.wrong_epoch(name, "the target is not locked by this rank, and its memory is not exposed");
        e.peer(self.peer(target))
    }

    /// The address of `len` bytes at `offset` of a target that is ready.
    #[inline(always)]
    fn direct(self, target: usize, offset: usize, len: usize) -> Option<(&'a Target, *mut u8)> {
        let window = self.window;
        let t = window.targets.get(target)?;
        let last = t.hi.checked_sub(len)?;
        let is_inside = t.lo <= offset && offset <= last;
        // While operations are queued for their targets, later operations must not overtake them.
        let is_ready = t.ready.read() == window.epoch.read() && !window.operations.queued.read();
        (is_inside && is_ready).then(|| (t, t.base.wrapping_add(offset)))
    }

    /// The word at byte `offset` of a target that is ready.
    #[inline]
    pub(crate) fn word(self, target: usize, offset: usize) -> Option<&'a AtomicU64> {
        let (_, at) = self.direct(target, offset, 8).filter(|(_, at)| at.addr().is_multiple_of(8))?;
        // SAFETY: an aligned word of the target's mapped memory, which all ranks access by atomics and word-wise copies, and
        // which is mapped as long as the window lives.
        Some(unsafe { AtomicU64::from_ptr(at.cast()) })
    }

    /// The job rank of a target.
    #[inline]
    pub(crate) fn peer(self, target: usize) -> u32 {
        self.window.targets.get(target).map_or(u32::MAX, |t| t.region.peer)
    }

    #[inline(always)]
    pub(crate) fn count(self, kind: Kind, len: usize) {
        let before = self.window.stats().add_in_any_thread(kind, len);
        if (before + 1).is_multiple_of(CHECK_PEERS.into()) {
            // The next flush fails here and becomes a call on the window, which checks the peers.
            self.window.locking.set_flushes(CHECK_PEERS - 1);
        }
    }

    /// Puts `len` bytes to byte `offset` of `target`; returns whether it did.
    ///
    /// # Safety
    /// `from` is valid for reads of `len` bytes during the call. The program orders the call as [`MappedWindow`] requires.
    #[inline]
    pub unsafe fn try_put(self, from: *const u8, len: usize, target: usize, offset: usize) -> bool {
        let Some((_, to)) = self.direct(target, offset, len) else { return false };
        self.count(Kind::Write, len);
        // SAFETY: `to` is inside the target's mapped memory; `from` is valid by the contract.
        unsafe { copy::store(from, to, len) };
        true
    }

    /// Gets `len` bytes from byte `offset` of `target`; returns whether it did.
    ///
    /// # Safety
    /// `into` is valid for writes of `len` bytes during the call. The program orders the call as [`MappedWindow`] requires.
    #[inline]
    pub unsafe fn try_get(self, into: *mut u8, len: usize, target: usize, offset: usize) -> bool {
        let Some((_, from)) = self.direct(target, offset, len) else { return false };
        self.count(Kind::Read, len);
        // SAFETY: as in `try_put`.
        unsafe { copy::load(from, into, len) };
        true
    }

    /// Accumulates elements of `len` bytes, and writes the previous values to `old` unless it is null; returns whether it
    /// did. Fails if another rank holds the element lock of the target.
    ///
    /// # Safety
    /// The contract of [`RawWindow::try_accumulate_array`]. The program orders the call as [`MappedWindow`] requires.
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn try_accumulate(
        self,
        op: Op,
        ty: ElementType,
        operand: *const u8,
        old: *mut u8,
        len: usize,
        target: usize,
        offset: usize,
    ) -> bool {
        let Some((t, to)) = self.direct(target, offset, len) else { return false };
        if !to.addr().is_multiple_of(ty.size()) || !len.is_multiple_of(ty.size()) || !op.allowed(ty) {
            return false;
        }
        let Some(_access) = self.share_elements(t, len == ty.size()) else { return false };
        self.count(Kind::Accumulate, len);
        // SAFETY: inside the target's mapped memory, which all ranks update in this way; the buffers are valid by the
        // contract.
        unsafe { kernel::change(false, op, ty, to, operand, old, len / ty.size()) };
        true
    }

    /// Compares the integer at byte `offset` of `target` with `expected` and, if equal, sets it to `desired`; returns its
    /// previous value. `None` in the cases in which [`try_accumulate`](Self::try_accumulate) returns `false`.
    pub fn try_compare_and_swap<T: CasElement>(
        self,
        expected: T,
        desired: T,
        target: usize,
        offset: usize,
    ) -> Option<T> {
        let len = size_of::<T>();
        let (t, to) = self.direct(target, offset, len).filter(|(_, to)| to.addr().is_multiple_of(len))?;
        let _access = self.share_elements(t, true)?;
        self.count(Kind::CompareSwap, len);
        // SAFETY: an aligned integer inside the target's mapped memory.
        Some(narrow(unsafe { copy::compare_swap(to, len, widen(expected), widen(desired)) }))
    }

    /// Completes this thread's operations on `target`, or on all targets, at origin and targets; returns whether it did.
    /// Later operations of this thread do not read older values.
    #[inline]
    pub fn try_flush(self, target: Option<usize>) -> bool {
        fence(Ordering::SeqCst);
        self.try_flush_fenced(target)
    }

    /// [`try_flush`](Self::try_flush) of a thread that has executed a full fence since its last operation.
    #[inline]
    pub fn try_flush_fenced(self, target: Option<usize>) -> bool {
        self.try_flush_local(target) && !self.window.locking.next_flush().is_multiple_of(CHECK_PEERS)
    }

    /// Completes this thread's operations on `target`, or on all targets, locally; returns whether it did.
    #[inline]
    pub fn try_flush_local(self, target: Option<usize>) -> bool {
        let (window, epoch) = (self.window, self.window.epoch.read());
        let is_ready = |target| window.targets.get(target).is_some_and(|t| t.ready.read() == epoch);
        window.access.reads_passive()
            && epoch != NO_EPOCH
            && target.is_none_or(is_ready)
            && !window.operations.queued.read()
            && !window.operations.requests.read()
    }

    #[inline]
    fn share_elements(self, t: &'a Target, single: bool) -> Option<ElementAccess<'a>> {
        let word = || {
            // Relaxed: pairs with nothing. The program orders the call that ends the shares after this update.
            self.window.operations.shares.store(true, Ordering::Relaxed);
            self.window.signals.peer_word(t.team_rank, word::ELEMENTS)
        };
        t.elements.share_in_any_thread(word, single)
    }
}
