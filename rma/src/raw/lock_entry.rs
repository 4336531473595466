#![allow(unsafe_code)]
//! Entering and leaving a lock: by claim, without a ticket, or in the order of tickets.

use std::sync::atomic::{Ordering, compiler_fence};

use farside_core::Result;
use farside_core::bill::Awaited;

use super::bias::{self, ClaimEntry};
use super::lockword::{self, Ticket};
use super::state::Replaced;
use super::target::{LockKind, LockState, Target};
use super::{Access, RawWindow, word};

/// Upper bound of the streak at which the bias is set.
const MAX_STREAK: u32 = 1 << 12;

impl RawWindow {
    /// Makes one attempt to enter the lock, unless another thread is making one; returns whether the lock is held.
    pub(super) fn advance(&self, target: usize) -> Result<bool> {
        if self.locking.entering.get() {
            return Ok(false);
        }
        let _entering = Replaced::replace(&self.locking.entering, true);
        let t = &self.targets[target];
        if let LockState::Draining(kind, ticket) = t.lock.get() {
            return Ok(self.drained(t, kind, ticket));
        }
        let (kind, ticket, now) = match t.lock.get() {
            held @ (LockState::Wanted(_) | LockState::Deferred) => {
                let waits = self.locking.waits_for.get() == Some(target);
                let kind = if let LockState::Wanted(kind) = held { kind } else { LockKind::Shared };
                if held == LockState::Deferred && !waits {
                    return Ok(false);
                }
                if let Some(inside) = self.enter_without_ticket(t, target, kind, waits)? {
                    return Ok(inside);
                }
                if kind == LockKind::Shared && !waits {
                    // Reading a mapped word costs no message, so the next attempt reads it again.
                    t.lock.set(if self.signals.is_mapped(target) { held } else { LockState::Deferred });
                    return Ok(false);
                }
                let before = self.signals.fetch_add(target, word::LOCK, lockword::TAKE)?;
                let ticket = lockword::ticket(before);
                t.lock.set(LockState::Waiting(kind, ticket));
                (kind, ticket, before)
            }
            LockState::Waiting(kind, ticket) if self.locking.uses_queue => {
                (kind, ticket, self.join_queue(target, kind, ticket)?)
            }
            LockState::Waiting(kind, ticket) => (kind, ticket, self.signals.read_word(target, word::LOCK)?),
            LockState::Queued(kind, ticket) => match self.word_if_turn(target)? {
                Some(now) => (kind, ticket, now),
                None => return Ok(false),
            },
            _ => return Ok(true),
        };
        let granted = match kind {
            LockKind::Exclusive => lockword::may_write(now, ticket),
            LockKind::Shared => lockword::may_read(now, ticket),
        };
        if granted {
            if kind == LockKind::Shared {
                // Readers with later tickets may enter now.
                self.change_word(target, lockword::reader_enters(ticket))?;
            }
            return Ok(self.drained(t, kind, ticket));
        }
        Ok(false)
    }

    /// Tries to enter without a ticket: by claim, or as a reader by a compare-and-swap of the word. Returns whether the
    /// lock is held, or `None` if a ticket is needed.
    pub(super) fn enter_without_ticket(
        &self,
        t: &Target,
        target: usize,
        kind: LockKind,
        waits: bool,
    ) -> Result<Option<bool>> {
        /// Maximum number of attempts of a reader: other readers may change the word between its read and its
        /// compare-and-swap.
        const MAX_READS: u32 = 3;
        if let Some((bias, claim, _)) = t.claim() {
            let entry = bias::enter(bias, claim, self.locking.claimant, kind == LockKind::Shared);
            if entry != ClaimEntry::NotCovered {
                self.stats().add(farside_core::stats::Kind::FetchAdd, 8);
            }
            if entry == ClaimEntry::Inside {
                t.lock.set(LockState::Claimed(kind));
                return Ok(Some(true));
            }
            if entry == ClaimEntry::Revoked {
                self.wake_waiters(target);
            }
        }
        // If the word is not mapped, an attempt costs as many messages as a ticket, so a waiting call takes a ticket
        // instead.
        if kind == LockKind::Exclusive || waits && !self.signals.is_mapped(target) {
            return Ok(None);
        }
        // An unmapped word is read by an atomic addition of 0, like all accesses to it.
        let mut now = match self.signals.peer_word(target, word::LOCK) {
            Some(w) => w.load(Ordering::SeqCst),
            None => self.signals.fetch_add(target, word::LOCK, 0)?,
        };
        for _ in 0..MAX_READS {
            let Some(then) = lockword::reader_at_once(now) else { break };
            let before = self.signals.compare_swap(target, word::LOCK, now, then)?;
            if before == now {
                return Ok(Some(self.drained(t, kind, lockword::ticket(now))));
            }
            now = before;
        }
        Ok(None)
    }

