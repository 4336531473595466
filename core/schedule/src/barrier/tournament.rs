//! Tournaments: in each round the winner, known in advance, awaits the losers, which drop out; the champion, rank 0,
//! releases all over a binomial tree.
//!
//! - `tournament` (Hensgen, Finkel, Manber 1988): two ranks in a game, ⌈log2 P⌉ rounds before the release.
//! - `f-way-tournament` (Grunwald, Vajracharya 1994): up to f ranks in a game, ⌈log_f P⌉ rounds. Games have the fewest
//!   ranks that suffice for this number of rounds, so that all rounds take the same time: P = 9, f = 8 is two rounds of
//!   three ranks.

use crate::operation::{Algorithm, Call, Operation, Parameter};
use crate::schedule::Schedule;

/// Two ranks in a game.
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Barrier,
    name: "tournament",
    source: "Hensgen, Finkel, Manber 1988; Hoefler 2005, section 2.2.1.3",
    build: |call| build(call, 2),
    ..Algorithm::PLAIN
};

/// Up to f ranks in a game.
pub(crate) const F_WAY: Algorithm = Algorithm {
    name: "f-way-tournament",
    source: "Grunwald, Vajracharya 1994; Hoefler 2005, section 2.2.1.4",
    parameters: &[Parameter { name: "f", default: 8, least: 2, most: 64, help: "maximum number of ranks in a game" }],
    build: |call| build(call, even(call.size, call.parameters[0])),
    ..ALGORITHM
};

/// The smallest number of ranks in a game that needs no more rounds than `f`.
fn even(p: u32, f: u32) -> u32 {
    let rounds = |f: u32| (0..).find(|k| u64::from(f).pow(*k) >= u64::from(p)).unwrap_or(0);
    (2..f).find(|g| rounds(*g) == rounds(f)).unwrap_or(f)
}

fn build(call: &Call<'_>, f: u32) -> Schedule {
    let mut s = call.builder(0);
    super::fan_in(&mut s, f);
    super::binomial_spanning_tree::release(&mut s);
    s.done()
}
