//! The sleep handshake under every interleaving of a sleeper and its wakers. A lost wake-up is a deadlock, which `loom`
//! reports. The sleeper's `membarrier` executes a fence in every waker; the model uses a fence on both sides instead.

use std::sync::atomic::Ordering;

use super::{is_asleep, ring, sleep};
use crate::interleavings::{Fault, Futex, ModelWord, caught, check, leak};
use crate::memory::words::Word;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    No,
    SleeperWithoutBarrier,
    WakerWithoutBarrier,
    /// The waker rings the doorbell before it claims the sleep.
    RingsFirst,
    /// The sleeper reads the doorbell after its last check.
    ReadsBellLate,
}

/// The words of a rank that are used in the sleep handshake.
pub(crate) struct Sleeper {
    doorbell: Futex,
    sleeping: ModelWord,
    broken: Broken,
}

impl Sleeper {
    pub(crate) fn new(broken: Broken) -> Self {
        Self { doorbell: Futex::new(), sleeping: ModelWord::new(0, Fault::No), broken }
    }

    fn fence(&self, without: Broken) {
        if self.broken != without {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    pub(crate) fn park(&self, ready: impl FnOnce() -> bool) {
        let wait = |word: &ModelWord, bell| {
            let late = self.broken == Broken::ReadsBellLate;
            self.doorbell.wait(if late { word.load(Ordering::SeqCst) } else { bell });
        };
        sleep(&self.doorbell.word, &self.sleeping, || self.fence(Broken::SleeperWithoutBarrier), ready, wait);
    }

    pub(crate) fn wake(&self) {
        self.fence(Broken::WakerWithoutBarrier);
        if !is_asleep(&self.sleeping) {
            return;
        }
        let claimed = if self.broken == Broken::RingsFirst {
            Word::<u32>::fetch_add(&self.doorbell.word, 1, Ordering::SeqCst);
            Word::<u32>::swap(&self.sleeping, 0, Ordering::SeqCst) != 0
        } else {
            ring(&self.doorbell.word, &self.sleeping)
        };
        if claimed {
            self.doorbell.wake();
        }
    }
}

/// Two wakers and one sleeper that waits for both.
fn wakes(broken: Broken) {
    let sleeper = leak(Sleeper::new(broken));
    let cells = leak([(); 2].map(|()| ModelWord::new(0, Fault::No)));
    for cell in cells {
        loom::thread::spawn(move || {
            // Release: pairs with the Acquire in `ready`.
            Word::<u64>::store(cell, 1, Ordering::Release);
            sleeper.wake();
        });
    }
    // Acquire: pairs with the Release of the wakers.
    let ready = || cells.iter().all(|cell| Word::<u64>::load(cell, Ordering::Acquire) != 0);
    while !ready() {
        sleeper.park(ready);
    }
}

#[test]
fn park_model_misses_no_wake() {
    check(3, || wakes(Broken::No));
}

#[test]
fn park_model_notices_what_the_handshake_needs() {
    for broken in
        [Broken::SleeperWithoutBarrier, Broken::WakerWithoutBarrier, Broken::RingsFirst, Broken::ReadsBellLate]
    {
        caught(3, move || wakes(broken));
    }
}
