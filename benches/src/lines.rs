//! Cache lines that two processors pass back and forth without a library: the limits of the operations of two ranks.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farside_core::error::Result;

/// A pattern of two processors' accesses to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// A round trip with both directions in one word.
    RoundTrip = 0,
    /// A round trip with a line for each direction, as for messages that may be concurrent in both directions: if only
    /// one side writes a line, each of its stores must regain ownership of the line from the reader.
    TwoLines = 1,
    /// A barrier of two: each stores a number in its own word and waits for the other's, both words in one line.
    Meeting = 2,
    /// A round trip in one word, with work before each store.
    Worked = 3,
}

impl Pattern {
    /// Offsets of the words in bytes: the initiator stores to the first one.
    pub(crate) const fn words(self) -> [usize; 2] {
        match self {
            Pattern::RoundTrip | Pattern::Worked => [0, 0],
            Pattern::TwoLines => [0, 1024],
            Pattern::Meeting => [0, 8],
        }
    }
}

/// One of the two sides.
pub(crate) struct Side<'a> {
    /// The word that this side stores, and the word for which it waits.
    pub(crate) ours: &'a AtomicU64,
    pub(crate) theirs: &'a AtomicU64,
    pub(crate) begins: bool,
    /// The number that was stored last.
    pub(crate) last: &'a Cell<u64>,
    /// Iterations of an empty loop before each store.
    pub(crate) work: u64,
    /// Called from time to time during waits; fails if the other side can no longer respond.
    pub(crate) check: &'a dyn Fn() -> Result<()>,
}

impl Side<'_> {
    /// Repeats a pattern `times` times.
    pub(crate) fn pass(&self, pattern: Pattern, times: u64) -> Result<()> {
        for _ in 0..times {
            // One side stores odd numbers and the other even ones, starting from an even number.
            let (odd, even) = (self.last.get() + 1, self.last.get() + 2);
            self.last.set(even);
            match (pattern, self.begins) {
                (Pattern::Meeting, _) => self.store(even).and_then(|()| self.until(even))?,
                (_, true) => self.store(odd).and_then(|()| self.until(even))?,
                (_, false) => self.until(odd).and_then(|()| self.store(even))?,
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn store(&self, number: u64) -> Result<()> {
        turn(self.work);
        // Release: pairs with the Acquire of `until` at the other side.
        self.ours.store(number, Ordering::Release);
        Ok(())
    }

    /// Polls a word until it has reached `number`.
    #[inline(always)]
    fn until(&self, number: u64) -> Result<()> {
        loop {
            for _ in 0..1 << 16 {
                // Acquire: pairs with the Release of `store` at the other side.
                if self.theirs.load(Ordering::Acquire) >= number {
                    return Ok(());
                }
            }
            (self.check)()?;
        }
    }
}

/// Iterates an empty loop.
#[inline(always)]
fn turn(turns: u64) {
    for i in 0..turns {
        black_box(i);
    }
}

/// The number of iterations that fit into a time: the maximum of several tries.
pub(crate) fn turns_of(time: Duration) -> u64 {
    const TURNS: u64 = 20_000;
    let try_once = |_| {
        let start = Instant::now();
        turn(TURNS);
        start.elapsed()
    };
    let shortest = (0..20).map(try_once).min().unwrap_or_default().as_secs_f64();
    (time.as_secs_f64() * TURNS as f64 / shortest.max(1e-9)) as u64
}
