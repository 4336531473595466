//! Gathers: one rank gets a block from every rank.

mod binomial;
mod chain;
mod direct;
pub(super) mod flat;
mod flat_window;
mod k_nomial;

use super::operation::{Algorithm, Call};
use super::schedule::{Buffer, Schedule, Slice};
use super::tree::Place;

/// All gather algorithms.
pub(crate) const ALGORITHMS: &[&Algorithm] = &[
    &flat::ALGORITHM,
    &flat_window::ALGORITHM,
    &chain::ALGORITHM,
    &binomial::ALGORITHM,
    &k_nomial::ALGORITHM,
    &direct::ALGORITHM,
];

/// Gathers up a tree: a message has the blocks of a subtree, the sender's own from its input and the others from
/// scratch. The root receives into its output, where each block has its final location. The smallest subtrees are
/// received first, since they complete first.
fn up(call: &Call<'_>, place: &Place) -> Schedule {
    let p = call.size;
    let mut s = call.builder(1);
    let children = place.children.iter().rev();
    let blocks = |first: u32, count: u32| Slice::wrapped(Buffer::Output, call.absolute(first), count, p);
    let Some(parent) = place.parent else {
        for child in children {
            s.receive(call.absolute(child.start), 0, &blocks(child.start, child.end - child.start));
        }
        s.copy(&[Slice::input(0, 1)], &[Slice::output(call.root, 1)]);
        return s.done();
    };
    let below = place.subtree.start + 1..place.subtree.end;
    let others = s.scratch(below.clone().map(|n| call.absolute(n)));
    for child in children {
        s.receive(call.absolute(child.start), 0, &[others.part(child.start - below.start, child.end - child.start)]);
    }
    s.send(call.absolute(parent), 0, &[Slice::input(0, 1), others]);
    s.done()
}
