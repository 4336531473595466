//! Direct: every rank reduces its block from the inputs of all ranks, in their order: m(1 - 1/P) elements of other
//! ranks, each read once.

use crate::direct::{reduce_in_order, with_loans};
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Schedule, Slice};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::ReduceScatter,
    name: "direct",
    source: "Hashmi, Chakraborty, Bayatpour, Subramoni, Panda 2018 (shared address space reductions)",
    applies: |call| call.lends,
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let mut s = call.builder(call.size);
    let lent = |to: u32| Some([vec![Slice::input(to, 1)], vec![]]);
    with_loans(
        call,
        &mut s,
        lent,
        |_| true,
        |s| {
            reduce_in_order(call, s, 0, Slice::input(call.rank, 1), Slice::output(0, 1), false);
        },
    );
    s.done()
}
