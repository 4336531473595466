//! 2-1 elimination: the butterfly for the factors two of P, then the odd factor q = 2^k + Q is brought to 2^k by Q
//! eliminations, in each of which one of two ranks gives the other its whole piece, m' elements; then the butterfly.
//! Two rounds of m' more than the butterfly.

use crate::butterfly::{Factor, Reduction, THRESHOLD, odd_factor};
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::Schedule;

/// The algorithm.
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Allreduce,
    name: "elimination-2-1",
    source: "Rabenseifner, Träff 2004, section 3.1",
    parameters: &[THRESHOLD],
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let plan = odd_factor(call.size, Factor::TwoOne).halved_above(call.parameters[0].into(), call.elements);
    Reduction::schedule(call, &plan)
}
