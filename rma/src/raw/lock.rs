#![allow(unsafe_code)]
//! Passive target: lock, lock_all, unlock, flush, sync (MPI-4 §12.5.3).
//!
//! The lock is a word at the target that origins update by remote atomics; the target does not participate. Locks are
//! granted in the order of requests (`lockword`). On a mapped window:
//!
//! | call | atomics on the word |
//! |---|---|
//! | lock exclusive, shared | one, when called: the ticket (a reader enters with it if no writer is inside or waits) |
//! | lock_all | none when called; one at the first access to each target |
//! | unlock, unlock_all | one for each target that was accessed or locked |
//! | `NOCHECK` | none |
//!
//! A rank that repeatedly locks the same target enters by claim instead (`bias`): one atomic exchange on its own cache
//! line to lock, a plain store to unlock.
//!
//! If the word is not mapped, each atomic is a message (a shared lock takes two: a read and a compare-and-swap), and
//! the request is deferred until the first operation: lock itself sends nothing, and an epoch without operations sends
//! nothing at all. A rank that has to wait is notified when it may enter (`lockqueue`). The unlock message is sent
//! after puts without waiting for them, since devices make writes visible before a later atomic.
//!
//! A reader's ticket blocks all later tickets until that reader has entered. So a reader takes a ticket only in a call
//! that waits for this lock alone, and only one at a time: two readers that wait for two targets in different orders do
//! not deadlock, and a reader that waits for something else blocks no rank. Outside of such calls a reader enters only
//! if no writer holds or waits for the lock, and otherwise leaves the word unchanged. A writer takes its ticket
//! immediately: a rank behind that ticket would have to wait for the lock anyway.

use farside_core::{Error, ErrorKind, Result};

pub use super::target::LockKind;
use super::target::{LockState, Target};
use super::threads::CHECK_PEERS;
use super::{Access, RawWindow};
use crate::assert::Assert;

impl RawWindow {
    /// Locks `target`'s memory by claim, if no epoch is open and the bias covers this rank; returns whether it did. The
    /// target is then ready; otherwise the caller calls [`lock`](Self::lock), which requests the lock or returns the
    /// error.
    #[inline]
    pub fn try_lock(&self, kind: LockKind, target: usize) -> bool {
        let t = self.targets.get(target).filter(|_| self.access.get() == Access::None && self.job.is_plain());
        t.is_some_and(|t| self.lock_by_claim(kind, t))
    }

    /// Locks `target`'s memory. Never blocks: operations wait in a queue until the lock is granted.
    ///
    /// # Errors
    /// `WrongEpoch` if this rank has locked it already, or another kind of epoch is open; `Unsupported` on a
    /// window made without locks; `NoSuchRank`.
    pub fn lock(&self, kind: LockKind, target: usize, asserts: Assert) -> Result<()> {
        const OP: &str = "lock";
        if !asserts.contains(Assert::NOCHECK) && self.try_lock(kind, target) {
            return Ok(());
        }
        self.called_for(OP, target);
        let t = self.target(target, OP)?;
        self.check_lockable(OP)?;
        let count = match self.access.get() {
            Access::None => {
                self.open_epoch(Access::Lock(0), self.mapped && !asserts.contains(Assert::NOCHECK));
                0
            }
            Access::Lock(count) => count,
            _ => return Err(self.wrong_epoch(OP, "another access epoch is open")),
        };
        if t.lock.get() != LockState::No {
            return Err(self.wrong_epoch(OP, "the target is locked by this rank already").peer(t.region.peer));
        }
        if asserts.contains(Assert::NOCHECK) {
            t.lock.set(LockState::Unchecked);
            t.ready.set(self.epoch.get());
        } else {
            t.lock.set(LockState::Wanted(kind));
            // Accessing a mapped word costs no message, so the lock is requested immediately.
            if self.signals.is_mapped(target) && self.advance(target)? {
                t.ready.set(self.epoch.get());
            }
        }
        self.access.set(Access::Lock(count + 1));
        Ok(())
    }

