//! The scenario of one seed: ranks, their network and its faults, and the steps that all ranks take.

use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

use farside_rma::core::device::Placement;
use farside_rma::core::settings::Settings;
use farside_rma::core::sim::{Flap, Interface, Network, Simulation, Trace};
use farside_rma::{Error, ErrorKind};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use super::steps::{CHECK, Rank, Step};

/// A fault after which the job cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hard {
    /// A rank dies at this time, in nanoseconds.
    Dies { rank: usize, at: u64 },
    /// A memory registration fails at a rank, after this number of successful ones.
    Refuses { rank: usize, after: usize },
}

impl Hard {
    pub(crate) fn rank(self) -> usize {
        match self {
            Self::Dies { rank, .. } | Self::Refuses { rank, .. } => rank,
        }
    }
}

/// Everything that determines a run.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) ranks: usize,
    pub(crate) network: Network,
    pub(crate) minimal: bool,
    pub(crate) incoherent: bool,
    /// A rank and the factor by which its processor is slower.
    pub(crate) slow: Option<(usize, f64)>,
    pub(crate) hard: Option<Hard>,
    /// A damage of `FARSIDE_TEST_FAULT`.
    pub(crate) damage: Option<String>,
    pub(crate) steps: Vec<Step>,
}

/// Virtual time within which the ranks of every program end, also after a fault.
const MAX_TIME: Duration = Duration::from_secs(10);

impl Scenario {
    /// The scenario of a seed.
    pub(crate) fn draw(seed: u64) -> Self {
        let rng = &mut StdRng::seed_from_u64(seed ^ 0x5eed_0000);
        let ranks = rng.random_range(2..=9);
        let topology = *["crossbar", "torus:3x3x1", "fat-tree:3x3/1x1", "dragonfly:3x3x1"].choose(rng).unwrap();
        let mut network = Network {
            interface: *[
                Interface::default(),
                Interface::log_p(1000.0, 50.0, 400.0),
                Interface::log_p(200.0, 300.0, 0.0),
            ]
            .choose(rng)
            .unwrap(),
            topology: topology.parse().unwrap(),
            hop: if rng.random() { 30.0 } else { 0.0 },
            ..Network::default()
        };
        if rng.random_bool(0.6) {
            network.jitter = *[100.0, 5000.0, 50_000.0].choose(rng).unwrap();
        }
        network.reorders = rng.random_bool(0.6);
        if rng.random_bool(0.3) {
            (network.loss, network.retry) = (rng.random_range(0.001..0.2), 4000.0);
        }
        if rng.random_bool(0.2) {
            let from = rng.random_range(0.0..300_000.0);
            network.down.push(Flap { rank: rng.random_range(0..ranks), from, until: from + 100_000.0 });
        }
        let slow = rng.random_bool(0.3).then(|| (rng.random_range(0..ranks), rng.random_range(2.0..50.0)));
        let rank = rng.random_range(0..ranks);
        let hard = match rng.random_range(0..10) {
            0 | 1 => Some(Hard::Dies { rank, at: rng.random_range(0..1_000_000) }),
            2 => Some(Hard::Refuses { rank, after: rng.random_range(0..40) }),
            _ => None,
        };
        let minimal = rng.random();
        // No HCA exists that applies accumulates of every type.
        let incoherent = minimal && rng.random();
        let steps = (0..rng.random_range(3..=12)).map(|_| Step::draw(rng)).collect();
        if rng.random_bool(0.4) {
            network.placement = *[Placement::AtCompletion, Placement::AtRead].choose(rng).unwrap();
            network.lag = *[500.0, 5000.0, 50_000.0].choose(rng).unwrap();
        }
        // An interface that has no atomics holds no words back.
        network.atomics = incoherent || rng.random_bool(0.7);
        Self { seed, ranks, network, minimal, incoherent, slow, hard, damage: None, steps }
    }

