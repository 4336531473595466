//! Lines of memory that two ranks pass to and fro without any library: the limits of what they do through Farside, measured
//! by the same ranks on the same cores in turns with that. A machine whose cores come closer together, or slow down, does
//! so for both.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farside_core::error::Result;

use super::Bench;
use super::untyped::Untyped;
use crate::record::Window;

const BYTES: usize = 4096;

/// The lines of two ranks that have a core each.
pub(super) struct Lines {
    memory: Untyped,
    /// How often the line of each pattern has gone.
    gone: [Cell<u64>; 4],
    /// Turns of an empty loop that take [`WORK`].
    work: u64,
}

/// What a rank does between seeing a line and sending it back in [`Pattern::Worked`]: as much as some hundred
/// instructions, fewer than any dispatcher with a handler takes.
const WORK: Duration = Duration::from_nanos(40);

/// What two ranks do with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// There and back, both ways in one word.
    RoundTrip = 0,
    /// There and back, with a line for each way.
    TwoLines = 1,
    /// Each stores a number in a word of its own and waits for the other's, both words in one line.
    Meeting = 2,
    /// As [`RoundTrip`](Self::RoundTrip), with [`WORK`] before each store.
    Worked = 3,
}

impl Lines {
    /// `None` unless there are two ranks, each with a core to itself, that map each other's memory. Collective.
    pub(super) fn open(bench: &Bench<'_>) -> Result<Option<Self>> {
        if bench.ranks != 2 || bench.job.burst() == 0 {
            return Ok(None);
        }
        let memory = Untyped::new(&bench.team, Window::Allocated, BYTES)?;
        if !memory.is_mapped(0)? || !memory.is_mapped(1)? {
            memory.free()?;
            return Ok(None);
        }
        Ok(Some(Self { memory, gone: Default::default(), work: turns_of(WORK) }))
    }

    /// So many times of a pattern, by both ranks.
    pub(super) fn pass(&self, bench: &Bench<'_>, pattern: Pattern, times: u64) -> Result<()> {
        let at = 1024 * pattern as usize;
        let second = match pattern {
            Pattern::RoundTrip | Pattern::Worked => at,
            Pattern::TwoLines => at + 256,
            Pattern::Meeting => at + 8,
        };
        let (Some(first), Some(second)) = (self.memory.word(0, at)?, self.memory.word(0, second)?) else {
            return Ok(());
        };
        let (ours, theirs) = if bench.is_origin() { (first, second) } else { (second, first) };
        let gone = &self.gone[pattern as usize];
        let work = if pattern == Pattern::Worked { self.work } else { 0 };
        for _ in 0..times {
            // An odd number goes there and an even one comes back; they meet at an even one.
            let (odd, even) = (gone.get() + 1, gone.get() + 2);
            gone.set(even);
            match (pattern, bench.is_origin()) {
                (Pattern::Meeting, _) => {
                    // Release, here and below: pairs with the Acquire of `until`.
                    ours.store(even, Ordering::Release);
                    until(bench, theirs, even)?;
                }
                (_, true) => {
                    turn(work);
                    // Release: as above.
                    ours.store(odd, Ordering::Release);
                    until(bench, theirs, even)?;
                }
                (_, false) => {
                    until(bench, theirs, odd)?;
                    turn(work);
                    // Release: as above.
                    ours.store(even, Ordering::Release);
                }
            }
        }
        Ok(())
    }

    /// Gives the memory back. Collective.
    pub(super) fn free(self) -> Result<()> {
        self.memory.free()
    }
}

/// Turns of an empty loop.
#[inline(always)]
fn turn(turns: u64) {
    for i in 0..turns {
        black_box(i);
    }
}

/// How many take so long: the most that any of some tries fits into it.
fn turns_of(time: Duration) -> u64 {
    const TURNS: u64 = 20_000;
    let shortest = (0..20).map(|_| {
        let start = Instant::now();
        turn(TURNS);
        start.elapsed()
    });
    let shortest = shortest.min().unwrap_or_default().as_secs_f64();
    (time.as_secs_f64() * TURNS as f64 / shortest.max(1e-9)) as u64
}

/// Looks at a word until it has come to `number`.
#[inline(always)]
fn until(bench: &Bench<'_>, word: &AtomicU64, number: u64) -> Result<()> {
    loop {
        for _ in 0..1 << 16 {
            // Acquire: pairs with the Release of who stores.
            if word.load(Ordering::Acquire) >= number {
                return Ok(());
            }
        }
        bench.job.check_peers()?;
    }
}
