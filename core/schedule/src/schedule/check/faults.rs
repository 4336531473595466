//! Faults of the schedules of a call.

use std::fmt;

use crate::schedule::Schedule;

/// A fault of the schedules of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rank at which the fault shows.
    pub(crate) rank: u32,
    /// The step at which the fault shows, if there is one.
    pub(crate) step: Option<usize>,
    /// The kind of fault.
    pub kind: FaultKind,
    /// A description.
    pub(crate) description: String,
}

impl Fault {
    /// A fault of a step.
    pub(super) fn at(schedule: &Schedule, step: usize, kind: FaultKind, what: impl fmt::Display) -> Self {
        let description = format!("{what} ({:?})", schedule.step(step));
        Self { rank: schedule.rank(), step: Some(step), kind, description }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)?;
        if let Some(step) = self.step {
            write!(f, ", step {step}")?;
        }
        write!(f, ": {:?}: {}", self.kind, self.description)
    }
}

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// A step reads a block without content.
    Empty,
    /// A block of the result is not what the operation requires.
    Result,
    /// Contributions of the same rank, or of different blocks, are reduced together.
    Doubled,
    /// Contributions are reduced out of the order of the ranks, and the algorithm is not declared commutative.
    Order,
    /// Two ranks have results with different bracketings.
    Bracketing,
    /// Blocks of different sizes, or different numbers of blocks, are combined.
    Shape,
    /// A message without a send or without a receive.
    Unmatched,
    /// A rank leaves a barrier although another rank may not have arrived.
    Early,
    /// Two messages between two ranks with the same tag.
    Tag,
    /// Two steps access a block, one of them writes it, and neither waits for the other.
    Race,
    /// Ranks wait for each other forever, possibly only if a send does not complete before its receive has begun.
    Deadlock,
}
