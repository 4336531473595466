//! Packets through a line and through a ring, in the order of sending.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};

/// What is wrong with a variant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    No,
    /// A packet of the ring that is not the next is taken for garbage without another look at the line.
    LooksOnce,
    /// The line is used again although its packet was not taken.
    NoRoomCheck,
    /// The receiver says that it has taken a packet before it has read it.
    TakenFirst,
}

const READY: u64 = 1 << 63;

/// One line and one place of a ring; the number is in the marker.
struct Channel {
    line: AtomicU64,
    line_bytes: UnsafeCell<u64>,
    taken: AtomicU64,
    ring: [AtomicU64; 3],
    ring_bytes: [UnsafeCell<u64>; 3],
    broken: Broken,
}

#[allow(unsafe_code)]
// SAFETY: every access to a cell is tracked by loom, which reports those that are not ordered.
unsafe impl Sync for Channel {}

#[allow(unsafe_code)]
impl Channel {
    /// Sends `count` packets, each through the line if that is free and else through the ring.
    fn send(&self, count: u64) {
        let (mut mailed, mut at) = (0, 0);
        for number in 0..count {
            // Acquire: pairs with the Release of `taken` in `pop_line`.
            if self.broken == Broken::NoRoomCheck || self.taken.load(Ordering::Acquire) == mailed {
                // SAFETY: loom checks that nobody else uses the cell meanwhile.
                self.line_bytes.with_mut(|b| unsafe { *b = number });
                // Release: pairs with the Acquire in `pop_line`.
                self.line.store(READY | number, Ordering::Release);
                mailed += 1;
            } else {
                // SAFETY: as above.
                self.ring_bytes[at].with_mut(|b| unsafe { *b = number });
                // Release: pairs with the Acquire in `receive`.
                self.ring[at].store(READY | number, Ordering::Release);
                at += 1;
            }
        }
    }

    fn pop_line(&self, number: u64, mailed: &mut u64) -> Option<u64> {
        // Acquire: pairs with the Release in `send`.
        if self.line.load(Ordering::Acquire) != READY | number {
            return None;
        }
        *mailed += 1;
        if self.broken == Broken::TakenFirst {
            // Release, too early: what this variant does wrong.
            self.taken.store(*mailed, Ordering::Release);
        }
        // SAFETY: as in `send`.
        let bytes = self.line_bytes.with(|b| unsafe { *b });
        // Release: pairs with the Acquire in `send`.
        self.taken.store(*mailed, Ordering::Release);
        Some(bytes)
    }

    fn receive(&self, count: u64) {
        let (mut mailed, mut at) = (0, 0);
        for number in 0..count {
            loop {
                if let Some(bytes) = self.pop_line(number, &mut mailed) {
                    assert_eq!(bytes, number);
                    break;
                }
                // Acquire: pairs with the Release in `send`.
                let marker = self.ring.get(at).map_or(0, |r| r.load(Ordering::Acquire));
                if marker == READY | number {
                    // SAFETY: as in `send`.
                    assert_eq!(self.ring_bytes[at].with(|b| unsafe { *b }), number);
                    at += 1;
                    break;
                }
                if marker != 0 {
                    let again =
                        if self.broken == Broken::LooksOnce { None } else { self.pop_line(number, &mut mailed) };
                    assert_eq!(again, Some(number), "garbage: {marker:x} instead of {number}");
                    break;
                }
                loom::thread::yield_now();
            }
        }
    }
}

fn model(broken: Broken) {
    const PACKETS: u64 = 3;
    crate::check(3, move || {
        let channel = crate::leak(Channel {
            line: AtomicU64::new(0),
            line_bytes: UnsafeCell::new(0),
            taken: AtomicU64::new(0),
            ring: std::array::from_fn(|_| AtomicU64::new(0)),
            ring_bytes: std::array::from_fn(|_| UnsafeCell::new(0)),
            broken,
        });
        let sender = loom::thread::spawn(move || channel.send(PACKETS));
        channel.receive(PACKETS);
        sender.join().unwrap();
    });
}

#[test]
fn channel_delivers_in_the_order_of_sending() {
    model(Broken::No);
}

#[test]
#[should_panic]
fn channel_that_looks_at_the_line_once_is_caught() {
    model(Broken::LooksOnce);
}

#[test]
#[should_panic]
fn channel_that_uses_a_line_too_early_is_caught() {
    model(Broken::NoRoomCheck);
}

#[test]
#[should_panic]
fn channel_that_gives_a_line_back_before_reading_is_caught() {
    model(Broken::TakenFirst);
}
