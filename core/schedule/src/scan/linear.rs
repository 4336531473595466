//! Linear: every rank sends its vector to all higher ranks, and each rank reduces the received vectors to the left of
//! its own, from the next lower rank down to rank 0. One round if a rank may send to all at the same time, at most (P -
//! 1)m elements per rank. Used for short vectors and few ranks: if the ranks share memory, a blocking call sends no
//! message.

use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Schedule, Side, Slice};

/// Inclusive scan.
pub(crate) const SCAN: Algorithm = Algorithm {
    operation: Operation::Scan,
    name: "linear",
    source: "Pjesivac-Grbovic et al. 2007, section 3 (linear algorithms)",
    one_round: |_| true,
    build,
    ..Algorithm::PLAIN
};

/// Exclusive scan.
pub(crate) const EXSCAN: Algorithm = Algorithm { operation: Operation::Exscan, build, ..SCAN };

fn build(call: &Call<'_>) -> Schedule {
    let (p, me) = (call.size, call.rank);
    let mut s = call.builder(1);
    let (own, output) = ([Slice::input(0, 1)], [Slice::output(0, 1)]);
    for rank in me + 1..p {
        s.send(rank, 0, &own);
    }
    let mut lower = (0..me).rev();
    if call.operation == Operation::Scan {
        s.copy(&own, &output);
    } else if let Some(next) = lower.next() {
        s.receive(next, 0, &output);
    }
    lower.for_each(|rank| s.receive_reduce(rank, 0, Side::Left, &output));
    s.done()
}
