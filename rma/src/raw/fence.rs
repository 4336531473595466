//! Fence (MPI-4 §12.5.1; Träff, Ritzdorf, Hempel: one-sided communication without barriers).
//!
//! One call closes the epoch before it and opens the next. Opening sends nothing: it publishes the number of
//! the fence in a word that peers look at. Closing, by what the window can:
//!
//! | window | closing call of one rank sends |
//! |---|---|
//! | mapped: every operation is complete when issued | ⌈log2 P⌉ signals; one where more than two ranks share cores |
//! | not mapped, P ≤ 2, exposure known | one notification to the other rank, on the last operation to it if there is one |
//! | not mapped, P > 2, exposure known | as a mapped one, once all operations of this rank are complete |
//! | not mapped, exposure not known | the signals of a barrier before, after which operations start |
//! | `NOPRECEDE` | nothing |
//!
//! Accumulates that the target's processor carries out ([`super::batch`]) are operations in this sense: with two ranks their last
//! packet is the notification, with more each target of some answers before the signals.
//!
//! "Exposure known": the fence that opened the epoch has itself shown that all ranks had come to it; then operations start
//! when they are issued. A rank leaves the fence when the operations of all ranks on all targets are complete, not only those
//! on itself: its next operation may be on bytes of a second rank that a third one has put there before the fence. That is
//! what ⌈log2 P⌉ signals (the dissemination pattern) after completion tell, and a notification of each target alone would not.

use std::sync::atomic::Ordering;

use farside_core::bill::Awaited;
use farside_core::coll::barrier_dissemination;
use farside_core::signal::{Pace, marked};
use farside_core::{Error, ErrorKind, Result};

use super::{Access, RawWindow, cell, word};
use crate::assert::Assert;

/// Marks of closing fences, so that all ranks learn whether they agree: one that opens no epoch, and one that opens the
/// next. Ranks of the first kind own their memory again, so ranks of the second kind must not reach it.
const ENDS: u16 = 1;
const GOES_ON: u16 = 2;

/// Up to this many ranks each notifies each other directly: there is no third one.
pub(crate) const DIRECT: usize = 2;

impl RawWindow {
    /// Fence: completes all operations on this window, those of this rank and those of others on it, since
    /// the last fence, and opens the next epoch unless `NOSUCCEED`. Collective. Messages: see the module.
    ///
    /// # Errors
    /// `WrongEpoch` inside another kind of epoch; `Mismatch` on every rank if some give `NOSUCCEED` and others do not;
    /// `PeerLost`; the first error of an operation, after which the fence has done what it does nevertheless.
    pub fn fence(&self, asserts: Assert) -> Result<()> {
        const OP: &str = "fence";
        self.called(OP);
        self.usable(OP)?;
        match self.access.get() {
            Access::None | Access::Fence(_) => {}
            _ => return Err(self.wrong_epoch(OP, "another access epoch is open")),
        }
        if self.groups.posted.borrow().is_open() {
            return Err(self.wrong_epoch(OP, "an exposure epoch is open"));
        }
        let precede = !asserts.contains(Assert::NOPRECEDE);
        if !precede && (0..self.targets.len()).any(|t| self.has_unposted(t) || self.targets[t].is_busy()) {
            return Err(self.wrong_epoch(OP, "NOPRECEDE, but operations were issued"));
        }
        self.serving.listener.expose(true);
        let number = self.fencing.count.get() + 1;
        self.fencing.count.set(number);
        if precede {
            let mark = if asserts.contains(Assert::NOSUCCEED) { ENDS } else { GOES_ON };
            let marks = self.or_abandon(|| self.close_fence(mark))?;
            if marks == ENDS | GOES_ON {
                self.abandon();
                let (own, others) = if mark == ENDS { ("passed", "did not") } else { ("did not pass", "did") };
                return Err(Error::new(ErrorKind::Mismatch, OP)
                    .rank(self.job.rank())
                    .cause(format!("this rank {own} NOSUCCEED, other ranks {others}"))
                    .remedy(
                        "make the same calls on every rank: as many epochs in a run, and `NOSUCCEED` on all or none",
                    ));
            }
        }
        if asserts.contains(Assert::NOSUCCEED) {
            self.close_epoch();
            self.fencing.synchronized.set(false);
        } else {
            self.open_by_fence(number, precede);
        }
        if precede { self.outcome().and(self.end_lists()) } else { Ok(()) }
    }

    /// Opens the epoch of fence `number`, at which all ranks are if it has closed another.
    #[inline]
    fn open_by_fence(&self, number: u64, precede: bool) {
        let epoch = self.next_epoch(Access::Fence(number));
        self.fencing.synchronized.set(precede);
        if precede {
            // Everyone has come to this fence: all are exposed, operations start at once.
            self.targets.iter().for_each(|t| t.ready.set(epoch));
        } else {
            self.publish_opened(number);
        }
    }

    fn publish_opened(&self, number: u64) {
        // SeqCst, and the fence: a rank that sets its waiter bit and then looks at the number either sees it
        // or is seen here.
        self.signals.own_word(word::OPENED).store(number, Ordering::SeqCst);
        self.wake_waiters(self.team.rank());
    }

