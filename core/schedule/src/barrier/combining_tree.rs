//! Combining tree (Yew, Tzeng, Lawrie 1987): groups of n ranks signal their first rank; these ranks form groups again,
//! until one rank is left, which releases the others over a binomial tree. ⌈log_n P⌉ + ⌈log2 P⌉ rounds; the paper found
//! n = 4 best.

use crate::operation::{Algorithm, Call, Operation, Parameter};
use crate::schedule::Schedule;

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Barrier,
    name: "combining-tree",
    source: "Yew, Tzeng, Lawrie 1987; Hoefler 2005, section 2.2.1.2",
    parameters: &[Parameter { name: "n", default: 4, least: 2, most: 64, help: "ranks of a group" }],
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let mut s = call.builder(0);
    super::fan_in(&mut s, call.parameters[0]);
    super::binomial_spanning_tree::release(&mut s);
    s.done()
}
