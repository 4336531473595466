//! Direct: every rank writes its block to its final location at the root, all at the same time.

use crate::direct::{LOAN, with_loans};
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Schedule, Slice};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Gather,
    name: "direct",
    source: "Ma, Bosilca, Bouteiller, Goglin, Squyres, Dongarra 2011 (kernel-assisted collectives)",
    applies: |call| call.lends,
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (me, root) = (call.rank, call.root);
    let mut s = call.builder(1);
    let (own, is_root) = (Slice::input(0, 1), me == root);
    let lent = |to: u32| is_root.then(|| [vec![], vec![Slice::output(to, 1)]]);
    with_loans(
        call,
        &mut s,
        lent,
        |source| source == root,
        |s| {
            if is_root {
                s.copy(&[own], &[Slice::output(me, 1)]);
            } else {
                s.write_lent(root, LOAN, 0, &[own]);
            }
        },
    );
    s.done()
}
