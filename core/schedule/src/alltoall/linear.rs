//! Linear, spread: rank r sends to r + 1, r + 2, .. and receives from r - 1, r - 2, .. modulo P, so that ranks do not
//! all send to the same rank. A window of w exchanges only w blocks in each direction before the next w blocks; with w
//! = 1 this is the ring exchange. P - 1 messages of one block.

use super::{begun, exchange};
use crate::operation::{Algorithm, Call, Operation, Parameter};
use crate::schedule::Schedule;

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Alltoall,
    name: "linear",
    source: "Thakur, Rabenseifner, Gropp 2005, section 4.3",
    parameters: &[Parameter { name: "window", default: 0, least: 0, most: 1024, help: "peers at a time; 0 is all" }],
    one_round: |call| call.parameters == [0],
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me, window) = (call.size, call.rank, call.parameters[0]);
    let mut s = begun(call);
    for i in 1..p {
        exchange(&mut s, call, (me + i) % p, (me + p - i) % p);
        if window > 0 && i % window == 0 {
            s.fence();
        }
    }
    s.done()
}
