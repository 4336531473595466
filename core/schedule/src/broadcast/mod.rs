//! Broadcasts: all ranks get the vector of one rank.

mod binary;
pub mod binomial;
mod chain;
mod direct;
pub(super) mod flat;
mod k_ary;
mod k_nomial;
mod scatter_allgather;
mod split_binary;

use super::operation::{Algorithm, Call, Parameter};
use super::schedule::{Schedule, Slice};
use super::tree::Place;

/// All broadcast algorithms.
pub(crate) const ALGORITHMS: &[&Algorithm] = &[
    &flat::ALGORITHM,
    &flat::RENDEZVOUS,
    &chain::ALGORITHM,
    &chain::RENDEZVOUS,
    &binary::ALGORITHM,
    &k_ary::ALGORITHM,
    &split_binary::ALGORITHM,
    &binomial::ALGORITHM,
    &binomial::RENDEZVOUS,
    &k_nomial::ALGORITHM,
    &scatter_allgather::RING,
    &scatter_allgather::DOUBLING,
    &scatter_allgather::BRUCK,
    &direct::ALGORITHM,
];

const SEGMENTS: Parameter = Parameter {
    name: "segments",
    default: 1,
    least: 1,
    most: 1 << 16,
    help: "parts of the vector that are sent one after the other; no more than it has elements",
};

/// Broadcasts down a tree in segments: each segment goes to all children before the next one.
fn down(call: &Call<'_>, place: &Place, segments: u32) -> Schedule {
    let segments = call.parts(segments);
    let mut s = call.builder(segments);
    for segment in 0..segments {
        let block = [Slice::output(segment, 1)];
        if let Some(parent) = place.parent {
            s.receive(call.absolute(parent), segment, &block);
        }
        for child in &place.children {
            s.send(call.absolute(child.start), segment, &block);
        }
    }
    s.done()
}

/// Broadcasts down a tree with a rendezvous: each message follows a request of the sender and an answer of the
/// receiver, which then has a buffer for it. A rank sends its requests when it has the data itself.
fn down_by_rendezvous(call: &Call<'_>, place: &Place) -> Schedule {
    const HANDSHAKE: u32 = 0;
    const DATA: u32 = 1;
    let mut s = call.builder(1);
    let all = [Slice::output(0, 1)];
    if let Some(parent) = place.parent.map(|p| call.absolute(p)) {
        s.wait(parent, HANDSHAKE);
        s.signal(parent, HANDSHAKE);
        s.receive(parent, DATA, &all);
    }
    let children = place.children.iter().map(|c| call.absolute(c.start));
    for child in children.clone() {
        s.signal(child, HANDSHAKE);
    }
    for child in children {
        s.wait(child, HANDSHAKE);
        s.send(child, DATA, &all);
    }
    s.done()
}
