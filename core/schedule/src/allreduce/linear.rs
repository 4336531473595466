//! Linear: every rank sends its vector to all others and reduces all of them in the order of the ranks; one round if a
//! rank may send to all at the same time, (P - 1)m elements. Used for very short vectors and few ranks: if the ranks
//! share memory, a blocking call sends no message.

use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Schedule, Side, Slice};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Allreduce,
    name: "linear",
    source: "Pjesivac-Grbovic et al. 2007, section 3 (linear algorithms)",
    one_round: |_| true,
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me) = (call.size, call.rank);
    let mut s = call.builder(1);
    let (own, output) = ([Slice::input(0, 1)], [Slice::output(0, 1)]);
    for i in 1..p {
        s.send((me + i) % p, 0, &own);
    }
    if me == 0 {
        s.copy(&own, &output);
        (1..p).for_each(|rank| s.receive_reduce(rank, 0, Side::Right, &output));
        return s.done();
    }
    // Lower ranks are reduced first, and the sum replaces the input only at the end.
    let sum = [s.scratch([0])];
    s.receive(0, 0, &sum);
    for rank in 1..p {
        if rank == me {
            s.reduce(&own, Side::Right, &sum);
        } else {
            s.receive_reduce(rank, 0, Side::Right, &sum);
        }
    }
    s.copy(&sum, &output);
    s.done()
}
