#![allow(unsafe_code)]
//! Accumulates and compare-and-swaps. On mapped windows they are executed immediately: single elements by CPU atomics,
//! several elements under the element lock of the target ([`super::element_lock`]), or under an exclusive lock of the
//! target.
//!
//! All of them are atomic with respect to each other, element by element, whatever their operations, and are applied in
//! the order in which a rank issues them. They are complete at the target after the call that closes the epoch or
//! flushes; on a mapped window previous values have been written on return. A concurrent put, or a concurrent store of
//! a rank to its own memory, may be lost.

use std::sync::atomic::Ordering;

use farside_core::device::Update;
use farside_core::job::Unnotified;
use farside_core::memory::copy;
use farside_core::stats::Kind;
use farside_core::{Error, ErrorKind, Result};

use super::element_lock::ElementAccess;
use super::item::{Item, narrow, widen};
use super::{RawWindow, Target, word};
use crate::op::{CasElement, Element, ElementType, Op, apply_alone, apply_bytes, kernel};

impl RawWindow {
    /// Whether single elements of `t` may be updated by CPU atomics without checking the element lock.
    #[inline(always)]
    fn uses_single_atomics(&self, t: &Target) -> bool {
        t.elements.shared.get() || !self.mapped && self.takes_atomics(t)
    }

    /// Accumulates `count` elements of type `T` at `operand` into `target`, each atomically, in the order in
    /// which this rank issues them. If `old` is not null, the previous values are written there.
    ///
    /// # Safety
    /// The contract of [`put`](Self::put) for `operand`, and of [`get`](Self::get) for `old`.
    ///
    /// # Errors
    /// Those of [`put`](Self::put); `Misaligned`, `Unsupported` for an operation that is not defined on the type.
    #[inline(always)]
    pub unsafe fn accumulate<T: Element>(
        &self,
        op: Op,
        operand: *const T,
        old: *mut T,
        count: usize,
        target: usize,
        offset: usize,
    ) -> Result<()> {
        // SAFETY: the same contract.
        unsafe {
            if count == 1 && self.try_accumulate(op, operand, old, target, offset) {
                return Ok(());
            }
            let len = count * size_of::<T>();
            self.accumulate_bytes(op, T::TYPE, operand.cast(), old.cast(), len, target, offset)
        }
    }

    /// Accumulates one element if a CPU atomic can do so immediately, and returns whether it did.
    ///
    /// # Safety
    /// `operand` is valid for reads, and `old` is null or valid for writes.
    #[inline(always)]
    pub unsafe fn try_accumulate<T: Element>(
        &self,
        op: Op,
        operand: *const T,
        old: *mut T,
        target: usize,
        offset: usize,
    ) -> bool {
        let len = size_of::<T>();
        let Some(t) = self.targets.get(target) else { return false };
        let Some(to) = self.direct_at(t, offset, len) else { return false };
        if !self.uses_single_atomics(t) {
            // SAFETY: the same contract.
            return unsafe { self.try_accumulate_array(op, T::TYPE, operand.cast(), old.cast(), len, target, offset) };
        }
        let may_load = || old.is_null() || self.job.store_order().may_load();
        if !(to.addr().is_multiple_of(len) && op.allowed(T::TYPE) && may_load()) {
            return false;
        }
        self.stats().add(Kind::Accumulate, len);
        // SAFETY: an aligned element inside the target's mapped memory, which all ranks update by these
        // kernels or word-wise copies; the buffers are valid by the contract.
        unsafe {
            let x = operand.read_unaligned();
            if old.is_null() {
                self.operations.stored.set(true);
                kernel::apply(op, to.cast::<T>(), x);
            } else {
                old.write_unaligned(kernel::fetch_apply(op, to.cast::<T>(), x));
            }
        }
        true
    }

