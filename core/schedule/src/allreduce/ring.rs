//! Ring: a vector of P parts; each part is passed around the ring once to be reduced and once to reach all ranks.
//! 2(P - 1) rounds, of m/P elements each: 2m(1 - 1/P) in all, the minimum for every P. The part of rank r is reduced
//! from rank r + 1 on, so the operator must be commutative, and parts have different bracketings.

use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Schedule, Side, Slice};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Allreduce,
    name: "ring",
    source: "Patarasuk, Yuan 2009",
    commutative: true,
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me) = (call.size, call.rank);
    let mut s = call.builder(p);
    let (next, before) = ((me + 1) % p, (me + p - 1) % p);
    let part = |of: u32| Slice::output((of + p) % p, 1);
    if p == 1 {
        s.copy(&[Slice::input(0, 1)], &[part(0)]);
    }
    for k in 1..p {
        // The part that ends at rank me + p - k passes this rank in round k.
        let (sent, received) = ((me + p - k) % p, (me + 2 * p - k - 1) % p);
        s.send(next, k - 1, &[if k == 1 { Slice::input(sent, 1) } else { part(sent) }]);
        if call.in_place {
            s.receive_reduce(before, k - 1, Side::Left, &[part(received)]);
        } else {
            s.receive(before, k - 1, &[part(received)]);
            s.reduce(&[Slice::input(received, 1)], Side::Right, &[part(received)]);
        }
    }
    for k in 0..p - 1 {
        s.send(next, p - 1 + k, &[part(me + p - k)]);
        s.receive(before, p - 1 + k, &[part(me + p - k - 1)]);
    }
    s.done()
}
