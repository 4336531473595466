#![allow(unsafe_code)]
//! Windows that are always open: one passive-target epoch, without locks, from creation to the end. Also blocking
//! operations and signals.

use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Pod;
use farside_core::bill::{Bill, SignalKind};
use farside_core::device::{Operation, Place};
use farside_core::stats::Kind;
use farside_core::{Error, ErrorKind, Result};

use super::fence::ENDS;
use super::item::{Item, Request};
use super::target::LockState;
use super::{Access, RawWindow};
use crate::elements::WindowElement;
use crate::op::{Element, Op};

const SIGNAL: &str = "signal a peer";

/// The access to a signalled word of a target.
enum SignalWord<'a> {
    /// This rank's CPU updates the word.
    Direct(&'a AtomicU64),
    /// A device request updates the word.
    At(Place),
}

impl RawWindow {
    /// Opens the window for operations on all ranks without locks. Sends nothing. Not counted as an epoch in the store
    /// order, since [`quiet`](Self::quiet) executes the memory fence itself.
    pub(crate) fn open_always(&self) {
        let epoch = self.number_epoch(Access::LockAll);
        self.set_all_locks(LockState::Unchecked, Some(epoch));
    }

    /// A barrier between epochs: no operation is allowed during the wait, not even by a remote function that runs in
    /// it. Collective; uses signals of this window, so no other call can match them.
    ///
    /// # Errors
    /// Those of [`fence`](Self::fence).
    pub(crate) fn barrier(&self) -> Result<()> {
        self.or_abandon(|| self.pass_barrier(ENDS)).map(drop)
    }

    /// Completes all operations of this rank at origin and targets, and orders them before all its later loads,
    /// including those of its own memory.
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

    /// Issues operations whose buffers live only until this call returns, and flushes. If the flush fails, the
    /// operations are abandoned. If `issue` fails, the operations that it has already issued are completed too.
    #[inline(always)]
    pub(crate) fn blocking(&self, target: usize, issue: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        self.job.running("access a window")?;
        self.or_abandon(|| {
            let issued = issue(self);
            if issued.is_err() && (target >= self.targets.ranks() || self.is_idle(target)) {
                return Ok(issued);
            }
            match self.flush(target) {
                Err(e) if !self.is_idle(target) => Err(e),
                flushed => Ok(issued.and(flushed)),
            }
        })?
    }

    /// Makes progress once; returns whether the operations on `target`, or on all targets, are complete, and flushes if
    /// they are. A requested lock is then held, so that it can be released without waiting.
    ///
    /// # Errors
    /// Those of [`flush`](Self::flush).
    pub(crate) fn try_flush(&self, target: Option<usize>) -> Result<bool> {
        self.usable("flush")?;
        let targets: Vec<usize> =
            target.map_or_else(|| self.targets.iter().map(|t| t.team_rank).collect(), |target| vec![target]);
        let queued = self.queued_targets();
        for target in targets.iter().filter(|target| queued.contains(target)) {
            self.recheck(*target);
            self.start_queued(Some(*target))?;
        }
        let is_idle = || targets.iter().all(|target| self.is_idle(*target));
        let requested = |target: &usize| {
            let state = self.targets[*target].lock.get();
            matches!(state, LockState::Waiting(..) | LockState::Queued(..) | LockState::Draining(..))
        };
        if !is_idle() || targets.iter().any(requested) {
            self.job.progress()?;
            self.job.check_peers()?;
        }
        for target in targets.iter().filter(|target| requested(target)) {
            if !self.locked("flush", *target)? {
                return Ok(false);
            }
        }
        if !is_idle() {
            return Ok(false);
        }
        target.map_or_else(|| self.flush_all(), |target| self.flush(target))?;
        Ok(true)
    }

    /// Waits for an operation; it may have been completed before the window was freed.
    ///
    /// # Errors
    /// Those of [`wait_request`](Self::wait_request); `Aborted` if operations of the window were abandoned.
    pub(crate) fn complete_request(&self, request: &Request, target: usize) -> Result<()> {
        if !request.done() {
            self.wait_done(request, target)?;
        }
        self.outcome_of(request)
    }

    /// Makes progress once; returns whether an operation is complete.
    ///
    /// # Errors
    /// Those of [`complete_request`](Self::complete_request).
    pub(crate) fn is_complete(&self, request: &Request, target: usize) -> Result<bool> {
        if !request.done() && !self.test_done(request, target)? {
            return Ok(false);
        }
        self.outcome_of(request).map(|()| true)
    }