    /// Accumulates elements of `len` bytes if the CPU can do so immediately, and returns whether it did. If `old` is
    /// not null, the previous values are written there.
    ///
    /// # Safety
    /// `operand` is valid for reads of `len` bytes, except for [`Op::NoOp`]. `old` is null, or valid for writes of
    /// `len` bytes and not part of `operand`.
    #[allow(clippy::too_many_arguments)]
    #[inline(never)]
    pub unsafe fn try_accumulate_array(
        &self,
        op: Op,
        ty: ElementType,
        operand: *const u8,
        old: *mut u8,
        len: usize,
        target: usize,
        offset: usize,
    ) -> bool {
        let Some(t) = self.targets.get(target) else { return false };
        let to = self.direct_at(t, offset, len).filter(|to| to.addr().is_multiple_of(ty.size()) && op.allowed(ty));
        let may_load = || old.is_null() || self.job.store_order().may_load();
        let Some(to) = to.filter(|_| (self.mapped || self.takes_atomics(t)) && may_load()) else { return false };
        let Some(access) = self.try_enter_elements(t, len == ty.size()) else { return false };
        self.stats().add(Kind::Accumulate, len);
        if old.is_null() {
            self.operations.stored.set(true);
        }
        // SAFETY: inside the target's mapped memory, which all ranks update in this way; the buffers are valid by the
        // contract.
        unsafe { kernel::change(access.is_exclusive(), op, ty, to, operand, old, len / ty.size()) };
        true
    }

    /// Begins updates that their owners apply, or ends them: where the device's atomics are not coherent with the
    /// processor's, this rank's other updates are refused meanwhile.
    ///
    /// # Errors
    /// Those of [`quiet`](Self::quiet).
    pub(crate) fn aggregate_updates(&self, begins: bool) -> Result<()> {
        if !self.job.device().capabilities().coherent {
            if begins {
                self.quiet()?;
            }
            let now = self.serving.aggregated.get();
            self.serving.aggregated.set(if begins { now + 1 } else { now.saturating_sub(1) });
        }
        Ok(())
    }

