//! The butterfly with a halving threshold, for powers of two (van de Geijn 1994; Rabenseifner, Träff 2004, section 2):
//! while its piece has more elements than the threshold, a rank halves it with its peer (R), then they exchange it in
//! full (A), and an allgather runs the halving rounds backwards (G). With n = log2 P: 2n rounds and 2m(1 - 1/P)
//! elements sent if all rounds halve, n rounds and nm elements if no round halves.

use crate::butterfly::{Factor, THRESHOLD, halved, odd_factor};
use crate::operation::{Algorithm, Operation};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Allreduce,
    name: "butterfly",
    source: "van de Geijn 1994; Rabenseifner, Träff 2004, section 2",
    parameters: &[THRESHOLD],
    applies: |call| call.size.is_power_of_two(),
    build: |call| halved(call, odd_factor(call.size, Factor::Overlapping)),
    ..Algorithm::PLAIN
};
