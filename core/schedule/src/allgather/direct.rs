//! Direct: every rank reads the block of each other rank from its place: P - 1 blocks, each copied once.

use crate::direct::{LOAN, with_loans};
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Schedule, Slice};

/// The algorithm.
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Allgather,
    name: "direct",
    source: "Ma, Bosilca, Bouteiller, Goglin, Squyres, Dongarra 2011 (kernel-assisted collectives)",
    applies: |call| call.lends,
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me) = (call.size, call.rank);
    let mut s = call.builder(0);
    let own = Slice::input(0, 1);
    with_loans(
        call,
        &mut s,
        |_| Some([vec![own], vec![]]),
        |_| true,
        |s| {
            s.copy(&[own], &[Slice::output(me, 1)]);
            for source in (1..p).map(|i| (me + p - i) % p) {
                s.read_lent(source, LOAN, 0, &[Slice::output(source, 1)]);
            }
        },
    );
    s.done()
}
