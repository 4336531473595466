//! Runs the schedules of all ranks symbolically: the content of each block is the list of ranks whose contributions it
//! holds, in their order. So an algorithm can be proved correct for a number of ranks without a device.
//!
//! The check finds: a step that reads a block without content; a result that is not what the operation requires;
//! contributions that are lost, doubled or out of the order of the ranks; messages of unequal shape; messages without a
//! send or without a receive; tags used twice; steps that access the same block without being ordered; and steps that
//! wait for each other forever, even if only because a send does not complete before its receive has begun.

mod faults;
mod graph;
mod races;
mod results;
mod rounds;
mod run;
mod value;

pub use faults::{Fault, FaultKind};

use super::Schedule;
use crate::operation::{Algorithm, Call};

/// Costs of the schedules of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Messages and signals that each rank sends.
    pub messages: Vec<u32>,
    /// Elements that each rank sends, by the given sizes.
    pub elements: Vec<u64>,
    /// Elements that each rank reduces.
    pub reduced: Vec<u64>,
    /// Rounds if each rank sends and receives at most one message in a round, each in the order of its steps.
    pub rounds: u32,
    /// Number of messages in the longest chain in which each message waits for the previous one.
    pub chain: u32,
    /// Maximum number of scratch blocks of a rank.
    pub scratch: u32,
    /// Whether all blocks of a reduction have the same bracketing, so that the result of an element does not depend on
    /// its position in the vector.
    pub same_bracketing: bool,
}

/// Checks the schedules of all ranks, where `schedules[r]` is that of rank `r`, for the calls from which they were
/// made. `sizes[r]` has the elements of each size number at rank `r`, or is empty if all blocks have one element.
/// `commutative`: the algorithm may reduce in another order than that of the ranks.
///
/// # Errors
/// The first fault that was found.
pub fn check(calls: &[Call<'_>], schedules: &[Schedule], commutative: bool, sizes: &[Vec<u64>]) -> Result<Cost, Fault> {
    races::ordered(schedules)?;
    let graph = graph::Graph::new(schedules)?;
    let mut cost = run::Run::new(calls, &graph, commutative, sizes).run()?;
    cost.rounds = rounds::rounds(&graph);
    Ok(cost)
}

/// Builds and checks an algorithm for one call, where `of(rank)` is the call at a rank.
///
/// # Errors
/// The first fault that was found.
pub fn check_algorithm<'a>(
    algorithm: &Algorithm,
    of: impl Fn(u32) -> Call<'a>,
    sizes: &[Vec<u64>],
) -> Result<Cost, Fault> {
    let calls: Vec<Call<'_>> = (0..of(0).size).map(of).collect();
    let schedules: Vec<Schedule> = calls.iter().map(algorithm.build).collect();
    check(&calls, &schedules, algorithm.commutative, sizes)
}
