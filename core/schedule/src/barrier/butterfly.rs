//! Butterfly (Brooks 1986): in round i, rank r and rank r XOR 2^i signal each other; ⌈log2 P⌉ rounds. If P is not a
//! power of two, rank r also plays the missing rank r + P, and so signals up to twice in a round.

use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::Schedule;

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Barrier,
    name: "butterfly",
    source: "Brooks 1986; Hoefler 2005, section 2.2.2.1",
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me) = (call.size, call.rank);
    let rounds = p.next_power_of_two().ilog2();
    let peers = |rank: u32, round: u32| {
        let played = [rank, rank + p].into_iter().filter(|v| *v >> rounds == 0);
        let mut peers: Vec<u32> = played.map(|v| (v ^ 1 << round) % p).filter(|r| *r != rank).collect();
        peers.dedup();
        peers
    };
    let mut s = call.builder(0);
    for round in 0..rounds {
        let mut peers_now = peers(me, round);
        peers_now.iter().for_each(|r| s.signal(*r, round));
        // Ranks whose first signal goes to this rank are awaited first.
        peers_now.sort_by_key(|r| peers(*r, round).first() != Some(&me));
        peers_now.iter().for_each(|r| s.wait(*r, round));
    }
    s.done()
}
