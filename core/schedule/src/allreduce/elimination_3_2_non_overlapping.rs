//! 3-2 elimination, non-overlapping: the butterfly for the factors two of P; of the odd factor q, three groups become
//! one by 3-2 elimination while the others exchange in pairs and then reduce the number of groups to a power of two by
//! 2-1 elimination of halves; then the butterfly. Rounds and elements are those of the overlapping form.

use crate::butterfly::{Factor, THRESHOLD, halved, odd_factor};
use crate::operation::{Algorithm, Operation};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Allreduce,
    name: "elimination-3-2-non-overlapping",
    source: "Rabenseifner, Träff 2004, section 3.3",
    parameters: &[THRESHOLD],
    build: |call| halved(call, odd_factor(call.size, Factor::NonOverlapping)),
    ..Algorithm::PLAIN
};
