//! Binomial tree, up and down (Blelloch 1990; Brent, Kung 1982): upwards, rank r receives partial results of the 1, 2,
//! 4, .. ranks before it, one for each factor two of r + 1; downwards, a rank that has the whole prefix sends it to
//! ranks that lack it. Less than 2 ⌈log2 P⌉ rounds, but fewer than 2 P messages and reductions in all, where recursive
//! doubling has P log2 P.

use super::Prefix;
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::Schedule;

/// Inclusive scan.
pub(crate) const SCAN: Algorithm = Algorithm {
    operation: Operation::Scan,
    name: "binomial",
    source: "Brent, Kung 1982; Blelloch 1990; Sanders, Traeff 2006, section 2 (binomial tree)",
    build,
    ..Algorithm::PLAIN
};

/// Exclusive scan.
pub(crate) const EXSCAN: Algorithm = Algorithm { operation: Operation::Exscan, build, ..SCAN };

fn build(call: &Call<'_>) -> Schedule {
    let (p, me) = (call.size, call.rank);
    let mut s = call.builder(1);
    // The level of rank r is the lowest 1 bit of r + 1: there it sends upwards and receives downwards.
    let level = (me + 1).trailing_zeros();
    let gives_up = p - me > 1 << level;
    let gives_down = |k: u32| p - me > 1 << k;
    let last_down = (0..level).any(gives_down);
    let mut prefix = Prefix::new(call, &mut s, gives_up || last_down);
    for k in 0..level {
        prefix.receive(&mut s, me - (1 << k), 0, gives_up || last_down);
    }
    if gives_up {
        s.send(me + (1 << level), 0, &[prefix.with_own]);
    }
    if me >= 1 << level {
        prefix.receive(&mut s, me - (1 << level), 1, last_down);
    }
    for k in (0..level).rev().filter(|k| gives_down(*k)) {
        s.send(me + (1 << k), 1, &[prefix.with_own]);
    }
    s.done()
}