    /// Runs the scenario.
    pub(crate) fn run(&self) -> Outcome {
        let trace = Trace::last(40);
        let damage = |name: &str| self.damage.clone().filter(|_| name == "FARSIDE_TEST_FAULT");
        let mut simulation = Simulation::new(self.ranks)
            .seed(self.seed)
            .network(self.network.clone())
            .settings(Settings::from_lookup(damage).unwrap())
            .trace(&trace);
        if self.minimal {
            simulation = simulation.minimal();
        }
        if self.incoherent {
            simulation = simulation.incoherent_atomics();
        }
        if let Some((rank, factor)) = self.slow {
            simulation = simulation.slow(rank, factor);
        }
        simulation = match self.hard {
            Some(Hard::Dies { rank, at }) => simulation.dies(rank, Duration::from_nanos(at)),
            Some(Hard::Refuses { rank, after }) => simulation.refuses_memory(rank, after),
            None => simulation,
        };
        // The error of a rank, and the step in which it occurred.
        let errors: RefCell<Vec<(usize, String, Error)>> = RefCell::default();
        let last = RefCell::new(Duration::ZERO);
        let run = simulation.run(|job| {
            let begin = job.device().now();
            let mut rank = Rank::new(job, self.minimal)?;
            for (number, step) in self.steps.iter().enumerate() {
                if let Err(e) = step.run(&mut rank) {
                    let at = format!("step {number}, {}", step.name());
                    errors.borrow_mut().push((job.rank(), at, e.again()));
                    let time = job.device().now() - begin;
                    let mut last = last.borrow_mut();
                    *last = time.max(*last);
                    return Err(e);
                }
            }
            rank.end()
        });
        let mut outcome = Outcome { failure: None, errors: errors.into_inner(), ..Outcome::default() };
        outcome.trace = trace.to_string();
        match run {
            Ok(run) => {
                (outcome.messages, outcome.events, outcome.time) = (run.messages, run.events, run.time);
                outcome.digest = run.digest;
            }
            Err(e) => {
                let known = outcome.errors.iter().any(|(_, _, known)| known.to_string() == e.to_string());
                if !known {
                    outcome.errors.push((self.ranks, "start or end".to_owned(), e));
                }
                outcome.time = last.into_inner();
            }
        }
        outcome.failure = self.judge(&outcome);
        outcome
    }

    /// The failure of an outcome; `None` if it is correct.
    fn judge(&self, outcome: &Outcome) -> Option<Failure> {
        let failed = |(rank, at, e): &(usize, String, Error), class| {
            let who = if *rank < self.ranks { format!("rank {rank}") } else { "the run".to_owned() };
            Some(Failure { class, text: format!("{who}, {at}: {e}") })
        };
        let is_wrong = |e: &Error| e.operation() == CHECK || e.to_string().contains("closure panicked");
        if let Some(wrong) = outcome.errors.iter().find(|(_, _, e)| is_wrong(e)) {
            return failed(wrong, Class::WrongResult);
        }
        let allowed = |(rank, _, e): &(usize, String, Error)| {
            let Some(hard) = self.hard else { return false };
            // The lost rank, or one that ended because of it.
            let blames = e.blamed().is_some_and(|lost| {
                lost == hard.rank() || outcome.errors.iter().any(|(other, ..)| *other == lost && lost != *rank)
            });
            match e.kind() {
                ErrorKind::PeerLost => blames,
                ErrorKind::Limit => matches!(hard, Hard::Refuses { .. }),
                _ => false,
            }
        };
        if let Some(other) = outcome.errors.iter().find(|error| !allowed(error)) {
            return failed(other, Class::Error(other.2.kind()));
        }
        if outcome.time > MAX_TIME {
            let text = format!("the ranks end only after {:?}, the limit being {MAX_TIME:?}", outcome.time);
            return Some(Failure { class: Class::TooLate, text });
        }
        None
    }
}

impl fmt::Display for Scenario {
    /// Writes one line for each option and each step.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Network { interface: i, topology, hop, jitter, reorders, placement, lag, loss, retry, down, .. } =
            &self.network;
        writeln!(f, "  {} ranks, seed {}", self.ranks, self.seed)?;
        writeln!(
            f,
            "  {topology}, hop {hop} ns; L {} o {} {} g {} G {} ns",
            i.latency, i.send_overhead, i.receive_overhead, i.gap, i.gap_per_byte
        )?;
        let options = [
            (*jitter > 0.0).then(|| format!("jitter of {jitter} ns")),
            reorders.then(|| "reordering".to_owned()),
            (*placement != Placement::InOrder).then(|| format!("writes are placed {placement:?}, up to {lag} ns late")),
            (!self.network.atomics).then(|| "no atomics".to_owned()),
            (*loss > 0.0).then(|| format!("loss of {loss:.4}, retransmission after {retry} ns")),
            down.first()
                .map(|d| format!("the interface of rank {} is down from {:.0} to {:.0} ns", d.rank, d.from, d.until)),
            self.slow.map(|(rank, factor)| format!("rank {rank} is slower by a factor of {factor:.1}")),
            self.minimal.then(|| "minimal device".to_owned()),
            self.incoherent.then(|| "incoherent atomics".to_owned()),
            self.hard.map(|hard| format!("{hard:?}")),
            self.damage.clone(),
        ];
        options.iter().flatten().try_for_each(|option| writeln!(f, "  {option}"))?;
        self.steps.iter().enumerate().try_for_each(|(i, step)| writeln!(f, "  step {i}: {}", step.describe(self.ranks)))
    }
}

/// The kind of a failure, which must be preserved while a scenario is reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    WrongResult,
    Error(ErrorKind),
    TooLate,
}

/// A failure and its text.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) class: Class,
    pub(crate) text: String,
}

/// The outcome of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) failure: Option<Failure>,
    pub(crate) errors: Vec<(usize, String, Error)>,
    pub(crate) messages: u64,
    pub(crate) events: u64,
    pub(crate) time: Duration,
    pub(crate) digest: u64,
    pub(crate) trace: String,
}
