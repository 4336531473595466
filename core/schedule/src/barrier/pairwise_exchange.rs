//! Exchanges within growing groups, for any P. The number of participating ranks is the largest power of n + 1 up to P;
//! a rank beyond them signals one of them first, and is signalled by it at the end.
//!
//! - `pairwise-exchange` (Gupta, Tipparaju, Nieplocha, Panda 2002): n = 1, recursive doubling. ⌊log2 P⌋ rounds, and two
//!   more if P is not a power of two.
//! - `n-wise-exchange` (Hoefler 2005): in round k, the n + 1 ranks whose numbers differ only in digit k to the base n +
//!   1 signal each other. ⌊log_{n+1} P⌋ rounds, and two more if P is not a power of n + 1. Up to n of the ranks beyond
//!   then signal the same rank.

use crate::operation::{Algorithm, Call, Operation, Parameter};
use crate::schedule::Schedule;

/// Pairwise exchange.
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Barrier,
    name: "pairwise-exchange",
    source: "Gupta, Tipparaju, Nieplocha, Panda 2002; Hoefler 2005, section 2.2.2.2",
    build: |call| build(call, 1),
    ..Algorithm::PLAIN
};

/// Exchange in groups of n + 1.
pub(crate) const N_WISE: Algorithm = Algorithm {
    name: "n-wise-exchange",
    source: "Hoefler 2005, section 2.2.6.2",
    parameters: &[Parameter { name: "n", default: 3, least: 1, most: 64, help: "partners of a round" }],
    build: |call| build(call, call.parameters[0]),
    ..ALGORITHM
};

fn build(call: &Call<'_>, n: u32) -> Schedule {
    let (p, me, base) = (u64::from(call.size), u64::from(call.rank), u64::from(n) + 1);
    let rounds = p.ilog(base);
    let most = base.pow(rounds);
    let mut s = call.builder(0);
    if me >= most {
        let partner = (me % most) as u32;
        s.signal(partner, 0);
        s.wait(partner, 0);
        return s.done();
    }
    let beyond = || (me..p).step_by(most as usize).skip(1).map(|r| r as u32);
    beyond().for_each(|r| s.wait(r, 0));
    for stride in (0..rounds).map(|k| base.pow(k)) {
        let digit = me / stride % base;
        let peer = |i: u64| (me - digit * stride + (digit + i) % base * stride) as u32;
        (1..base).for_each(|i| s.signal(peer(i), 0));
        (1..base).rev().for_each(|i| s.wait(peer(i), 0));
    }
    beyond().for_each(|r| s.signal(r, 0));
    s.done()
}
