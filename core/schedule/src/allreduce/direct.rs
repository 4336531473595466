//! Direct: every rank reduces one P-th of the vector, segment by segment, from the vectors of all ranks, in their
//! order, and writes the result to all: 2m(1 - 1/P) elements. Only one rank accesses a part, so the call may be in
//! place; then parts have different bracketings.

use crate::direct::{LOAN, PIECES, parts_of, reduce_in_order, with_loans};
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Schedule, Slice};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Allreduce,
    name: "direct",
    source: "Hashmi, Chakraborty, Bayatpour, Subramoni, Panda 2018 (shared address space reductions)",
    parameters: &[PIECES],
    applies: |call| call.lends,
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me) = (call.size, call.rank);
    let each = call.parameters[0].div_ceil(p);
    let parts = call.parts(p * each);
    let mut s = call.builder(parts);
    let of = |rank: u32| {
        let (first, count) = parts_of(rank, each, parts);
        (count > 0).then(|| [Slice::input(first, count), Slice::output(first, count)])
    };
    let lent = |to: u32| of(to).map(|[read, written]| [vec![read], vec![written]]);
    with_loans(
        call,
        &mut s,
        lent,
        |_| of(me).is_some(),
        |s| {
            let Some([own, output]) = of(me) else { return };
            for number in 0..own.count {
                let piece = output.part(number, 1);
                reduce_in_order(call, s, number, own.part(number, 1), piece, call.in_place);
                (1..p).for_each(|i| s.write_lent((me + i) % p, LOAN, number, &[piece]));
            }
        },
    );
    s.done()
}
