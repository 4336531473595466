//! Runs the schedules of all ranks symbolically: each block carries whose contributions it holds, in which order, so an
//! algorithm is shown to be right for a number of ranks without a device.
//!
//! Found are: a step that reads a block without content, a result that is not what the operation promises, contributions
//! that are lost, doubled or out of the order of the ranks, messages of unequal shape, messages that nobody sends or
//! receives, tags used twice, steps that touch the same block in no order, and steps that wait for each other for ever, also
//! where a send is complete only when its receive has begun.

mod faults;
mod graph;
mod races;
mod results;
mod rounds;
mod run;
mod value;

pub use faults::{Fault, FaultKind};

use super::Schedule;
use crate::coll::operation::{Algorithm, Call};

/// What the schedules of a call cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Messages and signals that each rank sends.
    pub messages: Vec<u32>,
    /// Elements that each rank sends, by the given sizes.
    pub elements: Vec<u64>,
    /// Elements that each rank reduces.
    pub reduced: Vec<u64>,
    /// Rounds where each rank sends at most one message and receives at most one in a round, each in the order of its steps.
    pub rounds: u32,
    /// Messages in the longest chain of which each waits for the one before.
    pub chain: u32,
    /// Blocks of scratch of the rank that has most.
    pub scratch: u32,
    /// Whether all blocks of a reduction are put together in the same way, so that the result of an element does not depend
    /// on where in the vector it stands.
    pub same_bracketing: bool,
}

/// Checks the schedules of all ranks, `schedules[r]` that of rank `r`, for the calls that they were made from. `sizes[r]` has
/// the elements of each size number at rank `r`, or is empty where all blocks have one. `commutative` is that of the
/// algorithm.
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

/// Builds and checks an algorithm for one call, given as `of(rank)`.
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
