//! Recursive doubling, for short vectors: with P = 2^n + Q, the first 2Q ranks fold in pairs, the 2^n that remain
//! exchange whole vectors in n rounds, and the Q that folded get the result. n rounds of m elements, and two more if P
//! is not a power of two.

use crate::butterfly::{Factor, Plan, Reduction};
use crate::operation::{Algorithm, Operation};

/// This algorithm's entry in the [table](crate::table).
pub const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Allreduce,
    name: "recursive-doubling",
    source: "Thakur, Rabenseifner, Gropp 2005, section 4.4",
    build: |call| Reduction::schedule(call, &Plan::new(call.size, &[Factor::TwoOne])),
    ..Algorithm::PLAIN
};
