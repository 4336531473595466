//! Barrier in two levels: the ranks of each node signal their leader, the leaders make a barrier, and release the ranks
//! of their nodes.

use super::levels::{Levels, TAGS};
use super::{NAME, Part, SOURCE, between, inter, is_flat, parameters, scheduled};
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::Schedule;
use crate::tree::Place;

/// This algorithm's entry in the [table](crate::table).
pub(super) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Barrier,
    name: NAME,
    source: SOURCE,
    parameters: &parameters(inter(Operation::Barrier, false)),
    applies: |call| super::applies(call, false),
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let levels = Levels::of(call);
    let mut s = call.builder(0);
    let (number, size) = (levels.me, levels.own().len() as u32);
    let place = if is_flat(call) { Place::flat(number, size) } else { Place::k_nomial(2, number, size) };
    let (rank, [check_in, tags, release]) = (|number: u32| levels.own()[number as usize], TAGS);
    // The smallest subtrees complete first.
    place.children.iter().rev().for_each(|child| s.wait(rank(child.start), check_in));
    if let Some(parent) = place.parent {
        s.signal(rank(parent), check_in);
        s.wait(rank(parent), release);
    } else {
        let part = Part { ranks: &levels.leaders, tags, ..Part::default() };
        s.add_part(&scheduled(between(call, false), &levels.between(call, &[])), &part);
    }
    place.children.iter().for_each(|child| s.signal(rank(child.start), release));
    s.done()
}
