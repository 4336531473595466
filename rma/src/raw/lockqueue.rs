//! Waiting for a lock word that is not mapped, where each look at it is a message: who waits leaves its rank in a line
//! and sleeps until it is notified (Mellor-Crummey, Scott: algorithms for scalable synchronization on shared-memory
//! multiprocessors; here the order is that of the lock word's tickets, and the line only says which rank to notify).
//!
//! The line is beside the target's lock word and has a place for each ticket that may wait. A waiter writes its rank
//! into the place of its ticket, looks at the lock word once more, and sleeps until its own word for that target is
//! set. Who changes the lock word so that the next ticket may enter reads the place of that ticket, and sets the word of
//! the rank that it finds there. Where nobody waits none of this happens: the change itself tells how many tickets are out.
//!
//! | in addition, where a rank waits | messages |
//! |---|---|
//! | who waits | the place, and a look at the lock word behind it; a look when it is notified |
//! | who leaves, or enters as a reader, with another one behind it | a read of the place, and a signal |
//!
//! Nobody is missed. Exactly one change of the lock word lets a ticket in, and it stays so until the ticket has entered.
//! Who makes that change reads the place after it; the waiter looks at the lock word when its place is written. Changes
//! and looks are atomic additions, one after the other: before a look that came before the change stands the place,
//! which is read after the change. And the waiter clears its own word before each look: what it clears speaks of a change
//! that this look sees.
//!
//! A place may still say who waited there in former times; that one is notified in vain, looks, and waits on. One that is
//! dead is notified like any other, and all get `PeerLost` as in every wait.

use std::sync::atomic::Ordering;

use farside_core::Result;

use super::lockword::{self, Ticket};
use super::target::{LockKind, LockState};
use super::{RawWindow, cell, word};

/// Places in a cache line beside a claim word, which is its word 0.
const PLACES: usize = 2;

/// What stands in a place: ticket, rank and kind of who waits.
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

impl RawWindow {
    /// Line, and word in it, of the place of `ticket`. As many places as ranks are enough: each waits with one ticket, and
    /// those that wait are consecutive. A power of two, so that this holds where tickets wrap.
    fn place_of(&self, ticket: Ticket) -> (usize, usize) {
        let place = ticket as usize & (self.team.size().next_power_of_two() - 1);
        (self.claims + place / PLACES, 1 + place % PLACES)
    }

    /// Joins the line at `target`; the lock word after that.
    pub(super) fn join_line(&self, target: usize, kind: LockKind, ticket: Ticket) -> Result<u64> {
        self.turn_cell(target).store(0, Ordering::SeqCst);
        let entry = LockQueueEntry { ticket, rank: self.team.rank(), shared: kind == LockKind::Shared };
        self.board.write_lane(target, self.place_of(ticket), entry.word())?;
        let now = self.board.fetch_add(target, word::LOCK, 0)?;
        self.targets[target].lock.set(LockState::InLine(kind, ticket));
        Ok(now)
    }

    /// The lock word of `target`, if a notification says that it has changed.
    pub(super) fn look_if_notified(&self, target: usize) -> Result<Option<u64>> {
        let turn = self.turn_cell(target);
        if turn.load(Ordering::SeqCst) == 0 {
            return Ok(None);
        }
        turn.store(0, Ordering::SeqCst);
        self.board.fetch_add(target, word::LOCK, 0).map(Some)
    }

    /// This rank's word that is set when its turn at `target` has come.
    fn turn_cell(&self, target: usize) -> &std::sync::atomic::AtomicU64 {
        self.board.own_word(self.claims + target)
    }

    /// After this rank has changed the lock word of `target` to `now`: tells the next in line, if it may enter now.
    pub(super) fn hand_on(&self, target: usize, now: u64) -> Result<()> {
        let Some(ticket) = lockword::next_in_line(now).filter(|_| self.in_line) else { return Ok(()) };
        let place = self.board.read_lane(target, self.place_of(ticket))?;
        match LockQueueEntry::read(place) {
            Some(e) if e.ticket == ticket && e.rank < self.team.size() => {
                if e.shared || lockword::may_write(now, ticket) {
                    self.board.set_word(e.rank, self.claims + target, 1)?;
                }
                Ok(())
            }
            // That rank has not written its place yet, and looks at the lock word when it has.
            _ => Ok(()),
        }
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
            LockState::InLine(..) => self.turn_cell(target).load(Ordering::SeqCst) != 0,
            LockState::Wanted(_) | LockState::Deferred | LockState::Waiting(..) | LockState::Draining(..) => true,
            // What is still awaited then is an exposure.
            _ => self.board.reached(target, cell::POST, t.starts.get()),
        };
        while !turn()? {
            self.job.wait(name, || Ok(changed().then_some(())))?;
        }
        Ok(())
    }
}

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