    /// Whether `target` is known to have opened the epoch of fence `number`.
    pub(crate) fn exposed_by_fence(&self, target: usize, number: u64) -> bool {
        if self.fencing.synchronized.get() {
            return true;
        }
        // Acquire side of `publish_opened`: the target's local stores are before our operations. Memory that
        // is not mapped would cost a message to look at; there the closing call finds out.
        self.mapped && self.signals.peer_word(target, word::OPENED).is_some_and(|w| w.load(Ordering::SeqCst) >= number)
    }

    /// Starts what waits for ranks that have not come to the fence before this one.
    #[cold]
    fn start_all_queued(&self) -> Result<()> {
        self.queued_targets().into_iter().try_for_each(|target| {
            let none_left = || self.start_queued(Some(target)).map(|()| !self.has_unposted(target));
            self.wait_word(|| self.awaited("fence", target), target, none_left)
        })
    }

    /// Completes all operations, whether they succeed or fail, and gives the marks of all ranks, joined.
    fn close_fence(&self, mark: u16) -> Result<u16> {
        if self.mapped {
            if !self.operations.queue.borrow().is_empty() {
                self.start_all_queued()?;
            }
            if self.operations.packed.replace(false) {
                self.settle_all()?;
            }
            return self.pass_barrier(mark);
        }
        let mut marks = mark;
        if !self.fencing.synchronized.replace(true) {
            marks |= self.pass_barrier(mark)?;
            self.start_queued(None)?;
        }
        let (p, me) = (self.team.size(), self.team.rank());
        if p > DIRECT {
            self.settle_all()?;
            marks |= self.pass_barrier(mark)?;
        } else {
            let others = (1..p).map(|d| (me + d) % p);
            let number = self.next_barrier();
            // A rank that is notified may access this rank's memory at once: what this rank does there itself comes before.
            self.finish_self()?;
            let value = marked(number, mark);
            others.clone().try_for_each(|target| self.notify(target, cell::FENCE, value))?;
            others.clone().try_for_each(|target| self.settle_notified(target, cell::FENCE, value))?;
            for from in others {
                self.signals.wait("fence", from, cell::FENCE, number, Pace::EXCHANGE)?;
                marks |= self.signals.mark(from, cell::FENCE, number);
            }
            self.settle_all()?;
        }
        Ok(marks)
    }

    fn next_barrier(&self) -> u64 {
        self.fencing.barriers.set(self.fencing.barriers.get() + 1);
        self.fencing.barriers.get()
    }

    /// A barrier, which gives the marks of all ranks, joined.
    fn pass_barrier(&self, mark: u16) -> Result<u16> {
        let (team, signals, number) = (&self.team, &self.signals, self.next_barrier());
        barrier_dissemination::rounds(team, signals, cell::FENCE, number, mark, "fence", Pace::ANSWER)
    }

    /// Posts what was withheld for this rank itself: nobody is to be notified, and a cell that nobody waits for could
    /// be set late, over the value of a later fence.
    fn finish_self(&self) -> Result<()> {
        let me = self.team.rank();
        if !self.has_unposted(me) {
            return Ok(());
        }
        self.settle(me)?;
        let t = &self.targets[me];
        if let Some(item) = t.withheld.take() {
            self.send_earlier(t, &item, None);
        }
        self.settle(me)
    }

    /// Waits for something that a peer publishes in its own words: looks for a while, then leaves a bit with
    /// the peer, which wakes those who have one, and sleeps.
    pub(crate) fn wait_word(
        &self,
        awaited: impl Fn() -> Awaited,
        target: usize,
        mut ready: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        for _ in 0..=32 * self.job.spins() {
            if ready()? {
                return Ok(());
            }
        }
        let me = self.team.rank();
        let waiters = self.signals.peer_word(target, word::WAITERS + me / 64);
        let bit = 1u64 << (me % 64);
        if let Some(w) = waiters {
            w.fetch_or(bit, Ordering::SeqCst);
        }
        let r = self.job.wait_for(awaited, || Ok(ready()?.then_some(())));
        if let Some(w) = waiters {
            w.fetch_and(!bit, Ordering::SeqCst);
        }
        r
    }

    /// Wakes the ranks that have left a bit with `owner`. The caller has just changed one of its words.
    pub(crate) fn wake_waiters(&self, owner: usize) {
        // Pairs with `fetch_or` in `wait_word`: either the waiter sees the change, or its bit is seen here.
        self.full_fence();
        self.wake_after_atomic(owner);
    }

    /// Wakes the ranks that sleep on a word of `owner`, if the change was an atomic operation: a full fence by itself.
    #[inline]
    pub(crate) fn wake_after_atomic(&self, owner: usize) {
        for index in 0..self.team.size().div_ceil(64) {
            let Some(w) = (if owner == self.team.rank() {
                Some(self.signals.own_word(word::WAITERS + index))
            } else {
                self.signals.peer_word(owner, word::WAITERS + index)
            }) else {
                return;
            };
            let bits = w.load(Ordering::SeqCst);
            if bits != 0 {
                self.wake_ranks(index, bits);
            }
        }
    }

    #[cold]
    fn wake_ranks(&self, index: usize, mut bits: u64) {
        while bits != 0 {
            let rank = index * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            if let Some(t) = self.targets.get(rank) {
                self.job.device().wake(t.region.peer);
            }
        }
    }
}
