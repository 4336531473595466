//! Direct: every rank reads its block of each other rank from its place: P - 1 blocks, each copied once.

use crate::direct::{LOAN, with_loans};
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Schedule, Slice};

/// The algorithm.
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Alltoall,
    name: "direct",
    source: "Ma, Bosilca, Bouteiller, Goglin, Squyres, Dongarra 2011 (kernel-assisted collectives)",
    applies: |call| call.lends,
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me) = (call.size, call.rank);
    let mut s = call.builder(0);
    with_loans(
        call,
        &mut s,
        |to| Some([vec![Slice::input(to, 1)], vec![]]),
        |_| true,
        |s| {
            s.copy(&[Slice::input(me, 1)], &[Slice::output(me, 1)]);
            for source in (1..p).map(|i| (me + p - i) % p) {
                s.read_lent(source, LOAN, 0, &[Slice::output(source, 1)]);
            }
        },
    );
    s.done()
}