    /// Updates the element at byte `offset` of this rank's own memory, of which it is an aligned part, between
    /// [`aggregate_updates`](Self::aggregate_updates) of all ranks.
    pub(crate) fn update_own<T: Element>(&self, op: Op, value: T, offset: usize) -> Result<()> {
        let (me, len) = (self.team.rank(), size_of::<T>());
        if self.try_accumulate_value(op, value, me, offset) {
            return Ok(());
        }
        let at = self.own.base.wrapping_add(offset).cast::<T>();
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.own.len);
        if self.serving.aggregated.get() == 0 || !(is_inside && at.addr().is_multiple_of(len) && op.allowed(T::TYPE)) {
            self.accumulate_value(op, value, me, offset)?;
            return self.flush(me);
        }
        self.stats().add(Kind::Accumulate, len);
        // SAFETY: an aligned element inside of this rank's memory, which all ranks update by their owners' processors
        // meanwhile, and otherwise access by word-wise copies and by the device.
        unsafe { kernel::apply(op, at, value) };
        Ok(())
    }

    /// Accumulates elements of the type `ty`; the length is in bytes.
    ///
    /// # Safety
    /// The contract of [`accumulate`](Self::accumulate).
    ///
    /// # Errors
    /// Those of [`accumulate`](Self::accumulate); `BadArgument` for a length that is not a multiple of the element.
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn accumulate_bytes(
        &self,
        op: Op,
        ty: ElementType,
        operand: *const u8,
        old: *mut u8,
        len: usize,
        target: usize,
        offset: usize,
    ) -> Result<()> {
        op.check(ty, "accumulate")?;
        if !len.is_multiple_of(ty.size()) {
            return Err(Error::new(ErrorKind::BadArgument, "accumulate")
                .cause(format!("{len} bytes are not a multiple of the size of {ty}")));
        }
        // SAFETY: the same contract.
        if unsafe { self.try_accumulate_array(op, ty, operand, old, len, target, offset) } {
            return Ok(());
        }
        self.issue(target, Item::of_elements((op, ty), operand, old, len, offset), None)
    }

    /// Compares the integer at byte `offset` of `target` with `expected` and, if equal, sets it to `desired`;
    /// its previous value is written to `old`. Completes like a get. One message and its reply.
    ///
    /// # Safety
    /// The contract of [`get`](Self::get) for `old`.
    ///
    /// # Errors
    /// Those of [`put`](Self::put); `Misaligned`.
    #[inline(always)]
    pub unsafe fn compare_and_swap<T: CasElement>(
        &self,
        expected: T,
        desired: T,
        old: *mut T,
        target: usize,
        offset: usize,
    ) -> Result<()> {
        // SAFETY: the same contract.
        if unsafe { self.try_compare_and_swap(expected, desired, old, target, offset) } {
            return Ok(());
        }
        self.issue(target, Item::swap(expected, desired, old, offset), None)
    }

    /// Compares and swaps if a CPU atomic can do so immediately, and returns whether it did.
    ///
    /// # Safety
    /// `old` is valid for writes.
    #[inline(always)]
    pub unsafe fn try_compare_and_swap<T: CasElement>(
        &self,
        expected: T,
        desired: T,
        old: *mut T,
        target: usize,
        offset: usize,
    ) -> bool {
        let len = size_of::<T>();
        let Some(t) = self.targets.get(target) else { return false };
        let to = self.direct_at(t, offset, len);
        let to = to.filter(|to| to.addr().is_multiple_of(len) && self.job.store_order().may_load());
        let Some(to) = to else { return false };
        let swap = || {
            self.stats().add(Kind::CompareSwap, len);
            // SAFETY: an aligned integer inside the target's mapped memory; `old` is valid by the contract.
            unsafe { old.write_unaligned(narrow(copy::compare_swap(to, len, widen(expected), widen(desired)))) };
        };
        if self.uses_single_atomics(t) {
            swap();
            return true;
        }
        let access = self.enter_single(t);
        access.is_some_and(|_access| {
            swap();
            true
        })
    }

    /// Tries to enter the element lock of `t` for an update of one or of several elements.
    #[inline]
    fn try_enter_elements(&self, t: &Target, single: bool) -> Option<ElementAccess<'_>> {
        if !self.mapped {
            return Some(ElementAccess::Atomic);
        }
        // Later updates of single elements, after this lock is released, may still use atomics.
        if !single && t.is_locked_exclusively() && !self.operations.threads.get() {
            return Some(ElementAccess::Alone(None));
        }
        let word = self.signals.peer_word(t.team_rank, word::ELEMENTS)?;
        let access = t.elements.try_enter(word, self.team.rank(), single);
        if t.elements.shared.get() {
            // Relaxed: pairs with nothing. The program orders the operations of its threads with this call.
            self.operations.shares.store(true, Ordering::Relaxed);
        }
        access
    }

    /// Releases the shares of element locks that this rank still holds.
    #[inline(always)]
    pub(crate) fn end_shares(&self) {
        if self.operations.shares.load(Ordering::Relaxed) {
            self.end_kept_shares();
        }
    }

    #[cold]
    fn end_kept_shares(&self) {
        let of_threads = self.handles.is_empty();
        // Relaxed: pairs with nothing, as in `try_enter_elements`.
        self.operations.shares.store(!of_threads, Ordering::Relaxed);
        let word = |t: &Target| self.signals.peer_word(t.team_rank, word::ELEMENTS);
        self.targets.iter().for_each(|t| word(t).into_iter().for_each(|word| t.elements.end_shares(word, of_threads)));
    }

    /// [`try_enter_elements`](Self::try_enter_elements), waiting while another rank is inside.
    ///
    /// # Errors
    /// `PeerLost`.
    pub(crate) fn enter_elements(&self, t: &Target, single: bool) -> Result<ElementAccess<'_>> {
        if let Some(access) = self.try_enter_elements(t, single) {
            return Ok(access);
        }
        // A rank that leaves the lock notifies no waiter, so this wait must poll.
        let awaited = || self.awaited("accumulate", t.team_rank);
        self.job.wait(Unnotified(awaited), || Ok(self.try_enter_elements(t, single)))
    }

    /// Tries to enter for an update of one element when the lock is not already shared by this rank.
    #[cold]
    #[inline(never)]
    fn enter_single(&self, t: &Target) -> Option<ElementAccess<'_>> {
        self.try_enter_elements(t, true).filter(|_| self.mapped)
    }

    /// Executes an update of mapped memory, to which the element lock has granted access.
    ///
    /// # Safety
    /// `to` is the address of the update in the target's mapped memory, and the buffers are valid.
    ///
    /// # Errors
    /// `Misaligned`.
    pub(super) unsafe fn update_mapped(
        &self,
        t: &Target,
        access: &ElementAccess<'_>,
        name: &'static str,
        update: &Update,
        to: *mut u8,
    ) -> Result<()> {
        let function = if access.is_exclusive() { apply_alone } else { apply_bytes };
        // SAFETY: by the contract; access was granted.
        let updated = unsafe { update.apply(Some(function), to) };
        updated.map_err(|kind| {
            let e = Error::new(kind, name).rank(self.job.rank()).peer(t.region.peer);
            e.cause(format!("the element at byte {} of the window", update.at.offset))
        })
    }
}
