//! Pairwise exchange: in round k rank r sends rank r + k its block and receives its own block's contribution from rank
//! r - k. It reduces when all contributions have arrived, in the order of the ranks. P - 1 rounds, each block sent
//! directly to its rank: m(1 - 1/P) elements, the minimum, with blocks of any sizes.

use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Schedule, Side, Slice};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::ReduceScatter,
    name: "pairwise",
    source: "Thakur, Rabenseifner, Gropp 2005, section 4.2",
    one_round: |_| true,
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me) = (call.size, call.rank);
    let mut s = call.builder(p);
    let output = Slice::output(0, 1);
    if p == 1 {
        s.copy(&[Slice::input(0, 1)], &[output]);
        return s.done();
    }
    // The contribution of the lowest other rank is received into the output, into which the other contributions are
    // reduced.
    let lowest = u32::from(me == 0);
    let others = s.scratch((0..p).filter(|rank| *rank > lowest && *rank != me).map(|_| me));
    let at = |rank: u32| match rank {
        _ if rank == me => Slice::input(me, 1),
        _ if rank == lowest => output,
        _ => others.part(rank - 1 - u32::from(rank > me), 1),
    };
    for k in 1..p {
        let (to, from) = ((me + k) % p, (me + p - k) % p);
        s.send(to, 0, &[Slice::input(to, 1)]);
        s.receive(from, 0, &[at(from)]);
    }
    for rank in (0..p).filter(|rank| *rank != lowest) {
        s.reduce(&[at(rank)], if rank < lowest { Side::Left } else { Side::Right }, &[output]);
    }
    s.done()
}
