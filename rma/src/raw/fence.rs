//! Fence (MPI-4 §12.5.1; Träff, Ritzdorf, Hempel: one-sided communication without barriers).
//!
//! One call closes the epoch before it and opens the next. Opening sends nothing: it publishes the number of
//! the fence in a word that peers look at. Closing, by what the window can:
//!
//! | window | closing call of one rank sends |
//! |---|---|
//! | mapped: every operation is complete when issued | ⌈log2 P⌉ signals; one where more than two ranks share cores |
//! | not mapped, P ≤ 4, exposure known | one notification to each other rank, on the last operation to it if there is one: P - 1 |
//! | not mapped otherwise | the reduce-scatter of "do I access rank i", ⌈log2 P⌉, and a notification on the last operation to each target |
//! | `NOPRECEDE` | nothing |
//!
//! No barrier: on mapped windows the sums of the reduce-scatter would all be used up already, so that only
//! its dependences are left, in ⌈log2 P⌉ signals (the dissemination pattern). "Exposure known": the fence that
//! opened the epoch has itself shown that all ranks had come to it; then operations start when they are issued.

use std::sync::atomic::Ordering;

use farside_core::bill::Awaited;
use farside_core::coll::{self, barrier_dissemination};
use farside_core::signal::{Pace, marked};
use farside_core::{Error, ErrorKind, Result};

use super::{Access, RawWindow, cell, word};
use crate::assert::Assert;

/// Marks of closing fences, so that all ranks learn whether they agree: one that opens no epoch, and one that opens the
/// next. Ranks of the first kind own their memory again, so ranks of the second kind must not reach it.
const ENDS: u16 = 1;
const GOES_ON: u16 = 2;

/// Up to this many ranks each notifies each other directly.
pub(crate) const DIRECT: usize = 4;

impl RawWindow {
    /// Fence: completes all operations on this window, those of this rank and those of others on it, since
    /// the last fence, and opens the next epoch unless `NOSUCCEED`. Collective. Messages: see the module.
    ///
    /// # Errors
    /// `WrongEpoch` inside another kind of epoch; `Mismatch` on every rank if some give `NOSUCCEED` and others do not;
    /// `PeerLost`; the first error of an operation.
    pub fn fence(&self, asserts: Assert) -> Result<()> {
        const OP: &str = "fence";
        self.called(OP);
        self.usable(OP)?;
        match self.access.get() {
            Access::None | Access::Fence(_) => {}
            _ => return Err(self.wrong_epoch(OP, "another access epoch is open")),
        }
        if self.posted.borrow().is_open() {
            return Err(self.wrong_epoch(OP, "an exposure epoch is open"));
        }
        let number = self.fences.get() + 1;
        self.fences.set(number);
        let precede = !asserts.contains(Assert::NOPRECEDE);
        if precede {
            let mark = if asserts.contains(Assert::NOSUCCEED) { ENDS } else { GOES_ON };
            let marks = self.or_abandon(|| self.close_fence(number, mark))?;
            if marks == ENDS | GOES_ON {
                self.abandon();
                let (own, others) = if mark == ENDS { ("opens none", "open") } else { ("opens", "open none") };
                return Err(Error::new(ErrorKind::Mismatch, OP)
                    .rank(self.job.rank())
                    .cause(format!(
                        "of an epoch after it this rank's fence {own}, and those of some other ranks {others}"
                    ))
                    .remedy(
                        "make the same calls on every rank: as many epochs in a run, and `NOSUCCEED` on all or none",
                    ));
            }
        } else if (0..self.targets.len()).any(|t| self.has_unposted(t)) {
            return Err(self.wrong_epoch(OP, "NOPRECEDE, but operations were issued"));
        }
        if asserts.contains(Assert::NOSUCCEED) {
            self.close_epoch();
            self.synchronized.set(false);
            return Ok(());
        }
        let epoch = self.next_epoch(Access::Fence(number));
        self.synchronized.set(precede);
        if precede {
            // Everyone has come to this fence: all are exposed, operations start at once.
            self.targets.iter().for_each(|t| t.ready.set(epoch));
        } else {
            self.publish_opened(number);
        }
        Ok(())
    }

    fn publish_opened(&self, number: u64) {
        // SeqCst, and the fence: a rank that sets its waiter bit and then looks at the number either sees it
        // or is seen here.
        self.board.own_word(word::OPENED).store(number, Ordering::SeqCst);
        self.wake_waiters(self.team.rank());
    }

