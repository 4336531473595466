//! The reduction phase of the overlapping 3-2 elimination, after which the root gathers the pieces: in each round, run
//! backwards, the ranks whose groups meet the root's group send it their pieces.

use crate::butterfly::{Factor, THRESHOLD, halved, odd_factor};
use crate::operation::{Algorithm, Operation};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Reduce,
    name: "elimination-3-2",
    source: "Rabenseifner, Träff 2004, sections 2 and 3.2",
    parameters: &[THRESHOLD],
    build: |call| halved(call, odd_factor(call.size, Factor::Overlapping)),
    ..Algorithm::PLAIN
};
