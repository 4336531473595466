//! Flat tree with a window: the root permits a limited number of ranks to send at the same time, and the next rank when
//! an earlier block has arrived, so that few large blocks arrive at the root's port at the same time. Only the root
//! needs to know the sizes.

use crate::operation::{Algorithm, Call, Operation, Parameter};
use crate::schedule::{Schedule, Slice};

/// This algorithm's entry in the [table](crate::table).
pub(crate) const ALGORITHM: Algorithm = Algorithm {
    operation: Operation::Gather,
    name: "flat-window",
    source: "Open MPI, linear gather with synchronisation; Pješivac-Grbović, Fagg, Angskun, Bosilca, Dongarra 2006",
    parameters: &[Parameter {
        name: "window",
        default: 2,
        least: 1,
        most: 1 << 16,
        help: "ranks that may send at a time",
    }],
    build,
    ..Algorithm::PLAIN
};

const READY: u32 = 0;
const DATA: u32 = 0;

fn build(call: &Call<'_>) -> Schedule {
    let (p, window) = (call.size, call.parameters[0]);
    let mut s = call.builder(1);
    if call.rank != call.root {
        s.wait(call.root, READY);
        s.send(call.root, DATA, &[Slice::input(0, 1)]);
        return s.done();
    }
    let block = |number: u32| Slice::output(call.absolute(number), 1);
    for number in 1..p {
        let freed = number.checked_sub(window).filter(|n| *n > 0).map(block);
        s.signal_after(call.absolute(number), READY, freed.as_slice());
        s.receive(call.absolute(number), DATA, &[block(number)]);
    }
    s.copy(&[Slice::input(0, 1)], &[block(0)]);
    s.done()
}
