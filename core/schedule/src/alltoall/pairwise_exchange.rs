//! Pairwise exchange: P - 1 rounds, in round i with rank r XOR i if P is a power of two, else to r + i and from r - i
//! modulo P. One block is in progress in each direction at a time. Used for long blocks.

use super::{begun, exchange};
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::Schedule;

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Alltoall,
    name: "pairwise-exchange",
    source: "Thakur, Rabenseifner, Gropp 2005, section 4.3",
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me) = (call.size, call.rank);
    let mut s = begun(call);
    for i in 1..p {
        let (to, source) = if p.is_power_of_two() { (me ^ i, me ^ i) } else { ((me + i) % p, (me + p - i) % p) };
        exchange(&mut s, call, to, source);
        s.fence();
    }
    s.done()
}
