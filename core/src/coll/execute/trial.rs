//! Trials: blocking calls of a class measure several choices and compare them with the default, the choice that is made
//! without measurements.
//!
//! A trial has rounds. In each round, a few consecutive calls use each choice. The first is not timed. Back-to-back
//! calls, as the program makes them, follow, and then calls after a skew: the ranks synchronize in a barrier, after
//! which one of them is late. At the end of a round the ranks agree on the longest times that any of them has measured.
//! The first round eliminates all but the default and the best of the others; the following rounds decide between
//! those, and each eliminates the choices that can no longer win. Long calls are timed fewer times.
//!
//! Another choice replaces the default only if its times lie below those of the default, by more than both vary from
//! round to round, back to back or after a skew, and if it is not slower in the other case. The check of an earlier
//! choice has only the deciding rounds, and keeps the choice unless it is slower than the default.

use std::time::Duration;

/// Number of deciding rounds, which follow the first one.
const ROUNDS: usize = 5;
/// Number of timed calls of a choice, back to back and after a skew: in the first round, and in a deciding round.
const FIRST: [u32; 2] = [2, 2];
const DECIDING: [u32; 2] = [4, 3];
/// Time after which a turn of a choice in a deciding round times no further call of a way of calling.
const TURN_NS: u64 = 200_000;
/// Maximum number of choices besides the default that remain after the first round, and the maximum time of such a
/// choice, relative to the default's.
const MAX_FINALISTS: usize = 3;
const MAX_FINALIST_TIME: f64 = 1.25;
/// Maximum times, relative to the default's, of a choice that replaces it: in one of the two ways of calling, and in
/// the other, in which it must not be slower.
const BETTER: f64 = 0.95;
const NOT_SLOWER: f64 = 1.02;
/// Maximum time in either way of calling, relative to the default's, of a choice that is kept by a check.
const STAYS: f64 = 1.05;
/// Maximum time of a call that is added to sums, so that they do not overflow; also the time of a call that has failed.
const MAX_NS: u64 = u64::MAX / 64;

/// The maximum number of calls of a trial of `choices` choices.
#[cfg(test)]
fn most_calls(choices: usize) -> u32 {
    let turn = |timed: [u32; 2]| 1 + timed[0] + timed[1];
    turn(FIRST) * choices as u32 + ROUNDS as u32 * turn(DECIDING) * (1 + MAX_FINALISTS) as u32
}

/// The way of calling for which a call of a trial is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    /// Not timed.
    Not,
    InRow,
    /// After a skew, in which the rank of this number, modulo the number of ranks, is late.
    AfterSkew(u32),
}

/// Times of a choice, back to back and after a skew.
#[derive(Clone, Debug)]
struct Tried {
    /// The number of the choice in its class.
    number: usize,
    /// Nanoseconds of the timed calls of this rank in this round.
    own: [u64; 2],
    /// The times of each round, agreed upon.
    rounds: [Vec<u64>; 2],
}

impl Tried {
    fn new(number: usize) -> Self {
        Self { number, own: [0; 2], rounds: Default::default() }
    }

    /// The times in one way of calling, in ascending order.
    fn sorted(&self, way: usize) -> Vec<u64> {
        let mut times = self.rounds[way].clone();
        times.sort_unstable();
        times
    }

    /// The median time in each way of calling, relative to that of `default`.
    fn ratios(&self, default: &Self) -> [f64; 2] {
        let median =
            |of: &Self, way| of.sorted(way).get(of.rounds[way].len() / 2).map_or(1.0, |time| *time as f64 + 1.0);
        [0, 1].map(|way| median(self, way) / median(default, way))
    }

    /// Whether the times in one way of calling lie below those of `default`, apart from one time of each.
    fn is_below(&self, default: &Self, way: usize) -> bool {
        let (own, other) = (self.sorted(way), default.sorted(way));
        own.iter().rev().nth(1) < other.get(1)
    }
}

/// A trial in progress; the same at all ranks except for their own times.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    /// The default comes first.
    tried: Vec<Tried>,
    /// Index of the choice that the next call uses, and the number of its calls in this round.
    at: usize,
    calls: u32,
    /// Number of deciding rounds so far; `None` in the first round.
    round: Option<usize>,
    /// Number of timed calls of a choice in this round, in each way of calling.
    timed: [u32; 2],
    /// Whether the trial checks an earlier choice.
    checks: bool,
}

