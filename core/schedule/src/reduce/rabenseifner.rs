//! Rabenseifner's reduce, for long vectors: with P = 2^n + Q, the first 2Q ranks fold in pairs; the 2^n that remain
//! halve their pieces with peers at doubling distances, and the root gathers them backwards. 2n rounds of 2m(1 - 2^-n)
//! elements; if P is not a power of two, one round more of m, and another if the root is one of the Q.

use crate::butterfly::{Factor, Plan, THRESHOLD, halved};
use crate::operation::{Algorithm, Operation};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Reduce,
    name: "rabenseifner",
    source: "Rabenseifner 2004; Thakur, Rabenseifner, Gropp 2005, section 4.3",
    parameters: &[THRESHOLD],
    build: |call| halved(call, Plan::new(call.size, &[Factor::TwoOne])),
    ..Algorithm::PLAIN
};
