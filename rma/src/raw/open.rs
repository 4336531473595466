#![allow(unsafe_code)]
//! Windows that are always open: one passive-target epoch from creation to the end, without locks. Operations that are
//! complete on return, and signals.

use std::sync::atomic::{AtomicU64, Ordering};

use farside_core::device::{Operation, Place};
use farside_core::stats::Kind;
use farside_core::{Error, ErrorKind, Result};

use super::item::Item;
use super::target::LockState;
use super::{Access, RawWindow};
use crate::assert::Assert;
use crate::op::{Element, Op};

impl RawWindow {
    /// Opens the window for operations on all ranks, which take no locks. Sends nothing. Not counted as an epoch in the
    /// store order: [`quiet`](Self::quiet) makes the fence at once.
    pub(crate) fn open_always(&self) {
        let epoch = self.number_epoch(Access::LockAll);
        for t in &self.targets {
            t.lock.set(LockState::Unchecked);
            t.ready.set(epoch);
        }
    }

    /// Completes all operations, closes what [`open_always`](Self::open_always) has opened, and waits until all ranks
    /// have called this: then no rank accesses memory of another one. Collective; the messages of a fence.
    ///
    /// # Errors
    /// Those of [`flush_all`](Self::flush_all) and [`fence`](Self::fence).
    pub(crate) fn close_together(&self) -> Result<()> {
        let completed = self.unlock_all();
        self.meet()?;
        completed
    }

    /// Waits until all ranks have called this. Collective; the messages of a fence, which no other call can match.
    ///
    /// # Errors
    /// Those of [`fence`](Self::fence).
    pub(crate) fn meet(&self) -> Result<()> {
        self.fence(Assert::NOPRECEDE)?;
        self.fence(Assert::NOSUCCEED)
    }

    /// Completes all operations of this rank at origin and targets, and orders them before all its later loads, also
    /// those of its own memory.
    ///
    /// # Errors
    /// Those of [`flush_all`](Self::flush_all).
    #[inline]
    pub(crate) fn quiet(&self) -> Result<()> {
        self.flush_all()?;
        self.orphans.borrow_mut().sweep();
        self.full_fence();
        Ok(())
    }

    /// Issues an operation whose buffers end with the call, and flushes. If the flush fails, the operation is abandoned;
    /// an operation that was refused has not started.
    #[inline(always)]
    pub(crate) fn now(&self, target: usize, issue: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        self.or_abandon(|| match issue(self).map(|()| self.flush(target)) {
            Ok(Err(e)) if !self.is_idle(target) => Err(e),
            done => Ok(done.flatten()),
        })?
    }

    /// Makes progress once; returns whether the operations on `target`, or on all targets, are complete, and flushes if they
    /// are.
    ///
    /// # Errors
    /// Those of [`flush`](Self::flush).
    pub(crate) fn try_flush(&self, target: Option<usize>) -> Result<bool> {
        self.usable("flush")?;
        let targets = target.map_or_else(|| (0..self.targets.len()).collect(), |target| vec![target]);
        let queued = self.queued_targets();
        for target in targets.iter().filter(|target| queued.contains(target)) {
            self.look_again(*target);
            self.start_queued(Some(*target))?;
        }
        let is_idle = || targets.iter().all(|target| self.is_idle(*target));
        if !is_idle() {
            self.job.progress()?;
            self.job.check_peers()?;
        }
        if !is_idle() {
            return Ok(false);
        }
        target.map_or_else(|| self.flush_all(), |target| self.flush(target))?;
        Ok(true)
    }

    /// Accumulates one value, which need not outlive the call; complete after the next flush.
    ///
    /// # Errors
    /// Those of [`accumulate`](Self::accumulate).
    #[inline]
    pub(crate) fn accumulate_value<T: Element>(&self, op: Op, value: T, target: usize, offset: usize) -> Result<()> {
        // SAFETY: the operand is live, and there is no result.
        if unsafe { self.accumulate_now(op, &raw const value, std::ptr::null_mut(), target, offset) } {
            return Ok(());
        }
        op.check(T::TYPE, "accumulate")?;
        let (code, operand) = (crate::op::code(op, T::TYPE), self.copy_bytes(bytemuck::bytes_of(&value))?);
        let item = Item::Accumulate { code, operand, old: std::ptr::null_mut(), len: size_of::<T>(), offset };
        self.issue(target, item, None)
    }

