#![allow(unsafe_code)]
//! Model checking (`loom`) of the element lock: a rank takes a share while others update elements by plain accesses,
//! and shares end. The models must detect every variant with an injected fault.

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64;

use super::*;
use crate::raw::bias::models::check;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    No,
    /// A share is taken although a rank has exclusive access.
    SharesAtOnce,
    /// The word is released without Release ordering.
    LeavesRelaxed,
    /// A share is taken without Acquire ordering.
    SharesRelaxed,
    /// Threads keep a share without Release ordering.
    KeepsRelaxed,
    /// A share ends without Release ordering.
    EndsRelaxed,
    /// A rank gets exclusive access although another rank has a share.
    IgnoresShares,
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
        // Relaxed: the injected fault, which pairs with nothing.
        self.0.swap(value, if self.1 == Broken::KeepsRelaxed { Ordering::Relaxed } else { order })
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        // Relaxed: the injected fault, which pairs with nothing.
        self.0.fetch_add(value, if self.1 == Broken::EndsRelaxed { Ordering::Relaxed } else { order })
    }
    fn compare_exchange(&self, current: u64, new: u64, success: Ordering, failure: Ordering) -> Result<u64, u64> {
        let ignores = match self.1 {
            Broken::SharesAtOnce => new < ALONE,
            Broken::IgnoresShares => new >= ALONE && self.0.load(Ordering::SeqCst) < ALONE,
            _ => false,
        };
        if ignores {
            return Ok(self.0.swap(new, Ordering::SeqCst));
        }
        // Relaxed: the injected fault, which pairs with nothing.
        let success = if self.1 == Broken::SharesRelaxed && new < ALONE { Ordering::Relaxed } else { success };
        self.0.compare_exchange(current, new, success, failure)
    }
}

struct Elements {
    lock: ModelWord,
    /// Whether the threads of one rank keep a share.
    kept: ModelWord,
    data: UnsafeCell<u64>,
    atomics: AtomicU64,
}

// SAFETY: every access to the cell is tracked by loom, which reports those that are not ordered.
unsafe impl Sync for Elements {}

impl Elements {
    /// Leaked, since a model that panics must not drop objects that loom no longer tracks.
    fn new(broken: Broken) -> &'static Self {
        let [lock, kept] = [FREE, 0].map(|value| ModelWord(AtomicU64::new(value), broken));
        Box::leak(Box::new(Self { lock, kept, data: UnsafeCell::new(0), atomics: AtomicU64::new(0) }))
    }

    /// Tries to make a plain update; returns the number of updates.
    fn plain(&self, me: usize, own: u64) -> u64 {
        if enter_alone(&self.lock, me, own).is_err() {
            return 0;
        }
        // SAFETY: loom checks that no other thread uses the cell meanwhile.
        self.data.with_mut(|data| unsafe { *data += 1 });
        leave(&self.lock);
        1
    }

    /// Tries to take a share and to make an atomic update under it; returns the number of updates.
    fn atomic(&self) -> u64 {
        if share(&self.lock, FREE) { self.update() } else { 0 }
    }

    /// Tries to make an atomic update in a thread of a rank whose threads keep a share in common; returns the number of
    /// updates.
    fn atomic_in_thread(&self) -> u64 {
        if is_kept(&self.kept) {
            return self.update();
        }
        let Some(keeps) = share_among_threads(&self.lock, &self.kept, true) else { return 0 };
        let updates = self.update();
        if !keeps {
            end_share(&self.lock);
        }
        updates
    }

    /// Makes an atomic update. Atomics may be concurrent, so loom sees them as reads of the cell.
    fn update(&self) -> u64 {
        // SAFETY: loom checks that no other thread writes the cell meanwhile.
        self.data.with(|data| unsafe { *data });
        // Relaxed: joining the threads orders the count.
        self.atomics.fetch_add(1, Ordering::Relaxed);
        1
    }

    /// Checks the number of updates after all threads have ended.
    fn check(&self, updates: u64) {
        // SAFETY: as in `atomic`.
        let plain = self.data.with(|data| unsafe { *data });
        assert_eq!(plain + self.atomics.load(Ordering::SeqCst), updates);
    }
}

/// Two ranks make plain updates, and a third rank takes a share, which it keeps.
fn share_among_plain_updates(broken: Broken) {
    check(3, move || {
        let elements = Elements::new(broken);
        let first = loom::thread::spawn(move || elements.plain(0, FREE) + elements.plain(0, FREE));
        let second = loom::thread::spawn(move || elements.atomic());
        let updates = elements.plain(2, FREE) + first.join().unwrap() + second.join().unwrap();
        elements.check(updates);
    });
}

/// Two ranks take shares; one share is ended explicitly, the other by a plain update. Meanwhile a third rank tries a
/// plain update.
fn shares_end(broken: Broken) {
    check(3, move || {
        let elements = Elements::new(broken);
        let first = loom::thread::spawn(move || {
            let updates = elements.atomic();
            (0..updates).for_each(|_| end_share(&elements.lock));
            updates
        });
        let second = loom::thread::spawn(move || {
            let updates = elements.atomic();
            updates + elements.plain(1, updates)
        });
        let updates = elements.plain(2, FREE) + first.join().unwrap() + second.join().unwrap();
        elements.check(updates);
    });
}

/// Two threads of a rank keep a share, while another rank makes plain updates.
fn threads_share(broken: Broken) {
    check(3, move || {
        let elements = Elements::new(broken);
        let first = loom::thread::spawn(move || elements.atomic_in_thread());
        let second = loom::thread::spawn(move || elements.atomic_in_thread());
        let updates = elements.plain(2, FREE) + first.join().unwrap() + second.join().unwrap();
        elements.check(updates);
    });
}

#[test]
fn element_lock_model_keeps_plain_updates_alone() {
    share_among_plain_updates(Broken::No);
    shares_end(Broken::No);
    threads_share(Broken::No);
}

#[test]
fn element_lock_model_notices_what_the_protocol_needs() {
    let is_noticed = |model: fn(Broken), all: &[Broken]| {
        all.iter().all(|broken| std::panic::catch_unwind(|| model(*broken)).is_err())
    };
    assert!(is_noticed(
        share_among_plain_updates,
        &[Broken::SharesAtOnce, Broken::LeavesRelaxed, Broken::SharesRelaxed]
    ));
    assert!(is_noticed(shares_end, &[Broken::EndsRelaxed, Broken::IgnoresShares]));
    assert!(is_noticed(threads_share, &[Broken::SharesAtOnce, Broken::KeepsRelaxed, Broken::IgnoresShares]));
}
