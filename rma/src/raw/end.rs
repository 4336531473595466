#![allow(unsafe_code)]
//! The end of a window: a collective free, a local release, or abandoned operations after an error.

use std::sync::atomic::Ordering;

use farside_core::signal::Pace;
use farside_core::{Error, ErrorKind, Result};

use super::target::{LockState, Target};
use super::{Access, RawWindow, cell, lockword, word};

struct AbandonOnDrop<'a>(&'a RawWindow);

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl RawWindow {
    /// Whether an exposure epoch that [`post`](Self::post) has opened is open.
    #[must_use]
    pub fn is_posted(&self) -> bool {
        self.groups.posted.borrow().is_open()
    }

    /// Whether this rank has locked its own memory.
    #[must_use]
    pub fn has_locked_itself(&self) -> bool {
        let locked = || self.targets[self.team.rank()].lock.get() != LockState::No;
        self.access.get() == Access::LockAll || matches!(self.access.get(), Access::Lock(_)) && locked()
    }

    /// Frees the window. Collective: waits for all ranks (a barrier), then deregisters or unmaps the memory. Also works
    /// for a window with an epoch that ended by an error.
    ///
    /// # Errors
    /// `WrongEpoch` if an epoch is open, or, although the window is then freed, if another rank has not released this
    /// rank's lock; `PeerLost`; `System` if memory could not be deregistered or unmapped.
    pub fn free(&self) -> Result<()> {
        const OP: &str = "free a window";
        if self.broken.get() && !self.released.get() {
            // The other ranks wait for this rank in this barrier, so it is entered even after an error.
            self.team.barrier()?;
            return self.release();
        }
        self.usable(OP)?;
        self.check_closed(OP)?;
        self.team.barrier()?;
        let at_rest = self.check_lock_free(OP);
        self.release()?;
        at_rest
    }

    /// A barrier at the end of the window, independent of the state of its fences. ⌈log2 P⌉ signals.
    ///
    /// # Errors
    /// `PeerLost`; the failure of another rank that will not enter the barrier.
    pub(crate) fn barrier_at_end(&self) -> Result<()> {
        let (p, me) = (self.team.size(), self.team.rank());
        for round in 0..p.next_power_of_two().trailing_zeros() {
            // The peers of different rounds are different ranks, so each cell is set once.
            let distance = 1 << round;
            self.signals.set((me + distance) % p, cell::END, 1)?;
            self.signals.wait("free a window", (me + p - distance) % p, cell::END, 1, Pace::EXCHANGE)?;
        }
        Ok(())
    }

    /// Checks for the call `operation` that this rank has closed all epochs except a fence epoch.
    ///
    /// # Errors
    /// `WrongEpoch`.
    pub fn check_closed(&self, operation: &'static str) -> Result<()> {
        if self.access.get() != Access::None && !matches!(self.access.get(), Access::Fence(_)) {
            return Err(self.wrong_epoch(operation, "an access epoch is open"));
        }
        if self.groups.posted.borrow().is_open() {
            return Err(self.wrong_epoch(operation, "an exposure epoch is open"));
        }
        Ok(())
    }

    /// Checks, after all ranks have closed their epochs, that no rank holds or waits for the lock of this rank's
    /// memory.
    fn check_lock_free(&self, operation: &'static str) -> Result<()> {
        if !self.options.locks {
            return Ok(());
        }
        let lock = self.signals.own_word(word::LOCK).load(Ordering::SeqCst);
        // The words of queued waiters do not reflect the lock's state.
        let ranks = if self.locking.uses_queue { 0 } else { self.team.size() };
        let claimed = (0..ranks).find(|r| self.signals.own_word(self.locking.claims + r).load(Ordering::SeqCst) != 0);
        if lockword::at_rest(lock) && claimed.is_none() {
            return Ok(());
        }
        let mut e = Error::new(ErrorKind::WrongEpoch, operation).rank(self.job.rank());
        if let Some(rank) = claimed {
            e = e.peer(self.team.members()[rank]);
        }
        Err(e.cause(format!(
            "the lock of this rank's memory is still held (lock word {lock:#x}): an epoch of another rank ended with \
             an error, or an update of the lock was lost"
        )))
    }

    /// Deregisters or unmaps the memory. Local: peers that still use the window get errors, or access memory that this
    /// rank no longer uses. Idempotent.
    ///
    /// # Errors
    /// `System` if the memory could not be deregistered; it must not be reused then.
    pub fn release(&self) -> Result<()> {
        if self.released.replace(true) {
            return Ok(());
        }
        self.end.set_unusable();
        self.abandon();
        for t in self.targets.iter() {
            t.ready.set(0);
            // SAFETY: all operations have just been abandoned, and no target is ready.
            unsafe { self.job.device().forget(t.region.handle) };
        }
        self.no_epoch();
        self.access.set(Access::None);
        self.serving.listener.forget(&self.job);
        if let Some(sgrs) = &self.operations.sgrs {
            sgrs.forget();
        }
        // SAFETY: all operations are abandoned, and by the contract of `create` no address of the memory is used after
        // this call.
        unsafe { self.job.device().release(self.own.handle) }
    }

    /// Drops messages that would change the memory until the next fence or post, since this rank may hold references to
    /// it.
    pub(crate) fn keep(&self) -> Result<()> {
        // This rank's own memory stays accessible after the end of the job.
        if self.released.get() || self.broken.get() {
            return Err(self.unusable("access a window's memory"));
        }
        self.serving.listener.expose(false);
        Ok(())
    }

    #[cold]
    pub(super) fn unusable(&self, operation: &'static str) -> Error {
        if self.released.get() {
            return Error::new(ErrorKind::Freed, operation).rank(self.job.rank());
        }
        if let Err(ended) = self.job.running(operation) {
            return ended;
        }
        Error::new(ErrorKind::WrongEpoch, operation)
            .rank(self.job.rank())
            .cause("a call on this window panicked or could not synchronize with the other ranks")
            .remedy("free the window and create a new one")
    }

    /// Whether the window has been released.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.released.get()
    }

    /// Runs `call`, after which buffers of operations may be dropped. If it fails or panics, all operations that are
    /// queued or in progress are abandoned.
    ///
    /// # Errors
    /// Any error of `call`.
    #[inline(always)]
    pub(crate) fn or_abandon<R>(&self, call: impl FnOnce() -> Result<R>) -> Result<R> {
        let guard = AbandonOnDrop(self);
        let done = call()?;
        std::mem::forget(guard);
        Ok(done)
    }

    /// Whether no operation to `target` is queued or in progress.
    pub(crate) fn is_idle(&self, target: usize) -> bool {
        !self.targets[target].is_busy() && !self.has_unposted(target)
    }

    /// Runs the closing call `call`, after which buffers of operations may be dropped. If it panics, or fails with
    /// operations queued or in progress, all of them are abandoned.
    ///
    /// # Errors
    /// Any error of `call`.
    #[inline(always)]
    pub(crate) fn close_by(&self, call: impl FnOnce() -> Result<()>) -> Result<()> {
        let guard = AbandonOnDrop(self);
        let done = call();
        if done.is_ok() || self.is_idle_everywhere() {
            std::mem::forget(guard);
        }
        done
    }

    #[cold]
    fn is_idle_everywhere(&self) -> bool {
        self.targets.iter().all(|t| self.is_idle(t.team_rank))
    }

    /// Abandons all operations that are queued or in progress: no buffer of this rank is accessed afterwards. For an
    /// epoch that ends by a panic or an error; the window is broken from then on.
    pub fn abandon(&self) {
        if !self.is_idle_everywhere() {
            self.lost.set(true);
        }
        self.operations.queue.borrow_mut().clear();
        self.operations.queued.set(false);
        if let Some(sgrs) = &self.operations.sgrs {
            sgrs.abandon();
        }
        for t in self.targets.iter().filter_map(Target::used) {
            t.withheld.replace(None);
            t.records.clear();
            if t.track.open() > 0 {
                self.job.cancel(&t.track);
            }
        }
        self.serving.records.forget();
        self.operations.copies.borrow_mut().clear();
        self.broken.set(true);
        self.end.set_unusable();
        self.no_epoch();
    }
}
