//! `loom` models of the ownership under every interleaving of the threads. A fence on both sides represents
//! `membarrier`, which executes a fence on every thread.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use farside_core::memory::words::Word;
use loom::sync::atomic::{AtomicU64, fence};
use loom::sync::{Condvar, Mutex};

use super::{BIASED, Ownership};

struct ModelWord(AtomicU64);

impl Word<u64> for ModelWord {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.0.swap(value, order)
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }
    fn compare_exchange(&self, a: u64, b: u64, yes: Ordering, no: Ordering) -> Result<u64, u64> {
        self.0.compare_exchange(a, b, yes, no)
    }
}

struct Model {
    ownership: Ownership<ModelWord>,
    /// Accessed only with the lock: `loom` reports concurrent access.
    inside: loom::cell::UnsafeCell<Cell<u64>>,
    waiting: ModelWord,
    queue: Mutex<()>,
    free: Condvar,
    with_fences: bool,
}

// SAFETY: the lock protects `inside`; `loom` checks that it does.
#[allow(unsafe_code)]
unsafe impl Sync for Model {}

impl Model {
    fn order(&self) {
        if self.with_fences {
            fence(Ordering::SeqCst);
        }
    }

    fn take(&self, me: u64) {
        if self.ownership.take(me, || self.order()) {
            return;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut queue = self.queue.lock().unwrap();
        loop {
            self.ownership.announce_sleep(|| fence(Ordering::SeqCst));
            if self.ownership.take_from(me, || self.order()) {
                break;
            }
            // A lost wakeup is a deadlock, which `loom` reports.
            queue = self.free.wait(queue).unwrap();
        }
        self.ownership.wakes.store((self.waiting.load(Ordering::SeqCst) > 1).into(), Ordering::SeqCst);
        self.waiting.fetch_add(u64::MAX, Ordering::SeqCst);
    }

    fn release(&self) {
        if !self.ownership.release(|| self.order()) {
            return;
        }
        fence(Ordering::SeqCst);
        if self.ownership.claim_wake() {
            drop(self.queue.lock().unwrap());
            self.free.notify_one();
        }
    }

    /// The number of calls so far; all other threads have ended.
    fn calls(&self) -> u64 {
        self.inside.with(|inside| {
            #[allow(unsafe_code)]
            // SAFETY: all other threads have ended.
            unsafe {
                (*inside).get()
            }
        })
    }

    /// One call of thread `me`, with a nested call.
    #[allow(unsafe_code)]
    fn call(&self, me: u64) {
        self.take(me);
        self.inside.with_mut(|inside| {
            // SAFETY: as above.
            let inside = unsafe { &*inside };
            inside.set(inside.get() + 1);
        });
        self.take(me);
        self.release();
        self.release();
    }
}

fn model(with_fences: bool, biased: bool) -> &'static Model {
    let word = |value| ModelWord(AtomicU64::new(value));
    let (owner, biased) = if biased { (2 | BIASED, 2) } else { (0, 0) };
    Box::leak(Box::new(Model {
        ownership: Ownership {
            owner: word(owner),
            depth: word(0),
            inside: word(0),
            biased: word(biased),
            wakes: word(0),
        },
        inside: loom::cell::UnsafeCell::new(Cell::new(0)),
        waiting: word(0),
        queue: Mutex::new(()),
        free: Condvar::new(),
        with_fences,
    }))
}

/// Threads that make calls: the first thread, to which the lock may be biased, makes `rounds` calls, and each other
/// thread one.
fn calls(with_fences: bool, biased: bool, others: u64, rounds: u64) {
    let model = model(with_fences, biased);
    let threads: Vec<_> = (0..others).map(|i| loom::thread::spawn(move || model.call(4 + 2 * i))).collect();
    (0..rounds).for_each(|_| model.call(2));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(model.calls(), rounds + others);
}

fn check(f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(f);
}

#[test]
fn lock_model_has_one_owner_at_a_time() {
    check(|| calls(true, true, 1, 2));
    check(|| calls(true, false, 2, 1));
}

#[test]
fn lock_model_of_two_threads_that_want_the_lock_of_a_biased_one() {
    check(|| calls(true, true, 2, 1));
}

#[test]
fn lock_model_of_an_owner_that_ends_the_bias_while_another_thread_wants_the_lock() {
    check(|| {
        let model = model(true, true);
        let other = loom::thread::spawn(move || model.call(4));
        model.take(2);
        model.ownership.unbias();
        model.release();
        model.call(2);
        other.join().unwrap();
        assert_eq!(model.calls(), 2);
    });
}

#[test]
fn lock_model_notices_that_the_fences_are_missing() {
    let failed = std::panic::catch_unwind(|| check(|| calls(false, true, 1, 2)));
    assert!(failed.is_err());
}
