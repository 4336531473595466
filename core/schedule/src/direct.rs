//! Direct algorithms: the ranks share a node, lend each other the buffers of the call, and read, reduce and write data
//! at its final location. A rank lends to the ranks that access its buffers, and waits until they have returned the
//! loans: two messages without data for each pair of ranks, whatever the length.

use super::operation::{Call, Parameter};
use super::schedule::{Builder, Schedule, Side, Slice};

/// The tag of all loans: there is at most one loan from a rank to another.
pub(super) const LOAN: u32 = 0;

/// The number of segments in which a rank reduces its part of a vector.
pub(super) const PIECES: Parameter = Parameter {
    name: "pieces",
    default: 1,
    least: 1,
    most: 512,
    help: "pieces of the vector, rounded up to as many for each rank; a short one stays in the cache until it is written",
};

/// Adds the steps of `work` between the messages of the loans. `lent(to)` returns the blocks that this rank lends to
/// rank `to` to be read and to be written, if any; `lends(source)` returns whether rank `source` lends to this rank.
pub(super) fn with_loans(
    call: &Call<'_>,
    s: &mut Builder,
    lent: impl Fn(u32) -> Option<[Vec<Slice>; 2]>,
    lends: impl Fn(u32) -> bool,
    work: impl FnOnce(&mut Builder),
) {
    let (p, me) = (call.size, call.rank);
    // Each rank begins with the next rank, so that ranks do not all serve or access the same rank first.
    let others = || (1..p).map(|i| (me + i) % p);
    let borrowers = || others().filter_map(|to| Some((to, lent(to)?)));
    let lenders = || others().filter(|source| lends(*source));
    borrowers().for_each(|(to, [read, written])| s.lend(to, LOAN, &read, &written));
    lenders().for_each(|source| s.borrow(source, LOAN));
    work(s);
    lenders().for_each(|source| s.give_back(source, LOAN));
    borrowers().for_each(|(to, _)| s.reclaim(to, LOAN));
}

/// The schedule by which every rank reads a block of each other rank, and copies its own. `input(to)` is this rank's
/// block for rank `to`.
pub(super) fn read_from_all(call: &Call<'_>, input: impl Fn(u32) -> Slice) -> Schedule {
    let (p, me) = (call.size, call.rank);
    let mut s = call.builder(0);
    with_loans(
        call,
        &mut s,
        |to| Some([vec![input(to)], vec![]]),
        |_| true,
        |s| {
            s.copy(&[input(me)], &[Slice::output(me, 1)]);
            for source in (1..p).map(|i| (me + p - i) % p) {
                s.read_lent(source, LOAN, 0, &[Slice::output(source, 1)]);
            }
        },
    );
    s.done()
}

/// The parts of a vector that a rank reduces, if each rank reduces `each` of `parts`.
pub(super) fn parts_of(rank: u32, each: u32, parts: u32) -> (u32, u32) {
    let first = (rank * each).min(parts);
    (first, each.min(parts - first))
}

/// Reduces the block with number `number` in the loans of all other ranks, and this rank's `own` block, into `sum`, in
/// the order of the ranks. In place `sum` has the content of `own`.
pub(super) fn reduce_in_order(call: &Call<'_>, s: &mut Builder, number: u32, own: Slice, sum: Slice, in_place: bool) {
    if in_place {
        (0..call.rank).rev().for_each(|rank| s.reduce_lent(rank, LOAN, number, Side::Left, &[sum]));
        (call.rank + 1..call.size).for_each(|rank| s.reduce_lent(rank, LOAN, number, Side::Right, &[sum]));
        return;
    }
    for rank in 0..call.size {
        match (rank, rank == call.rank) {
            (0, true) => s.copy(&[own], &[sum]),
            (0, false) => s.read_lent(0, LOAN, number, &[sum]),
            (_, true) => s.reduce(&[own], Side::Right, &[sum]),
            (_, false) => s.reduce_lent(rank, LOAN, number, Side::Right, &[sum]),
        }
    }
}
