//! Rabenseifner's algorithm, for long vectors: with P = 2^n + Q, the first 2Q ranks fold in pairs, the 2^n that remain
//! halve their pieces with peers at doubling distances and gather them backwards, and the Q that folded get the result.
//! 2n rounds of 2m(1 - 2^-n) elements; if P is not a power of two, two more rounds of m.

use crate::butterfly::{Factor, Plan, THRESHOLD, halved};
use crate::operation::{Algorithm, Operation};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Allreduce,
    name: "rabenseifner",
    source: "Thakur, Gropp 2003; Thakur, Rabenseifner, Gropp 2005, section 4.5",
    parameters: &[THRESHOLD],
    build: |call| halved(call, Plan::new(call.size, &[Factor::TwoOne])),
    ..Algorithm::PLAIN
};
