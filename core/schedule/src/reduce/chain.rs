//! Chain, pipelined: the vector in `segments` parts passes from each end of the ranks towards the root; every rank
//! reduces its own contribution into the part that it receives before it sends the part on. With k segments and d ranks
//! on the longer side of the root, d + k - 1 rounds of m/k elements.

use crate::operation::{Algorithm, Call, Operation, Parameter};
use crate::schedule::{Schedule, Side, Slice};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Reduce,
    name: "chain",
    source: "Pjesivac-Grbovic et al. 2007; Worringen 2003",
    parameters: &[Parameter { name: "segments", default: 8, least: 1, most: 4096, help: "parts of the vector" }],
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me, root, segments) = (call.size, call.rank, call.root, call.parameters[0]);
    let mut s = call.builder(segments);
    let higher = (me >= root && me + 1 < p).then(|| (me + 1, Side::Right));
    let lower = (me <= root && me > 0).then(|| (me - 1, Side::Left));
    let sources = [higher, lower].into_iter().flatten();
    let is_reducing = higher.or(lower).is_some();
    let partial = match me == root {
        true => Slice::output(0, segments),
        false if is_reducing => s.scratch(0..segments),
        false => Slice::input(0, segments),
    };
    for segment in 0..segments {
        let (own, into) = (Slice::input(segment, 1), partial.part(segment, 1));
        let mut is_own = !(call.in_place && me == root);
        for (source, side) in sources.clone() {
            if std::mem::take(&mut is_own) {
                s.receive(source, segment, &[into]);
                s.reduce(&[own], if side == Side::Right { Side::Left } else { Side::Right }, &[into]);
            } else {
                s.receive_reduce(source, segment, side, &[into]);
            }
        }
        if me != root {
            s.send(if me > root { me - 1 } else { me + 1 }, segment, &[into]);
        } else if p == 1 {
            s.copy(&[own], &[into]);
        }
    }
    s.done()
}
