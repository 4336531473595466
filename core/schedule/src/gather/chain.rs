//! Chain: each rank adds its block to those of all after it and passes them on. Σ_{0 < j < P} g(j m) + (P - 1) L in
//! pLogP.

use super::up;
use crate::operation::{Algorithm, Operation};
use crate::tree::Place;

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Gather,
    name: "chain",
    source: "Barchet-Estefanel, Mounié 2004 (Fast Tuning of Intra-cluster Collective Communications), section 3 and table 2, reversed",
    applies: |call| call.sizes_known,
    build: |call| up(call, &Place::chain(call.relative(), call.size)),
    ..Algorithm::PLAIN
};
