//! Post-start-complete-wait (MPI-4 §12.5.2).
//!
//! | call | sends | waits for |
//! |---|---|---|
//! | post | one signal to each origin of the group; none with `NOCHECK` | nothing |
//! | start | nothing | nothing |
//! | complete | one signal to each target, carried by the last operation to it if operations are messages | the posts of targets that have operations; its own operations |
//! | wait | nothing | the completes of its origins |
//!
//! Operations start when they are issued if the target's post has arrived, and are queued if not. Accumulates that the
//! target's CPU applies ([`farside_core::service::records`]) wait for a full packet or for complete; if they return
//! previous values, complete also waits for an answer of the target, which is inside the runtime in wait at the latest.

use farside_core::bill::SignalKind;
use farside_core::signal::Pace;
use farside_core::{Error, ErrorKind, Result};

use super::state::Replaced;
use super::{Access, RawWindow, cell};
use crate::assert::Assert;

impl RawWindow {
    /// Opens an exposure of this rank's memory to `origins` (team ranks). Never blocks. |origins| messages.
    ///
    /// # Errors
    /// `WrongEpoch` if one is open; `NoSuchRank`; `BadArgument` for a rank given twice; `PeerLost`, after which the
    /// window is broken.
    pub fn post(&self, origins: &[usize], asserts: Assert) -> Result<()> {
        const OP: &str = "post";
        self.check_group(OP, origins)?;
        self.leave_fence(OP)?;
        if self.groups.posted.borrow().is_open() {
            return Err(self.wrong_epoch(OP, "an exposure epoch is open"));
        }
        self.called_to(OP, SignalKind::Post, origins);
        let notify = |origin: &usize| {
            let t = &self.targets[*origin];
            t.posts.set(t.posts.get() + 1);
            if asserts.contains(Assert::NOCHECK) {
                Ok(())
            } else {
                self.signals.set(*origin, cell::POST, t.posts.get())
            }
        };
        self.serving.listener.expose(true);
        // If one origin cannot be notified, others have been and may write, so the window becomes unusable.
        self.or_abandon(|| origins.iter().try_for_each(notify))?;
        self.groups.posted.borrow_mut().open(origins);
        Ok(())
    }

    /// Opens an access to `targets` (team ranks). Never blocks, sends nothing.
    ///
    /// # Errors
    /// Those of [`post`](Self::post).
    pub fn start(&self, targets: &[usize], asserts: Assert) -> Result<()> {
        const OP: &str = "start";
        self.called(OP);
        self.check_group(OP, targets)?;
        self.leave_fence(OP)?;
        if self.access.get() != Access::None {
            return Err(self.wrong_epoch(OP, "another access epoch is open"));
        }
        let epoch = self.open_epoch(Access::Start, false);
        let mut started = self.groups.started.borrow_mut();
        for target in targets {
            let t = &self.targets[*target];
            t.starts.set(t.starts.get() + 1);
            // Marks targets whose posts have already arrived as ready, so that operations need not check for them.
            if asserts.contains(Assert::NOCHECK) || self.signals.reached(*target, cell::POST, t.starts.get()) {
                t.ready.set(epoch);
            }
            started.push(*target);
        }
        Ok(())
    }

    /// Closes the access: on return this rank's buffers are free, and its operations complete at targets that
    /// have returned from wait. One message for each target, unless an operation carries it.
    ///
    /// # Errors
    /// `WrongEpoch` without start; `PeerLost`; the first error of an operation, in which case the access is still
    /// closed.
    pub fn complete(&self) -> Result<()> {
        const OP: &str = "complete";
        self.usable(OP)?;
        if self.access.get() != Access::Start {
            return Err(self.wrong_epoch(OP, "start was not called"));
        }
        self.called_to(OP, SignalKind::Complete, &self.groups.started.borrow());
        let completing = Replaced::replace(&self.groups.completing, true);
        self.or_abandon(|| self.finish_access())?;
        drop(completing);
        self.groups.started.borrow_mut().clear();
        self.close_epoch();
        self.outcome()
    }