    /// Adds to `target`'s lock word, and wakes the ranks that may enter as a result.
    pub(super) fn change_word(&self, target: usize, add: u64) -> Result<()> {
        let mut now = self.signals.fetch_add(target, word::LOCK, add)?.wrapping_add(add);
        if add == lockword::READER_LEAVES && lockword::set_guard(now.wrapping_sub(add)) {
            let clear = lockword::CLEAR_GUARD;
            now = self.signals.fetch_add(target, word::LOCK, clear)?.wrapping_add(clear);
        }
        if self.locking.uses_queue {
            return self.wake_next(target, now);
        }
        self.wake_after_atomic(target);
        Ok(())
    }

    /// The last step of entry by the lock word: returns whether all conflicting ranks that had entered by claim have
    /// left.
    pub(super) fn drained(&self, t: &Target, kind: LockKind, ticket: Ticket) -> bool {
        let shared = kind == LockKind::Shared;
        if let (Some((bias, _, _)), Some(entry)) = (t.claim(), &t.entry) {
            let claims = self.locking.claims;
            let ranks = self.team.size();
            if !bias::clear(bias, self.team.rank(), shared, ranks, |r| self.signals.peer_word(t.team_rank, claims + r))
            {
                t.lock.set(LockState::Draining(kind, ticket));
                return false;
            }
            let again = lockword::follows(entry.last.replace(ticket), ticket) || shared;
            entry.streak.set(if again { entry.streak.get() + 1 } else { 0 });
            if entry.streak.get() >= entry.patience.get() {
                entry.streak.set(0);
                entry.patience.set((entry.patience.get() * 2).min(MAX_STREAK));
                let to = if shared { bias::READERS } else { bias::owner(self.team.rank()) };
                // SeqCst: ordered before this rank leaves by the lock word, after which the next rank reads the bias.
                bias.store(to, Ordering::SeqCst);
            }
        }
        if self.account.is_some()
            && let Some(holder) = self.signals.peer_word(t.team_rank, word::HOLDER)
        {
            // SeqCst: pairs with the load of a waiting rank, whose bill charges the wait to the holder.
            holder.store(self.team.rank() as u64 + 1, Ordering::SeqCst);
        }
        t.lock.set(LockState::Inside(kind, ticket));
        true
    }

    /// Waits for `target`'s lock and starts the operations queued for it.
    pub(crate) fn enter(&self, name: &'static str, target: usize) -> Result<()> {
        if !self.has_queued() && !self.has_unposted(target) {
            return Ok(());
        }
        self.wait_for(name, target, || self.start_queued(Some(target)).map(|()| !self.has_unposted(target)))
    }

    /// The description of a wait for the lock of `target`, or for `target` itself if the lock is held.
    pub(super) fn awaited_lock(&self, name: &'static str, target: usize) -> Awaited {
        let t = &self.targets[target];
        if matches!(t.lock.get(), LockState::Unchecked | LockState::Inside(..) | LockState::Claimed(_)) {
            return self.awaited(name, target);
        }
        let inside = |rank: &usize| {
            let claim =
                if t.entry.is_some() { self.signals.peer_word(target, self.locking.claims + rank) } else { None };
            *rank != self.team.rank() && claim.is_some_and(|claim| claim.load(Ordering::SeqCst) != 0)
        };
        let by_word = || {
            let last = self.signals.peer_word(target, word::HOLDER)?.load(Ordering::SeqCst) as usize;
            last.checked_sub(1).filter(|rank| *rank < self.team.size() && *rank != self.team.rank())
        };
        let holder = (0..self.team.size()).find(inside).or_else(by_word);
        let from = holder.and_then(|rank| self.awaited("lock", rank).from);
        Awaited { from, ..self.awaited("lock", target) }
    }

    /// Repeats `turn` until it succeeds; each attempt may take a ticket for `target`.
    pub(super) fn wait_for(
        &self,
        name: &'static str,
        target: usize,
        mut turn: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        // The awaited target is set only during the attempt, since another thread may wait for another lock in between.
        let turn = || {
            let _replaced = Replaced::replace(&self.locking.waits_for, Some(target));
            turn()
        };
        if self.locking.uses_queue {
            self.wait_in_queue(name, target, turn)
        } else {
            self.wait_word(|| self.awaited_lock(name, target), target, turn)
        }
    }

