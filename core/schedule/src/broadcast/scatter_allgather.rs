//! Scatter and allgather (van de Geijn): the vector is cut into P parts, which are scattered down a binomial tree and
//! then allgathered. In all, each rank receives the vector at most once, and the longest path transfers 2 (P - 1) / P
//! of it.
//!
//! The scatter leaves rank r, counted from the root, with the parts of its whole subtree; the allgather does not send
//! these parts to it again (Zhou, Marjanović, Niethammer, Gracia 2015, "A Bandwidth-saving Optimization for MPI
//! Broadcast Collective Operation"). So the root receives nothing.

use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Buffer, Builder, Schedule, Slice};
use crate::tree::Place;

/// Variant with the ring: P - 1 rounds of one part, always to the next rank.
pub(crate) const RING: Algorithm = Algorithm {
    operation: Operation::Broadcast,
    name: "scatter-ring",
    source: "Thakur, Rabenseifner, Gropp 2005, section 4.2; Barnett, Gupta, Payne, Shuler, van de Geijn, Watts 1994",
    build: |call| build(call, ring),
    ..Algorithm::PLAIN
};

/// Variant with recursive doubling: log2 P rounds, for P a power of two.
pub(crate) const DOUBLING: Algorithm = Algorithm {
    name: "scatter-doubling",
    applies: |c| c.size.is_power_of_two(),
    build: |call| build(call, doubling),
    ..RING
};

/// Variant with the allgather of Bruck: ⌈log2 P⌉ rounds for every P.
pub(crate) const BRUCK: Algorithm = Algorithm {
    name: "scatter-bruck",
    source: "Bruck, Ho, Kipnis, Upfal, Weathersby 1997, section 4, after a binomial scatter",
    build: |call| build(call, bruck),
    ..RING
};

const SCATTER: u32 = 0;
const ALLGATHER: u32 = 1;

fn build(call: &Call<'_>, allgather: fn(&Call<'_>, &mut Builder)) -> Schedule {
    let mut s = call.builder(call.size);
    let place = Place::k_nomial(2, call.relative(), call.size);
    let run = |of: &std::ops::Range<u32>| [Slice::output(of.start, of.end - of.start)];
    if let Some(parent) = place.parent {
        s.receive(call.absolute(parent), SCATTER, &run(&place.subtree));
    }
    for child in &place.children {
        s.send(call.absolute(child.start), SCATTER, &run(child));
    }
    allgather(call, &mut s);
    s.done()
}

/// Number of parts that a rank has after the scatter; its own part is the first.
fn held(call: &Call<'_>, number: u32) -> u32 {
    let subtree = Place::k_nomial(2, number, call.size).subtree;
    subtree.end - subtree.start
}

fn ring(call: &Call<'_>, s: &mut Builder) {
    let (p, me) = (call.size, call.relative());
    let (next, before) = ((me + 1) % p, (me + p - 1) % p);
    let (held_there, held_here) = (held(call, next), held(call, me));
    for round in 0..p - 1 {
        // The part is `round + 1` before the receiver's own, and so `p - 1 - round` after it.
        let after = p - 1 - round;
        if after >= held_there {
            s.send(call.absolute(next), ALLGATHER + round, &[Slice::output((next + after) % p, 1)]);
        }
        if after >= held_here {
            s.receive(call.absolute(before), ALLGATHER + round, &[Slice::output((me + after) % p, 1)]);
            // Without this fence, a part that this rank has from the scatter would be sent before the parts for which
            // the next ranks wait.
            s.fence();
        }
    }
}

fn doubling(call: &Call<'_>, s: &mut Builder) {
    let (p, me) = (call.size, call.relative());
    for round in 0..p.trailing_zeros() {
        let span = 1 << round;
        let partner = me ^ span;
        let group = |of: u32| [Slice::output(of & !(span - 1), span)];
        if held(call, partner) <= span {
            s.send(call.absolute(partner), ALLGATHER + round, &group(me));
        }
        if held(call, me) <= span {
            s.receive(call.absolute(partner), ALLGATHER + round, &group(partner));
        }
    }
}

fn bruck(call: &Call<'_>, s: &mut Builder) {
    let (p, me) = (call.size, call.relative());
    // In the round of distance d the receiver gets the parts d to 2 d - 1 after its own, except those that it already
    // has.
    let missing = |of: u32, distance: u32| {
        let (from, to) = (distance.max(held(call, of)), (2 * distance).min(p));
        (from < to).then(|| Slice::wrapped(Buffer::Output, (of + from) % p, to - from, p))
    };
    let (mut distance, mut round) = (1, 0);
    while distance < p {
        let (to, source) = ((me + p - distance) % p, (me + distance) % p);
        if let Some(parts) = missing(to, distance) {
            s.send(call.absolute(to), ALLGATHER + round, &parts);
        }
        if let Some(parts) = missing(me, distance) {
            s.receive(call.absolute(source), ALLGATHER + round, &parts);
        }
        distance *= 2;
        round += 1;
    }
}
