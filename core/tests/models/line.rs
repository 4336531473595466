//! Waiting in line for a lock whose word is looked at by messages: one writer waits for another one, while a rank that
//! was slow tells it of a turn that is long over.
//!
//! Atomics of a card are done one after the other; fences stand here for their total order, as in `bias`.

use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// What is wrong with a variant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    No,
    /// The waiter looks at the lock before its entry is written.
    LooksFirst,
    /// Who leaves looks for a waiter before the lock is free.
    ReadsFirst,
    /// The waiter clears its word after the look.
    ClearsLate,
}

/// The waiter's entry in the place for its ticket.
const MINE: u64 = 1;

struct Line {
    /// The ticket that may enter: 0 is inside, 1 waits.
    lock: AtomicU64,
    place: AtomicU64,
    told: AtomicU64,
    broken: Broken,
}

impl Line {
    fn look(&self) -> bool {
        let now = self.lock.fetch_add(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        now == 1
    }

    fn clear(&self) {
        self.told.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    fn leave(&self) {
        let early = self.place.load(Ordering::SeqCst);
        self.lock.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let entry = if self.broken == Broken::ReadsFirst { early } else { self.place.load(Ordering::SeqCst) };
        if entry == MINE {
            self.told.store(1, Ordering::SeqCst);
        }
    }

    /// Joins the line, and looks again once if it was told; whether it is in.
    fn wait(&self) -> bool {
        self.clear();
        let early = self.broken == Broken::LooksFirst && self.look();
        self.place.store(MINE, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if early || (self.broken != Broken::LooksFirst && self.look()) {
            return true;
        }
        if self.told.load(Ordering::SeqCst) == 0 {
            return false;
        }
        if self.broken == Broken::ClearsLate {
            let inside = self.look();
            self.clear();
            return inside;
        }
        self.clear();
        self.look()
    }
}

/// In the end the waiter is inside, or it is told.
fn leaver_and_waiter(broken: Broken) {
    crate::check(3, move || {
        let line =
            crate::leak(Line { lock: AtomicU64::new(0), place: AtomicU64::new(0), told: AtomicU64::new(0), broken });
        let late = loom::thread::spawn(move || line.told.store(1, Ordering::SeqCst));
        let leaver = loom::thread::spawn(move || line.leave());
        let inside = line.wait();
        leaver.join().unwrap();
        late.join().unwrap();
        assert!(inside || line.told.load(Ordering::SeqCst) == 1, "asleep at a free lock");
    });
}

#[test]
fn line_misses_nobody() {
    leaver_and_waiter(Broken::No);
}

#[test]
#[should_panic]
fn line_with_a_look_before_the_entry_is_caught() {
    leaver_and_waiter(Broken::LooksFirst);
}

#[test]
#[should_panic]
fn line_that_is_read_before_the_lock_is_free_is_caught() {
    leaver_and_waiter(Broken::ReadsFirst);
}

#[test]
#[should_panic]
fn line_whose_waiter_clears_after_the_look_is_caught() {
    leaver_and_waiter(Broken::ClearsLate);
}
