#![allow(unsafe_code)]
//! Accumulates and compare-and-swaps. Those of mapped windows are made at once: single elements by atomics of the processor,
//! several under the element lock of the target ([`super::element_lock`]).
//!
//! All of them are atomic with each other, element by element, whatever their operations, and in the order in which a rank
//! issues them. They are complete at the target after the call that closes the epoch or flushes; on a mapped window previous
//! values are there on return. A put, or a store of a rank to its own memory, at the same time may be lost.

use farside_core::device::{Change, Update};
use farside_core::job::Unnotified;
use farside_core::memory::copy;
use farside_core::stats::Kind;
use farside_core::{Error, ErrorKind, Result};

use super::element_lock::ElementAccess;
use super::item::{Item, narrow, widen};
use super::{RawWindow, Target, word};
use crate::op::{CasElement, Element, ElementType, Op, code, kernel, read};

impl ElementAccess<'_> {
    /// Makes an accumulate of elements that this access was granted for; previous values go to `old` unless it is null.
    ///
    /// # Safety
    /// The contract of [`kernel::fetch_accumulate`].
    #[inline]
    unsafe fn update(&self, op: Op, ty: ElementType, to: *mut u8, operand: *const u8, old: *mut u8, count: usize) {
        // SAFETY: the same contract; no other rank updates the elements during an exclusive access.
        unsafe {
            if self.is_exclusive() {
                kernel::update_exclusively(op, ty, to, operand, old, count);
            } else {
                kernel::update_atomically(op, ty, to, operand, old, count);
            }
        }
    }

    /// [`update`](Self::update) by wire code. Returns `false`, and changes nothing, for a malformed one.
    ///
    /// # Safety
    /// The contract of [`apply_bytes`](crate::op::apply_bytes).
    pub(super) unsafe fn apply(&self, code: u32, to: *mut u8, operand: *const u8, old: *mut u8, len: usize) -> bool {
        let Some((op, ty)) = read(code, to, len) else { return false };
        // SAFETY: alignment and length were checked; the ranges are valid by the contract.
        unsafe { self.update(op, ty, to, operand, old, len / ty.size()) };
        true
    }
}

impl RawWindow {
    /// Whether single elements of `t` are updated by the processor's atomics, without a look at the lock.
    #[inline(always)]
    fn takes_singles(&self, t: &Target) -> bool {
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

    /// Accumulates one element if the CPU can do it at once, and returns whether it did.
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
        if !self.takes_singles(t) {
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

    /// Accumulates elements of `len` bytes if the CPU can do it at once, and returns whether it did. If `old` is not
    /// null, the previous values are written there.
    ///
    /// # Safety
    /// `operand` is valid for reads of `len` bytes, except for [`Op::NoOp`]. `old` is null, or valid for writes of `len`
    /// bytes and not part of `operand`.
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
        // SAFETY: inside the target's mapped memory, which all ranks update so; the buffers are valid by the contract.
        unsafe { access.update(op, ty, to, operand, old, len / ty.size()) };
        true
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
            return Err(Error::new(ErrorKind::BadArgument, "accumulate").cause(format!("{len} bytes of {ty}")));
        }
        // SAFETY: the same contract.
        if unsafe { self.try_accumulate_array(op, ty, operand, old, len, target, offset) } {
            return Ok(());
        }
        let change = Change::Accumulate { code: code(op, ty), operand };
        self.issue(target, Item::update(change, old, len, offset), None)
    }

    /// Compares the integer at byte `offset` of `target` with `expected` and, if equal, sets it to `desired`;
    /// its previous value is written to `old`. Completes like a get. One message and its answer.
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
        let (len, expected, desired) = (size_of::<T>(), widen(expected), widen(desired));
        self.issue(target, Item::update(Change::Swap { expected, desired }, old.cast(), len, offset), None)
    }

    /// Compares and swaps if the CPU can do it at once, and returns whether it did.
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
        if self.takes_singles(t) {
            swap();
            return true;
        }
        let access = self.enter_single(t);
        access.is_some_and(|_access| {
            swap();
            true
        })
    }

    /// Tries to enter for an update of elements of `t`, of a single one or of several.
    #[inline]
    fn try_enter_elements(&self, t: &Target, single: bool) -> Option<ElementAccess<'_>> {
        if t.elements.shared.get() || !self.mapped {
            return Some(ElementAccess::ATOMIC);
        }
        t.elements.try_enter(self.signals.peer_word(t.team_rank, word::ELEMENTS)?, self.team.rank(), single)
    }

    /// [`try_enter_elements`](Self::try_enter_elements), waiting while another rank is inside.
    ///
    /// # Errors
    /// `PeerLost`.
    pub(crate) fn enter_elements(&self, t: &Target, single: bool) -> Result<ElementAccess<'_>> {
        if let Some(access) = self.try_enter_elements(t, single) {
            return Ok(access);
        }
        // A rank that leaves notifies no waiter, so this wait must poll.
        let awaited = || self.awaited("accumulate", t.team_rank);
        self.job.wait(Unnotified(awaited), || Ok(self.try_enter_elements(t, single)))
    }

    /// Tries to enter for an update of one element that finds the lock not shared.
    #[cold]
    #[inline(never)]
    fn enter_single(&self, t: &Target) -> Option<ElementAccess<'_>> {
        self.try_enter_elements(t, true).filter(|_| self.mapped)
    }

    /// Makes an update of mapped memory of a mapped window that was not made at once.
    ///
    /// # Safety
    /// `to` is the place of the update in the target's memory, and the buffers are valid.
    ///
    /// # Errors
    /// `Misaligned`; `PeerLost` if another rank was lost that holds the element lock.
    pub(super) unsafe fn update_mapped(
        &self,
        t: &Target,
        name: &'static str,
        update: &Update,
        to: *mut u8,
    ) -> Result<()> {
        let access = self.enter_elements(t, update.len == update.element())?;
        let refused = |kind| {
            let e = Error::new(kind, name).rank(self.job.rank()).peer(t.region.peer);
            e.cause(format!("byte {} of the window", update.at.offset))
        };
        // SAFETY: by the contract; access was granted.
        unsafe {
            match update.change {
                Change::Accumulate { code, operand } => {
                    if !access.apply(code, to, operand, update.old, update.len) {
                        return Err(refused(ErrorKind::Misaligned));
                    }
                }
                _ => update.apply(None, to).map_err(refused)?,
            }
        }
        Ok(())
    }
}
