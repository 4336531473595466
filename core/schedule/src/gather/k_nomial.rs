//! k-nomial tree: ⌈log_k P⌉ rounds of k - 1 messages, each with the blocks of a subtree.

use super::up;
use crate::operation::{Algorithm, Operation};
use crate::scatter::k_nomial;
use crate::tree::Place;

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Gather,
    build: |call| up(call, &Place::k_nomial(call.parameters[0], call.relative(), call.size)),
    ..k_nomial::ALGORITHM
};
