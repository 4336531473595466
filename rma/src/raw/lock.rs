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

use std::cell::Cell;
use std::sync::atomic::{Ordering, compiler_fence};

use farside_core::bill::Awaited;
use farside_core::{Error, ErrorKind, Result};

use super::bias::{self, ClaimEntry};
use super::lockword::{self, Ticket};
pub use super::target::LockKind;
use super::target::{LockState, Target};
use super::{Access, RawWindow, word};
use crate::assert::Assert;

/// Entries in a row before the bias is set, at most.
const LONGEST_PATIENCE: u32 = 1 << 12;

/// What the call further out waits for, again once this one is left: by a panic too.
struct Outer<'a>(&'a Cell<Option<usize>>, Option<usize>);

impl Drop for Outer<'_> {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

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
            if self.board.is_mapped(target) && self.advance(target)? {
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
    /// `WrongEpoch` without lock; `PeerLost`; the first error of an operation.
    pub fn unlock(&self, target: usize) -> Result<()> {
        const OP: &str = "unlock";
        self.called(OP);
        let t = self.target(target, OP)?;
        // Where all is mapped and nothing waits in the queue, all operations are complete.
        if t.lock.get() == LockState::Claimed
            && self.access.get() == Access::Lock(1)
            && self.mapped
            && self.epoch.get() != super::NO_EPOCH
            && self.queue.borrow().is_empty()
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
        Ok(())
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
        Ok(())
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
        if !self.queue.borrow().is_empty() {
            self.enter(OP, target)?;
        }
        // On mapped windows operations are copies, and complete when they return.
        if self.mapped && t.track.open() == 0 {
            t.track.check()?;
        } else {
            self.complete_at(target)?;
        }
        self.order_stores()
    }

    /// The end of a flush. Stores to mapped memory may still be in this processor's buffer: what this rank reads next must
    /// not overtake them, and pays for that. Copies succeed to and from memory of a rank that is lost, so flushes look for
    /// one now and then.
    #[inline]
    fn order_stores(&self) -> Result<()> {
        if self.stored.replace(false) {
            self.job.store_order().fence_before_load();
        }
        self.flushes.set(self.flushes.get().wrapping_add(1));
        if self.flushes.get().is_multiple_of(4096) { self.job.check_peers() } else { Ok(()) }
    }

    /// Completes all operations of this rank, at their targets too.
    ///
    /// # Errors
    /// Those of [`flush`](Self::flush).
    pub fn flush_all(&self) -> Result<()> {
        const OP: &str = "flush_all";
        self.called(OP);
        self.check_passive(OP)?;
        for target in self.queued_targets() {
            self.enter(OP, target)?;
        }
        self.complete_all()?;
        self.order_stores()
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
        self.complete_locally(OP, target)
    }

    fn complete_locally(&self, operation: &'static str, target: usize) -> Result<()> {
        if self.has_unposted(target) {
            self.enter(operation, target)?;
        }
        self.complete_at(target)
    }

    /// Completes all operations of this rank locally.
    ///
    /// # Errors
    /// Those of [`flush`](Self::flush).
    pub fn flush_local_all(&self) -> Result<()> {
        const OP: &str = "flush_local_all";
        self.called(OP);
        self.check_passive(OP)?;
        (0..self.targets.len()).try_for_each(|t| self.complete_locally(OP, t))
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
    fn check_passive(&self, operation: &'static str) -> Result<()> {
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

    /// Lets the next step look at the lock once more, of a call that does not wait.
    pub(super) fn look_again(&self, target: usize) {
        let t = &self.targets[target];
        if t.lock.get() == LockState::Deferred {
            t.lock.set(LockState::Wanted(LockKind::Shared));
        }
    }

    /// One step towards the lock; whether it is held.
    fn advance(&self, target: usize) -> Result<bool> {
        let t = &self.targets[target];
        if let LockState::Draining(kind, ticket) = t.lock.get() {
            return Ok(self.drained(t, kind, ticket));
        }
        let (kind, ticket, now) = match t.lock.get() {
            held @ (LockState::Wanted(_) | LockState::Deferred) => {
                let waits = self.waits_for.get() == Some(target);
                let kind = if let LockState::Wanted(kind) = held { kind } else { LockKind::Shared };
                if held == LockState::Deferred && !waits {
                    return Ok(false);
                }
                if let Some(inside) = self.enter_without_ticket(t, target, kind, waits)? {
                    return Ok(inside);
                }
                if kind == LockKind::Shared && !waits {
                    // Where another look costs nothing there will be one.
                    t.lock.set(if self.board.is_mapped(target) { held } else { LockState::Deferred });
                    return Ok(false);
                }
                let before = self.board.fetch_add(target, word::LOCK, lockword::TAKE)?;
                let ticket = lockword::ticket(before);
                t.lock.set(LockState::Waiting(kind, ticket));
                (kind, ticket, before)
            }
            LockState::Waiting(kind, ticket) if self.in_line => (kind, ticket, self.join_line(target, kind, ticket)?),
            LockState::Waiting(kind, ticket) => (kind, ticket, self.board.read_word(target, word::LOCK)?),
            LockState::InLine(kind, ticket) => match self.word_if_turn(target)? {
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
                // Readers behind this one may enter now.
                self.change_word(target, lockword::reader_enters(ticket))?;
            }
            return Ok(self.drained(t, kind, ticket));
        }
        Ok(false)
    }

    /// Whether a claim lets this rank in, or as a reader a look at the word, if one of them does not leave it to a ticket.
    fn enter_without_ticket(&self, t: &Target, target: usize, kind: LockKind, waits: bool) -> Result<Option<bool>> {
        /// Looks, where other readers come between a look and the entry.
        const LOOKS: u32 = 3;
        if let Some((bias, claim, _)) = t.claim() {
            let entry = bias::enter(bias, claim, self.claimant, kind == LockKind::Shared);
            if entry != ClaimEntry::NotCovered {
                self.stats().add(farside_core::stats::Kind::FetchAdd, 8);
            }
            if entry == ClaimEntry::Inside {
                t.lock.set(LockState::Claimed);
                return Ok(Some(true));
            }
            if entry == ClaimEntry::Revoked {
                self.wake_waiters(target);
            }
        }
        // Where each look is a message a ticket is no more, for who may take one.
        if kind == LockKind::Exclusive || waits && !self.board.is_mapped(target) {
            return Ok(None);
        }
        // Atomically, as all that is done to a word that is not mapped.
        let mut now = match self.board.peer_word(target, word::LOCK) {
            Some(w) => w.load(Ordering::SeqCst),
            None => self.board.fetch_add(target, word::LOCK, 0)?,
        };
        for _ in 0..LOOKS {
            let Some(then) = lockword::reader_at_once(now) else { break };
            let before = self.board.compare_swap(target, word::LOCK, now, then)?;
            if before == now {
                return Ok(Some(self.drained(t, kind, lockword::ticket(now))));
            }
            now = before;
        }
        Ok(None)
    }

    /// Adds to `target`'s lock word, which may let others in, and wakes them.
    fn change_word(&self, target: usize, add: u64) -> Result<()> {
        let mut now = self.board.fetch_add(target, word::LOCK, add)?.wrapping_add(add);
        if add == lockword::READER_LEAVES && lockword::set_guard(now.wrapping_sub(add)) {
            let clear = lockword::CLEAR_GUARD;
            now = self.board.fetch_add(target, word::LOCK, clear)?.wrapping_add(clear);
        }
        if self.in_line {
            return self.hand_on(target, now);
        }
        self.wake_after_atomic(target);
        Ok(())
    }

    /// The last step of an entry by the word: whether all have left whom the bias let in and this lock excludes.
    fn drained(&self, t: &Target, kind: LockKind, ticket: Ticket) -> bool {
        let shared = kind == LockKind::Shared;
        if let (Some((bias, _, _)), Some(entry)) = (t.claim(), &t.entry) {
            let claims = self.claims;
            let ranks = self.team.size();
            if !bias::clear(bias, self.team.rank(), shared, ranks, |r| self.board.peer_word(t.team_rank, claims + r)) {
                t.lock.set(LockState::Draining(kind, ticket));
                return false;
            }
            let again = lockword::follows(entry.last.replace(ticket), ticket) || shared;
            entry.streak.set(if again { entry.streak.get() + 1 } else { 0 });
            if entry.streak.get() >= entry.patience.get() {
                entry.streak.set(0);
                entry.patience.set((entry.patience.get() * 2).min(LONGEST_PATIENCE));
                let to = if shared { bias::READERS } else { bias::owner(self.team.rank()) };
                // SeqCst: before this rank gives the word back, after which others look.
                bias.store(to, Ordering::SeqCst);
            }
        }
        if self.account.is_some()
            && let Some(holder) = self.board.peer_word(t.team_rank, word::HOLDER)
        {
            // SeqCst: who waits for the lock looks at it, for the bill.
            holder.store(self.team.rank() as u64 + 1, Ordering::SeqCst);
        }
        t.lock.set(LockState::Inside(kind, ticket));
        true
    }

    /// Waits for `target`'s lock and starts what is queued for it.
    pub(crate) fn enter(&self, name: &'static str, target: usize) -> Result<()> {
        if self.queue.borrow().is_empty() && !self.has_unposted(target) {
            return Ok(());
        }
        self.wait_for(name, target, || self.start_queued(Some(target)).map(|()| !self.has_unposted(target)))
    }

    /// A wait for the lock of `target`, or for a target whose lock is held.
    pub(super) fn awaited_lock(&self, name: &'static str, target: usize) -> Awaited {
        let t = &self.targets[target];
        if matches!(t.lock.get(), LockState::Unchecked | LockState::Inside(..) | LockState::Claimed) {
            return self.awaited(name, target);
        }
        let inside = |rank: &usize| {
            let claim = if t.entry.is_some() { self.board.peer_word(target, self.claims + rank) } else { None };
            *rank != self.team.rank() && claim.is_some_and(|claim| claim.load(Ordering::SeqCst) != 0)
        };
        let by_word = || {
            let last = self.board.peer_word(target, word::HOLDER)?.load(Ordering::SeqCst) as usize;
            last.checked_sub(1).filter(|rank| *rank < self.team.size() && *rank != self.team.rank())
        };
        let holder = (0..self.team.size()).find(inside).or_else(by_word);
        let from = holder.and_then(|rank| self.awaited("lock", rank).from);
        Awaited { from, ..self.awaited("lock", target) }
    }

    /// Takes turns until one succeeds, each of which may take a ticket of `target`.
    fn wait_for(&self, name: &'static str, target: usize, turn: impl FnMut() -> Result<bool>) -> Result<()> {
        let _outer = Outer(&self.waits_for, self.waits_for.replace(Some(target)));
        if self.in_line {
            self.wait_in_line(name, target, turn)
        } else {
            self.wait_word(|| self.awaited_lock(name, target), target, turn)
        }
    }

    /// Completes everything at `target` and gives the lock back.
    fn leave(&self, name: &'static str, target: usize) -> Result<()> {
        let t = &self.targets[target];
        // On a mapped window what has started is complete.
        if !self.mapped || !self.queue.borrow().is_empty() {
            self.enter(name, target)?;
            self.complete_at(target)?;
        }
        match t.lock.replace(LockState::No) {
            LockState::No | LockState::Unchecked | LockState::Wanted(_) | LockState::Deferred => {}
            LockState::Claimed | LockState::Local(None) => self.leave_by_claim(t, target),
            held @ (LockState::Waiting(..) | LockState::InLine(..) | LockState::Draining(..)) => {
                // No operation needed it, but the ticket is out and its turn must come and pass.
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
        Ok(())
    }

    /// Opens an epoch on one target by claim, if its bias lets this rank in: what [`lock`](Self::lock) does, on the
    /// shortest way.
    #[inline]
    fn lock_by_claim(&self, kind: LockKind, t: &Target) -> bool {
        let Some((bias, claim, _)) = t.claim() else { return false };
        if self.broken.get() || self.released.get() || t.lock.get() != LockState::No {
            return false;
        }
        match bias::enter(bias, claim, self.claimant, kind == LockKind::Shared) {
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
        t.lock.set(LockState::Claimed);
        t.ready.set(epoch);
        true
    }

    #[inline]
    fn leave_by_claim(&self, t: &Target, target: usize) {
        let Some((_, claim, waiters)) = t.claim() else { return };
        bias::leave(claim);
        self.stats().add(farside_core::stats::Kind::Signal, 8);
        if self.stored.get() {
            if matches!(self.access.get(), Access::Lock(1) | Access::LockAll) {
                self.stored.set(false);
                self.job.store_order().fence_for_later();
            } else {
                self.full_fence();
            }
        }
        if !self.sleepers_fence || self.targets.len() > 64 {
            self.wake_waiters(target);
        } else {
            // The waiter's half of the fence is paid when it goes to sleep: it sees the store, or its bit is seen.
            compiler_fence(Ordering::SeqCst);
            // Relaxed: as just said.
            if waiters.load(Ordering::Relaxed) != 0 {
                self.wake_after_atomic(target);
            }
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

    /// Waits until `target`'s lock, asked for by [`lock`](Self::lock) or [`lock_all`](Self::lock_all), is held: for a
    /// program that loads and stores the memory, or that must know that its operations begin when they are issued.
    /// Messages: those that the first operation would send.
    ///
    /// # Errors
    /// `WrongEpoch` without lock; `PeerLost`.
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

    fn wait_for_turn(&self, name: &'static str, target: usize) -> Result<()> {
        self.wait_for(name, target, || self.locked(name, target))
    }
}
