//! Chain: each rank forwards the blocks of all ranks after it. Σ_{0 < j < P} g(j m) + (P - 1) L in pLogP.

use super::down;
use crate::operation::{Algorithm, Operation};
use crate::tree::Place;

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Scatter,
    name: "chain",
    source: "Barchet-Estefanel, Mounié 2004 (Fast Tuning of Intra-cluster Collective Communications), table 2",
    applies: |call| call.sizes_known,
    build: |call| down(call, &Place::chain(call.relative(), call.size)),
    ..Algorithm::PLAIN
};
