//! Fence (MPI-4 §12.5.1; Träff, Ritzdorf, Hempel: one-sided communication without barriers).
//!
//! One call closes the previous epoch and opens the next. Opening sends nothing: it publishes the number of the fence
//! in a word that peers read. Messages of closing, by the kind of window:
//!
//! | window | closing call of one rank sends |
//! |---|---|
//! | mapped: every operation is complete when issued | ⌈log2 P⌉ signals; one if more than two ranks share cores |
//! | not mapped, P ≤ 2, exposure known | one notification to the other rank, carried by the last operation to it, if any |
//! | not mapped, P > 2, exposure known | the signals of a mapped window, once all operations of this rank are complete |
//! | not mapped, exposure not known | first the signals of a barrier, after which all operations start; then one of the two rows above |
//! | `NOPRECEDE` | nothing |
//!
//! Accumulates that the target's CPU applies ([`farside_core::service::records`]) are operations in this sense: with
//! two ranks their last packet is the notification; with more ranks, each of their targets answers before the signals.
//!
//! "Exposure known": the fence that opened the epoch also closed one, so all ranks are known to have reached it, and
//! operations start when they are issued. In other epochs an operation on a rank whose memory is mapped starts when it
//! is issued if that rank has already opened the epoch. A rank leaves the fence when the operations of all ranks on all
//! targets are complete, not only those on itself: its next operation may access bytes that one peer put to another
//! peer before the fence. ⌈log2 P⌉ signals (the dissemination pattern) after completion ensure this; notifications
//! between origin and target alone would not.

use std::sync::atomic::Ordering;

use farside_core::bill::Awaited;
use farside_core::coll::barrier_dissemination;
use farside_core::signal::{Pace, marked};
use farside_core::{Error, ErrorKind, Result};

use super::state::Replaced;
use super::{Access, RawWindow, cell, word};
use crate::assert::Assert;

/// Marks that closing fences exchange, so that ranks detect whether they agree: `ENDS` if the fence opens no epoch,
/// `CONTINUES` if it opens the next. A rank with `ENDS` may access its memory locally, so ranks with `CONTINUES` must
/// not access it.
pub(super) const ENDS: u16 = 1;
const CONTINUES: u16 = 2;

/// Maximum number of ranks that notify each other pairwise instead of by a barrier.
pub(crate) const MAX_PAIRWISE_RANKS: usize = 2;