    /// Completes all operations at `target`, whether they succeed or fail, and releases the lock.
    pub(super) fn leave(&self, name: &'static str, target: usize) -> Result<()> {
        let t = &self.targets[target];
        // On a mapped window all operations that have started are complete.
        let mut is_busy = !self.mapped || self.has_queued();
        if is_busy {
            self.enter(name, target)?;
            is_busy = self.releases_behind_writes(t, target);
            if !is_busy {
                self.settle(target)?;
            }
        }
        match t.lock.replace(LockState::No) {
            LockState::No | LockState::Unchecked | LockState::Wanted(_) | LockState::Deferred => {}
            LockState::Claimed(_) | LockState::Local(None) => self.leave_by_claim(t, target),
            held @ (LockState::Waiting(..) | LockState::Queued(..) | LockState::Draining(..)) => {
                // No operation used the lock, but a ticket has been taken, so this rank must enter and leave.
                t.lock.set(held);
                self.wait_for_turn(name, target)?;
                return self.leave(name, target);
            }
            LockState::Inside(LockKind::Exclusive, ticket) | LockState::Local(Some(ticket)) => {
                self.change_word(target, lockword::writer_leaves(ticket))?;
            }
            LockState::Inside(LockKind::Shared, _) => self.change_word(target, lockword::READER_LEAVES)?,
        }
        t.ready.set(0);
        if is_busy { self.settle(target) } else { Ok(()) }
    }

    /// Whether the unlock message need not wait for the operations in progress: if all of them are writes, they become
    /// visible at the target before an atomic posted later updates the lock word.
    fn releases_behind_writes(&self, t: &Target, target: usize) -> bool {
        !self.signals.is_mapped(target) && t.has_only_writes()
    }

    /// The fast path of [`lock`](Self::lock): opens an epoch on one target by claim, if its bias lets this rank in.
    #[inline]
    pub(super) fn lock_by_claim(&self, kind: LockKind, t: &Target) -> bool {
        let Some((bias, claim, _)) = t.claim() else { return false };
        if self.end.is_unusable() || t.lock.get() != LockState::No {
            return false;
        }
        match bias::enter(bias, claim, self.locking.claimant, kind == LockKind::Shared) {
            ClaimEntry::NotCovered => return false,
            ClaimEntry::Revoked => {
                self.stats().add(farside_core::stats::Kind::FetchAdd, 8);
                self.wake_waiters(t.team_rank);
                return false;
            }
            ClaimEntry::Inside => {}
        }
        self.stats().add(farside_core::stats::Kind::FetchAdd, 8);
        let epoch = self.open_epoch(Access::Lock(1), true);
        t.lock.set(LockState::Claimed(kind));
        t.ready.set(epoch);
        true
    }

    #[inline]
    pub(super) fn leave_by_claim(&self, t: &Target, target: usize) {
        let Some((_, claim, waiters)) = t.claim() else { return };
        bias::leave(claim);
        self.stats().add(farside_core::stats::Kind::Signal, 8);
        if self.operations.stored.get() {
            if matches!(self.access.get(), Access::Lock(1) | Access::LockAll) {
                self.operations.stored.set(false);
                self.job.store_order().fence_for_later();
            } else {
                self.full_fence();
            }
        }
        if !self.sleepers_fence || self.targets.ranks() > 64 {
            self.wake_waiters(target);
        } else {
            // The waiting rank executes the store-load fence (`membarrier`) before it sleeps: either it sees the store,
            // or its waiter bit is seen here.
            compiler_fence(Ordering::SeqCst);
            // Relaxed: ordered by the compiler fence above and the waiting side's `membarrier`.
            if waiters.load(Ordering::Relaxed) != 0 {
                self.wake_after_atomic(target);
            }
        }
    }

    /// Waits until `target`'s lock, requested by [`lock`](Self::lock) or [`lock_all`](Self::lock_all), is held. Needed
    /// by a program that accesses the memory by loads and stores, or whose operations must start when issued. Messages:
    /// those that the first operation would send.
    ///
    /// # Errors
    /// `WrongEpoch` if the target is not locked; `PeerLost`.
    pub fn hold(&self, target: usize) -> Result<()> {
        const OP: &str = "wait for a lock";
        self.check_passive(OP)?;
        let t = self.target(target, OP)?;
        if t.ready.get() == self.epoch.get() {
            return Ok(());
        }
        self.permit_locked(OP, target)?;
        self.or_abandon(|| self.wait_for_turn(OP, target))?;
        t.ready.set(self.epoch.get());
        self.start_queued(Some(target))
    }

    pub(super) fn wait_for_turn(&self, name: &'static str, target: usize) -> Result<()> {
        self.wait_for(name, target, || self.locked(name, target))
    }

    /// Makes the next nonblocking attempt read the lock word again.
    pub(super) fn recheck(&self, target: usize) {
        let t = &self.targets[target];
        if t.lock.get() == LockState::Deferred {
            t.lock.set(LockState::Wanted(LockKind::Shared));
        }
    }
}
