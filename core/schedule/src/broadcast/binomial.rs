//! Binomial tree: in each round every rank that has the vector sends it to a rank that does not. In k segments of s
//! bytes, for P a power of two: log2 P (k g(s) + L) in pLogP; for other P the published ⌊log2 P⌋ k g(s) + ⌈log2 P⌉ L
//! counts one gap too few (P = 3: the root sends twice), and ⌈log2 P⌉ (k g(s) + L) is an upper bound.

use super::{SEGMENTS, down, down_by_rendezvous};
use crate::operation::{Algorithm, Operation};
use crate::tree::Place;

/// This algorithm's entry in the [table](crate::table).
pub const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Broadcast,
    name: "binomial",
    source: "Barchet-Estefanel, Mounié 2004 (Fast Tuning of Intra-cluster Collective Communications), table 1",
    parameters: &[SEGMENTS],
    build: |call| down(call, &Place::k_nomial(2, call.relative(), call.size), call.parameters[0]),
    ..Algorithm::PLAIN
};

/// Variant with a rendezvous: log2 P (g(m) + 2 g(1) + 3 L) for P a power of two.
pub(crate) const RENDEZVOUS: Algorithm = Algorithm {
    name: "binomial-rendezvous",
    parameters: &[],
    build: |call| down_by_rendezvous(call, &Place::k_nomial(2, call.relative(), call.size)),
    ..ALGORITHM
};