impl RawWindow {
    /// Fence: completes all operations since the last fence that this rank has issued or is the target of, and opens
    /// the next epoch unless `NOSUCCEED`. Collective. Messages: see [`fence`](self).
    ///
    /// # Errors
    /// `WrongEpoch` inside another kind of epoch; `Mismatch` on every rank if only some ranks pass `NOSUCCEED`;
    /// `PeerLost`; the first error of an operation, in which case the fence is still complete.
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
        if !precede && self.targets.iter().any(|t| self.has_unposted(t.team_rank) || t.is_busy()) {
            return Err(self.wrong_epoch(OP, "NOPRECEDE was asserted, but operations were issued"));
        }
        self.note_fence(asserts);
        self.serving.listener.expose(true);
        let number = self.fencing.count.get() + 1;
        self.fencing.count.set(number);
        if precede {
            let mark = if asserts.contains(Assert::NOSUCCEED) { ENDS } else { CONTINUES };
            let closing = Replaced::replace(&self.fencing.closing, number);
            let marks = self.or_abandon(|| self.close_fence(mark))?;
            drop(closing);
            if marks == ENDS | CONTINUES {
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

    /// Number of fences so far, the same at all ranks.
    #[inline]
    pub(crate) fn fences(&self) -> u64 {
        self.fencing.count.get()
    }

    /// Number of barriers so far, including those of closing fences; the same at all ranks.
    pub(crate) fn barriers(&self) -> u64 {
        self.fencing.barriers.get()
    }

    fn note_fence(&self, asserts: Assert) {
        const EPOCH: &str = "fence epoch";
        if self.account.is_none() {
            return;
        }
        if !asserts.contains(Assert::NOPRECEDE) {
            self.note_epoch(EPOCH, false);
        }
        if !asserts.contains(Assert::NOSUCCEED) {
            self.note_epoch(EPOCH, true);
        }
    }

    /// Opens the epoch of fence `number`. `precede` says that the fence has closed an epoch, so all ranks have reached
    /// it.
    #[inline]
    fn open_by_fence(&self, number: u64, precede: bool) {
        let epoch = self.next_epoch(Access::Fence(number));
        self.fencing.synchronized.set(precede);
        if precede {
            // All ranks have reached this fence and are exposed, so operations start immediately.
            self.targets.iter().for_each(|t| t.ready.set(epoch));
        } else {
            self.publish_opened(number);
        }
    }

    fn publish_opened(&self, number: u64) {
        // SeqCst, with the fence in `wake_waiters`: a rank sets its waiter bit and then reads the number. Either it
        // sees this number, or its bit is seen below.
        self.signals.own_word(word::OPENED).store(number, Ordering::SeqCst);
        self.wake_waiters(self.team.rank());
    }

    /// Whether `target` is known to have opened the epoch of fence `number`.
    pub(crate) fn exposed_by_fence(&self, target: usize, number: u64) -> bool {
        if self.fencing.synchronized.get() {
            return true;
        }
        // Acquire side of `publish_opened`: orders the target's local stores before this rank's operations. Reading an
        // unmapped word would cost a message, so for such targets the closing call checks.
        self.signals.published(target, word::OPENED).is_some_and(|opened| opened >= number)
    }

    /// Waits for targets that have not reached the previous fence, and starts the operations queued for them.
    #[cold]
    fn start_all_queued(&self) -> Result<()> {
        self.queued_targets().into_iter().try_for_each(|target| {
            let none_remaining = || self.start_queued(Some(target)).map(|()| !self.has_unposted(target));
            self.wait_word(|| self.awaited("fence", target), target, none_remaining)
        })
    }

    /// Completes all operations, whether they succeed or fail, and returns the bitwise or of the marks of all ranks.
    #[inline]
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
        if p > MAX_PAIRWISE_RANKS {
            self.settle_all()?;
            marks |= self.pass_barrier(mark)?;
        } else {
            let others = (1..p).map(|d| (me + d) % p);
            let number = self.next_barrier();
            // A notified rank may access this rank's memory immediately, so this rank's operations on itself are
            // completed first.
            self.complete_own()?;
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

    #[inline]
    fn next_barrier(&self) -> u64 {
        self.end_shares();
        self.fencing.barriers.set(self.fencing.barriers.get() + 1);
        self.fencing.barriers.get()
    }

    /// A barrier, which returns the bitwise or of the marks of all ranks.
    #[inline]
    pub(super) fn pass_barrier(&self, mark: u16) -> Result<u16> {
        let (team, signals, number) = (&self.team, &self.signals, self.next_barrier());
        barrier_dissemination::rounds(team, signals, cell::FENCE, number, mark, "fence", Pace::ANSWER)
    }

    /// Completes operations on this rank itself. A withheld operation is posted without a notification: no rank waits
    /// for that cell, and a late notification could overwrite the value of a later fence.
    fn complete_own(&self) -> Result<()> {
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

    /// Waits for a change of a peer's words: spins for a while, then sets this rank's waiter bit at the peer and sleeps
    /// until the rank that changes a word wakes it.
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
        let r = self.job.wait(awaited, || Ok(ready()?.then_some(())));
        if let Some(w) = waiters {
            w.fetch_and(!bit, Ordering::SeqCst);
        }
        r
    }

    /// Wakes the ranks that have set their waiter bit at `owner`. The caller has just changed a word of `owner`.
    pub(crate) fn wake_waiters(&self, owner: usize) {
        // Pairs with `fetch_or` in `wait_word`: either the waiter sees the change, or its bit is seen here.
        self.full_fence();
        self.wake_after_atomic(owner);
    }

    /// [`wake_waiters`](Self::wake_waiters) after a change by an atomic operation, which is a full fence by itself.
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
            if let Some(peer) = self.team.members().get(rank) {
                self.job.device().wake(*peer);
            }
        }
    }
}
