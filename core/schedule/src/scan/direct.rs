//! Direct: a vector of P parts; every rank reduces its part from the vectors of all ranks, one after the other in their
//! order, and writes each rank its result: 2m(1 - 1/P) elements.

use crate::direct::{LOAN, with_loans};
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Builder, Schedule, Side, Slice};

/// Inclusive scan.
pub(crate) const SCAN: Algorithm = Algorithm {
    operation: Operation::Scan,
    name: "direct",
    source: "Hashmi, Chakraborty, Bayatpour, Subramoni, Panda 2018 (shared address space reductions), applied to prefixes",
    applies: |call| call.lends,
    build,
    ..Algorithm::PLAIN
};

/// Exclusive scan.
pub(crate) const EXSCAN: Algorithm = Algorithm { operation: Operation::Exscan, build, ..SCAN };

fn build(call: &Call<'_>) -> Schedule {
    let (me, is_scan) = (call.rank, call.operation == Operation::Scan);
    let parts = call.parts(call.size);
    let mut s = call.builder(parts);
    // An exclusive scan has no result at rank 0, and does not need the vector of the last rank.
    let (has_result, is_needed) = (is_scan || me > 0, is_scan || me + 1 < call.size);
    let some = |has: bool, slice: Slice| if has { vec![slice] } else { vec![] };
    let lent =
        |to: u32| (to < parts).then(|| [some(is_needed, Slice::input(to, 1)), some(has_result, Slice::output(to, 1))]);
    with_loans(
        call,
        &mut s,
        lent,
        |_| me < parts,
        |s| {
            if me < parts {
                part(call, s, is_scan);
            }
        },
    );
    s.done()
}

/// The results of all ranks in this rank's part.
fn part(call: &Call<'_>, s: &mut Builder, is_scan: bool) {
    let (p, me) = (call.size, call.rank);
    let (own, output) = (Slice::input(me, 1), Slice::output(me, 1));
    let sum = s.scratch_like(own);
    let give = |s: &mut Builder, rank: u32| match rank == me {
        true => s.copy(&[sum], &[output]),
        false => s.write_lent(rank, LOAN, 0, &[sum]),
    };
    // A rank's contribution is read before its result is written, which in place is at the same location.
    let received = if is_scan || p < 3 { None } else { Some(s.scratch_like(own)) };
    for rank in 0..p {
        let into = received.filter(|_| rank > 0).unwrap_or(sum);
        match (rank == me, rank == 0 || !is_scan) {
            _ if !is_scan && rank + 1 == p => {}
            (true, true) => s.copy(&[own], &[into]),
            (false, true) => s.read_lent(rank, LOAN, 0, &[into]),
            (true, false) => s.reduce(&[own], Side::Right, &[sum]),
            (false, false) => s.reduce_lent(rank, LOAN, 0, Side::Right, &[sum]),
        }
        if is_scan || rank > 0 {
            give(s, rank);
        }
        if let Some(received) = received.filter(|_| rank > 0 && rank + 1 < p) {
            s.reduce(&[received], Side::Right, &[sum]);
        }
    }
}
