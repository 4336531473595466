//! How a rank that shares its core waits: it yields or it sleeps. A yield leads to an earlier answer, unless the core
//! is given to another program, which keeps it for its time slice; then a rank that sleeps and is woken sees the answer
//! earlier. Which of the two is better depends on the kernel, its scheduling of sessions, and other programs, so both
//! are measured while the job runs.
//!
//! A rank that yields while the others sleep measures nothing useful, since the answer depends on all of them. So all
//! ranks use the same method at the same time: the clock of the machine divides time into windows, and one window in
//! each round is reserved for each of the two methods. Only these windows are measured. In all other windows each rank
//! uses the method that has taken less time.

use std::cell::Cell;

use rustix::time::{ClockId, clock_gettime};

/// The method of a waiting rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backoff {
    /// The rank yields, and sleeps if no answer has arrived for [`YIELD_LIMIT`].
    Yield,
    /// The rank sleeps immediately.
    Sleep,
}

/// Maximum time in nanoseconds for which a rank yields in one wait: a thousandth of a core in waits of a second.
const YIELD_LIMIT: u64 = 1_000_000;

/// Length of a window in nanoseconds: a wait that lost its core for a time slice ends in this window or in the next
/// one.
const WINDOW: u64 = 4_000_000;

/// Number of windows in a round. In the first window all ranks yield, in the middle one all sleep. A wrong choice lasts
/// for at most one round.
const ROUND: u64 = 16;

/// Number of windows of each method that are measured before the better one is chosen; until then the two alternate.
const FIRST: u32 = 4;

/// Longer waits, in nanoseconds, count as waits of this length, so that one wait for a rank that computes does not
/// outweigh all others.
const LONGEST_COUNTED: u64 = 10_000_000;

/// The time that waits with one method have taken.
#[derive(Debug, Default)]
struct WaitTimes {
    /// Mean time of a wait in each of the last two measured windows, the last one first, in nanoseconds.
    means: Cell<[f64; 2]>,
    /// Number of measured windows with such waits.
    windows: Cell<u32>,
    /// Number of waits in the current window, and their total time.
    waits: Cell<u64>,
    time: Cell<u64>,
}

impl WaitTimes {
    fn record(&self, time: u64) {
        self.waits.set(self.waits.get() + 1);
        self.time.set(self.time.get() + time.min(LONGEST_COUNTED));
    }

    /// Ends a window. `is_measured`: the window was reserved for this method.
    fn close(&self, is_measured: bool) {
        let (waits, time) = (self.waits.take(), self.time.take());
        if is_measured && waits > 0 {
            let (mean, [last, _]) = (time as f64 / waits as f64, self.means.get());
            self.means.set([mean, if self.windows.get() == 0 { mean } else { last }]);
            self.windows.set(self.windows.get().saturating_add(1));
        }
    }

    /// The lower mean of the last two windows: a window in which another program held the core does not change the choice.
    fn mean(&self) -> f64 {
        let [last, before] = self.means.get();
        last.min(before)
    }
}

/// The choice between the two methods.
#[derive(Debug, Default)]
pub(super) struct LearnedBackoff {
    yielding: WaitTimes,
    sleeping: WaitTimes,
    /// Number of the current window, and the method of all ranks in it, if it is reserved.
    window: Cell<u64>,
    reserved: Cell<Option<Backoff>>,
}

impl LearnedBackoff {
    /// Nanoseconds of the machine's clock, which is the same for all ranks of a node.
    fn now() -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    /// The choice for a wait that begins at `now`.
    fn choose(&self, now: u64) -> Backoff {
        let window = now / WINDOW;
        let before = self.window.replace(window);
        if before != window {
            let is_measured = |way| self.reserved.get() == Some(way);
            self.yielding.close(is_measured(Backoff::Yield));
            self.sleeping.close(is_measured(Backoff::Sleep));
            let unknown = [&self.yielding, &self.sleeping].iter().any(|taken| taken.windows.get() < FIRST);
            self.reserved.set(match window % ROUND {
                place if unknown && place % 2 == 0 => Some(Backoff::Yield),
                _ if unknown => Some(Backoff::Sleep),
                0 => Some(Backoff::Yield),
                place if place == ROUND / 2 => Some(Backoff::Sleep),
                _ => None,
            });
        }
        let is_shorter = self.yielding.mean() < self.sleeping.mean();
        self.reserved.get().unwrap_or(if is_shorter { Backoff::Yield } else { Backoff::Sleep })
    }

    /// Records a wait that ended at `now`.
    fn record(&self, way: Backoff, began: u64, now: u64) {
        let taken = match way {
            Backoff::Yield => &self.yielding,
            Backoff::Sleep => &self.sleeping,
        };
        taken.record(now.saturating_sub(began));
    }
}

