//! Dissemination (Hensgen, Finkel, Manber 1988), with n signals in each round (Hoefler et al. 2006): in round r rank p
//! signals p + i (n + 1)^r and awaits p - i (n + 1)^r, i = 1 to n, modulo P. ⌈log_{n+1} P⌉ rounds, n signals in each.

use crate::operation::{Algorithm, Call, Operation, Parameter};
use crate::schedule::Schedule;

/// This algorithm's entry in the [table](crate::table).
pub const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Barrier,
    name: "dissemination",
    source: "Hensgen, Finkel, Manber 1988; Hoefler, Mehlan, Mietke, Rehm 2006",
    parameters: &[Parameter { name: "n", default: 1, least: 1, most: 64, help: "signals of a round" }],
    one_round: |call| call.parameters[0] + 1 >= call.size,
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me, n) = (u64::from(call.size), u64::from(call.rank), u64::from(call.parameters[0]));
    let mut s = call.builder(0);
    let (mut distance, mut tag) = (1, 0);
    while distance < p {
        // If (n + 1)^(r + 1) is more than P, the last round omits distances that would wrap to ranks of earlier rounds.
        let peers: Vec<u64> = (1..=n).map(|i| i * distance).take_while(|d| *d < p).collect();
        for (i, d) in peers.iter().enumerate() {
            s.signal(((me + d) % p) as u32, tag + i as u32);
        }
        for (i, d) in peers.iter().enumerate() {
            s.wait(((me + p - d) % p) as u32, tag + i as u32);
        }
        distance *= n + 1;
        tag += n as u32;
    }
    s.done()
}