    /// Whether `target` is known to have opened the epoch of fence `number`.
    pub(crate) fn exposed_by_fence(&self, target: usize, number: u64) -> bool {
        if self.synchronized.get() {
            return true;
        }
        // Acquire side of `publish_opened`: the target's local stores are before our operations. Memory that
        // is not mapped would cost a message to look at; there the closing call finds out.
        self.mapped && self.board.peer_word(target, word::OPENED).is_some_and(|w| w.load(Ordering::SeqCst) >= number)
    }

    /// Starts what waits for ranks that have not come to the fence before this one.
    #[cold]
    fn start_all_queued(&self) -> Result<()> {
        self.queued_targets().into_iter().try_for_each(|target| {
            let none_left = || self.start_queued(Some(target)).map(|()| !self.has_unposted(target));
            self.wait_word(|| self.awaited("fence", target), target, none_left)
        })
    }

    /// Gives the marks of all ranks, joined.
    fn close_fence(&self, number: u64, mark: u16) -> Result<u16> {
        if self.mapped {
            if !self.queue.borrow().is_empty() {
                self.start_all_queued()?;
            }
            if self.packed.replace(false) {
                self.complete_all()?;
            }
            return barrier_dissemination::rounds(
                &self.team,
                &self.board,
                cell::FENCE,
                number,
                mark,
                "fence",
                Pace::ANSWER,
            );
        }
        let (p, me) = (self.team.size(), self.team.rank());
        if self.synchronized.get() && p <= DIRECT {
            let others = (1..p).map(|d| (me + d) % p);
            // A rank that is told may access this rank's memory at once: what this rank does there itself comes before.
            self.finish_self()?;
            others.clone().try_for_each(|target| self.notify(target, cell::FENCE, marked(number, mark)))?;
            let mut marks = mark;
            for from in others {
                self.board.wait("fence", from, cell::FENCE, number, Pace::EXCHANGE)?;
                marks |= self.board.mark(from, cell::FENCE, number);
            }
            self.complete_all()?;
            self.end_lists()?;
            return Ok(marks);
        }
        // "Have I an operation for rank i": those begun already are counted too.
        let touched: Vec<bool> = (0..p).map(|t| self.has_unposted(t) || self.targets[t].is_busy()).collect();
        // Above it, how many open no epoch.
        let ends = u32::from(mark == ENDS) << 16;
        let vector: Vec<u8> = touched.iter().flat_map(|t| (u32::from(*t) | ends).to_le_bytes()).collect();
        let sum = coll::reduce_scatter(&self.team, &vector, &mut add)?;
        let sum = u32::from_le_bytes(sum.try_into().map_err(|_| Error::new(ErrorKind::Protocol, "fence"))?);
        // The reduce-scatter has shown that all ranks are here, so all are exposed.
        self.synchronized.set(true);
        self.start_queued(None)?;
        // As above, this rank's own memory first.
        if touched[me] {
            self.notify(me, cell::FENCE, number)?;
            self.complete_at(me)?;
        }
        for target in (0..p).filter(|t| touched[*t] && *t != me) {
            self.notify(target, cell::FENCE, number)?;
        }
        self.complete_all()?;
        let missing = || (0..p).find(|from| !self.board.reached(*from, cell::FENCE, number)).unwrap_or(me);
        let awaited = || self.board.awaited("fence", number, missing());
        self.job.wait_for(awaited, || {
            let come = (0..p).filter(|from| self.board.reached(*from, cell::FENCE, number)).count();
            Ok((come >= (sum & 0xffff) as usize).then_some(()))
        })?;
        self.end_lists()?;
        Ok(match (sum >> 16) as usize {
            0 => GOES_ON,
            ends if ends == p => ENDS,
            _ => ENDS | GOES_ON,
        })
    }

    /// Posts what was withheld for this rank itself: nobody is to be notified, and a cell that nobody waits for could
    /// be set late, over the value of a later fence.
    fn finish_self(&self) -> Result<()> {
        let me = self.team.rank();
        if !self.has_unposted(me) {
            return Ok(());
        }
        self.complete_at(me)?;
        let t = &self.targets[me];
        t.withheld.take().map_or(Ok(()), |item| self.send(t, &item, None, None))?;
        self.complete_at(me)
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
        let waiters = self.board.peer_word(target, word::WAITERS + me / 64);
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
                Some(self.board.own_word(word::WAITERS + index))
            } else {
                self.board.peer_word(owner, word::WAITERS + index)
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

fn add(into: &mut [u8], from: &[u8]) {
    for (a, b) in into.chunks_exact_mut(4).zip(from.chunks_exact(4)) {
        let word = |s: &[u8]| u32::from_le_bytes([s[0], s[1], s[2], s[3]]);
        let sum = word(a).wrapping_add(word(b));
        a.copy_from_slice(&sum.to_le_bytes());
    }
}