    /// The word at byte `offset` of `target`, if it is mapped.
    #[inline]
    fn mapped_word(&self, target: usize, offset: usize) -> Option<&AtomicU64> {
        let at = self.direct(target, offset, 8).filter(|at| at.addr().is_multiple_of(8))?;
        // SAFETY: an aligned word of the target's mapped memory, which all ranks access by atomics and word-wise copies.
        Some(unsafe { AtomicU64::from_ptr(at.cast()) })
    }

    /// Checks for the call `operation` that a word at byte `offset` of `target` may be signalled, and returns its place.
    fn signal_place(&self, operation: &'static str, target: usize, offset: usize) -> Result<Place> {
        let t = self.target(target, operation)?;
        self.permit(operation, target)?;
        if offset.checked_add(8).is_none_or(|end| end > t.region.len) {
            return Err(Error::new(ErrorKind::OutOfRange, operation)
                .rank(self.job.rank())
                .peer(t.region.peer)
                .cause(format!("word {} of {}", offset / 8, t.region.len / 8)));
        }
        let (_, region, start) = t.remote;
        Ok(Place { region, offset: start + offset })
    }

    /// Sets the word at byte `offset` of `target` and wakes its rank. The operations of this rank on the target that were
    /// issued before are visible to a rank that sees the value. One message; a store where the memory is mapped.
    ///
    /// # Errors
    /// `NoSuchRank`, `OutOfRange`, `WrongEpoch`, `PeerLost`.
    #[inline]
    pub(crate) fn signal(&self, target: usize, offset: usize, value: u64) -> Result<()> {
        if let Some(word) = self.mapped_word(target, offset) {
            self.stats().add(Kind::Signal, 8);
            // Release: pairs with the Acquire of a rank that waits for the word.
            word.store(value, Ordering::Release);
            self.wake(target);
            return Ok(());
        }
        let at = self.signal_place("signal a peer", target, offset)?;
        if target == self.team.rank() && self.job.device().capabilities().own_by_copy {
            // SAFETY: as in `mapped_word`, in this rank's own memory.
            let word = unsafe { AtomicU64::from_ptr(self.own.base.add(offset).cast()) };
            self.stats().add(Kind::Signal, 8);
            word.store(value, Ordering::Release);
            return Ok(());
        }
        // SAFETY: no local memory is involved.
        unsafe { self.job.post(self.targets[target].region.peer, Operation::Signal { at, value }, None, &[]) }.map(drop)
    }

    /// Adds to the word at byte `offset` of `target` and wakes its rank, which the word at byte `bell` is set for where
    /// memory is not mapped. Ordered like [`signal`](Self::signal). One message and, if memory is not mapped, its answer.
    ///
    /// # Errors
    /// Those of [`signal`](Self::signal).
    #[inline]
    pub(crate) fn signal_add(&self, target: usize, offset: usize, add: u64, bell: (usize, u64)) -> Result<()> {
        if let Some(word) = self.mapped_word(target, offset) {
            self.stats().add(Kind::FetchAdd, 8);
            // AcqRel: Release as in `signal`; Acquire, so that a chain of additions is ordered.
            word.fetch_add(add, Ordering::AcqRel);
            self.wake(target);
            return Ok(());
        }
        const OP: &str = "signal a peer";
        let (at, bell_at) = (self.signal_place(OP, target, offset)?, self.signal_place(OP, target, bell.0)?);
        let t = &self.targets[target];
        let operation = Operation::FetchAdd { at, add, old: std::ptr::null_mut() };
        // SAFETY: no local memory is involved.
        unsafe { self.job.post(t.region.peer, operation, Some((bell_at, bell.1)), &[&t.track]) }.map(drop)
    }

    /// Checks that `rank` is in the team and that element `at` is one of `len`.
    ///
    /// # Errors
    /// `NoSuchRank`, `OutOfRange`.
    #[inline]
    pub(crate) fn check_element(&self, rank: usize, at: usize, len: usize) -> Result<()> {
        const OP: &str = "address an element";
        let t = self.target(rank, OP)?;
        if at < len {
            return Ok(());
        }
        let e = Error::new(ErrorKind::OutOfRange, OP).rank(self.job.rank()).peer(t.region.peer);
        Err(e.cause(format!("element {at} of {len}")))
    }

    #[inline]
    fn wake(&self, target: usize) {
        self.job.device().wake(self.targets[target].region.peer);
    }
}
