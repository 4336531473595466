#![allow(unsafe_code)]
//! Passive target: lock, lock_all, unlock, flush, sync (MPI-4 §12.5.3).
//!
//! The lock is a word at the target that origins change by remote atomics; the target takes no part. Grants
//! are in the order of requests ([`super::lockword`]). On a window that is mapped:
//!
//! | call | atomics on the word |
//! |---|---|
//! | lock exclusive, shared | one, when called: the ticket (readers enter with it if nobody is in the way) |
//! | lock_all | none when called; one at the first access to each target |
//! | unlock, unlock_all | one for each target that was accessed or locked, none for others |
//! | `NOCHECK` | none |
//!
//! Who locks the same target again and again enters by a claim instead ([`super::bias`]): one atomic exchange on a
//! line of its own to lock, a plain store to unlock.
//!
//! Where the word is not mapped each is a message (a shared lock two: a look and a compare-and-swap), and the request is
//! put off until the first operation: lock itself sends nothing, and an epoch without operations sends nothing at all.
//! Who has to wait there is notified when its turn has come ([`super::lockqueue`]).
//!
//! A reader's ticket keeps those behind it waiting until that reader has entered. So it is taken by calls that wait for the
//! lock alone, which enter as soon as they may, and one at a time: two readers that wait for two targets in different
//! orders do not wait for each other, and one that waits for something else keeps nobody waiting. Before, a reader enters
//! if nobody is in its way, or leaves the word alone. A writer's ticket is taken at once: whoever has to wait for that
//! would have to wait for the lock as well.

use farside_core::{Error, ErrorKind, Result};

pub use super::target::LockKind;
use super::target::{LockState, Target};
use super::{Access, RawWindow};
use crate::assert::Assert;

