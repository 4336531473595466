//! Bruck et al. 1997: in round k, rank r sends its 2^k blocks to r - 2^k, and receives as many from r + 2^k, in the
//! last round only the missing ones; ⌈log2 P⌉ rounds for every P. Blocks that wrap around are two slices of one
//! message, so no rotation is needed at the end.

use super::{begun, blocks, receive, send};
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::Schedule;

/// This algorithm's entry in the [table](crate::table).
pub const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Allgather,
    name: "bruck",
    source: "Bruck, Ho, Kipnis, Upfal, Weathersby 1997, section 4; Thakur, Rabenseifner, Gropp 2005, section 4.1",
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me) = (call.size, call.rank);
    let mut s = begun(call);
    let mut have = 1;
    while have < p {
        let count = have.min(p - have);
        receive(&mut s, call, (me + have) % p, 0, &blocks(p, me + have, count));
        send(&mut s, call, (me + p - have) % p, 0, &blocks(p, me, count));
        have += count;
    }
    s.done()
}
