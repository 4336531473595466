//! Recursive doubling: in round k, ranks r and r XOR 2^k exchange all their 2^k blocks; ⌈log2 P⌉ rounds. If P is not a
//! power of two, each rank beyond the largest power of two below P first sends its block to a partner below, and gets
//! all other blocks from it at the end: two rounds more.

use super::{OWN, begun, receive, send};
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Schedule, Slice};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Allgather,
    name: "recursive-doubling",
    source: "Thakur, Rabenseifner, Gropp 2005, section 4.1",
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me) = (call.size, call.rank);
    let rounds = p.ilog2();
    let most = 1 << rounds;
    let mut s = begun(call);
    let all_but = |r: u32| [Slice::output(0, r), Slice::output(r + 1, p - r - 1)];
    if me >= most {
        send(&mut s, call, me - most, 0, &OWN);
        receive(&mut s, call, me - most, 0, &all_but(me));
        return s.done();
    }
    let partner = Some(me + most).filter(|r| *r < p);
    if let Some(r) = partner {
        receive(&mut s, call, r, 0, &[Slice::output(r, 1)]);
    }
    for round in 0..rounds {
        let peer = me ^ 1 << round;
        // The blocks of a rank in this round: those of its group, and of the partners of the group.
        let of = |r: u32| {
            let first = r >> round << round;
            let beyond = (first + most).min(p);
            [Slice::output(first, 1 << round), Slice::output(beyond, (p - beyond).min(1 << round))]
        };
        receive(&mut s, call, peer, 0, &of(peer));
        send(&mut s, call, peer, 0, &of(me));
    }
    if let Some(r) = partner {
        send(&mut s, call, r, 0, &all_but(r));
    }
    s.done()
}
