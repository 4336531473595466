#![allow(unsafe_code)]
//! The element lock under every interleaving (`loom`) of ranks that update elements by plain accesses and a rank that
//! makes the lock shared. The model must detect every variant with an injected fault.

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64;

use super::*;
use crate::raw::bias::models::check;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    No,
    /// The word is made shared although a rank holds it.
    SharesAtOnce,
    /// The word is given back without Release.
    LeavesRelaxed,
    /// A rank that finds the word shared does not acquire what was written before.
    FindsRelaxed,
}

struct ModelWord(AtomicU64, Broken);

impl Word for ModelWord {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        // Relaxed: the injected fault, which pairs with nothing.
        self.0.store(value, if self.1 == Broken::LeavesRelaxed { Ordering::Relaxed } else { order });
    }
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.0.swap(value, order)
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }
    fn compare_exchange(&self, current: u64, new: u64, success: Ordering, failure: Ordering) -> Result<u64, u64> {
        if self.1 == Broken::SharesAtOnce && new == SHARED {
            self.0.store(new, Ordering::SeqCst);
            return Ok(current);
        }
        // Relaxed: the injected fault, which pairs with nothing.
        let failure = if self.1 == Broken::FindsRelaxed { Ordering::Relaxed } else { failure };
        self.0.compare_exchange(current, new, success, failure)
    }
}

struct Elements {
    lock: ModelWord,
    data: UnsafeCell<u64>,
    atomics: AtomicU64,
}

// SAFETY: every access to the cell is tracked by loom, which reports those that are not ordered.
unsafe impl Sync for Elements {}

impl Elements {
    /// Tries to update the elements; returns the number of updates. Atomics may be made at the same time, so they count as
    /// reads of the cell.
    fn update(&self, me: usize, share: bool) -> u64 {
        match enter(&self.lock, me, share) {
            Entry::Alone => {
                // SAFETY: loom checks that no other thread uses the cell meanwhile.
                self.data.with_mut(|data| unsafe { *data += 1 });
                leave(&self.lock);
                1
            }
            Entry::Shared => {
                // SAFETY: loom checks that no other thread writes the cell meanwhile.
                self.data.with(|data| unsafe { *data });
                // Relaxed: the ends of the threads order the count.
                self.atomics.fetch_add(1, Ordering::Relaxed);
                1
            }
            Entry::Held => 0,
        }
    }
}

/// Two ranks make updates, and a third one shares the lock.
fn plain_and_atomic(broken: Broken) {
    check(3, move || {
        let lock = ModelWord(AtomicU64::new(FREE), broken);
        let elements = Elements { lock, data: UnsafeCell::new(0), atomics: AtomicU64::new(0) };
        // Leaked, since a model that panics must not drop objects that loom no longer tracks.
        let elements: &'static Elements = Box::leak(Box::new(elements));
        let first = loom::thread::spawn(move || elements.update(0, false) + elements.update(0, false));
        let second = loom::thread::spawn(move || elements.update(1, true));
        let updates = elements.update(2, false) + first.join().unwrap() + second.join().unwrap();
        // SAFETY: as in `update`.
        let plain = elements.data.with(|data| unsafe { *data });
        assert_eq!(plain + elements.atomics.load(Ordering::SeqCst), updates);
    });
}

#[test]
fn element_lock_model_keeps_plain_updates_alone() {
    plain_and_atomic(Broken::No);
}

#[test]
fn element_lock_model_notices_what_the_protocol_needs() {
    for broken in [Broken::SharesAtOnce, Broken::LeavesRelaxed, Broken::FindsRelaxed] {
        let caught = std::panic::catch_unwind(|| plain_and_atomic(broken));
        assert!(caught.is_err(), "the model does not notice the fault");
    }
}
