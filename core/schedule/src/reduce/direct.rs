//! Direct: every rank reduces one P-th of the vector, segment by segment, from the vectors of all ranks, in their
//! order, and writes the result to the root: m(1 - 1/P) elements to read, and as many for the root to receive.

use crate::direct::{LOAN, PIECES, parts_of, reduce_in_order, with_loans};
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Schedule, Slice};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Reduce,
    name: "direct",
    source: "Hashmi, Chakraborty, Bayatpour, Subramoni, Panda 2018 (shared address space reductions)",
    parameters: &[PIECES],
    applies: |call| call.lends,
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me, root) = (call.size, call.rank, call.root);
    let each = call.parameters[0].div_ceil(p);
    let parts = call.parts(p * each);
    let mut s = call.builder(parts);
    let of = |rank: u32| Some(parts_of(rank, each, parts)).filter(|(_, count)| *count > 0);
    let lent = |to: u32| {
        let (first, count) = of(to)?;
        let written = if me == root { vec![Slice::output(first, count)] } else { vec![] };
        Some([vec![Slice::input(first, count)], written])
    };
    with_loans(
        call,
        &mut s,
        lent,
        |_| of(me).is_some(),
        |s| {
            let Some((first, count)) = of(me) else { return };
            let own = Slice::input(first, count);
            let sum = if me == root { Slice::output(first, count) } else { s.scratch_like(own) };
            for number in 0..count {
                let piece = sum.part(number, 1);
                reduce_in_order(call, s, number, own.part(number, 1), piece, call.in_place && me == root);
                if me != root {
                    s.write_lent(root, LOAN, number, &[piece]);
                }
            }
        },
    );
    s.done()
}
