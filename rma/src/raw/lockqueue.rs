//! Waiting for a lock word that is not mapped, where each look at it is a message: a waiter leaves its rank in a queue
//! and sleeps until its turn has come (Mellor-Crummey, Scott: algorithms for scalable synchronization on shared-memory
//! multiprocessors; here the tickets of the lock word give the order, and the queue says which rank has a ticket).
//!
//! The queue is beside the target's lock word and has a place for each ticket that may wait. A waiter writes its entry
//! into the place of its ticket, reads the lock word once more, and sleeps until its own word for that target is set. A
//! rank that changes the lock word so that the next ticket may enter reads the place of that ticket, and sets the word
//! of the rank in it. With no waiter none of this happens: the change itself gives the tickets that are out.
//!
//! | in addition, where a rank waits | messages |
//! |---|---|
//! | waiter | its entry, and a read of the lock word behind it; another read when its word is set |
//! | rank that leaves, or enters as a reader, with a waiter behind it | a read of the place, and a signal |
//!
//! No waiter is missed. Exactly one change of the lock word lets a ticket in, and it stays so until the ticket has
//! entered. The rank that makes the change reads the place after it; the waiter reads the lock word after it has written
//! its entry. Changes and reads are atomic additions, one after the other: if the waiter's read came before the change,
//! its entry is there when the place is read. And the waiter clears its own word before each read: a cleared word speaks
//! of a change that this read sees.
//!
//! A place may hold an entry of an earlier waiter: its word is set in vain, and it waits on.

use std::sync::atomic::Ordering;

use farside_core::Result;

use super::lockword::{self, Ticket};
use super::target::{LockKind, LockState};
use super::{RawWindow, cell, word};

/// Places in the cache line of a claim word, which is its word 0.
const PLACES: usize = 2;

/// What stands in a place: ticket, rank and kind of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LockQueueEntry {
    ticket: Ticket,
    rank: usize,
    shared: bool,
}

impl LockQueueEntry {
    fn word(self) -> u64 {
        self.ticket << 32 | (self.rank as u64 + 1) << 1 | u64::from(self.shared)
    }

    /// `None` for a place that was never written.
    fn read(word: u64) -> Option<Self> {
        let rank = (word as u32 >> 1).checked_sub(1)? as usize;
        Some(Self { ticket: word >> 32, rank, shared: word & 1 != 0 })
    }
}

/// The words of the queue at one target, as one rank reaches them.
trait QueueWords {
    /// This rank's word for the target: not 0 once its turn may have come.
    fn turn(&self) -> u64;
    fn clear_turn(&self);
    /// Sets the word of another rank for the target.
    fn set_turn(&self, rank: usize) -> Result<()>;
    fn write_entry(&self, entry: LockQueueEntry) -> Result<()>;
    fn read_entry(&self, ticket: Ticket) -> Result<Option<LockQueueEntry>>;
    /// The lock word, by an atomic addition.
    fn lock_word(&self) -> Result<u64>;
}

/// Enters the queue; the lock word after that.
fn join(queue: &impl QueueWords, entry: LockQueueEntry) -> Result<u64> {
    queue.clear_turn();
    queue.write_entry(entry)?;
    queue.lock_word()
}

/// The lock word, if the turn of this rank may have come.
fn word_if_turn(queue: &impl QueueWords) -> Result<Option<u64>> {
    if queue.turn() == 0 {
        return Ok(None);
    }
    queue.clear_turn();
    queue.lock_word().map(Some)
}

/// After this rank has changed the lock word to `now`: sets the word of the next rank, if that may enter now.
fn hand_on(queue: &impl QueueWords, now: u64) -> Result<()> {
    let Some(ticket) = lockword::next_in_line(now) else { return Ok(()) };
    match queue.read_entry(ticket)? {
        Some(e) if e.ticket == ticket && (e.shared || lockword::may_write(now, ticket)) => queue.set_turn(e.rank),
        // A rank whose entry is not written yet reads the lock word behind it.
        _ => Ok(()),
    }
}

