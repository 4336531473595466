//! The table of all algorithms.

use super::operation::{Algorithm, Operation};
use super::{
    allgather, allreduce, alltoall, barrier, broadcast, gather, neighbor, reduce, reduce_scatter, scan, scatter,
    two_level,
};

/// All algorithms, by family.
pub(crate) const FAMILIES: &[&[&Algorithm]] = &[
    barrier::ALGORITHMS,
    broadcast::ALGORITHMS,
    scatter::ALGORITHMS,
    gather::ALGORITHMS,
    allgather::ALGORITHMS,
    alltoall::ALGORITHMS,
    reduce::ALGORITHMS,
    allreduce::ALGORITHMS,
    reduce_scatter::ALGORITHMS,
    scan::ALGORITHMS,
    neighbor::ALGORITHMS,
    two_level::ALGORITHMS,
];

/// All algorithms of an operation.
pub fn of(operation: Operation) -> impl Iterator<Item = &'static Algorithm> {
    FAMILIES.iter().copied().flatten().copied().filter(move |a| a.operation == operation)
}

/// An algorithm by its name.
#[must_use]
pub fn named(operation: Operation, name: &str) -> Option<&'static Algorithm> {
    of(operation).find(|a| a.name == name)
}

/// Whether the algorithm is the in-switch barrier of the network.
#[must_use]
pub fn is_in_switch(algorithm: &Algorithm) -> bool {
    algorithm.operation == Operation::Barrier && algorithm.name == barrier::switch::ALGORITHM.name
}
