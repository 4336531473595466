//! Direct: a vector of P parts; every rank reduces its part out of the vectors of all ranks, in their order, and writes
//! the result to the root: m(1 - 1/P) elements to read, and as many for the root to get.

use crate::coll::direct::{LOAN, reduce_in_order, with_loans};
use crate::coll::operation::{Algorithm, Call, Operation};
use crate::coll::schedule::{Schedule, Slice};

/// The algorithm.
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Reduce,
    name: "direct",
    source: "Hashmi, Chakraborty, Bayatpour, Subramoni, Panda 2018 (shared address space reductions)",
    parameters: &[],
    commutative: false,
    applies: |call| call.lends,
    build,
};

fn build(call: &Call<'_>) -> Schedule {
    let (me, root) = (call.rank, call.root);
    let parts = call.parts(call.size);
    let mut s = call.builder(parts);
    let written = |to: u32| if me == root { vec![Slice::output(to, 1)] } else { vec![] };
    let lent = |to: u32| (to < parts).then(|| [vec![Slice::input(to, 1)], written(to)]);
    with_loans(
        call,
        &mut s,
        lent,
        |_| me < parts,
        |s| {
            if me >= parts {
                return;
            }
            let own = Slice::input(me, 1);
            // In place, the part of the root stays until those of lower ranks are reduced.
            let direct = me == root && (!call.in_place || me == 0);
            let sum = if direct { Slice::output(me, 1) } else { s.scratch_like(own) };
            reduce_in_order(call, s, own, sum);
            if me == root {
                s.copy(&[sum], &[Slice::output(me, 1)]);
            } else {
                s.write_lent(root, LOAN, &[sum]);
            }
        },
    );
    s.done()
}
