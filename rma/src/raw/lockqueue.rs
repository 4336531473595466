//! Waiting for an unmapped lock word, of which each read is a message: a waiter enters its rank in a queue and sleeps
//! until it may enter the lock (Mellor-Crummey, Scott: algorithms for scalable synchronization on shared-memory
//! multiprocessors; here the tickets of the lock word give the order, and the queue maps tickets to ranks).
//!
//! The queue is next to the target's lock word and has a slot for each ticket that may wait. A waiter writes its entry
//! into the slot of its ticket, reads the lock word again, and sleeps until its own word for that target is set. A rank
//! that changes the lock word so that the next ticket may enter reads the slot of that ticket, and sets the word of the
//! rank in it. If no rank waits, the queue is not accessed: the fetch-and-add itself returns the tickets that are
//! taken.
//!
//! | additional messages if a rank waits | messages |
//! |---|---|
//! | waiter | its entry, then a read of the lock word; another read when its word is set |
//! | rank that leaves, or enters as a reader, with a waiter behind it | a read of the slot, and a signal |
//!
//! No wakeup is lost. Exactly one change of the lock word admits a ticket, and the ticket may enter from then on. The
//! rank that makes the change reads the slot afterwards; the waiter reads the lock word after it has written its entry.
//! Changes and reads are atomic additions, which are totally ordered: if the waiter's read precedes the change, its
//! entry is in the slot when the slot is read. The waiter clears its own word before each read, so if it clears a set
//! word, this read sees the change for which the word was set.
//!
//! A slot may still hold the entry of an earlier waiter. Setting the word of that rank is harmless, since the rank
//! checks its ticket and continues to wait.

use std::sync::atomic::Ordering;

use farside_core::Result;

use super::lockword::{self, Ticket};
use super::target::{LockKind, LockState};
use super::{RawWindow, cell, word};

/// Number of queue slots in the cache line of a claim word, after word 0, which is the claim word itself.
const SLOTS_PER_LINE: usize = 2;

/// The contents of a slot: ticket, rank and kind of a waiter.
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

    /// `None` for a slot that has never been written.
    fn read(word: u64) -> Option<Self> {
        let rank = (word as u32 >> 1).checked_sub(1)? as usize;
        Some(Self { ticket: word >> 32, rank, shared: word & 1 != 0 })
    }
}

/// The words of the queue at one target, as one rank accesses them.
trait QueueWords {
    /// This rank's word for the target: nonzero once the rank may be able to enter.
    fn turn(&self) -> u64;
    fn clear_turn(&self);
    /// Sets the word of another rank for the target.
    fn set_turn(&self, rank: usize) -> Result<()>;
    fn write_entry(&self, entry: LockQueueEntry) -> Result<()>;
    fn read_entry(&self, ticket: Ticket) -> Result<Option<LockQueueEntry>>;
    /// Reads the target's lock word with a fetch-and-add of 0, so that the read is atomic with the other changes of the
    /// word.
    fn lock_word(&self) -> Result<u64>;
}

/// Writes this rank's entry, and returns the lock word read after that.
fn join(queue: &impl QueueWords, entry: LockQueueEntry) -> Result<u64> {
    queue.clear_turn();
    queue.write_entry(entry)?;
    queue.lock_word()
}

/// Returns the lock word if this rank may be able to enter.
fn word_if_turn(queue: &impl QueueWords) -> Result<Option<u64>> {
    if queue.turn() == 0 {
        return Ok(None);
    }
    queue.clear_turn();
    queue.lock_word().map(Some)
}

/// Called after this rank has changed the lock word to `now`: sets the word of the next waiter, if it may enter.
fn wake_next(queue: &impl QueueWords, now: u64) -> Result<()> {
    let Some(ticket) = lockword::next_in_line(now) else { return Ok(()) };
    match queue.read_entry(ticket)? {
        Some(e) if e.ticket == ticket && (e.shared || lockword::may_write(now, ticket)) => queue.set_turn(e.rank),
        // A rank that has not written its entry yet will read the lock word after writing it.
        _ => Ok(()),
    }
}

/// The wait queue of one target.
struct TargetQueue<'w> {
    window: &'w RawWindow,
    target: usize,
}

impl TargetQueue<'_> {
    /// The slot of `ticket`: the number of a claim word, and the index in its cache line. One slot per rank is enough,
    /// since a rank waits with one ticket and waiting tickets are consecutive. The number of slots is a power of two,
    /// so that it divides the range of tickets and this also holds when they wrap.
    fn slot_of(&self, ticket: Ticket) -> (usize, usize) {
        let place = ticket as usize & (self.window.team.size().next_power_of_two() - 1);
        (self.window.locking.claims + place / SLOTS_PER_LINE, 1 + place % SLOTS_PER_LINE)
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
        // The rank comes from memory that peers write, so it is validated.
        if rank < self.window.team.size() {
            self.window.signals.set_word(rank, self.window.locking.claims + self.target, 1)?;
        }
        Ok(())
    }
    fn write_entry(&self, entry: LockQueueEntry) -> Result<()> {
        self.window.signals.write_in_line(self.target, self.slot_of(entry.ticket), entry.word())
    }
    fn read_entry(&self, ticket: Ticket) -> Result<Option<LockQueueEntry>> {
        self.window.signals.read_in_line(self.target, self.slot_of(ticket)).map(LockQueueEntry::read)
    }
    fn lock_word(&self) -> Result<u64> {
        self.window.signals.fetch_add(self.target, word::LOCK, 0)
    }
}

impl RawWindow {
    fn queue(&self, target: usize) -> TargetQueue<'_> {
        TargetQueue { window: self, target }
    }

    /// Joins the queue at `target`, and returns the lock word read after that.
    pub(super) fn join_queue(&self, target: usize, kind: LockKind, ticket: Ticket) -> Result<u64> {
        let entry = LockQueueEntry { ticket, rank: self.team.rank(), shared: kind == LockKind::Shared };
        let now = join(&self.queue(target), entry)?;
        self.targets[target].lock.set(LockState::Queued(kind, ticket));
        Ok(now)
    }

    /// Returns the lock word of `target` if this rank may be able to enter.
    pub(super) fn word_if_turn(&self, target: usize) -> Result<Option<u64>> {
        word_if_turn(&self.queue(target))
    }

    /// Called after this rank has changed the lock word of `target` to `now`: notifies the next waiter, if any.
    pub(super) fn wake_next(&self, target: usize, now: u64) -> Result<()> {
        if self.locking.uses_queue { wake_next(&self.queue(target), now) } else { Ok(()) }
    }

    /// Repeats `turn` until it succeeds, and sleeps in between until the state that it waits for has changed.
    pub(super) fn wait_in_queue(
        &self,
        name: &'static str,
        target: usize,
        mut turn: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let t = &self.targets[target];
        let changed = || match t.lock.get() {
            // Another thread is making an attempt or starting the operations.
            _ if self.locking.entering.get() || self.operations.starting.get() => false,
            LockState::Queued(..) => self.queue(target).turn() != 0,
            LockState::Wanted(_) | LockState::Deferred | LockState::Waiting(..) | LockState::Draining(..) => true,
            // The lock is already held, so the call waits for an exposure.
            _ => self.signals.reached(target, cell::POST, t.starts.get()),
        };
        while !turn()? {
            self.job.wait(|| self.awaited_lock(name, target), || Ok(changed().then_some(())))?;
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
