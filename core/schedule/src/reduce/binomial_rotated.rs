//! Binomial tree over the ranks counted from the root, so that the root is at its top: ⌈log2 P⌉ rounds for every root.
//! The contributions of the ranks before the root come last, so the operator must be commutative.

use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Builder, Schedule, Side, Slice};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Reduce,
    name: "binomial-rotated",
    source: "Thakur, Rabenseifner, Gropp 2005, section 4.3",
    commutative: true,
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let mut s = call.builder(1);
    tree(call, &mut s, call.relative(), |relative| call.absolute(relative));
    s.done()
}

/// Adds the steps of number `me` of the tree; `rank` maps the tree's numbers to ranks. Returns the slice in which the
/// top has the result.
pub(super) fn tree(call: &Call<'_>, s: &mut Builder, me: u32, rank: impl Fn(u32) -> u32) -> Option<Slice> {
    let at_root = call.rank == call.root;
    let (mut held, mut distance) = (Slice::input(0, 1), 1);
    let mut into = at_root.then_some(Slice::output(0, 1));
    if at_root && call.in_place {
        held = Slice::output(0, 1);
    }
    while distance < call.size {
        let tag = distance.ilog2();
        if me & distance != 0 {
            s.send(rank(me - distance), tag, &[held]);
            return None;
        }
        if me + distance < call.size {
            let into = *into.get_or_insert_with(|| s.scratch([0]));
            if held == into {
                s.receive_reduce(rank(me + distance), tag, Side::Right, &[into]);
            } else {
                s.receive(rank(me + distance), tag, &[into]);
                s.reduce(&[held], Side::Left, &[into]);
                held = into;
            }
        }
        distance *= 2;
    }
    if call.size == 1 {
        s.copy(&[Slice::input(0, 1)], &[Slice::output(0, 1)]);
    }
    Some(held)
}
