//! Chain: each rank sends to the next one. In k segments of s bytes, which is a pipeline: (P - 1) (g(s) + L) + (k - 1)
//! g(s) in pLogP.

use super::{SEGMENTS, down, down_by_rendezvous};
use crate::operation::{Algorithm, Operation};
use crate::tree::Place;

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Broadcast,
    name: "chain",
    source: "Barchet-Estefanel, Mounié 2004 (Fast Tuning of Intra-cluster Collective Communications), table 1",
    parameters: &[SEGMENTS],
    build: |call| down(call, &Place::chain(call.relative(), call.size), call.parameters[0]),
    ..Algorithm::PLAIN
};

/// Variant with a rendezvous: (P - 1) (g(m) + 2 g(1) + 3 L).
pub(crate) const RENDEZVOUS: Algorithm = Algorithm {
    name: "chain-rendezvous",
    parameters: &[],
    build: |call| down_by_rendezvous(call, &Place::chain(call.relative(), call.size)),
    ..ALGORITHM
};
