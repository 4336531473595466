//! Direct: a vector of P parts; every rank reduces its part out of the vectors of all ranks, in their order, and writes
//! the result to all: 2m(1 - 1/P) elements. Only one rank accesses a part, so the call may be in place.

use crate::coll::direct::{LOAN, reduce_in_order, with_loans};
use crate::coll::operation::{Algorithm, Call, Operation};
use crate::coll::schedule::{Schedule, Slice};

/// The algorithm.
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Allreduce,
    name: "direct",
    source: "Hashmi, Chakraborty, Bayatpour, Subramoni, Panda 2018 (shared address space reductions)",
    parameters: &[],
    commutative: false,
    applies: |call| call.lends,
    build,
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me) = (call.size, call.rank);
    let parts = call.parts(p);
    let mut s = call.builder(parts);
    let lent = |to: u32| (to < parts).then(|| [vec![Slice::input(to, 1)], vec![Slice::output(to, 1)]]);
    with_loans(
        call,
        &mut s,
        lent,
        |_| me < parts,
        |s| {
            if me >= parts {
                return;
            }
            let (own, output) = (Slice::input(me, 1), Slice::output(me, 1));
            // In place, the part of this rank stays until those of lower ranks are reduced.
            let sum = if call.in_place && me > 0 { s.scratch_like(output) } else { output };
            reduce_in_order(call, s, own, sum);
            (1..p).for_each(|i| s.write_lent((me + i) % p, LOAN, &[sum]));
            s.copy(&[sum], &[output]);
        },
    );
    s.done()
}
