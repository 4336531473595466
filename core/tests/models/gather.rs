//! Ranks that gather at a counter again and again, with a mark, and see what all others wrote before.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};

/// What is wrong with a variant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    No,
    /// Even and odd gatherings use the same word for marks: the next may have written over it.
    OneMark,
    /// Who arrives neither publishes nor acquires.
    ArrivesRelaxed,
}

const RANKS: usize = 2;
const GATHERINGS: usize = 2;

struct Line {
    arrivals: AtomicU64,
    marks: [AtomicU64; 2],
    /// What a rank writes before it comes, one for each gathering.
    written: [[UnsafeCell<u64>; GATHERINGS]; RANKS],
    broken: Broken,
}

#[allow(unsafe_code)]
// SAFETY: every access to a cell is tracked by loom, which reports those that are not ordered.
unsafe impl Sync for Line {}

#[allow(unsafe_code)]
impl Line {
    fn run(&self, me: usize) {
        for number in 1..=GATHERINGS {
            // SAFETY: loom checks that nobody else uses the cell meanwhile.
            self.written[me][number - 1].with_mut(|b| unsafe { *b = number as u64 });
            let marked = &self.marks[if self.broken == Broken::OneMark { 0 } else { number & 1 }];
            // Rank 0 marks every gathering. Relaxed: ordered by the arrival.
            if me == 0 {
                marked.store(number as u64, Ordering::Relaxed);
            }
            let goal = (number * RANKS) as u64;
            // AcqRel: pairs with those of the others; Relaxed is what this variant does wrong.
            let order = if self.broken == Broken::ArrivesRelaxed { Ordering::Relaxed } else { Ordering::AcqRel };
            if self.arrivals.fetch_add(1, order) + 1 != goal {
                // Acquire: pairs with the additions of the others.
                while self.arrivals.load(Ordering::Acquire) < goal {
                    loom::thread::yield_now();
                }
            }
            // Relaxed: ordered by the look at the arrivals.
            assert_eq!(marked.load(Ordering::Relaxed), number as u64);
            for other in &self.written {
                // SAFETY: as above.
                assert_eq!(other[number - 1].with(|b| unsafe { *b }), number as u64);
            }
        }
    }
}

fn model(broken: Broken) {
    crate::check(3, move || {
        let line = crate::leak(Line {
            arrivals: AtomicU64::new(0),
            marks: std::array::from_fn(|_| AtomicU64::new(0)),
            written: std::array::from_fn(|_| std::array::from_fn(|_| UnsafeCell::new(0))),
            broken,
        });
        let other = loom::thread::spawn(move || line.run(1));
        line.run(0);
        other.join().unwrap();
    });
}

#[test]
fn gather_sees_the_mark_and_the_writes_of_all() {
    model(Broken::No);
}

#[test]
#[should_panic]
fn gather_with_one_word_for_marks_is_caught() {
    model(Broken::OneMark);
}

#[test]
#[should_panic]
fn gather_that_arrives_relaxed_is_caught() {
    model(Broken::ArrivesRelaxed);
}
