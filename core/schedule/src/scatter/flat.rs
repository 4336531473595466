//! Flat tree: the root sends each rank its block. (P - 1) g(m) + L in pLogP. Only the root needs to know the sizes.

use super::down;
use crate::operation::{Algorithm, Operation};
use crate::tree::Place;

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Scatter,
    name: "flat",
    source: "Barchet-Estefanel, Mounié 2004 (Fast Tuning of Intra-cluster Collective Communications), table 2",
    one_round: |_| true,
    build: |call| down(call, &Place::flat(call.relative(), call.size)),
    ..Algorithm::PLAIN
};
