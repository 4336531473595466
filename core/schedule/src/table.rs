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

/// Whether the algorithm is the barrier in the switch of the network.
#[must_use]
pub fn is_in_switch(algorithm: &Algorithm) -> bool {
    algorithm.operation == Operation::Barrier && algorithm.name == barrier::switch::ALGORITHM.name
}

/// Whether every rank only sends data that it has from the start, to some or all others, so that the algorithm has one
/// round.
#[must_use]
pub fn is_one_round(algorithm: &Algorithm, parameters: &[u32], ranks: u32) -> bool {
    use Operation as O;
    let is = |other: &Algorithm| algorithm.name == other.name;
    match algorithm.operation {
        O::Barrier => is(&barrier::dissemination::ALGORITHM) && parameters.first().is_some_and(|n| n + 1 >= ranks),
        O::Broadcast => is(&broadcast::flat::ALGORITHM) && parameters == [1],
        O::Gather => is(&gather::flat::ALGORITHM),
        O::Reduce => is(&reduce::flat::ALGORITHM),
        O::Allgather => is(&allgather::linear::ALGORITHM),
        O::Allreduce => is(&allreduce::linear::ALGORITHM),
        O::Alltoall => is(&alltoall::linear::ALGORITHM) && parameters == [0],
        O::ReduceScatter => is(&reduce_scatter::pairwise::ALGORITHM),
        O::Scan | O::Exscan => is(&scan::linear::SCAN),
        O::Scatter => is(&scatter::flat::ALGORITHM),
        O::NeighborAllgather | O::NeighborAlltoall => false,
    }
}
