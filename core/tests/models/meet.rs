//! Two ranks that meet again and again over words in one line, with a mark, and see what the other wrote before.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};

/// What is wrong with a variant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    No,
    /// Even and odd meetings use the same word: the mark of the next may stand there already.
    OneWord,
    /// The word is set without Release.
    NoRelease,
}

/// In a word the number is below, the mark above.
const MARK: u32 = 48;

struct Line {
    words: [[AtomicU64; 2]; 2],
    /// What a rank writes before it comes, one for each meeting.
    written: [[UnsafeCell<u64>; MEETINGS]; 2],
    broken: Broken,
}

const MEETINGS: usize = 2;

#[allow(unsafe_code)]
// SAFETY: every access to a cell is tracked by loom, which reports those that are not ordered.
unsafe impl Sync for Line {}

#[allow(unsafe_code)]
impl Line {
    fn word(&self, rank: usize, number: usize) -> &AtomicU64 {
        &self.words[rank][if self.broken == Broken::OneWord { 0 } else { number % 2 }]
    }

    fn run(&self, me: usize) {
        let peer = 1 - me;
        for number in 1..=MEETINGS {
            // SAFETY: loom checks that nobody else uses the cell meanwhile.
            self.written[me][number - 1].with_mut(|b| unsafe { *b = number as u64 });
            // Release: pairs with the Acquire below, of the peer; Relaxed is what this variant does wrong.
            let order = if self.broken == Broken::NoRelease { Ordering::Relaxed } else { Ordering::Release };
            self.word(me, number).store(number as u64 | (number as u64) << MARK, order);
            // Acquire: pairs with the Release above, of the peer.
            while self.word(peer, number).load(Ordering::Acquire) & ((1 << MARK) - 1) < number as u64 {
                loom::thread::yield_now();
            }
            // Relaxed: read after an Acquire load of the same word.
            assert_eq!(self.word(peer, number).load(Ordering::Relaxed) >> MARK, number as u64);
            // SAFETY: as above.
            assert_eq!(self.written[peer][number - 1].with(|b| unsafe { *b }), number as u64);
        }
    }
}

fn model(broken: Broken) {
    crate::check(3, move || {
        let line = crate::leak(Line {
            words: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
            written: std::array::from_fn(|_| std::array::from_fn(|_| UnsafeCell::new(0))),
            broken,
        });
        let other = loom::thread::spawn(move || line.run(1));
        line.run(0);
        other.join().unwrap();
    });
}

#[test]
fn meet_sees_the_mark_and_the_writes_of_its_own_meeting() {
    model(Broken::No);
}

#[test]
#[should_panic]
fn meet_over_one_word_is_caught() {
    model(Broken::OneWord);
}

#[test]
#[should_panic]
fn meet_without_release_is_caught() {
    model(Broken::NoRelease);
}
