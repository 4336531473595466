//! 2-1 elimination: the butterfly for the factors two of P, then the odd factor q = 2^k + Q is reduced to 2^k by Q
//! eliminations, in each of which one of two ranks sends the other its whole piece, m' elements; then the butterfly.
//! Two more rounds of m' than the butterfly.

use crate::butterfly::{Factor, THRESHOLD, halved, odd_factor};
use crate::operation::{Algorithm, Operation};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Allreduce,
    name: "elimination-2-1",
    source: "Rabenseifner, Träff 2004, section 3.1",
    parameters: &[THRESHOLD],
    build: |call| halved(call, odd_factor(call.size, Factor::TwoOne)),
    ..Algorithm::PLAIN
};
