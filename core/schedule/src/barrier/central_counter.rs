//! Central counter (Freudenthal, Gottlieb 1991): all ranks signal rank 0, which signals all when it has counted them.
//! 2 rounds; rank 0 handles 2 (P - 1) signals.

use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::Schedule;

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Barrier,
    name: "central-counter",
    source: "Freudenthal, Gottlieb 1991; Hoefler 2005, section 2.2.1.1",
    build,
    ..Algorithm::PLAIN
};

fn build(call: &Call<'_>) -> Schedule {
    let mut s = call.builder(0);
    if call.rank == 0 {
        (1..call.size).for_each(|r| s.wait(r, 0));
        (1..call.size).for_each(|r| s.signal(r, 0));
    } else {
        s.signal(0, 0);
        s.wait(0, 0);
    }
    s.done()
}
