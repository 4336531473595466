//! Predicts how long a collective takes, by executing the schedules of all ranks in virtual time.
//!
//! One event loop serves all models ([`Model`]): LogP, LogGP, LogGOPS, pLogP, LoP, and the one-port model with latency,
//! bandwidth and reduction costs. Schedules are made rank by rank and stored as a few bytes per step; steps are decoded
//! in runs when their rank reaches them, so a million ranks fit in memory. After Hoefler, Schneider, Lumsdaine,
//! "LogGOPSim" (2010).

mod program;
mod walk;

pub use crate::model::{LoP, LogGP, Model, OnePort, Overhead, PLogP, Receiving, RoundTrip, Sending, Table};
pub use walk::{Moment, Prediction};

use std::fmt;

use super::{Schedule, Slice};
use crate::operation::{Algorithm, Call};

/// Sizes of blocks in bytes.
#[derive(Clone, Copy, Debug)]
pub enum Bytes<'a> {
    /// Number of bytes of every block.
    Each(u64),
    /// Number of bytes of a vector that is divided evenly into the parts of the schedule.
    Vector(u64),
    /// Numbers of bytes by size number.
    BySize(&'a [u64]),
}

impl Bytes<'_> {
    /// Number of bytes of some blocks of a schedule.
    pub(crate) fn of(self, schedule: &Schedule, slices: &[Slice]) -> u64 {
        match self {
            Self::Each(bytes) => bytes * slices.iter().map(|s| u64::from(s.count)).sum::<u64>(),
            Self::BySize(sizes) => schedule.elements(slices, sizes),
            Self::Vector(all) => {
                let parts = u64::from(schedule.input().count.max(schedule.output().count)).max(1);
                let before = |part: u64| all * part / parts;
                let sizes = slices.iter().flat_map(|s| s.blocks().map(|b| u64::from(schedule.size_of(s.buffer, b))));
                sizes.map(|part| before(part + 1) - before(part)).sum()
            }
        }
    }
}

/// Ranks that share nodes. They also share the network interface of their node; in addition, each has its own interface
/// for messages within the node.
#[derive(Clone, Copy)]
pub struct OnNodes<'a> {
    /// The model of messages within a node.
    pub within: &'a dyn Model,
    /// The node of each rank, below the number of ranks.
    pub nodes: &'a [u32],
}

impl fmt::Debug for OnNodes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnNodes").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

/// Predicts schedules of `size` ranks, where `of(rank)` is that of a rank.
///
/// # Errors
/// The rank and the step at which the prediction stops, if the ranks wait for each other forever.
pub fn predict<M: Model>(
    size: u32,
    of: impl FnMut(u32) -> Schedule,
    bytes: Bytes<'_>,
    model: &M,
) -> Result<Prediction, (u32, u32)> {
    watch(size, of, bytes, model, |_| {})
}

/// Predicts an algorithm for a call in which several ranks share nodes ([`Call::nodes`]), where `of(rank)` is the call
/// at a rank, `model` is the model of the inter-node network, and `within` that within a node.
///
/// # Errors
/// The errors of [`predict`].
pub fn predict_on_nodes<'a, M: Model>(
    algorithm: &Algorithm,
    of: impl Fn(u32) -> Call<'a>,
    bytes: Bytes<'_>,
    model: &M,
    within: &dyn Model,
) -> Result<Prediction, (u32, u32)> {
    let Call { size, nodes, .. } = of(0);
    let nodes = Some(OnNodes { within, nodes }).filter(|on| !on.nodes.is_empty());
    let walk = walk::Walk::new(size, model, nodes, |_| {});
    walk.over((0..size).map(|rank| program::Program::new(&(algorithm.build)(&of(rank)), bytes)))
}

/// Predicts schedules, and reports when each step runs.
///
/// # Errors
/// The errors of [`predict`].
pub(crate) fn watch<M: Model>(
    size: u32,
    mut of: impl FnMut(u32) -> Schedule,
    bytes: Bytes<'_>,
    model: &M,
    observe: impl FnMut(Moment),
) -> Result<Prediction, (u32, u32)> {
    let walk = walk::Walk::new(size, model, None, observe);
    walk.over((0..size).map(|rank| program::Program::new(&of(rank), bytes)))
}

/// Predicts an algorithm for a call, where `of(rank)` is the call at a rank.
///
/// # Errors
/// The errors of [`predict`].
pub fn predict_algorithm<'a, M: Model>(
    algorithm: &Algorithm,
    of: impl Fn(u32) -> Call<'a>,
    bytes: Bytes<'_>,
    model: &M,
) -> Result<Prediction, (u32, u32)> {
    predict(of(0).size, |rank| (algorithm.build)(&of(rank)), bytes, model)
}
