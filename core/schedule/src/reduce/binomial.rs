//! Binomial tree over the ranks in their order: in round k, of the ranks that are multiples of 2^k, every second one
//! sends its partial result to the rank before it, which reduces it on the right of its own. Rank 0 has the result
//! after ⌈log2 P⌉ rounds, and sends it to the root if that is another rank: one round more, which keeps the order of
//! the ranks.

use super::binomial_rotated::tree;
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Schedule, Slice};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Reduce,
    name: "binomial",
    source: "Thakur, Rabenseifner, Gropp 2005, section 4.3",
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let mut s = call.builder(1);
    let result = tree(call, &mut s, call.rank, |relative| relative);
    let tag = call.size.ilog2() + 1;
    match result {
        Some(from) if call.rank != call.root => s.send(call.root, tag, &[from]),
        None if call.rank == call.root => s.receive(0, tag, &[Slice::output(0, 1)]),
        _ => {}
    }
    s.done()
}
