//! k-nomial tree: ⌈log_k P⌉ rounds of k - 1 messages, each with the blocks of a subtree.

use super::down;
use crate::operation::{Algorithm, Operation, Parameter};
use crate::tree::Place;

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Scatter,
    name: "k-nomial",
    source: "Wilkins, Wang, Liu, Pham, Guo, Thakur, Dinda, Hardavellas 2023 (Generalized Collective Algorithms for the \
             Exascale Era)",
    parameters: &[Parameter {
        name: "k",
        default: 4,
        least: 2,
        most: 256,
        help: "one more than the messages of a round",
    }],
    applies: |call| call.sizes_known,
    build: |call| down(call, &Place::k_nomial(call.parameters[0], call.relative(), call.size)),
    ..Algorithm::PLAIN
};
