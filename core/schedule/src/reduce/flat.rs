//! Flat: every rank sends its vector to the root, which reduces them one after the other in the order of the ranks. P -
//! 1 messages to one rank.

use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Schedule, Side, Slice};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Reduce,
    name: "flat",
    source: "MPI standard, description of MPI_Reduce; Barchet-Estefanel, Mounié 2004",
    one_round: |_| true,
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let mut s = call.builder(1);
    let (input, output) = (Slice::input(0, 1), Slice::output(0, 1));
    if call.rank != call.root {
        s.send(call.root, 0, &[input]);
        return s.done();
    }
    // The vectors of lower ranks are reduced before the root's own; in place, the root's own is moved out of the
    // output.
    let mut own = input;
    if call.in_place && call.root > 0 {
        own = s.scratch([0]);
        s.copy(&[input], &[own]);
    }
    for rank in 0..call.size {
        match (rank, rank == call.root) {
            (0, true) => s.copy(&[own], &[output]),
            (0, false) => s.receive(0, 0, &[output]),
            (_, true) => s.reduce(&[own], Side::Right, &[output]),
            (_, false) => s.receive_reduce(rank, 0, Side::Right, &[output]),
        }
    }
    s.done()
}
