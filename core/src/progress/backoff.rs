//! How a rank that shares its core waits: it yields or it sleeps. A yield leads to an earlier answer, unless the core
//! goes to another program, which keeps it for its time slice; then a rank that sleeps and is woken sees the answer
//! earlier. Which of the two is better depends on the kernel, its scheduling of sessions, and other programs, so both
//! are measured while the job runs.
//!
//! A rank that yields while the others sleep learns nothing, since the answer comes through all of them. So all ranks
//! try the same at the same time: the clock of the machine divides time into windows, and a few windows in each round
//! are reserved for one of the two. In all other windows each rank does what has taken less time.

use std::cell::Cell;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What a waiting rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backoff {
    /// It yields, and sleeps if no answer has come for [`YIELD_LIMIT`].
    Yield,
    /// It sleeps immediately.
    Sleep,
}

/// Maximum time for which a rank yields in one wait: a thousandth of a core in waits of a second.
pub(super) const YIELD_LIMIT: Duration = Duration::from_millis(1);

/// Length of a window: a wait that lost its core for a slice of time ends in it or in the next one.
const WINDOW: Duration = Duration::from_millis(4);

/// Number of windows in a round. In the first window all ranks yield, in the middle one all sleep.
const ROUND: u64 = 16;

/// Number of windows of each kind that are measured before the better one is chosen; until then the two alternate.
const FIRST: u32 = 2;

/// A longer wait counts as one of this length, so that one wait for a rank that computes does not outweigh all others.
const LONGEST_COUNTED: Duration = Duration::from_millis(10);

/// Weight of the earlier mean for each window since the last one with such waits: the mean of the kind in use is that of
/// its last few windows, the other kind's is that of its last one.
const EARLIER_WEIGHT: f64 = 0.75;

/// The time that waits of one kind have taken.
#[derive(Debug, Default)]
struct Taken {
    /// Mean time of a wait.
    mean: Cell<Duration>,
    /// Number of windows with such waits, and the number of the last of them.
    windows: Cell<u32>,
    last: Cell<u64>,
    /// Number of waits in the current window, and their total time.
    waits: Cell<u32>,
    time: Cell<Duration>,
}

impl Taken {
    fn record(&self, time: Duration) {
        self.waits.set(self.waits.get() + 1);
        self.time.set(self.time.get() + time.min(LONGEST_COUNTED));
    }

    /// Ends window `window`.
    fn close(&self, window: u64) {
        let (waits, time) = (self.waits.take(), self.time.take());
        if waits > 0 {
            let passed = window.saturating_sub(self.last.replace(window)).min(1 << 10);
            let earlier = if self.windows.get() == 0 { 0.0 } else { EARLIER_WEIGHT.powi(passed as i32) };
            self.mean.set(self.mean.get().mul_f64(earlier) + (time / waits).mul_f64(1.0 - earlier));
            self.windows.set(self.windows.get().saturating_add(1));
        }
    }
}

/// The choice between the two.
#[derive(Debug, Default)]
pub(super) struct LearnedBackoff {
    yielding: Taken,
    sleeping: Taken,
    /// Number of the current window.
    window: Cell<u64>,
}

impl LearnedBackoff {
    /// Time of the machine's clock, which is the same for all ranks of a node.
    pub(super) fn now() -> Duration {
        Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
    }

    /// The choice for a wait that begins at `now`.
    pub(super) fn choose(&self, now: Duration) -> Backoff {
        let window = (now.as_nanos() / WINDOW.as_nanos()) as u64;
        let before = self.window.replace(window);
        if before != window {
            self.yielding.close(before);
            self.sleeping.close(before);
        }
        let unknown = [&self.yielding, &self.sleeping].iter().any(|taken| taken.windows.get() < FIRST);
        match window % ROUND {
            place if unknown && place % 2 == 0 => Backoff::Yield,
            _ if unknown => Backoff::Sleep,
            0 => Backoff::Yield,
            place if place == ROUND / 2 => Backoff::Sleep,
            _ if self.yielding.mean.get() < self.sleeping.mean.get() => Backoff::Yield,
            _ => Backoff::Sleep,
        }
    }

    /// Records a wait that ended at `now`.
    pub(super) fn record(&self, way: Backoff, began: Duration, now: Duration) {
        let taken = match way {
            Backoff::Yield => &self.yielding,
            Backoff::Sleep => &self.sleeping,
        };
        taken.record(now.saturating_sub(began));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets `waits` waits pass, which take the times of `of` for yields and sleeps; returns how many yielded, and the time.
    fn pass(learned: &LearnedBackoff, now: &mut Duration, waits: u32, of: [Duration; 2]) -> (u32, Duration) {
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
        const US: Duration = Duration::from_micros(1);
        let (learned, mut now) = (LearnedBackoff::default(), Duration::from_secs(5));
        for of in [[2 * US, 30 * US], [1500 * US, 100 * US], [20 * US, 19 * US], [3 * US, 50 * US]] {
            let learning = now;
            while now < learning + 3 * ROUND as u32 * WINDOW {
                pass(&learned, &mut now, 10, of);
            }
            let (waits, best) = (100_000, of[0].min(of[1]));
            let (yields, time) = pass(&learned, &mut now, waits, of);
            assert_eq!(yields > waits / 2, of[0] < of[1], "{of:?}: {yields} of {waits} yielded");
            assert!(time < (best * waits).mul_f64(1.1), "{of:?}: {time:?} for {waits} waits of {best:?}");
        }
    }

    #[test]
    fn ranks_try_the_same_at_the_same_time() {
        let [one, other] = [LearnedBackoff::default(), LearnedBackoff::default()];
        let mut now = Duration::from_secs(7);
        let ms = Duration::from_millis(1);
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
        let taken = Taken::default();
        taken.record(Duration::from_secs(3600));
        taken.close(1);
        assert_eq!(taken.mean.get(), LONGEST_COUNTED);
        taken.close(2);
        assert_eq!(
            (taken.mean.get(), taken.windows.get()),
            (LONGEST_COUNTED, 1),
            "a window without waits says nothing"
        );
    }
}
