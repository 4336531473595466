//! Direct: every rank reads the root's vector in place, all at the same time. If `root-writes`, the vector has P parts,
//! and the root, which would only wait, writes the last one to every other rank: each rank copies P - 1 parts.

use crate::direct::{LOAN, with_loans};
use crate::operation::{Algorithm, Call, Operation, Parameter};
use crate::schedule::{Schedule, Slice};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Broadcast,
    name: "direct",
    source: "Ma, Bosilca, Bouteiller, Goglin, Squyres, Dongarra 2011 (kernel-assisted collectives)",
    parameters: &[Parameter {
        name: "root-writes",
        default: 1,
        least: 0,
        most: 1,
        help: "1 if the root writes one of P parts to the other ranks, which read the others",
    }],
    applies: |call| call.lends,
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, root) = (call.size, call.root);
    let parts = if call.parameters[0] == 1 { call.parts(p) } else { 1 };
    let mut s = call.builder(parts);
    let (is_root, written) = (call.rank == root, if parts > 1 { 1 } else { 0 });
    let (read, written) = (Slice::output(0, parts - written), Slice::output(parts - written, written));
    let lent = |to: u32| match is_root {
        true => Some([vec![read], vec![]]),
        false => (to == root && written.count > 0).then(|| [vec![], vec![written]]),
    };
    let lends = |source: u32| source == root || is_root && written.count > 0;
    with_loans(call, &mut s, lent, lends, |s| match is_root {
        false => s.read_lent(root, LOAN, 0, &[read]),
        true if written.count > 0 => {
            (1..p).for_each(|i| s.write_lent(call.absolute(i), LOAN, 0, &[written]));
        }
        true => {}
    });
    s.done()
}
