//! The butterfly with a halving threshold, for powers of two (van de Geijn 1994; Rabenseifner, Träff 2004, section 2):
//! while its piece has more than `threshold` elements, a rank halves it with its peer (R), then they exchange it in
//! full (A), and an allgather runs the halving rounds backwards (G). With n = log2 P: 2n rounds and 2m(1 - 1/P)
//! elements sent if all rounds halve, n rounds and nm elements if no round halves.

use crate::butterfly::{Factor, Reduction, THRESHOLD, odd_factor};
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::Schedule;

/// The algorithm.
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Allreduce,
    name: "butterfly",
    source: "van de Geijn 1994; Rabenseifner, Träff 2004, section 2",
    parameters: &[THRESHOLD],
    applies: |call| call.size.is_power_of_two(),
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let plan = odd_factor(call.size, Factor::Overlapping).halved_above(call.parameters[0].into(), call.elements);
    Reduction::schedule(call, &plan)
}
