//! Collectives in two levels: the ranks of each node and their leader, and the leaders of all nodes. An inter-node step
//! takes much longer than an intra-node one, so the number of inter-node rounds is kept small, and only leaders send
//! between nodes.
//!
//! Each is composed of algorithms of the [table](super::table) with their default parameters, as parts of one schedule;
//! so steps of a level begin as soon as their blocks have arrived, not when the previous level has ended. The
//! parameters are the trees within the nodes and the algorithm between the leaders.
//!
//! | | within nodes | between leaders | within nodes |
//! |---|---|---|---|
//! | barrier | arrival | barrier | release |
//! | broadcast | | broadcast | broadcast |
//! | scatter | | scatter | scatter |
//! | gather | gather | gather | |
//! | allgather | gather | allgather | broadcast of all blocks |
//! | alltoall of equal blocks | gather | alltoall | scatter |
//! | reduce | reduce | reduce | |
//! | allreduce | reduce | allreduce | broadcast |
//! | reduce_scatter | reduce of all blocks | reduce_scatter | scatter |
//!
//! The leader of a node is its lowest rank, or the root. If the ranks of each node are consecutive, contributions are
//! reduced in the order of the ranks if both parts do so (`two-level`); otherwise the operator must be commutative
//! (`two-level-commutative`).

mod barrier;
mod blocks;
mod levels;
mod vectors;

pub(crate) use levels::{counts, has_levels};
pub use levels::{lowest_of_nodes, nodes};

use super::operation::{Algorithm, Call, Operation, Parameter};
use super::schedule::{Builder, Part, Schedule, Slice};
use super::{allgather, allreduce, alltoall, broadcast, gather, reduce, reduce_scatter, scatter};
use levels::Levels;

/// All algorithms in two levels.
pub(crate) const ALGORITHMS: &[&Algorithm] = &[
    &barrier::ALGORITHM,
    &vectors::BROADCAST,
    &blocks::SCATTER,
    &blocks::GATHER,
    &blocks::ALLGATHER,
    &blocks::ALLTOALL,
    &vectors::REDUCE,
    &vectors::REDUCE_COMMUTATIVE,
    &vectors::ALLREDUCE,
    &vectors::ALLREDUCE_COMMUTATIVE,
    &blocks::REDUCE_SCATTER,
    &blocks::REDUCE_SCATTER_COMMUTATIVE,
];

/// The name.
const NAME: &str = "two-level";
/// The name of algorithms that do not keep the order of the ranks.
const COMMUTATIVE: &str = "two-level-commutative";

/// The papers that describe the composition; the same for all operations.
const SOURCE: &str = "Karonis, de Supinski, Foster, Gropp, Lusk, Bresnahan 2000 (Exploiting Hierarchy in Parallel Computer \
                      Networks); Luo, Wu, Bosilca, Pei, Wang, Dongarra 2020 (HAN)";

/// The trees within nodes, by their names as algorithms of broadcasts, reductions, scatters and gathers.
const INTRA: &[&str] = &["binomial", "flat"];

/// The algorithms between leaders. The first is for short data.
const fn inter(operation: Operation, commutative: bool) -> &'static [&'static str] {
    match (operation, commutative) {
        (Operation::Barrier, _) => &["dissemination", "binomial-spanning-tree", "central-counter"],
        (Operation::Broadcast, _) => &["binomial", "flat", "scatter-ring", "scatter-bruck"],
        (Operation::Scatter | Operation::Gather, _) => &["binomial", "flat"],
        (Operation::Allgather, _) => &["bruck", "ring", "linear"],
        (Operation::Alltoall, _) => &["linear", "bruck", "pairwise-exchange"],
        (Operation::Reduce, false) => &["binomial", "flat", "rabenseifner", "elimination-3-2"],
        (Operation::Reduce, true) => &["binomial-rotated", "flat", "rabenseifner", "elimination-3-2"],
        (Operation::Allreduce, false) => &["recursive-doubling", "linear", "rabenseifner", "factorized"],
        (Operation::Allreduce, true) => &["recursive-doubling", "linear", "rabenseifner", "ring"],
        (Operation::ReduceScatter, false) => &["butterfly", "pairwise"],
        (Operation::ReduceScatter, true) => &["recursive-halving", "bruck", "pairwise"],
        _ => &[],
    }
}

