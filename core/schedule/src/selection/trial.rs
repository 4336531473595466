//! Trials: the first calls of a class, which try choices and measure them.
//!
//! A trial has rounds. In each, every choice makes [`CALLS`] calls one after the other, of which all but the first are
//! timed. Then the ranks agree on the longest time that any of them has measured, and drop what is far behind the best.
//! After the last round the choice with the shortest time is kept.

use std::time::Duration;

use super::Choice;

/// Calls of a choice in a round.
pub const CALLS: u32 = 4;

/// Factor to the best by which a choice is dropped after each round. What disturbs a measurement makes it longer, so a
/// choice that is dropped late was slower several times.
const DROPPED: [f64; 3] = [1.5, 1.25, 1.0];

/// Factor by which another choice must be faster than the first one, so that noise does not change the choice.
const BETTER: f64 = 0.97;

#[derive(Clone, Debug)]
struct Tried {
    choice: Choice,
    /// Nanoseconds of the timed calls of this rank in this round.
    own: u64,
    /// The shortest time of a round, agreed upon.
    best: u64,
}

/// A trial in progress; the same at all ranks but for their own times.
#[derive(Clone, Debug)]
pub struct Trial {
    tried: Vec<Tried>,
    /// Index of the choice that makes the next call, and its calls in this round.
    at: usize,
    calls: u32,
    round: usize,
}

impl Trial {
    /// A trial of choices, of which the first one is preferred.
    #[must_use]
    pub fn new(choices: Vec<Choice>) -> Self {
        let tried = choices.into_iter().map(|choice| Tried { choice, own: 0, best: u64::MAX }).collect();
        Self { tried, at: 0, calls: 0, round: 0 }
    }

    /// The choice of the next call.
    #[inline]
    #[must_use]
    pub fn choice(&self) -> &Choice {
        &self.tried[self.at].choice
    }

    /// Notes the time of a call. Returns this rank's times at the end of a round, on which the ranks agree next.
    pub fn add(&mut self, time: Duration) -> Option<Vec<u64>> {
        if self.calls > 0 {
            self.tried[self.at].own += u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 16);
        }
        self.calls += 1;
        if self.calls < CALLS {
            return None;
        }
        self.calls = 0;
        self.at += 1;
        (self.at == self.tried.len()).then(|| self.tried.iter().map(|tried| tried.own).collect())
    }

    /// Ends a round with the longest times of any rank. Returns the choice after the last round.
    pub fn agree(&mut self, longest: &[u64]) -> Option<Choice> {
        for (tried, longest) in self.tried.iter_mut().zip(longest) {
            tried.best = tried.best.min(*longest);
            tried.own = 0;
        }
        let best = |tried: &[Tried]| tried.iter().map(|tried| tried.best).min().unwrap_or(0);
        let least = best(&self.tried) as f64;
        let factor = DROPPED[self.round];
        self.round += 1;
        self.at = 0;
        if self.round < DROPPED.len() {
            let first = self.tried[0].choice.to_string();
            self.tried.retain(|tried| tried.best as f64 <= factor * least || tried.choice.to_string() == first);
            if self.tried.len() > 1 {
                return None;
            }
        }
        let first = &self.tried[0];
        let fastest = self.tried.iter().min_by_key(|tried| tried.best).unwrap_or(first);
        let kept = if (fastest.best as f64) < BETTER * first.best as f64 { fastest } else { first };
        Some(kept.choice.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Operation;

    fn choices(names: &[&str]) -> Vec<Choice> {
        names.iter().map(|name| Choice::parse(Operation::Allreduce, name).unwrap()).collect()
    }

    /// Runs a trial with a time for each choice; returns the choice, and the calls that it took.
    fn run(names: &[&str], time: impl Fn(&str, u32) -> u64) -> (String, u32) {
        let mut trial = Trial::new(choices(names));
        for call in 0.. {
            let name = trial.choice().algorithm.name;
            let Some(own) = trial.add(Duration::from_nanos(time(name, call))) else { continue };
            if let Some(choice) = trial.agree(&own) {
                return (choice.algorithm.name.to_owned(), call + 1);
            }
        }
        unreachable!()
    }

    #[test]
    fn fastest_choice_is_kept_and_slow_ones_make_one_round() {
        let time = |name: &str, _| if name == "ring" { 100 } else { 1000 };
        // The first choice and the best are left for the second round.
        assert_eq!(run(&["butterfly", "ring", "rabenseifner"], time), ("ring".to_owned(), CALLS * (3 + 2 + 2)));
    }

    #[test]
    fn small_differences_do_not_change_the_choice() {
        let time = |name: &str, _| if name == "ring" { 985 } else { 1000 };
        assert_eq!(run(&["butterfly", "ring"], time).0, "butterfly");
        assert_eq!(run(&["butterfly"], time), ("butterfly".to_owned(), CALLS));
    }

    #[test]
    fn a_disturbed_round_does_not_count_if_another_one_is_not() {
        // The ring is disturbed in the second round, and the first call of a choice in a round always takes long.
        let time = |name: &str, call: u32| match (name, call) {
            _ if call.is_multiple_of(CALLS) => 100_000,
            ("ring", 12..16) => 5000,
            ("ring", _) => 500,
            _ => 900,
        };
        assert_eq!(run(&["butterfly", "ring"], time).0, "ring");
    }
}