    /// The outcome of a complete operation, which remains available.
    fn outcome_of(&self, request: &Request) -> Result<()> {
        if self.lost.get() {
            return Err(Error::new(ErrorKind::Aborted, "complete an operation")
                .rank(self.job.rank())
                .cause("operations of the window were abandoned after an error")
                .remedy("see the earlier error; free the window and create a new one"));
        }
        request.track.outcome()
    }

    /// Accumulates one value, which need not outlive the call; complete after the next flush.
    ///
    /// # Errors
    /// Those of [`accumulate`](Self::accumulate).
    #[inline]
    pub(crate) fn accumulate_value<T: Element>(&self, op: Op, value: T, target: usize, offset: usize) -> Result<()> {
        self.job.running("accumulate")?;
        // SAFETY: the operand is live, and there is no result.
        if self.try_accumulate_value(op, value, target, offset) {
            return Ok(());
        }
        op.check(T::TYPE, "accumulate")?;
        let (operand, len) = (self.copy_bytes(bytemuck::bytes_of(&value))?, size_of::<T>());
        self.issue(target, Item::of_elements((op, T::TYPE), operand, std::ptr::null_mut(), len, offset), None)
    }

    /// Accumulates one value if a CPU atomic can do so immediately, and returns whether it did.
    #[inline(always)]
    pub(crate) fn try_accumulate_value<T: Element>(&self, op: Op, value: T, target: usize, offset: usize) -> bool {
        // SAFETY: the operand is live, and there is no result.
        unsafe { self.try_accumulate(op, &raw const value, std::ptr::null_mut(), target, offset) }
    }

    /// Gets one value by a load, if memory is mapped.
    #[inline(always)]
    pub(crate) fn try_get_value<T: Pod>(&self, target: usize, offset: usize) -> Option<T> {
        let mut value = T::zeroed();
        // SAFETY: the value is valid for writes of its size.
        unsafe { self.try_get((&raw mut value).cast(), size_of::<T>(), target, offset) }.then_some(value)
    }

