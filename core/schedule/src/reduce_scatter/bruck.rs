//! Bruck's allgather run backwards: in round k = ⌈log2 P⌉ - 1 to 0 rank r sends rank r + 2^k its partial results for
//! the ranks that are 2^k to 2^(k + 1) - 1 after r, and reduces the data that it receives into its partial results for
//! the ranks from itself on. ⌈log2 P⌉ rounds for every P, m(1 - 1/P) elements. Contributions are not reduced in the
//! order of the ranks.

use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Schedule, Side, Slice};

/// This algorithm's entry in the [table](crate::table).
pub const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::ReduceScatter,
    name: "bruck",
    source: "Bruck, Ho 1993; Bruck et al. 1997, reversed",
    commutative: true,
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me) = (call.size, call.rank);
    let mut s = call.builder(p);
    let rounds = p.next_power_of_two().ilog2();
    // Partial results by distance from this rank. Only distances of the lower half are reduced here; distance 0 is the
    // output.
    let half = p.next_power_of_two() / 2;
    let partial = s.scratch((1..half).map(|distance| (me + distance) % p));
    let reduced = |distance: u32| if distance == 0 { Slice::output(0, 1) } else { partial.part(distance - 1, 1) };
    let input = |distance: u32| Slice::input((me + distance) % p, 1);
    // Distances below this one have a partial result.
    let mut reduced_below = 0;
    for round in (0..rounds).rev() {
        let distance = 1 << round;
        let count = distance.min(p - distance);
        let sent = distance..distance + count;
        let from: Vec<_> = sent.map(|d| if d < reduced_below { reduced(d) } else { input(d) }).collect();
        s.send((me + distance) % p, round, &from);
        let source = (me + p - distance) % p;
        // The first operand is received directly as the partial result; later ones are reduced into it.
        let into: Vec<_> = (0..count).map(reduced).collect();
        if reduced_below == 0 {
            s.receive(source, round, &into);
            s.reduce(&(0..count).map(input).collect::<Vec<_>>(), Side::Right, &into);
            reduced_below = count;
        } else {
            let fresh: Vec<u32> = (reduced_below..count).collect();
            for d in fresh {
                s.copy(&[input(d)], &[reduced(d)]);
            }
            s.receive_reduce(source, round, Side::Left, &into);
            reduced_below = reduced_below.max(count);
        }
    }
    if p == 1 {
        s.copy(&[input(0)], &[reduced(0)]);
    }
    s.done()
}