/// A wait that yields or sleeps; its time is recorded when it is dropped.
pub(super) struct BackoffWait<'a> {
    learned: Option<&'a LearnedBackoff>,
    /// The time at which the rank first yielded or slept, and the method.
    began: Cell<Option<(u64, Backoff)>>,
    yields: Cell<u32>,
    /// Whether the rank has yielded for the maximum time.
    has_yielded: Cell<bool>,
}

impl<'a> BackoffWait<'a> {
    /// `learned`: `None` for a wait that does not yield.
    pub(super) fn new(learned: Option<&'a LearnedBackoff>) -> Self {
        Self { learned, began: Cell::new(None), yields: Cell::new(0), has_yielded: Cell::new(false) }
    }

    /// Whether to yield now, rather than sleep. Reading the clock takes a considerable part of the time of a yield, so
    /// it is read only after 1, 2, 4, 8 and so on yields.
    pub(super) fn yields(&self) -> bool {
        let Some(learned) = self.learned else { return false };
        let Some((began, way)) = self.began.get() else {
            let now = LearnedBackoff::now();
            let way = learned.choose(now);
            self.began.set(Some((now, way)));
            return way == Backoff::Yield;
        };
        let yields = self.yields.get() + 1;
        self.yields.set(yields);
        if way == Backoff::Yield && yields.is_power_of_two() && LearnedBackoff::now() - began >= YIELD_LIMIT {
            self.has_yielded.set(true);
        }
        way == Backoff::Yield && !self.has_yielded.get()
    }
}

impl Drop for BackoffWait<'_> {
    fn drop(&mut self) {
        if let Some((learned, (began, way))) = self.learned.zip(self.began.get()) {
            learned.record(way, began, LearnedBackoff::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates `waits` waits, which take the times of `of` for yields and sleeps; returns the number of yields, and
    /// the time.
    fn pass(learned: &LearnedBackoff, now: &mut u64, waits: u32, of: [u64; 2]) -> (u32, u64) {
        let (mut yields, began) = (0, *now);
        for _ in 0..waits {
            let way = learned.choose(*now);
            yields += u32::from(way == Backoff::Yield);
            let end = *now + of[usize::from(way == Backoff::Sleep)];
            learned.record(way, *now, end);
            *now = end;
        }
        (yields, *now - began)
    }

    #[test]
    fn better_way_is_taken_and_a_change_is_noticed() {
        const US: u64 = 1000;
        let (learned, mut now) = (LearnedBackoff::default(), 5_000_000_000);
        for of in [[2 * US, 30 * US], [1500 * US, 100 * US], [20 * US, 19 * US], [3 * US, 50 * US]] {
            let learning = now;
            while now < learning + 3 * ROUND * WINDOW {
                pass(&learned, &mut now, 10, of);
            }
            let (waits, best) = (100_000, of[0].min(of[1]));
            let (yields, time) = pass(&learned, &mut now, waits, of);
            assert_eq!(yields > waits / 2, of[0] < of[1], "{of:?}: {yields} of {waits} yielded");
            let least = best * u64::from(waits);
            assert!(time < least + least / 10, "{of:?}: {time} for {waits} waits of {best}");
        }
    }

    #[test]
    fn ranks_try_the_same_at_the_same_time() {
        let [one, other] = [LearnedBackoff::default(), LearnedBackoff::default()];
        let mut now = 7_000_000_000;
        let ms = 1_000_000;
        // One rank has learned to yield, the other to sleep.
        for _ in 0..2000 {
            for (learned, of) in [(&one, [ms / 100, ms / 10]), (&other, [ms / 10, ms / 100])] {
                let way = learned.choose(now);
                learned.record(way, now, now + of[usize::from(way == Backoff::Sleep)]);
            }
            now += ms / 10;
        }
        let mut same = [0; 2];
        for _ in 0..ROUND {
            let ways = [one.choose(now), other.choose(now)];
            if ways[0] == ways[1] {
                same[usize::from(ways[0] == Backoff::Sleep)] += 1;
            } else {
                assert_eq!(ways, [Backoff::Yield, Backoff::Sleep]);
            }
            now += WINDOW;
        }
        assert_eq!(same, [1, 1]);
    }

    #[test]
    fn long_wait_does_not_outweigh_the_others() {
        let taken = WaitTimes::default();
        taken.record(3_600_000_000_000);
        taken.close(true);
        assert_eq!(taken.mean(), LONGEST_COUNTED as f64);
        taken.close(true);
        assert_eq!(
            (taken.mean(), taken.windows.get()),
            (LONGEST_COUNTED as f64, 1),
            "a window without waits changes nothing"
        );
    }
}