    /// Opens an access epoch to every rank under shared locks; each lock is taken at the first access to its rank.
    /// Sends nothing.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock).
    pub fn lock_all(&self, asserts: Assert) -> Result<()> {
        const OP: &str = "lock_all";
        self.called(OP);
        self.check_lockable(OP)?;
        if self.access.get() != Access::None {
            return Err(self.wrong_epoch(OP, "another access epoch is open"));
        }
        let epoch = self.open_epoch(Access::LockAll, self.mapped && !asserts.contains(Assert::NOCHECK));
        if asserts.contains(Assert::NOCHECK) {
            self.set_all_locks(LockState::Unchecked, Some(epoch));
        } else {
            self.set_all_locks(LockState::Wanted(LockKind::Shared), None);
        }
        Ok(())
    }

    /// Sets the lock state of every target, including targets that are used later; they are ready in `epoch`, if given.
    pub(super) fn set_all_locks(&self, state: LockState, epoch: Option<u64>) {
        self.unused.lock.set(state);
        for t in self.targets.iter() {
            t.lock.set(state);
            if let Some(epoch) = epoch {
                t.ready.set(epoch);
            }
        }
    }

    /// Completes all operations on `target`, at origin and target, and releases its lock.
    ///
    /// # Errors
    /// `WrongEpoch` if the target is not locked; `PeerLost`; the first error of an operation, in which case the lock is
    /// still released.
    pub fn unlock(&self, target: usize) -> Result<()> {
        const OP: &str = "unlock";
        if self.try_unlock(target) {
            return Ok(());
        }
        self.called_for(OP, target);
        self.unlock_by_word(OP, self.target(target, OP)?, target)
    }

    /// Releases a claim, if that closes the epoch without waiting, and returns whether it did. Otherwise it does
    /// nothing, and the caller calls [`unlock`](Self::unlock), which completes the operations or returns the error.
    #[inline]
    pub fn try_unlock(&self, target: usize) -> bool {
        let claimed =
            |t: &&Target| matches!(t.lock.get(), LockState::Claimed(_)) && self.access.get() == Access::Lock(1);
        let Some(t) = self.targets.get(target).filter(claimed) else { return false };
        // On a mapped window with an empty queue, all operations are complete.
        let is_complete = (self.mapped || !self.has_pending(t, target))
            && self.epoch.get() != super::NO_EPOCH
            && !self.has_queued()
            && !self.operations.failed.get();
        if !is_complete || !self.job.is_plain() {
            return false;
        }
        self.leave_by_claim(t, target);
        t.lock.set(LockState::No);
        t.ready.set(0);
        self.close_epoch();
        true
    }

    /// [`unlock`](Self::unlock) of a lock that is not a claim, or with operations still to be completed.
    #[inline(never)]
    fn unlock_by_word(&self, operation: &'static str, t: &Target, target: usize) -> Result<()> {
        self.usable(operation)?;
        let Access::Lock(count) = self.access.get() else {
            return Err(self.wrong_epoch(operation, "lock was not called"));
        };
        if t.lock.get() == LockState::No {
            return Err(self.not_locked(operation, t));
        }
        self.or_abandon(|| self.leave(operation, target))?;
        self.access.set(Access::Lock(count - 1));
        if count == 1 {
            self.close_epoch();
        }
        self.checked(t)
    }

    /// Completes all operations and releases all locks of [`lock_all`](Self::lock_all).
    ///
    /// # Errors
    /// Those of [`unlock`](Self::unlock).
    pub fn unlock_all(&self) -> Result<()> {
        const OP: &str = "unlock_all";
        self.called(OP);
        self.usable(OP)?;
        if self.access.get() != Access::LockAll {
            return Err(self.wrong_epoch(OP, "lock_all was not called"));
        }
        for t in self.targets.iter() {
            self.or_abandon(|| self.leave(OP, t.team_rank))?;
        }
        self.unused.lock.set(LockState::No);
        self.end_shares();
        self.close_epoch();
        self.outcome()
    }

