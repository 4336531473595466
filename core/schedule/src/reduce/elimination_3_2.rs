//! The reduction phase of the overlapping 3-2 elimination, after which the root gathers the pieces: in each round, run
//! backwards, the ranks whose groups meet the root's group send it their pieces.

use crate::butterfly::{Factor, Reduction, THRESHOLD, odd_factor};
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::Schedule;

/// The algorithm.
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Reduce,
    name: "elimination-3-2",
    source: "Rabenseifner, Träff 2004, sections 2 and 3.2",
    parameters: &[THRESHOLD],
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let plan = odd_factor(call.size, Factor::Overlapping).halved_above(call.parameters[0].into(), call.elements);
    Reduction::schedule(call, &plan)
}
