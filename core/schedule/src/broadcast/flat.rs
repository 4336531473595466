//! Flat tree: the root sends to all others, P - 1 times the vector. In k segments of s bytes: (P - 1) k g(s) + L in
//! pLogP.

use super::{SEGMENTS, down, down_by_rendezvous};
use crate::operation::{Algorithm, Operation};
use crate::tree::Place;

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Broadcast,
    name: "flat",
    source: "Barchet-Estefanel, Mounié 2004 (Fast Tuning of Intra-cluster Collective Communications), table 1",
    parameters: &[SEGMENTS],
    one_round: |call| call.parameters == [1],
    build: |call| down(call, &Place::flat(call.relative(), call.size), call.parameters[0]),
    ..Algorithm::PLAIN
};

/// Variant with a rendezvous: (P - 1) g(m) + 2 g(1) + 3 L, if the requests are sent before the first answer arrives.
pub(crate) const RENDEZVOUS: Algorithm = Algorithm {
    name: "flat-rendezvous",
    parameters: &[],
    one_round: |_| false,
    build: |call| down_by_rendezvous(call, &Place::flat(call.relative(), call.size)),
    ..ALGORITHM
};
