//! Exchanges between the neighbours on a graph.

mod linear;

use super::operation::Algorithm;

/// All algorithms of neighbour collectives.
pub(crate) const ALGORITHMS: &[&Algorithm] = &[&linear::ALLGATHER, &linear::ALLTOALL];
