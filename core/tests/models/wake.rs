//! Sleeping and waking (`park.rs`, `park` and `wake` in `mod.rs`): no signal is slept through.
//!
//! The sleeper's `membarrier`, which puts a fence into every waker, is a fence on both sides here.

use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::futex::Futex;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    No,
    SleeperWithoutBarrier,
    WakerWithoutBarrier,
    /// The waker rings the doorbell before it claims the sleep.
    RingsFirst,
    /// The sleeper notes the doorbell after its last look.
    NotesLate,
}

struct Rank {
    doorbell: Futex,
    sleeping: AtomicU32,
    cells: [AtomicU64; 2],
    broken: Broken,
}

impl Rank {
    fn ready(&self) -> bool {
        // Acquire: pairs with the Release in `signal`.
        self.cells.iter().all(|c| c.load(Ordering::Acquire) != 0)
    }

    fn park(&self) {
        let mut bell = self.doorbell.word.load(Ordering::SeqCst);
        self.sleeping.store(1, Ordering::SeqCst);
        if self.broken != Broken::SleeperWithoutBarrier {
            fence(Ordering::SeqCst);
        }
        let ready = self.ready();
        if self.broken == Broken::NotesLate {
            bell = self.doorbell.word.load(Ordering::SeqCst);
        }
        if !ready {
            self.doorbell.wait(bell);
        }
        self.sleeping.store(0, Ordering::SeqCst);
    }

    fn signal(&self, cell: usize) {
        // Release: pairs with the Acquire in `ready`.
        self.cells[cell].store(1, Ordering::Release);
        if self.broken != Broken::WakerWithoutBarrier {
            fence(Ordering::SeqCst);
        }
        // Relaxed: ordered by the fence, which pairs with the one in `park`.
        if self.sleeping.load(Ordering::Relaxed) == 0 {
            return;
        }
        if self.broken == Broken::RingsFirst {
            self.doorbell.word.fetch_add(1, Ordering::SeqCst);
            if self.sleeping.swap(0, Ordering::SeqCst) != 0 {
                self.doorbell.wake();
            }
        } else if self.sleeping.swap(0, Ordering::SeqCst) != 0 {
            self.doorbell.word.fetch_add(1, Ordering::SeqCst);
            self.doorbell.wake();
        }
    }
}

/// Two wakers, one sleeper that needs both. A lost wake-up is a deadlock, which loom reports.
fn model(broken: Broken) {
    crate::check(3, move || {
        let cells = std::array::from_fn(|_| AtomicU64::new(0));
        let rank = crate::leak(Rank { doorbell: Futex::new(), sleeping: AtomicU32::new(0), cells, broken });
        for cell in 0..2 {
            loom::thread::spawn(move || rank.signal(cell));
        }
        while !rank.ready() {
            rank.park();
        }
    });
}

#[test]
fn wake_is_never_lost() {
    model(Broken::No);
}

#[test]
#[should_panic(expected = "deadlock")]
fn wake_without_the_sleepers_barrier_is_caught() {
    model(Broken::SleeperWithoutBarrier);
}

#[test]
#[should_panic(expected = "deadlock")]
fn wake_without_the_wakers_barrier_is_caught() {
    model(Broken::WakerWithoutBarrier);
}

#[test]
#[should_panic(expected = "deadlock")]
fn wake_that_rings_before_it_claims_is_caught() {
    model(Broken::RingsFirst);
}

#[test]
#[should_panic(expected = "deadlock")]
fn wake_of_a_sleeper_that_notes_the_bell_late_is_caught() {
    model(Broken::NotesLate);
}