    /// Completes all operations of this rank on `target`, at origin and target. Later operations of this rank do not
    /// read older values; [`sync`](Self::sync) orders its own loads of shared memory.
    ///
    /// # Errors
    /// `WrongEpoch` outside a passive epoch; `PeerLost`; the first error of an operation.
    #[inline]
    pub fn flush(&self, target: usize) -> Result<()> {
        const OP: &str = "flush";
        if self.flush_if_idle(target) {
            return Ok(());
        }
        self.called_for(OP, target);
        self.check_passive(OP)?;
        let t = self.target(target, OP)?;
        if t.lock.get() == LockState::No {
            return Err(self.not_locked(OP, t));
        }
        if self.has_queued() {
            self.enter(OP, target)?;
        }
        // On mapped windows operations are copies, and complete when they return.
        if self.mapped && t.open() == 0 {
            t.check()?;
        } else {
            self.complete_at(target)?;
        }
        self.finish_flush()
    }

    /// Flushes if the target is ready and no wait is needed, and returns whether it did. Otherwise it does nothing, and
    /// the caller calls [`flush`](Self::flush), which completes the operations or returns the error.
    #[inline(always)]
    pub fn flush_if_idle(&self, target: usize) -> bool {
        let Some(t) = self.targets.get(target) else { return false };
        let is_passive = matches!(self.access.get(), Access::LockAll | Access::Lock(_));
        let is_idle = is_passive && t.ready.get() == self.epoch.get() && t.open() == 0 && !t.has_failed();
        let next = self.locking.next_flush();
        if !is_idle || next.is_multiple_of(CHECK_PEERS) || !self.job.is_plain() {
            return false;
        }
        if !self.mapped && self.has_pending(t, target) {
            return false;
        }
        if self.has_queued() {
            return false;
        }
        if self.operations.stored.replace(false) {
            self.job.store_order().fence_before_load();
        }
        self.locking.set_flushes(next);
        true
    }

    /// Whether an operation to an unmapped target may be in progress, withheld or queued, or may have failed; or whether
    /// this rank must serve its peers.
    #[inline(never)]
    fn has_pending(&self, t: &Target, target: usize) -> bool {
        self.serving.accumulates
            || t.is_busy()
            || t.has_failed()
            || self.has_unposted(target)
            || self.must_serve(target)
    }

    /// Whether peers' operations on this rank's memory, which is `target`, take effect only while this rank is in the runtime.
    /// Its own operations on it are complete at once; a program that repeats them until a peer has changed the memory
    /// lets the peer's take effect.
    #[inline(never)]
    pub(super) fn must_serve(&self, target: usize) -> bool {
        target == self.team.rank() && !self.mapped && !self.job.device().capabilities().passive
    }

    /// The last part of a flush. Stores to mapped memory may still be in this CPU's store buffer, so a memory fence
    /// keeps later loads from overtaking them. Copies to and from mapped memory of a lost rank succeed, so every 4096th
    /// flush checks the peers.
    #[inline]
    fn finish_flush(&self) -> Result<()> {
        if self.operations.stored.replace(false) {
            self.job.store_order().fence_before_load();
        }
        let flushes = self.locking.next_flush();
        self.locking.set_flushes(flushes);
        if flushes.is_multiple_of(CHECK_PEERS) { self.job.check_peers() } else { Ok(()) }
    }

    /// Completes all operations of this rank, at origin and targets.
    ///
    /// # Errors
    /// Those of [`flush`](Self::flush).
    pub fn flush_all(&self) -> Result<()> {
        const OP: &str = "flush_all";
        self.called(OP);
        self.check_passive(OP)?;
        self.complete_locally(OP)?;
        self.finish_flush()
    }

    /// Completes all operations of this rank on `target` locally: buffers are free, and gets have arrived.
    ///
    /// # Errors
    /// Those of [`flush`](Self::flush).
    pub fn flush_local(&self, target: usize) -> Result<()> {
        const OP: &str = "flush_local";
        self.called_for(OP, target);
        self.check_passive(OP)?;
        let t = self.target(target, OP)?;
        if t.lock.get() == LockState::No {
            return Err(self.not_locked(OP, t));
        }
        self.enter(OP, target)?;
        self.complete_at(target)
    }

