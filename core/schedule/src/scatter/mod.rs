//! Scatters: one rank sends every rank a different block.

mod binomial;
mod chain;
mod direct;
pub(super) mod flat;
pub(super) mod k_nomial;

use super::operation::{Algorithm, Call};
use super::schedule::{Buffer, Schedule, Slice};
use super::tree::Place;

/// All scatter algorithms.
pub(crate) const ALGORITHMS: &[&Algorithm] =
    &[&flat::ALGORITHM, &chain::ALGORITHM, &binomial::ALGORITHM, &k_nomial::ALGORITHM, &direct::ALGORITHM];

/// Scatters down a tree: a message has the blocks of a subtree. A rank receives its own block into the output and the
/// others into scratch; the root sends from its input, whose blocks need not be moved into the order of the tree.
fn down(call: &Call<'_>, place: &Place) -> Schedule {
    let p = call.size;
    let mut s = call.builder(1);
    let blocks = |first: u32, count: u32| Slice::wrapped(Buffer::Input, call.absolute(first), count, p);
    let Some(parent) = place.parent else {
        for child in &place.children {
            s.send(call.absolute(child.start), 0, &blocks(child.start, child.end - child.start));
        }
        if !call.in_place {
            s.copy(&blocks(0, 1), &[Slice::output(0, 1)]);
        }
        return s.done();
    };
    let below = place.subtree.start + 1..place.subtree.end;
    let others = s.scratch(below.clone().map(|n| call.absolute(n)));
    s.receive(call.absolute(parent), 0, &[Slice::output(0, 1), others]);
    for child in &place.children {
        s.send(call.absolute(child.start), 0, &[others.part(child.start - below.start, child.end - child.start)]);
    }
    s.done()
}
