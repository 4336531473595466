//! Binary tree, balanced: ⌊log2 P⌋ levels below the root, at most ⌈log2 P⌉ (2 g(m) + L) in pLogP. In segments it takes
//! 2 g(s) for each segment after the first.

use super::{SEGMENTS, down};
use crate::operation::{Algorithm, Operation};
use crate::tree::Place;

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Broadcast,
    name: "binary",
    source: "Barchet-Estefanel, Mounié 2004 (Fast Tuning of Intra-cluster Collective Communications), table 1",
    parameters: &[SEGMENTS],
    build: |call| down(call, &Place::k_ary(2, call.relative(), call.size), call.parameters[0]),
    ..Algorithm::PLAIN
};