/// The queue at a target of a window.
struct TargetQueue<'w> {
    window: &'w RawWindow,
    target: usize,
}

impl TargetQueue<'_> {
    /// Word of the entry of `ticket`, and its index in the line of that word. As many places as ranks are enough: each waits with one ticket, and
    /// those that wait are consecutive. A power of two, so that this holds where tickets wrap.
    fn place_of(&self, ticket: Ticket) -> (usize, usize) {
        let place = ticket as usize & (self.window.team.size().next_power_of_two() - 1);
        (self.window.locking.claims + place / PLACES, 1 + place % PLACES)
    }
}

impl QueueWords for TargetQueue<'_> {
    fn turn(&self) -> u64 {
        self.window.signals.own_word(self.window.locking.claims + self.target).load(Ordering::SeqCst)
    }
    fn clear_turn(&self) {
        self.window.signals.own_word(self.window.locking.claims + self.target).store(0, Ordering::SeqCst);
    }
    fn set_turn(&self, rank: usize) -> Result<()> {
        // A peer wrote the rank.
        if rank < self.window.team.size() {
            self.window.signals.set_word(rank, self.window.locking.claims + self.target, 1)?;
        }
        Ok(())
    }
    fn write_entry(&self, entry: LockQueueEntry) -> Result<()> {
        self.window.signals.write_in_line(self.target, self.place_of(entry.ticket), entry.word())
    }
    fn read_entry(&self, ticket: Ticket) -> Result<Option<LockQueueEntry>> {
        self.window.signals.read_in_line(self.target, self.place_of(ticket)).map(LockQueueEntry::read)
    }
    fn lock_word(&self) -> Result<u64> {
        self.window.signals.fetch_add(self.target, word::LOCK, 0)
    }
}

impl RawWindow {
    fn queue(&self, target: usize) -> TargetQueue<'_> {
        TargetQueue { window: self, target }
    }

    /// Joins the line at `target`; the lock word after that.
    pub(super) fn join_line(&self, target: usize, kind: LockKind, ticket: Ticket) -> Result<u64> {
        let entry = LockQueueEntry { ticket, rank: self.team.rank(), shared: kind == LockKind::Shared };
        let now = join(&self.queue(target), entry)?;
        self.targets[target].lock.set(LockState::InLine(kind, ticket));
        Ok(now)
    }

    /// The lock word of `target`, if the turn of this rank may have come.
    pub(super) fn word_if_turn(&self, target: usize) -> Result<Option<u64>> {
        word_if_turn(&self.queue(target))
    }

    /// After this rank has changed the lock word of `target` to `now`.
    pub(super) fn hand_on(&self, target: usize, now: u64) -> Result<()> {
        if self.locking.in_line { hand_on(&self.queue(target), now) } else { Ok(()) }
    }

    /// Takes turns until one succeeds, and sleeps in between until something has changed at `target`.
    pub(super) fn wait_in_line(
        &self,
        name: &'static str,
        target: usize,
        mut turn: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let t = &self.targets[target];
        let changed = || match t.lock.get() {
            LockState::InLine(..) => self.queue(target).turn() != 0,
            LockState::Wanted(_) | LockState::Deferred | LockState::Waiting(..) | LockState::Draining(..) => true,
            // What is still awaited then is an exposure.
            _ => self.signals.reached(target, cell::POST, t.starts.get()),
        };
        while !turn()? {
            self.job.wait_for(|| self.awaited_lock(name, target), || Ok(changed().then_some(())))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod models;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_comes_back_and_an_empty_place_is_none() {
        for ticket in [0, 7, (1 << 20) - 1] {
            for rank in [0, 1, (1 << 30) - 1] {
                for shared in [false, true] {
                    let entry = LockQueueEntry { ticket, rank, shared };
                    assert_eq!(LockQueueEntry::read(entry.word()), Some(entry));
                }
            }
        }
        assert_eq!(LockQueueEntry::read(0), None);
    }
}
