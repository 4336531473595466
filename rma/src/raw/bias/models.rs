#![allow(unsafe_code)]
//! Model checking (`loom`) of biased entry: every interleaving of an owner that enters by claim and ranks that have
//! entered by the lock word and revoke the bias. The model must detect every variant with an injected fault.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, fence};

/// The injected fault in the accesses to a word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    No,
    /// The bias is not read again after the claim is set.
    ReadsOnce,
    /// The claim is a plain store, so the bias may be read before other ranks see the claim.
    ClaimByStore,
    /// The claim is cleared without Release.
    LeavesRelaxed,
    /// The bias is cleared immediately instead of marked, so the next rank does not wait for the claim.
    ClearsAtOnce,
}

/// Loom treats sequentially consistent accesses as acquire and release, so a fence after each models their total
/// order.
struct ModelWord(AtomicU64, Broken);

impl Word for ModelWord {
    fn load(&self, order: Ordering) -> u64 {
        let value = self.0.load(order);
        if order == Ordering::SeqCst {
            fence(Ordering::SeqCst);
        }
        value
    }
    fn store(&self, value: u64, order: Ordering) {
        // Relaxed: the injected fault, which pairs with nothing.
        self.0.store(value, if self.1 == Broken::LeavesRelaxed { Ordering::Relaxed } else { order });
    }
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        if self.1 == Broken::ClaimByStore {
            // Release: the injected fault, a store in place of the exchange, which no fence orders before the next
            // load.
            self.0.store(value, Ordering::Release);
            return 0;
        }
        let old = self.0.swap(value, order);
        fence(Ordering::SeqCst);
        old
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }
    fn compare_exchange(&self, current: u64, new: u64, success: Ordering, failure: Ordering) -> Result<u64, u64> {
        let new = if self.1 == Broken::ClearsAtOnce { NONE } else { new };
        let result = self.0.compare_exchange(current, new, success, failure);
        fence(Ordering::SeqCst);
        result
    }
}

struct Lock {
    bias: ModelWord,
    claim: ModelWord,
    data: UnsafeCell<u64>,
}

// SAFETY: every access to the cell is tracked by loom, which reports those that are not ordered.
unsafe impl Sync for Lock {}

impl Lock {
    /// A lock biased toward rank 0. It is leaked, since a model that panics must not drop objects that loom no
    /// longer tracks.
    fn new(broken: Broken) -> &'static Self {
        let in_bias = if broken == Broken::ClearsAtOnce { broken } else { Broken::No };
        let bias = ModelWord(AtomicU64::new(owner(0)), in_bias);
        Box::leak(Box::new(Self { bias, claim: ModelWord(AtomicU64::new(0), broken), data: UnsafeCell::new(0) }))
    }

    fn write(&self) {
        // SAFETY: loom checks that no other thread uses the cell meanwhile.
        self.data.with_mut(|data| unsafe { *data += 1 });
    }

    /// Enters and leaves by claim, if the bias allows it.
    fn by_claim(&self) {
        let entry = if self.claim.1 == Broken::ReadsOnce && self.bias.load(Ordering::Relaxed) == owner(0) {
            self.claim.swap(1, Ordering::SeqCst);
            ClaimEntry::Inside
        } else {
            enter(&self.bias, &self.claim, 0, false)
        };
        if entry == ClaimEntry::Inside {
            self.write();
            leave(&self.claim);
        }
    }

    /// The steps of rank `me` after it has entered by the lock word.
    fn revoke(&self, me: usize, shared: bool) {
        while !clear(&self.bias, me, shared, 3, |rank| (rank == 0).then_some(&self.claim)) {
            loom::thread::yield_now();
        }
    }
}

/// Runs a model with at most `preemptions` involuntary switches of threads.
pub(in crate::raw) fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// The owner enters by claim twice while a writer holds the lock by the lock word.
fn owner_and_writer(broken: Broken) {
    check(3, move || {
        let lock = Lock::new(broken);
        let owner = loom::thread::spawn(move || {
            lock.by_claim();
            lock.by_claim();
        });
        lock.revoke(1, false);
        lock.write();
        owner.join().unwrap();
    });
}

/// The owner holds the lock by claim while two readers have entered by the lock word: neither may read before the owner
/// has left.
fn owner_and_readers(broken: Broken) {
    check(2, move || {
        let lock = Lock::new(broken);
        let owner = loom::thread::spawn(move || lock.by_claim());
        let read = move |me| {
            lock.revoke(me, true);
            // SAFETY: as in `write`.
            lock.data.with(|data| unsafe { *data })
        };
        let reader = loom::thread::spawn(move || read(1));
        read(2);
        reader.join().unwrap();
        owner.join().unwrap();
    });
}

#[test]
fn bias_model_keeps_the_owner_and_a_writer_apart() {
    owner_and_writer(Broken::No);
}

#[test]
fn bias_model_keeps_the_owner_and_readers_apart() {
    owner_and_readers(Broken::No);
}

#[test]
fn bias_model_notices_what_the_protocol_needs() {
    let caught = |model: fn(Broken), broken| {
        assert!(std::panic::catch_unwind(|| model(broken)).is_err(), "the model does not detect the fault");
    };
    for broken in [Broken::ReadsOnce, Broken::ClaimByStore, Broken::LeavesRelaxed] {
        caught(owner_and_writer, broken);
    }
    caught(owner_and_readers, Broken::ClearsAtOnce);
}
