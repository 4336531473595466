//! Trials: blocking calls of a class, which compare choices by measurement with the default: what a call does without
//! measurements.
//!
//! A trial has rounds. In each, every choice makes a few calls one after the other. The first is not timed. Then come
//! calls in a row, as the program makes them, and calls after a skew: the ranks meet in a barrier, after which one of
//! them is late. At the end of a round the ranks agree on the longest times that any of them has measured. The first
//! round leaves the default and the best of the others; the following ones decide between them.
//!
//! Another choice is taken only if its times lie below those of the default, by more than both vary from round to round,
//! in a row or after a skew, and if it is not slower in the other case. The check of a choice that was taken earlier has
//! only the rounds that decide, and keeps it as long as it is not slower than the default.

use std::time::Duration;

/// Rounds that decide.
const ROUNDS: usize = 5;
/// Timed calls of a choice in a row and after a skew: in the first round, and in one that decides.
const FIRST: [u32; 2] = [2, 2];
const DECIDING: [u32; 2] = [4, 3];
/// Other choices than the default that the first round leaves, and the most time of one, in times of the default.
const LEFT: usize = 3;
const MUCH: f64 = 1.25;
/// The most time of another choice that is taken, in times of the default, in one of both ways; and of one that is not
/// slower in the other way.
const BETTER: f64 = 0.95;
const NOT_SLOWER: f64 = 1.02;
/// The most time in one way of a choice that stays after a check.
const STAYS: f64 = 1.05;
/// The most time that counts for a call, so that sums do not overflow; that of a call that has failed.
const MAX_NS: u64 = u64::MAX / 64;

/// The most calls of a trial of `choices` choices.
#[cfg(test)]
fn most_calls(choices: usize) -> u32 {
    let turn = |timed: [u32; 2]| 1 + timed[0] + timed[1];
    turn(FIRST) * choices as u32 + ROUNDS as u32 * turn(DECIDING) * (1 + LEFT) as u32
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

/// Times of a choice, in a row and after a skew.
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

    /// The times in one way, in ascending order.
    fn sorted(&self, way: usize) -> Vec<u64> {
        let mut times = self.rounds[way].clone();
        times.sort_unstable();
        times
    }

    /// The median time in each way, in times of those of `default`.
    fn ratios(&self, default: &Self) -> [f64; 2] {
        let median =
            |of: &Self, way| of.sorted(way).get(of.rounds[way].len() / 2).map_or(1.0, |time| *time as f64 + 1.0);
        [0, 1].map(|way| median(self, way) / median(default, way))
    }

    /// Whether the times in one way lie below those of `default`, but for one of the times of each.
    fn is_below(&self, default: &Self, way: usize) -> bool {
        let (own, other) = (self.sorted(way), default.sorted(way));
        own.iter().rev().nth(1) < other.get(1)
    }
}

/// A trial in progress; the same at all ranks but for their own times.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    /// The default comes first.
    tried: Vec<Tried>,
    /// Index of the choice that makes the next call, and its calls in this round.
    at: usize,
    calls: u32,
    /// Rounds that decide so far; `None` in the first one.
    round: Option<usize>,
    /// Whether a choice that was taken earlier is checked.
    checks: bool,
}

impl Trial {
    /// A trial of the choices 0 to `choices` - 1, of which the first one is the default.
    pub(crate) fn new(choices: usize) -> Self {
        let tried = (0..choices).map(Tried::new).collect();
        Self { tried, at: 0, calls: 0, round: None, checks: false }
    }

    /// A check of a choice that was taken earlier.
    pub(crate) fn check(number: usize) -> Self {
        Self { tried: [0, number].map(Tried::new).to_vec(), round: Some(0), checks: true, ..Self::new(0) }
    }

    /// The number of the choice that makes the next call.
    pub(crate) fn choice(&self) -> usize {
        self.tried[self.at].number
    }

    fn timed_calls(&self) -> [u32; 2] {
        if self.round.is_none() { FIRST } else { DECIDING }
    }

    /// The way of calling for which the next call is timed.
    pub(crate) fn timed(&self) -> Timed {
        let [in_row, _] = self.timed_calls();
        match self.calls {
            0 => Timed::Not,
            call if call <= in_row => Timed::InRow,
            call => Timed::AfterSkew(call - in_row - 1 + self.round.unwrap_or(0) as u32),
        }
    }

    /// Notes the time of a call. Returns this rank's times at the end of a round, on which the ranks agree next.
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
        if self.calls <= self.timed_calls().iter().sum() {
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

    /// Ends a round with the longest times of any rank. Returns the number of the choice that is taken after the last
    /// round.
    pub(crate) fn agree(&mut self, longest: &[u64]) -> Option<usize> {
        for (tried, longest) in self.tried.iter_mut().zip(longest.chunks_exact(2)) {
            tried.own = [0; 2];
            tried.rounds.iter_mut().zip(longest).for_each(|(rounds, longest)| rounds.push(*longest));
        }
        let (default, others) = self.tried.split_first()?;
        let sum = |tried: &Tried| tried.ratios(default).iter().sum::<f64>();
        let Some(round) = &mut self.round else {
            let mut left: Vec<&Tried> = others.iter().filter(|tried| sum(tried) <= 2.0 * MUCH).collect();
            left.sort_by(|a, b| sum(a).total_cmp(&sum(b)));
            let left = left.iter().take(LEFT).map(|tried| tried.number);
            self.tried = [0].into_iter().chain(left).map(Tried::new).collect();
            self.round = Some(0);
            return (self.tried.len() == 1).then_some(0);
        };
        *round += 1;
        if *round < ROUNDS {
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

    /// Runs a trial with a time for each call, by number of the choice, what it is timed for, and number of the call;
    /// returns the choice that is taken, and the calls that it took.
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
        // None is near the default.
        assert_eq!(run(Trial::new(10), |number, _, _| if number == 0 { 100 } else { 1000 }), (0, 50));
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
        // It is better after a skew, and as good in a row.
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
        /// The times of all choices are as noisy: the default takes `base` at least, others more.
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