impl Trial {
    /// A trial of the choices 0 to `choices` - 1, of which the first is the default.
    pub(crate) fn new(choices: usize) -> Self {
        let tried = (0..choices).map(Tried::new).collect();
        Self { tried, at: 0, calls: 0, round: None, timed: FIRST, checks: false }
    }

    /// A check of an earlier choice.
    pub(crate) fn check(number: usize) -> Self {
        let tried = [0, number].map(Tried::new).to_vec();
        Self { tried, round: Some(0), timed: DECIDING, checks: true, ..Self::new(0) }
    }

    /// The number of the choice that the next call uses.
    pub(crate) fn choice(&self) -> usize {
        self.tried[self.at].number
    }

    /// The way of calling for which the next call is timed.
    pub(crate) fn timed(&self) -> Timed {
        let [in_row, _] = self.timed;
        match self.calls {
            0 => Timed::Not,
            call if call <= in_row => Timed::InRow,
            call => Timed::AfterSkew(call - in_row - 1 + self.round.unwrap_or(0) as u32),
        }
    }

    /// Records the time of a call. Returns this rank's times at the end of a round, on which the ranks agree next.
    pub(crate) fn add(&mut self, time: Duration) -> Option<Vec<u64>> {
        let time = u64::try_from(time.as_nanos()).map_or(MAX_NS, |ns| ns.min(MAX_NS));
        let timed = self.timed();
        let own = &mut self.tried[self.at].own;
        match timed {
            Timed::Not => {}
            Timed::InRow => own[0] += time,
            Timed::AfterSkew(_) => own[1] += time,
        }
        self.calls += 1;
        if self.calls <= self.timed.iter().sum() {
            return None;
        }
        self.calls = 0;
        self.at += 1;
        if self.at < self.tried.len() {
            return None;
        }
        self.at = 0;
        Some(self.tried.iter().flat_map(|tried| tried.own).collect())
    }

