//! The line that two ranks have for packets of both ways: whoever has taken what came with it may use it next.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};

/// What is wrong with a variant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    No,
    /// Who has sent by the shuttle sends by it again.
    Keeps,
    /// The marker does not say which way it goes.
    NoWay,
    /// The bytes are not ordered before the marker.
    Relaxed,
}

const READY: u64 = 1 << 63;
const DOWN: u64 = 1 << 62;
const PACKETS: u64 = 2;

/// A marker with its number, and its bytes.
struct Slot(AtomicU64, UnsafeCell<u64>);

impl Slot {
    fn new() -> Self {
        Self(AtomicU64::new(0), UnsafeCell::new(0))
    }
}

struct Ranks {
    shuttle: Slot,
    /// By sender: what goes another way.
    ring: [[Slot; PACKETS as usize]; 2],
    broken: Broken,
}

#[allow(unsafe_code)]
// SAFETY: every access to a cell is tracked by loom, which reports those that are not ordered.
unsafe impl Sync for Ranks {}

/// One rank's end.
struct End {
    ranks: &'static Ranks,
    me: usize,
    holds: bool,
    sent: u64,
    received: u64,
}

#[allow(unsafe_code)]
impl End {
    fn new(ranks: &'static Ranks, me: usize) -> Self {
        Self { ranks, me, holds: me == 0, sent: 0, received: 0 }
    }

    fn bit(&self, from: usize) -> u64 {
        if from == 1 && self.ranks.broken != Broken::NoWay { DOWN } else { 0 }
    }

    /// What rank `from` writes as its packet `number`.
    fn bytes(from: usize, number: u64) -> u64 {
        100 * (from as u64 + 1) + number
    }

    fn send(&mut self) {
        let (slot, bit) = if self.holds {
            self.holds = self.ranks.broken == Broken::Keeps;
            (&self.ranks.shuttle, self.bit(self.me))
        } else {
            (&self.ranks.ring[self.me][self.sent as usize], 0)
        };
        // SAFETY: loom checks that nobody else uses the cell meanwhile.
        slot.1.with_mut(|b| unsafe { *b = Self::bytes(self.me, self.sent) });
        // Release: pairs with the Acquire in `receive`; Relaxed is what a variant does wrong.
        let order = if self.ranks.broken == Broken::Relaxed { Ordering::Relaxed } else { Ordering::Release };
        slot.0.store(READY | bit | self.sent, order);
        self.sent += 1;
    }

    fn receive(&mut self) {
        let from = 1 - self.me;
        loop {
            // Acquire, both: pair with the Release in `send`.
            let by_shuttle = self.ranks.shuttle.0.load(Ordering::Acquire) == READY | self.bit(from) | self.received;
            let slot = if by_shuttle { &self.ranks.shuttle } else { &self.ranks.ring[from][self.received as usize] };
            if by_shuttle || slot.0.load(Ordering::Acquire) == READY | self.received {
                // SAFETY: as in `send`.
                assert_eq!(slot.1.with(|b| unsafe { *b }), Self::bytes(from, self.received));
                self.holds |= by_shuttle;
                self.received += 1;
                return;
            }
            loom::thread::yield_now();
        }
    }
}

fn model(broken: Broken) {
    crate::check(3, move || {
        let ring = || std::array::from_fn(|_| Slot::new());
        let ranks = crate::leak(Ranks { shuttle: Slot::new(), ring: [ring(), ring()], broken });
        let higher = loom::thread::spawn(move || {
            let mut end = End::new(ranks, 1);
            end.send();
            end.receive();
            end.send();
            end.receive();
        });
        let mut end = End::new(ranks, 0);
        end.send();
        end.send();
        end.receive();
        end.receive();
        higher.join().unwrap();
    });
}

#[test]
fn shuttle_and_rings_deliver_in_the_order_of_sending() {
    model(Broken::No);
}

#[test]
#[should_panic]
fn shuttle_that_its_sender_keeps_is_caught() {
    model(Broken::Keeps);
}

#[test]
#[should_panic]
fn shuttle_that_does_not_say_which_way_it_goes_is_caught() {
    model(Broken::NoWay);
}

#[test]
#[should_panic]
fn shuttle_whose_bytes_are_not_ordered_is_caught() {
    model(Broken::Relaxed);
}