    fn complete_locally(&self, operation: &'static str) -> Result<()> {
        if self.operations.starting.get() {
            self.job.wait(operation, || Ok((!self.operations.starting.get()).then_some(())))?;
        }
        self.queued_targets().into_iter().try_for_each(|target| self.enter(operation, target))?;
        self.complete_all()
    }

    /// Completes all operations of this rank locally.
    ///
    /// # Errors
    /// Those of [`flush`](Self::flush).
    pub fn flush_local_all(&self) -> Result<()> {
        const OP: &str = "flush_local_all";
        self.called(OP);
        self.check_passive(OP)?;
        self.complete_locally(OP)
    }

    /// Completes all operations locally, at the end of a nested epoch while the lock of the enclosing epoch is still
    /// held.
    pub(crate) fn complete_enclosing(&self) -> Result<()> {
        if matches!(self.access.get(), Access::Lock(_)) { self.flush_local_all() } else { Ok(()) }
    }

    /// Orders this rank's own loads and stores of its window before and after the call.
    ///
    /// # Errors
    /// `Freed`.
    pub fn sync(&self) -> Result<()> {
        self.called("sync");
        self.usable("sync")?;
        self.full_fence();
        Ok(())
    }

    fn check_lockable(&self, operation: &'static str) -> Result<()> {
        self.usable(operation)?;
        if !self.options.locks {
            return Err(Error::new(ErrorKind::Unsupported, operation)
                .rank(self.job.rank())
                .cause("the window was created without locks")
                .remedy("create the window with `locks: true`"));
        }
        self.leave_fence(operation)
    }

    #[inline]
    pub(super) fn check_passive(&self, operation: &'static str) -> Result<()> {
        self.usable(operation)?;
        if matches!(self.access.get(), Access::LockAll | Access::Lock(_)) && self.epoch.get() != super::NO_EPOCH {
            return Ok(());
        }
        Err(self.wrong_epoch(operation, "no lock is held"))
    }

    #[cold]
    fn not_locked(&self, operation: &'static str, t: &Target) -> Error {
        self.wrong_epoch(operation, "the target is not locked by this rank").peer(t.region.peer)
    }

    /// Checks that this rank has locked `target`, and not for local access.
    pub(crate) fn permit_locked(&self, name: &'static str, target: usize) -> Result<()> {
        match self.targets[target].lock.get() {
            LockState::No => Err(self.not_locked(name, &self.targets[target])),
            LockState::Local(_) => Err(self.wrong_epoch(name, "the target's memory is borrowed for local access")),
            _ => Ok(()),
        }
    }

    /// Whether the lock of `target` is held, so that an operation may access it now; sends a deferred lock request.
    pub(crate) fn locked(&self, name: &'static str, target: usize) -> Result<bool> {
        self.permit_locked(name, target)?;
        match self.targets[target].lock.get() {
            LockState::No | LockState::Local(_) => Ok(false),
            LockState::Unchecked | LockState::Inside(..) | LockState::Claimed(_) => Ok(true),
            LockState::Wanted(_)
            | LockState::Deferred
            | LockState::Waiting(..)
            | LockState::Queued(..)
            | LockState::Draining(..) => self.advance(target),
        }
    }

    /// Locks this rank's own memory exclusively, waits for the lock, and makes all operations on it fail until
    /// [`unlock`](Self::unlock), for local access by loads and stores.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock); `PeerLost`.
    pub fn lock_local(&self) -> Result<()> {
        let me = self.team.rank();
        self.lock(LockKind::Exclusive, me, Assert::empty())?;
        self.hold(me)?;
        let t = &self.targets[me];
        match t.lock.get() {
            LockState::Inside(_, ticket) => t.lock.set(LockState::Local(Some(ticket))),
            LockState::Claimed(_) => t.lock.set(LockState::Local(None)),
            _ => {}
        }
        t.ready.set(0);
        Ok(())
    }
}