    /// Ends a round with the longest times of any rank. After the last round, returns the number of the winning choice.
    pub(crate) fn agree(&mut self, longest: &[u64]) -> Option<usize> {
        for (tried, longest) in self.tried.iter_mut().zip(longest.chunks_exact(2)) {
            tried.own = [0; 2];
            for way in [0, 1] {
                tried.rounds[way].push(longest[way] / u64::from(self.timed[way]));
            }
        }
        let calls = |way: usize| {
            let time =
                self.tried.first().and_then(|default| default.rounds[way].last()).map_or(1, |time| *time.max(&1));
            (TURN_NS / time).clamp(1, DECIDING[way].into()) as u32
        };
        self.timed = [calls(0), calls(1)];
        if !self.checks && self.round.is_some_and(|round| round > 0) {
            // The second longest time of a choice only grows, and the second shortest of the default only shrinks.
            let default = self.tried[0].clone();
            self.tried.retain(|tried| tried.number == 0 || (0..2).any(|way| tried.is_below(&default, way)));
        }
        let (default, others) = self.tried.split_first()?;
        let sum = |tried: &Tried| tried.ratios(default).iter().sum::<f64>();
        let Some(round) = &mut self.round else {
            let mut left: Vec<&Tried> = others.iter().filter(|tried| sum(tried) <= 2.0 * MAX_FINALIST_TIME).collect();
            left.sort_by(|a, b| sum(a).total_cmp(&sum(b)));
            let left = left.iter().take(MAX_FINALISTS).map(|tried| tried.number);
            self.tried = [0].into_iter().chain(left).map(Tried::new).collect();
            self.round = Some(0);
            return (self.tried.len() == 1).then_some(0);
        };
        *round += 1;
        if *round < ROUNDS && !others.is_empty() {
            return None;
        }
        let checks = self.checks;
        let is_taken = |tried: &&Tried| {
            let ratios = tried.ratios(default);
            if checks {
                return sum(tried) <= 2.0 && ratios.iter().all(|ratio| *ratio <= STAYS);
            }
            let is_better = |way| ratios[way] <= BETTER && tried.is_below(default, way);
            (is_better(0) || is_better(1)) && ratios.iter().all(|ratio| *ratio <= NOT_SLOWER)
        };
        let taken = others.iter().filter(is_taken).min_by(|a, b| sum(a).total_cmp(&sum(b)));
        Some(taken.map_or(0, |tried| tried.number))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Runs a trial with a time for each call, by number of the choice, its way of calling, and number of the call;
    /// returns the winning choice, and the number of calls.
    fn run(mut trial: Trial, mut time: impl FnMut(usize, Timed, u32) -> u64) -> (usize, u32) {
        for call in 0.. {
            let time = time(trial.choice(), trial.timed(), call);
            let Some(own) = trial.add(Duration::from_nanos(time)) else { continue };
            if let Some(choice) = trial.agree(&own) {
                return (choice, call + 1);
            }
        }
        unreachable!()
    }

    #[test]
    fn a_faster_choice_is_taken_and_slow_ones_make_one_round() {
        let (choice, calls) = run(Trial::new(10), |number, _, _| if number == 7 { 100 } else { 1000 });
        assert_eq!((choice, calls <= most_calls(10)), (7, true));
        // No choice comes near the default, so the trial ends early.
        assert_eq!(run(Trial::new(10), |number, _, _| if number == 0 { 100 } else { 1000 }), (0, 50));
    }

    #[test]
    fn long_calls_and_clear_decisions_make_few_calls() {
        // In the deciding rounds, choices 1 and 2 come near the default, and stay above it.
        let time = |number: usize| if number < 3 { 1000 + 100 * number as u64 } else { 10_000 };
        assert_eq!(run(Trial::new(10), |number, _, _| time(number)), (0, 50 + 2 * 8 * 3));
        let (choice, calls) = run(Trial::new(10), |number, _, _| 1_000_000 * (10 - u64::from(number == 4)));
        assert_eq!((choice, calls), (4, 50 + 2 * 3 * 4 + 3 * 3 * 2));
    }

    #[test]
    fn small_differences_do_not_change_the_choice() {
        assert_eq!(run(Trial::new(2), |number, _, _| if number == 1 { 980 } else { 1000 }).0, 0);
        assert_eq!(run(Trial::check(1), |number, _, _| if number == 1 { 980 } else { 1000 }).0, 1);
    }

    #[test]
    fn one_way_does_not_pay_for_the_other() {
        let time = |number, timed| match (number, timed) {
            (1, Timed::InRow) => 500,
            (1, _) => 1200,
            _ => 1000,
        };
        assert_eq!(run(Trial::new(2), |number, timed, _| time(number, timed)).0, 0);
        assert_eq!(run(Trial::check(1), |number, timed, _| time(number, timed)).0, 0);
        // Choice 1 is better after a skew, and as good back to back.
        let time = |number, timed| if (number, timed) == (1, Timed::InRow) { 1000 } else { 1000 - 400 * number as u64 };
        assert_eq!(run(Trial::new(2), |number, timed, _| time(number, timed)).0, 1);
    }

    #[test]
    fn a_choice_that_has_become_slow_is_dropped() {
        assert_eq!(run(Trial::check(3), |number, _, _| if number == 3 { 1100 } else { 1000 }).0, 0);
        assert_eq!(run(Trial::check(3), |number, _, _| if number == 3 { 900 } else { 1000 }).0, 3);
    }

    #[test]
    fn disturbed_rounds_and_failed_calls_do_not_decide() {
        // The first call of a turn always takes long, and one round of each choice is disturbed.
        let time = |number, timed, call: u32| match (number, timed) {
            (_, Timed::Not) => 1_000_000,
            (1, _) if (30..40).contains(&call) => 50_000,
            (0, _) if (50..60).contains(&call) => 5,
            (1, _) => 500,
            _ => 900,
        };
        assert_eq!(run(Trial::new(2), time).0, 1);
        assert_eq!(run(Trial::new(2), |number, _, _| if number == 1 { u64::MAX } else { 1000 }).0, 0);
    }

    proptest! {
        /// The times of all choices are equally noisy: the default takes at least `base`, the others more.
        #[test]
        fn a_default_that_is_the_fastest_is_never_displaced(
            noise in proptest::collection::vec(0u64..40, 400),
            slower in 1u64..3,
            choices in 2usize..11,
        ) {
            let time = |number: usize, _, call: u32| {
                let base = if number == 0 { 1000 } else { 1040 * slower };
                base + noise[call as usize % noise.len()]
            };
            prop_assert_eq!(run(Trial::new(choices), time).0, 0);
            prop_assert_eq!(run(Trial::check(choices), time).0, 0);
        }
    }
}
