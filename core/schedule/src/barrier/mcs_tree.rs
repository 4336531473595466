//! MCS tree (Mellor-Crummey, Scott 1991, section 3.5): ranks signal their parents in a tree in which rank r has the
//! children n r + 1 to n r + n, and are woken over another tree with w children each. The paper uses n = 4 and w = 2.

use crate::operation::{Algorithm, Call, Operation, Parameter};
use crate::schedule::Schedule;

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Barrier,
    name: "mcs-tree",
    source: "Mellor-Crummey, Scott 1991; Hoefler 2005, section 2.2.1.5",
    parameters: &[
        Parameter { name: "n", default: 4, least: 1, most: 64, help: "children of a rank at arrival" },
        Parameter { name: "w", default: 2, least: 1, most: 64, help: "children of a rank at wakeup" },
    ],
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let (p, me, n, w) = (call.size, call.rank, call.parameters[0], call.parameters[1]);
    let children =
        |n: u32| me.saturating_mul(n).saturating_add(1).min(p)..me.saturating_add(1).saturating_mul(n).min(p - 1) + 1;
    let mut s = call.builder(0);
    // The subtree of a later child is never larger than that of an earlier one, so later children are awaited first.
    children(n).rev().for_each(|c| s.wait(c, 0));
    if me > 0 {
        s.signal((me - 1) / n, 0);
        s.wait((me - 1) / w, 0);
    }
    children(w).for_each(|c| s.signal(c, 0));
    s.done()
}
