//! What can be wrong with the schedules of a call.

use std::fmt;

use crate::coll::schedule::Schedule;

/// What is wrong with the schedules of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rank at which it shows.
    pub rank: u32,
    /// Its step, if it is one.
    pub step: Option<usize>,
    /// What kind of mistake.
    pub kind: FaultKind,
    /// In words.
    pub what: String,
}

impl Fault {
    /// Of a step.
    pub(super) fn at(schedule: &Schedule, step: usize, kind: FaultKind, what: impl fmt::Display) -> Self {
        let what = format!("{what} ({:?})", schedule.step(step));
        Self { rank: schedule.rank(), step: Some(step), kind, what }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)?;
        if let Some(step) = self.step {
            write!(f, ", step {step}")?;
        }
        write!(f, ": {:?}: {}", self.kind, self.what)
    }
}

/// Kinds of mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// A step reads a block that has no content.
    Empty,
    /// A block of the result is not what the operation promises.
    Result,
    /// Contributions of the same rank, or of different blocks, are reduced together.
    Doubled,
    /// Contributions are reduced out of the order of the ranks, and the algorithm does not say so.
    Order,
    /// Two ranks have results that were put together differently.
    Bracketing,
    /// Blocks of different sizes meet, or different numbers of blocks.
    Shape,
    /// A message that only one side knows.
    Unmatched,
    /// A rank leaves a barrier although another may not have come.
    Early,
    /// Two messages between two ranks with the same tag.
    Tag,
    /// Two steps touch a block, one of them writes it, and neither waits for the other.
    Race,
    /// Ranks wait for each other for ever, or do where a send is complete only when its receive has begun.
    Deadlock,
}
