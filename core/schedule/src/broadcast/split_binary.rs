//! Split binary tree: the root has two binary trees of equal size below it. Each passes down one half of the vector, in
//! segments; then each rank exchanges halves with its counterpart in the other tree. If P is even, one rank has no
//! counterpart and gets its second half from the root.

use super::SEGMENTS;
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Schedule, Slice};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Broadcast,
    name: "split-binary",
    source: "Pješivac-Grbović, Angskun, Bosilca, Fagg, Gabriel, Dongarra 2007 (Performance Analysis of MPI Collective \
             Operations), section 3",
    parameters: &[SEGMENTS],
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me) = (call.size, call.relative());
    let segments = call.parts(call.parameters[0]);
    let mut s = call.builder(2 * segments);
    let half = |side: u32| Slice::output(side * segments, segments);
    // Number n > 0 is node (n - 1) / 2 of tree (n - 1) % 2, whose nodes are numbered level by level.
    let number = |side: u32, node: u32| 2 * node + 1 + side;
    let exchange = segments;
    let alone = (p % 2 == 0).then(|| p - 1);
    if me == 0 {
        for segment in 0..segments {
            for side in (0..2).filter(|side| number(*side, 0) < p) {
                s.send(call.absolute(number(side, 0)), segment, &[half(side).part(segment, 1)]);
            }
        }
        if let Some(alone) = alone {
            s.send(call.absolute(alone), exchange, &[half(1)]);
        }
        return s.done();
    }
    let (side, node) = ((me - 1) % 2, (me - 1) / 2);
    let parent = if node == 0 { 0 } else { number(side, (node - 1) / 2) };
    for segment in 0..segments {
        let block = [half(side).part(segment, 1)];
        s.receive(call.absolute(parent), segment, &block);
        for child in [2 * node + 1, 2 * node + 2].map(|n| number(side, n)).into_iter().filter(|c| *c < p) {
            s.send(call.absolute(child), segment, &block);
        }
    }
    if alone == Some(me) {
        s.receive(call.root, exchange, &[half(1)]);
    } else {
        let counterpart = call.absolute(number(1 - side, node));
        s.send(counterpart, exchange, &[half(side)]);
        s.receive(counterpart, exchange, &[half(1 - side)]);
    }
    s.done()
}
