//! Model checking (`loom`) of the queue: a writer that leaves, a writer that waits, and a slow rank that sends an
//! outdated wakeup.
//!
//! An HCA executes atomics one after the other; sequentially consistent fences model this total order.

use std::cell::Cell;

use loom::sync::atomic::{AtomicU64, Ordering, fence};

use super::*;
use crate::raw::bias::models::check;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    No,
    /// The waiter reads the lock word before its entry is written.
    ReadsLockFirst,
    /// The rank that leaves reads the slot before the lock is free.
    ReadsPlaceFirst,
    /// The waiter clears its word after it has read the lock word.
    ClearsLate,
}

struct Words {
    lock: AtomicU64,
    place: AtomicU64,
    turn: AtomicU64,
}

/// The words that one rank accesses.
struct Rank {
    words: &'static Words,
    broken: Broken,
    /// The value that the faulty rank has read too early.
    early: Cell<Option<u64>>,
}

impl Rank {
    fn new(words: &'static Words, broken: Broken) -> Self {
        Self { words, broken, early: Cell::new(None) }
    }

    fn add(&self, add: u64) -> u64 {
        let old = self.words.lock.fetch_add(add, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        old
    }

    fn leave(&self) {
        if self.broken == Broken::ReadsPlaceFirst {
            self.early.set(Some(self.words.place.load(Ordering::SeqCst)));
        }
        let add = lockword::writer_leaves(0);
        wake_next(self, self.add(add).wrapping_add(add)).unwrap();
    }

    /// Joins the queue, and reads the lock word again after a wakeup; returns whether the rank has entered.
    fn wait(&self) -> bool {
        let now = join(self, LockQueueEntry { ticket: 1, rank: 1, shared: false }).unwrap();
        lockword::may_write(now, 1) || word_if_turn(self).unwrap().is_some_and(|now| lockword::may_write(now, 1))
    }
}

impl QueueWords for Rank {
    fn turn(&self) -> u64 {
        self.words.turn.load(Ordering::SeqCst)
    }
    fn clear_turn(&self) {
        if self.broken != Broken::ClearsLate {
            self.words.turn.store(0, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
    }
    fn set_turn(&self, rank: usize) -> Result<()> {
        assert_eq!(rank, 1);
        self.words.turn.store(1, Ordering::SeqCst);
        Ok(())
    }
    fn write_entry(&self, entry: LockQueueEntry) -> Result<()> {
        if self.broken == Broken::ReadsLockFirst {
            self.early.set(Some(self.add(0)));
        }
        self.words.place.store(entry.word(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Ok(())
    }
    fn read_entry(&self, ticket: Ticket) -> Result<Option<LockQueueEntry>> {
        assert_eq!(ticket, 1);
        let word = self.early.take().unwrap_or_else(|| self.words.place.load(Ordering::SeqCst));
        Ok(LockQueueEntry::read(word))
    }
    fn lock_word(&self) -> Result<u64> {
        let now = self.early.take().unwrap_or_else(|| self.add(0));
        if self.broken == Broken::ClearsLate {
            self.words.turn.store(0, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
        Ok(now)
    }
}

/// Ticket 0 holds the lock, ticket 1 waits. In the end the waiter has entered, or its word is set.
fn leaver_and_waiter(broken: Broken) {
    check(3, move || {
        let words: &Words = Box::leak(Box::new(Words {
            lock: AtomicU64::new(2 * lockword::TAKE),
            place: AtomicU64::new(0),
            turn: AtomicU64::new(0),
        }));
        let late = loom::thread::spawn(move || words.turn.store(1, Ordering::SeqCst));
        let leaver = loom::thread::spawn(move || Rank::new(words, broken).leave());
        let inside = Rank::new(words, broken).wait();
        leaver.join().unwrap();
        late.join().unwrap();
        assert!(inside || words.turn.load(Ordering::SeqCst) == 1, "a waiter sleeps although the lock is free");
    });
}

#[test]
fn lockqueue_model_misses_no_waiter() {
    leaver_and_waiter(Broken::No);
}

#[test]
fn lockqueue_model_notices_what_the_protocol_needs() {
    for broken in [Broken::ReadsLockFirst, Broken::ReadsPlaceFirst, Broken::ClearsLate] {
        assert!(std::panic::catch_unwind(|| leaver_and_waiter(broken)).is_err(), "the model does not detect the fault");
    }
}