/// Whether an algorithm has two levels.
#[must_use]
pub fn is(algorithm: &Algorithm) -> bool {
    matches!(algorithm.name, NAME | COMMUTATIVE)
}

/// An algorithm of a part.
fn named(operation: Operation, name: &str) -> &'static Algorithm {
    let family = match operation {
        Operation::Barrier => super::barrier::ALGORITHMS,
        Operation::Broadcast => broadcast::ALGORITHMS,
        Operation::Scatter => scatter::ALGORITHMS,
        Operation::Gather => gather::ALGORITHMS,
        Operation::Allgather => allgather::ALGORITHMS,
        Operation::Alltoall => alltoall::ALGORITHMS,
        Operation::Reduce => reduce::ALGORITHMS,
        Operation::Allreduce => allreduce::ALGORITHMS,
        Operation::ReduceScatter => reduce_scatter::ALGORITHMS,
        _ => &[],
    };
    family.iter().find(|a| a.name == name).expect("the family has the algorithms of the parts")
}

/// The names of the values of a parameter; empty if its values are numbers.
pub(crate) fn names(algorithm: &Algorithm, index: usize) -> &'static [&'static str] {
    match (algorithm.name, index) {
        (NAME | COMMUTATIVE, 0) => INTRA,
        (NAME | COMMUTATIVE, 1) => inter(algorithm.operation, algorithm.commutative),
        _ => &[],
    }
}

/// The parameters of an algorithm between `inter` leaders.
const fn parameters(inter: &[&str]) -> [Parameter; 2] {
    const INTRA_TREE: Parameter =
        Parameter { name: "intra", default: 0, least: 0, most: INTRA.len() as u32 - 1, help: "tree within a node" };
    let (most, help) = (inter.len() as u32 - 1, "algorithm between the leaders of the nodes");
    [INTRA_TREE, Parameter { name: "inter", most, help, ..INTRA_TREE }]
}

/// The algorithm between leaders that the call's parameters name.
fn between(call: &Call<'_>, commutative: bool) -> &'static Algorithm {
    named(call.operation, inter(call.operation, commutative)[call.parameters[1] as usize])
}

/// Whether the tree within a node is flat, according to the call's parameters.
fn is_flat(call: &Call<'_>) -> bool {
    INTRA[call.parameters[0] as usize] == "flat"
}

/// The tree within a node that the call's parameters name, as an algorithm of `operation`.
fn within(call: &Call<'_>, operation: Operation, commutative: bool) -> &'static Algorithm {
    let name = match INTRA[call.parameters[0] as usize] {
        // The leader is at the top of the tree.
        "binomial" if operation == Operation::Reduce && commutative => "binomial-rotated",
        name => name,
    };
    named(operation, name)
}

/// Whether the ranks have two levels, and the algorithm between the leaders can make the call.
fn applies(call: &Call<'_>, commutative: bool) -> bool {
    if !has_levels(call.nodes) {
        return false;
    }
    let levels = Levels::of(call);
    let algorithm = between(call, commutative);
    let parameters = algorithm.defaults();
    let sizes = levels.sizes_of_nodes(call);
    (algorithm.applies)(&Call { parameters: &parameters, ..levels.between(call, &sizes) })
}

/// The schedule of an algorithm of the table with its default parameters.
fn scheduled(algorithm: &Algorithm, call: &Call<'_>) -> Schedule {
    let parameters = algorithm.defaults();
    (algorithm.build)(&Call { parameters: &parameters, ..*call })
}
