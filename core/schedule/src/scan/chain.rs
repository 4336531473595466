//! Chain: rank r receives the prefix of rank r - 1, adds its contribution, and sends it to rank r + 1. With `segments`
//! parts of the vector, the ranks work on different parts at the same time: P + segments - 2 rounds of a part each. One
//! segment is the linear algorithm.

use crate::operation::{Algorithm, Call, Operation, Parameter};
use crate::schedule::{Schedule, Side, Slice};

/// Inclusive scan.
pub(crate) const SCAN: Algorithm = Algorithm {
    operation: Operation::Scan,
    name: "chain",
    source: "Sanders, Traeff 2006, section 2 (linear pipeline)",
    parameters: &[Parameter { name: "segments", default: 1, least: 1, most: 1024, help: "parts of the vector" }],
    build,
    ..Algorithm::PLAIN
};

/// Exclusive scan.
pub(crate) const EXSCAN: Algorithm = Algorithm { operation: Operation::Exscan, build, ..SCAN };

fn build(call: &Call<'_>) -> Schedule {
    let (p, me) = (call.size, call.rank);
    let parts = u64::from(call.parameters[0]).min(call.elements).max(1) as u32;
    let mut s = call.builder(parts);
    let (has_next, has_previous) = (me + 1 < p, me > 0);
    let scratch = call.operation == Operation::Exscan && has_next && has_previous;
    let scratch = scratch.then(|| s.scratch_like(Slice::input(0, parts)));
    for part in 0..parts {
        let (own, result) = ([Slice::input(part, 1)], [Slice::output(part, 1)]);
        let mut prefix = own;
        if call.operation == Operation::Scan {
            prefix = result;
            s.copy(&own, &result);
            if has_previous {
                s.receive_reduce(me - 1, part, Side::Left, &result);
            }
        } else if has_previous {
            if let Some(scratch) = scratch {
                prefix = [scratch.part(part, 1)];
                s.copy(&own, &prefix);
            }
            s.receive(me - 1, part, &result);
            if has_next {
                s.reduce(&result, Side::Left, &prefix);
            }
        }
        if has_next {
            s.send(me + 1, part, &prefix);
        }
    }
    s.done()
}
