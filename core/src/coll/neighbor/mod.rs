//! Exchanges between the neighbours on a graph.

mod linear;

use super::operation::Algorithm;

/// All of them.
pub const ALGORITHMS: &[&Algorithm] = &[&linear::ALLGATHER, &linear::ALLTOALL];
