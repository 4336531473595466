//! Binomial tree: each message has the blocks of a subtree. Σ_{j < ⌈log2 P⌉} g(2^j m) + ⌈log2 P⌉ L in pLogP for P a
//! power of two, and no more for other P.

use super::up;
use crate::operation::{Algorithm, Operation};
use crate::tree::Place;

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Gather,
    name: "binomial",
    source: "Barchet-Estefanel, Mounié 2004 (Fast Tuning of Intra-cluster Collective Communications), section 3 and table 2, reversed",
    applies: |call| call.sizes_known,
    build: |call| up(call, &Place::k_nomial(2, call.relative(), call.size)),
    ..Algorithm::PLAIN
};
