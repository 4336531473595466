//! Reduces a failing scenario to a smaller scenario that fails in the same way.

use farside_rma::core::device::Placement;
use farside_rma::core::sim::{Interface, Network, Topology};

use super::scenario::{Class, Failure, Outcome, Scenario};

/// The default maximum number of runs of a reduction.
pub(crate) const MAX_RUNS: usize = 200;

/// A change that removes something from a scenario.
type Change = fn(&mut Scenario);

/// The scenario, the last outcome that fails, and the number of runs that remain.
struct Reduction {
    scenario: Scenario,
    outcome: Outcome,
    class: Class,
    runs: usize,
}

impl Reduction {
    /// Replaces the scenario by a smaller one if that fails in the same way; returns whether it does.
    fn take(&mut self, smaller: Scenario) -> bool {
        if self.runs == 0 {
            return false;
        }
        self.runs -= 1;
        let outcome = smaller.run();
        let fails = outcome.failure.as_ref().is_some_and(|failure| failure.class == self.class);
        if fails {
            (self.scenario, self.outcome) = (smaller, outcome);
        }
        fails
    }

    /// Changes the scenario if it fails in the same way with the change.
    fn try_change(&mut self, change: impl FnOnce(&mut Scenario)) -> bool {
        let mut smaller = self.scenario.clone();
        change(&mut smaller);
        self.take(smaller)
    }

    /// Removes steps, first many together and then single ones.
    fn remove_steps(&mut self) {
        let mut many = self.scenario.steps.len() / 2;
        while many > 0 {
            let mut at = 0;
            while at < self.scenario.steps.len() {
                let end = (at + many).min(self.scenario.steps.len());
                if !self.try_change(|s| drop(s.steps.drain(at..end))) {
                    at = end;
                }
            }
            many /= 2;
        }
    }

    fn remove_ranks(&mut self) {
        while self.scenario.ranks > 2 {
            let left = self.scenario.ranks - 1;
            let needed = self.scenario.hard.is_some_and(|hard| hard.rank() >= left);
            let removed = !needed
                && self.try_change(|s| {
                    s.ranks = left;
                    s.slow = s.slow.filter(|(rank, _)| *rank < left);
                    s.network.down.retain(|down| down.rank < left);
                });
            if !removed {
                break;
            }
        }
    }

    fn simplify(&mut self) {
        let plain = Network::default();
        let changes: [(bool, Change); 11] = [
            (self.scenario.hard.is_some(), |s| s.hard = None),
            (self.scenario.slow.is_some(), |s| s.slow = None),
            (!self.scenario.network.down.is_empty(), |s| s.network.down.clear()),
            (self.scenario.network.loss > 0.0, |s| (s.network.loss, s.network.retry) = (0.0, 0.0)),
            (self.scenario.network.jitter > 0.0, |s| s.network.jitter = 0.0),
            (self.scenario.network.reorders, |s| s.network.reorders = false),
            (self.scenario.network.placement != plain.placement, |s| s.network.placement = Placement::InOrder),
            (!self.scenario.network.atomics, |s| s.network.atomics = true),
            (self.scenario.incoherent, |s| s.incoherent = false),
            (self.scenario.network.topology != plain.topology || self.scenario.network.hop > 0.0, |s| {
                (s.network.topology, s.network.hop) = (Topology::Crossbar, 0.0);
            }),
            (self.scenario.network.interface != plain.interface, |s| s.network.interface = Interface::default()),
        ];
        for (applies, change) in changes {
            if applies {
                self.try_change(change);
            }
        }
    }
}

/// Reduces a scenario that fails, in at most `most_runs` runs; returns the text of the failure: its seed, the reduced
/// scenario, its failure, and the last messages of its run.
pub(crate) fn report(scenario: &Scenario, outcome: Outcome, most_runs: usize) -> String {
    let Some(Failure { class, text: first }) = outcome.failure.clone() else { return String::new() };
    let (seed, steps) = (scenario.seed, scenario.steps.len());
    let mut r = Reduction { scenario: scenario.clone(), outcome, class, runs: most_runs };
    r.remove_steps();
    r.remove_ranks();
    r.simplify();
    r.remove_steps();
    let text = r.outcome.failure.as_ref().map_or("", |failure| failure.text.as_str());
    format!(
        "FARSIDE_SEED={seed} fails ({class:?}): {first}\nReduced from {steps} steps by {} runs:\n{}fails: {text}\nIts last \
         messages:\n{}",
        most_runs - r.runs,
        r.scenario,
        r.outcome.trace
    )
}
