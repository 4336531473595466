//! Allgathers: every rank gets a block of every rank. Blocks are received directly into outputs, several in one message
//! if the algorithm does so; both sides omit a message whose blocks are all known to be empty.

pub mod bruck;
mod direct;
pub(super) mod linear;
mod neighbor_exchange;
mod recursive_doubling;
mod ring;

use super::operation::{Algorithm, Call};
use super::schedule::{Builder, Slice};

/// All allgather algorithms.
pub(crate) const ALGORITHMS: &[&Algorithm] = &[
    &linear::ALGORITHM,
    &ring::ALGORITHM,
    &neighbor_exchange::ALGORITHM,
    &recursive_doubling::ALGORITHM,
    &bruck::ALGORITHM,
    &direct::ALGORITHM,
];

/// A schedule with the copy of the rank's own block.
fn begun(call: &Call<'_>) -> Builder {
    let mut s = call.builder(0);
    s.copy(&[Slice::input(0, 1)], &[Slice::output(call.rank, 1)]);
    s
}

/// The rank's own block, before it is copied.
const OWN: [Slice; 1] = [Slice::input(0, 1)];

fn have_elements(call: &Call<'_>, blocks: &[Slice]) -> bool {
    if blocks == OWN {
        return call.has_elements(call.rank);
    }
    blocks.iter().flat_map(|s| s.blocks()).any(|b| call.has_elements(b))
}

/// Sends blocks, unless they are known to be empty.
fn send(s: &mut Builder, call: &Call<'_>, to: u32, tag: u32, blocks: &[Slice]) {
    if have_elements(call, blocks) {
        s.send(to, tag, blocks);
    }
}

/// Receives the blocks that [`send`] sends.
fn receive(s: &mut Builder, call: &Call<'_>, source: u32, tag: u32, blocks: &[Slice]) {
    if have_elements(call, blocks) {
        s.receive(source, tag, blocks);
    }
}

/// Blocks of `count` ranks from `first` on, modulo P.
fn blocks(p: u32, first: u32, count: u32) -> [Slice; 2] {
    let first = first % p;
    let before_end = count.min(p - first);
    [Slice::output(first, before_end), Slice::output(0, count - before_end)]
}
