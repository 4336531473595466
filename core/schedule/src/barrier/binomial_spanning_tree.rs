//! Binomial spanning tree (Tzeng, Kongmunvattana 1997): the parent of a rank is its number without the highest bit.
//! Ranks report to rank 0 up the tree, and are released down the tree: 2 ⌈log2 P⌉ rounds.

use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Builder, Schedule};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Barrier,
    name: "binomial-spanning-tree",
    source: "Tzeng, Kongmunvattana 1997; Hoefler 2005, section 2.2.1.6",
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let mut s = call.builder(0);
    // The farthest child has the smallest subtree, so its signal comes first.
    children(&s).rev().for_each(|c| s.wait(c, 0));
    if let Some(parent) = parent(call.rank) {
        s.signal(parent, 0);
    }
    release(&mut s);
    s.done()
}

/// Rank 0 releases all ranks in ⌈log2 P⌉ rounds: in round i, each rank r below 2^i signals rank r + 2^i.
pub(super) fn release(s: &mut Builder) {
    if let Some(parent) = parent(s.rank()) {
        s.wait(parent, 0);
    }
    children(s).for_each(|c| s.signal(c, 0));
}

fn parent(rank: u32) -> Option<u32> {
    Some(rank - (1 << rank.checked_ilog2()?))
}

fn children(s: &Builder) -> impl DoubleEndedIterator<Item = u32> + use<> {
    let (p, me) = (u64::from(s.size()), u64::from(s.rank()));
    let distances = (0..32).map(|i| 1 << i).filter(move |d| *d > me && me + d < p);
    distances.map(move |d| (me + d) as u32)
}