impl RawWindow {
    /// Locks `target`'s memory. Never blocks: operations wait in a queue until the lock is granted.
    ///
    /// # Errors
    /// `WrongEpoch` if this rank has locked it already, or another kind of epoch is open; `Unsupported` on a
    /// window made without locks; `NoSuchRank`.
    pub fn lock(&self, kind: LockKind, target: usize, asserts: Assert) -> Result<()> {
        const OP: &str = "lock";
        self.called(OP);
        let t = self.target(target, OP)?;
        if self.access.get() == Access::None && !asserts.contains(Assert::NOCHECK) && self.lock_by_claim(kind, t) {
            return Ok(());
        }
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
            // A word that is mapped costs no message: ask at once.
            if self.signals.is_mapped(target) && self.advance(target)? {
                t.ready.set(self.epoch.get());
            }
        }
        self.access.set(Access::Lock(count + 1));
        Ok(())
    }

    /// Opens an access to every rank under shared locks, taken one by one at the first access to each.
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
        for t in &self.targets {
            if asserts.contains(Assert::NOCHECK) {
                t.lock.set(LockState::Unchecked);
                t.ready.set(epoch);
            } else {
                t.lock.set(LockState::Wanted(LockKind::Shared));
            }
        }
        Ok(())
    }

    /// Completes all operations on `target`, there too, and releases its lock.
    ///
    /// # Errors
    /// `WrongEpoch` without lock; `PeerLost`; the first error of an operation, after which the lock is released nevertheless.
    pub fn unlock(&self, target: usize) -> Result<()> {
        const OP: &str = "unlock";
        self.called(OP);
        let t = self.target(target, OP)?;
        // Where all is mapped and nothing waits in the queue, all operations are complete.
        if t.lock.get() == LockState::Claimed
            && self.access.get() == Access::Lock(1)
            && self.mapped
            && self.epoch.get() != super::NO_EPOCH
            && self.operations.queue.borrow().is_empty()
            && !self.operations.failed.get()
        {
            self.leave_by_claim(t, target);
            t.lock.set(LockState::No);
            t.ready.set(0);
            self.close_epoch();
            return Ok(());
        }
        self.usable(OP)?;
        let Access::Lock(count) = self.access.get() else {
            return Err(self.wrong_epoch(OP, "lock was not called"));
        };
        if t.lock.get() == LockState::No {
            return Err(self.not_locked(OP, t));
        }
        self.or_abandon(|| self.leave(OP, target))?;
        self.access.set(Access::Lock(count - 1));
        if count == 1 {
            self.close_epoch();
        }
        self.serving.answers.check().and(t.track.check())
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
        for target in 0..self.targets.len() {
            self.or_abandon(|| self.leave(OP, target))?;
        }
        self.close_epoch();
        self.outcome()
    }

    /// Completes all operations of this rank on `target`, there too. What later operations of this rank read is not from
    /// before that; its own loads of memory that ranks share are ordered by [`sync`](Self::sync).
    ///
    /// # Errors
    /// `WrongEpoch` outside a passive epoch; `PeerLost`; the first error of an operation.
    #[inline]
    pub fn flush(&self, target: usize) -> Result<()> {
        const OP: &str = "flush";
        self.called(OP);
        self.check_passive(OP)?;
        let t = self.target(target, OP)?;
        if t.lock.get() == LockState::No {
            return Err(self.not_locked(OP, t));
        }
        if !self.operations.queue.borrow().is_empty() {
            self.enter(OP, target)?;
        }
        // On mapped windows operations are copies, and complete when they return.
        if self.mapped && t.track.open() == 0 {
            t.track.check()?;
        } else {
            self.complete_at(target)?;
        }
        self.finish_flush()
    }

    /// The end of a flush. Stores to mapped memory may still be in this processor's buffer: what this rank reads next must
    /// not overtake them, and pays for that. Copies succeed to and from memory of a rank that is lost, so flushes look for
    /// one now and then.
    #[inline]
    fn finish_flush(&self) -> Result<()> {
        if self.operations.stored.replace(false) {
            self.job.store_order().fence_before_load();
        }
        self.locking.flushes.set(self.locking.flushes.get().wrapping_add(1));
        if self.locking.flushes.get().is_multiple_of(4096) { self.job.check_peers() } else { Ok(()) }
    }

    /// Completes all operations of this rank, at their targets too.
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

    /// Completes all operations of this rank on `target` locally: buffers are free, gets have arrived.
    ///
    /// # Errors
    /// Those of [`flush`](Self::flush).
    pub fn flush_local(&self, target: usize) -> Result<()> {
        const OP: &str = "flush_local";
        self.called(OP);
        self.check_passive(OP)?;
        let t = self.target(target, OP)?;
        if t.lock.get() == LockState::No {
            return Err(self.not_locked(OP, t));
        }
        self.enter(OP, target)?;
        self.complete_at(target)
    }

    fn complete_locally(&self, operation: &'static str) -> Result<()> {
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

    /// Completes all operations if another lock is still held: the end of an epoch inside another.
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
                .cause("the window was made without locks")
                .remedy("make the window with `locks: true`"));
        }
        self.leave_fence(operation)
    }

    #[inline]
    pub(super) fn check_passive(&self, operation: &'static str) -> Result<()> {
        if matches!(self.access.get(), Access::LockAll | Access::Lock(_)) && self.epoch.get() != super::NO_EPOCH {
            return Ok(());
        }
        self.usable(operation)?;
        Err(self.wrong_epoch(operation, "no lock is held"))
    }

    #[cold]
    fn not_locked(&self, operation: &'static str, t: &Target) -> Error {
        self.wrong_epoch(operation, "the target is not locked by this rank").peer(t.region.peer)
    }

    /// For an operation: an error if `target` is not locked by this rank, or lent to it.
    pub(crate) fn permit_locked(&self, name: &'static str, target: usize) -> Result<()> {
        match self.targets[target].lock.get() {
            LockState::No => Err(self.not_locked(name, &self.targets[target])),
            LockState::Local(_) => Err(self.wrong_epoch(name, "the memory is lent out for local access")),
            _ => Ok(()),
        }
    }

    /// For an operation: whether `target`'s lock is held, asking for it if that was put off.
    pub(crate) fn locked(&self, name: &'static str, target: usize) -> Result<bool> {
        self.permit_locked(name, target)?;
        match self.targets[target].lock.get() {
            LockState::No | LockState::Local(_) => Ok(false),
            LockState::Unchecked | LockState::Inside(..) | LockState::Claimed => Ok(true),
            LockState::Wanted(_)
            | LockState::Deferred
            | LockState::Waiting(..)
            | LockState::InLine(..)
            | LockState::Draining(..) => self.advance(target),
        }
    }

    /// Locks this rank's own memory exclusively, waits for the lock, and keeps all operations off the memory
    /// until [`unlock`](Self::unlock): for local access by load and store.
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
            LockState::Claimed => t.lock.set(LockState::Local(None)),
            _ => {}
        }
        t.ready.set(0);
        Ok(())
    }
}