    /// Gets one value; complete on return.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub(crate) fn get_value<T: Pod>(&self, target: usize, offset: usize) -> Result<T> {
        let mut value = T::zeroed();
        let into = (&raw mut value).cast();
        // SAFETY: the value is valid during the call, and `blocking` completes or abandons the operation.
        self.blocking(target, |raw| unsafe { raw.get(into, size_of::<T>(), target, offset) })?;
        Ok(value)
    }

    /// The word at byte `offset` of `target`, if it is mapped.
    #[inline]
    fn mapped_word(&self, target: usize, offset: usize) -> Option<&AtomicU64> {
        let at = self.direct(target, offset, 8).filter(|at| at.addr().is_multiple_of(8))?;
        // SAFETY: an aligned word of the target's mapped memory, which all ranks access by atomics and word-wise
        // copies.
        Some(unsafe { AtomicU64::from_ptr(at.cast()) })
    }

    /// Reports the signals of this window, whose words are flags, to the trace from now on, if one is recorded.
    pub(crate) fn watch_signals(&mut self) {
        if self.job.bill().is_some_and(Bill::is_traced) {
            // No range counts as mapped for `mapped_word`, so that signals are sent as device requests and reported.
            self.end.change(&mut self.targets, |targets| targets.iter_mut().for_each(|t| (t.lo, t.hi) = (1, 0)));
        }
    }

    /// Reports a signal to the trace, if one is recorded; returns the word, if it is mapped.
    #[inline(never)]
    fn watched_word(&self, target: usize, offset: usize, value: u64) -> Option<&AtomicU64> {
        let t = &self.targets[target];
        if let Some((bill, account)) = self.job.bill().zip(self.account) {
            bill.signalled(account, SignalKind::Flag(offset / 8), t.region.peer, value);
        }
        let mapped = t.region.mapped.filter(|mapped| offset >= mapped.lo && offset + 8 <= mapped.hi)?;
        // SAFETY: as in `mapped_word`.
        Some(unsafe { AtomicU64::from_ptr(mapped.base.add(offset).cast()) })
    }

    /// Checks for the call `operation` that a word at byte `offset` of `target` may be signalled, and returns the
    /// target and the device's address of the word.
    fn signal_place(&self, operation: &'static str, target: usize, offset: usize) -> Result<Place> {
        let t = self.target(target, operation)?;
        self.usable(operation)?;
        self.permit(operation, target)?;
        if offset.checked_add(8).is_none_or(|end| end > t.region.len) {
            return Err(Error::new(ErrorKind::OutOfRange, operation)
                .rank(self.job.rank())
                .peer(t.region.peer)
                .cause(format!("word {} is outside the {} words of the window", offset / 8, t.region.len / 8)));
        }
        let (_, region, start) = t.remote;
        Ok(Place { region, offset: start + offset })
    }

    /// Whether `target` may be signalled by a store to mapped memory, which could overwrite an addition by the device.
    #[inline]
    fn takes_signals(&self, target: usize) -> bool {
        self.mapped || self.targets[target].atomics || target == self.team.rank()
    }

    /// How to signal the word at byte `offset` of `target` with `value`.
    #[inline]
    fn signal_word(
        &self,
        target: usize,
        offset: usize,
        value: u64,
        is_direct: impl Fn() -> bool,
    ) -> Result<SignalWord<'_>> {
        if let Some(word) = self.mapped_word(target, offset).filter(|_| is_direct()) {
            return Ok(SignalWord::Direct(word));
        }
        let at = self.signal_place(SIGNAL, target, offset)?;
        let watched = self.watched_word(target, offset, value).filter(|_| is_direct());
        Ok(watched.map_or(SignalWord::At(at), SignalWord::Direct))
    }

    /// Sets the word at byte `offset` of `target` and wakes its rank. A rank that sees the value also sees the
    /// operations that this rank has previously issued to the target. One message; a store where the memory is mapped.
    ///
    /// # Errors
    /// `NoSuchRank`, `OutOfRange`, `WrongEpoch`, `PeerLost`.
    #[inline]
    pub(crate) fn signal(&self, target: usize, offset: usize, value: u64) -> Result<()> {
        self.job.running(SIGNAL)?;
        let word = match self.signal_word(target, offset, value, || self.takes_signals(target))? {
            SignalWord::Direct(word) => word,
            // SAFETY: as in `mapped_word`, in this rank's own memory.
            SignalWord::At(_) if target == self.team.rank() && self.job.device().capabilities().own_by_copy => unsafe {
                AtomicU64::from_ptr(self.own.base.add(offset).cast())
            },
            SignalWord::At(at) => {
                let (peer, signal) = (self.targets[target].region.peer, Operation::Signal { at, value });
                // SAFETY: no local memory is involved.
                return unsafe { self.job.post(peer, signal, None, &[]) }.map(drop);
            }
        };
        self.stats().add(Kind::Signal, 8);
        // Release: pairs with the Acquire of a rank that waits for the word.
        word.store(value, Ordering::Release);
        self.wake(target);
        Ok(())
    }

    /// Adds to the word at byte `offset` of `target` and wakes its rank; if memory is not mapped, the word at byte
    /// `bell` is set for that purpose. Ordered like [`signal`](Self::signal). One message and, if memory is not mapped,
    /// its reply.
    ///
    /// # Errors
    /// Those of [`signal`](Self::signal).
    #[inline]
    pub(crate) fn signal_add(&self, target: usize, offset: usize, add: u64, bell: (usize, u64)) -> Result<()> {
        self.job.running(SIGNAL)?;
        // If memory is not mapped, the device executes the additions of all ranks, including this rank's own.
        let at = match self.signal_word(target, offset, add, || self.mapped)? {
            SignalWord::Direct(word) => {
                self.stats().add(Kind::FetchAdd, 8);
                // AcqRel: Release as in `signal`; Acquire, so that a chain of additions is ordered.
                word.fetch_add(add, Ordering::AcqRel);
                self.wake(target);
                return Ok(());
            }
            SignalWord::At(at) => at,
        };
        let bell_at = self.signal_place(SIGNAL, target, bell.0)?;
        let t = &self.targets[target];
        t.reads.set(true);
        let operation = Operation::fetch_add(at, add, std::ptr::null_mut());
        // SAFETY: no local memory is involved.
        unsafe { self.job.post(t.region.peer, operation, Some((bell_at, bell.1)), &[&t.track]) }.map(drop)
    }

    /// Checks that `rank` is in the team and that element `at` is one of `len`.
    ///
    /// # Errors
    /// `NoSuchRank`, `OutOfRange`.
    #[inline]
    pub(crate) fn check_element(&self, op: &'static str, rank: usize, at: usize, len: usize) -> Result<()> {
        let t = self.target(rank, op)?;
        if at < len {
            return Ok(());
        }
        let e = Error::new(ErrorKind::OutOfRange, op).rank(self.job.rank()).peer(t.region.peer);
        Err(e.cause(format!("element {at} is outside {} of {len} elements", WindowElement::object(self.element))))
    }

    #[inline]
    fn wake(&self, target: usize) {
        self.job.device().wake(self.targets[target].region.peer);
    }
}
