//! k-nomial tree: in each round every rank that has the vector sends it to k - 1 ranks that do not, so there are ⌈log_k
//! P⌉ rounds.

use super::{SEGMENTS, down};
use crate::operation::{Algorithm, Operation, Parameter};
use crate::tree::Place;

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Broadcast,
    name: "k-nomial",
    source: "Wilkins, Wang, Liu, Pham, Guo, Thakur, Dinda, Hardavellas 2023 (Generalized Collective Algorithms for the \
             Exascale Era)",
    parameters: &[
        Parameter { name: "k", default: 4, least: 2, most: 256, help: "one more than the messages of a round" },
        SEGMENTS,
    ],
    build: |call| down(call, &Place::k_nomial(call.parameters[0], call.relative(), call.size), call.parameters[1]),
    ..Algorithm::PLAIN
};
