//! Neighbour exchange (Chen, Zhang, Zhang, Yuan 2005), for even P: ranks 2j and 2j + 1 exchange their blocks, then
//! every rank exchanges the two blocks that it received last, alternately with its other neighbour and with the first
//! one. P/2 rounds, half of those of the ring, between neighbours only.

use super::{OWN, begun, receive, send};
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Schedule, Slice};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Allgather,
    name: "neighbor-exchange",
    source: "Chen, Zhang, Zhang, Yuan 2005",
    applies: |call| call.size % 2 == 0,
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me) = (call.size, call.rank);
    let (pairs, pair, is_even) = (p / 2, me / 2, me % 2 == 0);
    // `from` moved by `n` along the ring, towards higher or lower ranks.
    let moved = |from: u32, n: u32, up: bool, ring: u32| if up { (from + n) % ring } else { (from + ring - n) % ring };
    let blocks_of = |pair: u32| [Slice::output(2 * pair, 2)];
    let mut s = begun(call);
    let partner = me ^ 1;
    receive(&mut s, call, partner, 0, &[Slice::output(partner, 1)]);
    send(&mut s, call, partner, 0, &OWN);
    let mut got = pair;
    for round in 1..pairs {
        // In odd rounds an even rank exchanges with its lower neighbour and an odd rank with its higher one; each gets
        // the blocks that the pair on that side has received from a more distant pair.
        let up = is_even == (round % 2 == 0);
        let peer = moved(me, 1, up, p);
        let next = moved(pair, round.div_ceil(2), up, pairs);
        receive(&mut s, call, peer, round, &blocks_of(next));
        send(&mut s, call, peer, round, &blocks_of(got));
        got = next;
    }
    s.done()
}
