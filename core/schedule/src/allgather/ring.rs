//! Ring: in each of P - 1 rounds a rank sends the block that it received last to the next rank. Every link transfers
//! the minimum number of bytes. Used for long blocks of any sizes.

use super::{OWN, begun, receive, send};
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Schedule, Slice};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Allgather,
    name: "ring",
    source: "Thakur, Rabenseifner, Gropp 2005, section 4.1",
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me) = (call.size, call.rank);
    let (next, previous) = ((me + 1) % p, (me + p - 1) % p);
    let mut s = begun(call);
    for round in 0..p - 1 {
        receive(&mut s, call, previous, round, &[Slice::output((previous + p - round) % p, 1)]);
        let got = [Slice::output((me + p - round) % p, 1)];
        send(&mut s, call, next, round, if round == 0 { &OWN } else { &got });
    }
    s.done()
}
