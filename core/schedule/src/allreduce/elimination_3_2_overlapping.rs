//! 3-2 elimination, overlapping: a butterfly in which, in each round z where bit z of P is set, three groups become one
//! group with two active ranks for each index. A group of three halves its piece m' in two steps of m'/2, where 2-1
//! elimination needs m' and then m'/2. Short vectors take ⌈log2 P⌉ + 1 rounds, long ones 2⌈log2 P⌉; for odd P at most
//! 2m(1.5 - 1/P') elements, with P' the power of two below P.

use crate::butterfly::{Factor, THRESHOLD, halved, odd_factor};
use crate::operation::{Algorithm, Operation};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Allreduce,
    name: "elimination-3-2-overlapping",
    source: "Rabenseifner, Träff 2004, section 3.2",
    parameters: &[THRESHOLD],
    build: |call| halved(call, odd_factor(call.size, Factor::Overlapping)),
    ..Algorithm::PLAIN
};