    /// Completes all operations, whether they succeed or fail, and notifies the targets.
    fn finish_access(&self) -> Result<()> {
        const OP: &str = "complete";
        if !self.operations.queue.borrow().is_empty() {
            // A post is a signal to this rank, so its arrival ends the wait.
            let first = || self.operations.queue.borrow().first().map_or(self.team.rank(), |queued| queued.target);
            self.job.wait(
                || self.awaited(OP, first()),
                || {
                    self.start_queued(None)?;
                    Ok(self.operations.queue.borrow().is_empty().then_some(()))
                },
            )?;
        }
        if self.has_only_copies() {
            let notify = |target: &usize| self.signals.set(*target, cell::COMPLETE, self.targets[*target].starts.get());
            return self.groups.started.borrow().iter().try_for_each(notify);
        }
        self.operations.failed.set(true);
        let started = self.groups.started.borrow();
        let notice = |target: &usize| (*target, cell::COMPLETE, self.targets[*target].starts.get());
        started.iter().map(notice).try_for_each(|(target, cell, value)| self.notify(target, cell, value))?;
        started.iter().map(notice).try_for_each(|(target, cell, value)| self.settle_notified(target, cell, value))
    }

    /// Closes the exposure: waits until all its origins have completed. Sends nothing.
    ///
    /// # Errors
    /// `WrongEpoch` without post; `PeerLost`; the error of a transfer in which this rank participated, in which case
    /// the exposure is still closed.
    pub fn wait(&self) -> Result<()> {
        const OP: &str = "wait";
        self.called(OP);
        self.check_posted(OP)?;
        self.or_abandon(|| {
            for origin in self.groups.posted.borrow().members() {
                let (origin, number) = (*origin, self.targets[*origin].posts.get());
                let completed = || self.signals.reached(origin, cell::COMPLETE, number);
                let mapped = self.signals.is_mapped(origin);
                self.job.wait_signal(|| self.awaited(OP, origin), Pace::ANSWER, mapped, completed)?;
            }
            self.groups.posted.borrow_mut().close();
            Ok(())
        })?;
        self.end_lists()
    }

    /// Tests without blocking whether the exposure is closed now.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    pub fn test(&self) -> Result<bool> {
        self.called("test");
        self.check_posted("test")?;
        self.job.progress()?;
        let has_completed = |o: &usize| self.signals.reached(*o, cell::COMPLETE, self.targets[*o].posts.get());
        let all = self.groups.posted.borrow().members().iter().all(has_completed) && self.has_no_open_lists();
        if all {
            self.note_epoch("exposure epoch", false);
            self.groups.posted.borrow_mut().close();
            self.end_lists()?;
        } else {
            self.job.check_peers()?;
        }
        Ok(all)
    }

    /// Whether all operations of this access were copies and are therefore complete.
    #[inline]
    fn has_only_copies(&self) -> bool {
        let idle = |target: &usize| {
            let t = &self.targets[*target];
            !t.is_busy() && !t.has_failed()
        };
        self.mapped && self.operations.sgrs.is_none() && self.groups.started.borrow().iter().all(idle)
    }

    fn check_posted(&self, operation: &'static str) -> Result<()> {
        self.usable(operation)?;
        if !self.groups.posted.borrow().is_open() {
            Err(self.wrong_epoch(operation, "post was not called"))
        } else {
            Ok(())
        }
    }

    #[inline]
    fn check_group(&self, operation: &'static str, group: &[usize]) -> Result<()> {
        self.usable(operation)?;
        for (i, rank) in group.iter().enumerate() {
            self.target(*rank, operation)?;
            if i > 0 && group[..i].contains(rank) {
                return Err(duplicate_rank(operation, *rank));
            }
        }
        Ok(())
    }

    /// Ends the epoch that a fence without `NOSUCCEED` left open; an error if it has operations in progress.
    #[inline]
    pub(crate) fn leave_fence(&self, operation: &'static str) -> Result<()> {
        if matches!(self.access.get(), Access::Fence(_)) { self.leave_open_fence(operation) } else { Ok(()) }
    }

    #[cold]
    fn leave_open_fence(&self, operation: &'static str) -> Result<()> {
        if self.targets.iter().any(|t| self.has_unposted(t.team_rank) || t.is_busy()) {
            return Err(self.wrong_epoch(operation, "operations of a fence epoch are not complete"));
        }
        // `synchronized` is unchanged: all ranks must choose the same messages for the next fence, and some of them may
        // not have left the epoch.
        self.close_epoch();
        Ok(())
    }
}

#[cold]
fn duplicate_rank(operation: &'static str, rank: usize) -> Error {
    Error::new(ErrorKind::BadArgument, operation).cause(format!("rank {rank} occurs twice in the group"))
}
