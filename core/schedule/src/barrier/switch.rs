//! In-switch barrier of the network (Hoefler 2005, section 3.1): every rank sends a message to the switch, which
//! answers all ranks when it has received all messages: o + L + o_p(P) + L + o.

use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::Schedule;

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Barrier,
    name: "switch",
    source: "Hoefler 2005 (Evaluation of publicly available Barrier-Algorithms and Improvement of the Barrier-Operation), section 3.1",
    applies: |call| call.switch && call.size > 1,
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let mut s = call.builder(0);
    s.enter_switch();
    s.done()
}
