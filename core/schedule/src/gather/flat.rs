//! Flat tree: each rank sends its block to the root. (P - 1) g(m) + L in pLogP. Only the root needs to know the sizes.

use super::up;
use crate::operation::{Algorithm, Operation};
use crate::tree::Place;

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Gather,
    name: "flat",
    source: "Barchet-Estefanel, Mounié 2004 (Fast Tuning of Intra-cluster Collective Communications), section 3 and table 2, reversed",
    one_round: |_| true,
    build: |call| up(call, &Place::flat(call.relative(), call.size)),
    ..Algorithm::PLAIN
};
