//! Linear: every rank sends its block to all others; P - 1 messages of one block each, one round if a rank may send to
//! all at the same time.

use super::{OWN, begun, receive, send};
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Schedule, Slice};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Allgather,
    name: "linear",
    source: "Pjesivac-Grbovic et al. 2007, section 3 (linear algorithms)",
    one_round: |_| true,
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me) = (call.size, call.rank);
    let mut s = begun(call);
    for i in 1..p {
        let source = (me + p - i) % p;
        receive(&mut s, call, source, 0, &[Slice::output(source, 1)]);
        send(&mut s, call, (me + i) % p, 0, &OWN);
    }
    s.done()
}
