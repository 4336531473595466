//! Recursive doubling (Kogge, Stone 1973; Hillis, Steele 1986): in round k, rank r sends its partial result, of 2^k
//! ranks, to r + 2^k. ⌈log2 P⌉ rounds of the whole vector, for every P; a scan reduces once in a round, an exscan
//! twice.

use super::Prefix;
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::Schedule;

/// Inclusive scan.
pub(crate) const SCAN: Algorithm = Algorithm {
    operation: Operation::Scan,
    name: "recursive-doubling",
    source: "Kogge, Stone 1973; Hillis, Steele 1986; Sanders, Traeff 2006, section 2 (simultaneous binomial trees)",
    build,
    ..Algorithm::PLAIN
};

/// Exclusive scan.
pub(crate) const EXSCAN: Algorithm = Algorithm { operation: Operation::Exscan, build, ..SCAN };

fn build(call: &Call<'_>) -> Schedule {
    let (p, me) = (call.size, call.rank);
    let mut s = call.builder(1);
    let sends = |round: u32| p - me > 1 << round;
    let mut prefix = Prefix::new(call, &mut s, sends(0));
    for round in 0..p.next_power_of_two().ilog2() {
        if sends(round) {
            s.send(me + (1 << round), 0, &[prefix.with_own]);
        }
        if me >= 1 << round {
            prefix.receive(&mut s, me - (1 << round), 0, sends(round + 1));
        }
    }
    s.done()
}
