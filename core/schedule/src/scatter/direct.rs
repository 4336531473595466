//! Direct: every rank reads its block in place at the root, all at the same time.

use crate::direct::{LOAN, with_loans};
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Schedule, Slice};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Scatter,
    name: "direct",
    source: "Ma, Bosilca, Bouteiller, Goglin, Squyres, Dongarra 2011 (kernel-assisted collectives)",
    applies: |call| call.lends,
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (me, root) = (call.rank, call.root);
    let mut s = call.builder(1);
    let (output, is_root) = (Slice::output(0, 1), me == root);
    let lent = |to: u32| is_root.then(|| [vec![Slice::input(to, 1)], vec![]]);
    with_loans(
        call,
        &mut s,
        lent,
        |source| source == root,
        |s| {
            if !is_root {
                s.read_lent(root, LOAN, 0, &[output]);
            } else if !call.in_place {
                s.copy(&[Slice::input(me, 1)], &[output]);
            }
        },
    );
    s.done()
}
