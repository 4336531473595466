//! Biased entry to a lock: who enters by claim, and who has come in by the word and revokes the bias.
//!
//! Loom takes sequentially consistent accesses for acquire and release; fences stand here for their total order.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// What is wrong with a variant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    No,
    /// The bias is not looked at again after the claim is set.
    LooksOnce,
    /// The claim is a plain store: the look at the bias may come before it is seen.
    ClaimByStore,
    /// The claim is given back without Release.
    LeavesRelaxed,
    /// The bias is cleared at once, not marked: the next to come in by the word finds nobody to wait for.
    ClearsAtOnce,
}

const OWNER: u64 = 2;
const REVOKED: u64 = 1 << 63;

struct Lock {
    bias: AtomicU64,
    claim: AtomicU64,
    data: UnsafeCell<u64>,
    broken: Broken,
}

#[allow(unsafe_code)]
// SAFETY: every access to the cell is tracked by loom, which reports those that are not ordered.
unsafe impl Sync for Lock {}

#[allow(unsafe_code)]
impl Lock {
    fn touch(&self) {
        // SAFETY: loom checks that nobody else uses the cell meanwhile.
        self.data.with_mut(|d| unsafe { *d += 1 });
    }

    /// One entry by claim, if it is let in.
    fn by_claim(&self) {
        // Relaxed: only whether it is worth trying; the look after the claim decides.
        if self.bias.load(Ordering::Relaxed) != OWNER {
            return;
        }
        if self.broken == Broken::ClaimByStore {
            // Release, and no fence: what this variant lacks.
            self.claim.store(1, Ordering::Release);
        } else {
            self.claim.swap(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
        if self.broken == Broken::LooksOnce || self.bias.load(Ordering::SeqCst) == OWNER {
            self.touch();
        }
        // Release: pairs with the load of the claim in `clear`.
        let order = if self.broken == Broken::LeavesRelaxed { Ordering::Relaxed } else { Ordering::Release };
        self.claim.store(0, order);
    }

    /// What comes after the word has let a rank in.
    fn clear(&self) {
        loop {
            let now = self.bias.load(Ordering::SeqCst);
            if now == 0 {
                return;
            }
            let marked = if self.broken == Broken::ClearsAtOnce { 0 } else { OWNER | REVOKED };
            if now != marked && self.bias.compare_exchange(now, marked, Ordering::SeqCst, Ordering::SeqCst).is_err() {
                continue;
            }
            fence(Ordering::SeqCst);
            while self.claim.load(Ordering::SeqCst) != 0 {
                loom::thread::yield_now();
            }
            let _ = self.bias.compare_exchange(marked, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }
}

/// The owner enters by claim twice; a writer comes in by the word.
fn owner_and_writer(broken: Broken) {
    crate::check(3, move || {
        let lock = crate::leak(Lock {
            bias: AtomicU64::new(OWNER),
            claim: AtomicU64::new(0),
            data: UnsafeCell::new(0),
            broken,
        });
        let owner = loom::thread::spawn(move || {
            lock.by_claim();
            lock.by_claim();
        });
        lock.clear();
        lock.touch();
        owner.join().unwrap();
    });
}

/// The owner is inside by claim while two readers come in by the word, which shares: neither may read before the
/// owner has left.
fn owner_and_readers(broken: Broken) {
    crate::check(2, move || {
        let lock = crate::leak(Lock {
            bias: AtomicU64::new(OWNER),
            claim: AtomicU64::new(0),
            data: UnsafeCell::new(0),
            broken,
        });
        let owner = loom::thread::spawn(move || lock.by_claim());
        let read = move || {
            lock.clear();
            #[allow(unsafe_code)]
            // SAFETY: as in `touch`.
            lock.data.with(|d| unsafe { *d })
        };
        let reader = loom::thread::spawn(read);
        read();
        reader.join().unwrap();
        owner.join().unwrap();
    });
}

#[test]
fn bias_keeps_the_owner_and_a_writer_apart() {
    owner_and_writer(Broken::No);
}

#[test]
fn bias_keeps_the_owner_and_readers_apart() {
    owner_and_readers(Broken::No);
}

#[test]
#[should_panic]
fn bias_that_is_looked_at_once_is_caught() {
    owner_and_writer(Broken::LooksOnce);
}

#[test]
#[should_panic]
fn bias_with_a_claim_by_plain_store_is_caught() {
    owner_and_writer(Broken::ClaimByStore);
}

#[test]
#[should_panic]
fn bias_with_a_claim_given_back_without_release_is_caught() {
    owner_and_writer(Broken::LeavesRelaxed);
}

#[test]
#[should_panic]
fn bias_that_is_cleared_at_once_is_caught() {
    owner_and_readers(Broken::ClearsAtOnce);
}
