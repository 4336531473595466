//! Completion of operations: waits for requests and targets, the notifications that follow operations, outcomes.

use farside_core::Result;
use farside_core::stats::Kind;

use super::item::Request;
use super::{RawWindow, Target};

impl RawWindow {
    /// Whether the operations of a request to `target` are complete, making progress once.
    ///
    /// # Errors
    /// `PeerLost`; the error of an operation.
    pub fn test_request(&self, request: &Request, target: usize) -> Result<bool> {
        let done = self.test_done(request, target)?;
        if done {
            request.track.check()?;
        }
        Ok(done)
    }

    /// Whether the operations of a request are complete, whatever their outcome, making progress once.
    pub(super) fn test_done(&self, request: &Request, target: usize) -> Result<bool> {
        self.usable("test a request")?;
        if request.queued.get() {
            self.recheck(target);
            self.start_queued(Some(target))?;
        }
        if !request.done() {
            self.job.progress()?;
        }
        if request.done() {
            return Ok(true);
        }
        self.job.check_peers()?;
        Ok(false)
    }

    /// Waits for the operations of a request to `target`.
    ///
    /// # Errors
    /// Those of [`test_request`](Self::test_request).
    pub fn wait_request(&self, request: &Request, target: usize) -> Result<()> {
        self.wait_done(request, target)?;
        request.track.check().map_err(|e| self.naming_lost_rank(e))
    }

    /// Waits until the operations of a request are complete, whatever their outcome.
    pub(super) fn wait_done(&self, request: &Request, target: usize) -> Result<()> {
        self.usable("wait for a request")?;
        if request.queued.get() {
            self.enter("wait for a request", target)?;
        }
        let awaited = || self.awaited("wait for a request", target);
        self.job.wait(awaited, || Ok(request.done().then_some(())))
    }

    /// Waits for the operations in progress, then sends the withheld operation or the records together with the
    /// notification, or the notification alone. A failed operation does not prevent the notification, unless the
    /// notification is combined with it; [`settle_notified`](Self::settle_notified) then repeats the notification.
    ///
    /// # Errors
    /// `PeerLost`, and errors that leave operations in progress.
    pub(crate) fn notify(&self, target: usize, cell: usize, value: u64) -> Result<()> {
        let t = &self.targets[target];
        let gathered = !t.records.is_empty();
        if gathered && let Some(item) = t.withheld.take() {
            self.send_earlier(t, &item, None);
        }
        // The notification asserts that all earlier operations are complete, but devices order at most operations on
        // the same bytes: a copy to mapped pages may overtake a request for unmapped ones.
        self.run_lists(target)?;
        self.wait_while(target, Target::has_requests)?;
        if gathered {
            // The target applies accumulates in the order of sending, so earlier packets need not be awaited.
            self.stats().add(Kind::Notify, 8);
            return self.send_records(t, Some((cell, value)), false);
        }
        let withheld = t.withheld.take();
        let place = || (self.signals.cell_at(target, cell, value), value);
        if withheld.is_some_and(|item| self.send_earlier(t, &item, Some(place()))) {
            return Ok(());
        }
        self.signals.set(target, cell, value)
    }

    /// Waits until no operation to `target`, which has been notified, is in progress. Repeats the notification if an
    /// operation has failed, since the notification may have been combined with it.
    ///
    /// # Errors
    /// Those of [`notify`](Self::notify).
    pub(crate) fn settle_notified(&self, target: usize, cell: usize, value: u64) -> Result<()> {
        self.settle(target)?;
        if self.targets[target].has_failed() { self.signals.set(target, cell, value) } else { Ok(()) }
    }

    /// Waits until all operations to `target` are complete at the target.
    ///
    /// # Errors
    /// Those of [`settle`](Self::settle); the first error of an operation.
    pub(crate) fn complete_at(&self, target: usize) -> Result<()> {
        self.settle(target)?;
        self.checked(&self.targets[target])
    }

    /// The outcome of the operations to a target, none of which is in progress any more.
    #[inline]
    pub(super) fn checked(&self, t: &Target) -> Result<()> {
        self.serving.records.check().and(t.check()).map_err(|e| self.naming_lost_rank(e))
    }

    /// Waits until no operation to `target` is in progress, whether they succeed or fail.
    ///
    /// # Errors
    /// `PeerLost`, and errors that leave operations in progress.
    pub(crate) fn settle(&self, target: usize) -> Result<()> {
        self.run_lists(target)?;
        if self.serving.accumulates && self.targets[target].used().is_some() {
            self.send_records(&self.targets[target], None, true)?;
        }
        self.wait_while(target, Target::is_busy)?;
        self.targets[target].used().into_iter().for_each(|used| used.reads.set(false));
        Ok(())
    }

    #[inline]
    fn wait_while(&self, target: usize, is_busy: impl Fn(&Target) -> bool) -> Result<()> {
        let t = &self.targets[target];
        if is_busy(t) {
            // Only progress can change the result, so it is not rechecked before waiting.
            let awaited = || self.awaited("complete operations", target);
            self.job.wait(awaited, || Ok((!is_busy(t)).then_some(())))?;
        } else if self.must_serve(target) {
            self.job.progress_of_test()?;
        }
        Ok(())
    }

    /// Waits until all operations to all targets are complete.
    ///
    /// # Errors
    /// Those of [`complete_at`](Self::complete_at).
    pub(crate) fn complete_all(&self) -> Result<()> {
        self.settle_all()?;
        self.outcome()
    }

    /// Waits until no operation is in progress.
    ///
    /// # Errors
    /// Those of [`settle`](Self::settle).
    pub(crate) fn settle_all(&self) -> Result<()> {
        if self.serving.accumulates {
            let mut used = self.targets.iter().filter(|t| t.used().is_some());
            used.try_for_each(|t| self.send_records(t, None, true))?;
        }
        self.targets.iter().try_for_each(|t| self.settle(t.team_rank))
    }

    /// The outcome of the operations, none of which is in progress any more.
    ///
    /// # Errors
    /// The first error; later errors are discarded.
    #[inline]
    pub(crate) fn outcome(&self) -> Result<()> {
        if self.mapped && !self.operations.failed.get() { Ok(()) } else { self.outcome_by_target() }
    }

    #[cold]
    fn outcome_by_target(&self) -> Result<()> {
        self.operations.failed.set(false);
        let all = self.serving.records.check().and(self.check_lists());
        let all = self.targets.iter().fold(all, |all, t| {
            let one = t.check();
            all.and(one)
        });
        all.map_err(|e| self.naming_lost_rank(e))
    }
}
