//! The steps of a scenario. All ranks draw the plan of a step from the same random numbers, which depend only on the
//! step and the number of ranks, so that steps and ranks can be removed.

use std::fmt::Debug;
use std::time::Duration;

use farside_rma::core::error::Error;
use farside_rma::{ErrorKind, Job, LockWindow, Result, Team};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use super::{collectives, messages, symmetric, windows};
use crate::checks::config::{Config, Memory};

/// The operation in the error for a result that differs from the model.
pub(crate) const CHECK: &str = "check a result";

/// A kind of step: its name, its relative frequency, the function that a rank runs, and the text of its plan.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) weight: u32,
    pub(crate) run: fn(&mut Rank<'_>, &mut StdRng) -> Result<()>,
    pub(crate) describe: fn(usize, &mut StdRng) -> String,
}

/// All kinds of steps.
const KINDS: [&Kind; 11] = [
    &windows::EPOCHS,
    &windows::PSCW,
    &windows::ATOMICS,
    &windows::FREE,
    &messages::TAGGED,
    &messages::TO_ONE,
    &messages::FLOOD,
    &collectives::COLLECTIVE,
    &collectives::SPLIT,
    &symmetric::RING,
    &symmetric::CALLS,
];

/// A step that all ranks make.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    kind: &'static Kind,
    salt: u64,
}

impl Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:x}", self.kind.name, self.salt)
    }
}

impl Step {
    pub(crate) fn draw(rng: &mut StdRng) -> Self {
        let kind = KINDS.choose_weighted(rng, |kind| kind.weight).unwrap();
        Self { kind, salt: u64::from(rng.random::<u32>()) }
    }

    fn numbers(self) -> StdRng {
        StdRng::seed_from_u64(self.salt)
    }

    pub(crate) fn name(self) -> &'static str {
        self.kind.name
    }

    pub(crate) fn describe(self, ranks: usize) -> String {
        format!("{self:?}: {}", (self.kind.describe)(ranks, &mut self.numbers()))
    }

    /// Runs the step at one rank.
    pub(crate) fn run(self, rank: &mut Rank<'_>) -> Result<()> {
        let mut own = StdRng::seed_from_u64(self.salt ^ rank.job.rank() as u64);
        if own.random_bool(0.3) {
            rank.job.device().compute(Duration::from_nanos(own.random_range(0..20_000)));
        }
        (self.kind.run)(rank, &mut self.numbers())
    }
}

/// The state of a rank between steps.
pub(crate) struct Rank<'a> {
    pub(crate) job: &'a Job,
    pub(crate) world: Team,
    /// Teams of earlier splits, and whether windows are over user memory.
    pub(crate) teams: Vec<Team>,
    pub(crate) config: Config,
    /// A window that lives from step to step, and its model: the words of each rank.
    pub(crate) window: Option<(LockWindow<u64>, Vec<Vec<u64>>)>,
}

impl<'a> Rank<'a> {
    pub(crate) fn new(job: &'a Job, minimal: bool) -> Result<Self> {
        let memory = if minimal { Memory::Vector } else { Memory::Allocated };
        let config = Config { name: "seeds", memory, settings: &[], device: None, seed: None };
        Ok(Self { job, world: job.world()?, teams: Vec::new(), config, window: None })
    }

    /// One of the teams of which this rank is a member.
    pub(crate) fn team(&self, rng: &mut StdRng) -> Team {
        let index = rng.random_range(0..=self.teams.len());
        self.teams.get(index).unwrap_or(&self.world).clone()
    }

    /// Frees the remaining objects.
    pub(crate) fn end(mut self) -> Result<()> {
        self.window.take().map_or(Ok(()), |(window, _)| window.free())
    }
}

/// The value with number `i` that a rank has in a step.
pub(crate) fn value(salt: u64, rank: usize, i: usize) -> u64 {
    (salt ^ (rank as u64) << 32 ^ i as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The first `count` values of a rank.
pub(crate) fn values(salt: u64, rank: usize, count: usize) -> Vec<u64> {
    (0..count).map(|i| value(salt, rank, i)).collect()
}

/// Compares elements with those of the model.
pub(crate) fn equal<T: PartialEq + Debug>(what: &str, got: &[T], expected: &[T]) -> Result<()> {
    let wrong = |cause: String| Err(Error::new(ErrorKind::BadArgument, CHECK).cause(format!("{what}: {cause}")));
    if got.len() != expected.len() {
        return wrong(format!("{} elements instead of {}", got.len(), expected.len()));
    }
    match got.iter().zip(expected).position(|(got, expected)| got != expected) {
        None => Ok(()),
        Some(i) => wrong(format!("element {i} of {} is {:?} instead of {:?}", got.len(), got[i], expected[i])),
    }
}
