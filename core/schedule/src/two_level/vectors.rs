//! Operations on a vector in two levels. If the algorithm between the leaders divides the vector, all parts of the
//! schedule use its blocks.

use super::levels::{Levels, TAGS, are_consecutive};
use super::{Builder, COMMUTATIVE, NAME, Part, SOURCE, Slice, between, inter, parameters, scheduled, within};
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Buffer, Schedule};

/// The broadcast.
pub(super) const BROADCAST: Algorithm = Algorithm {
    operation: Operation::Broadcast,
    name: NAME,
    source: SOURCE,
    parameters: &parameters(inter(Operation::Broadcast, false)),
    applies: |call| super::applies(call, false),
    build: broadcast,
    ..Algorithm::PLAIN
};

/// The reduction, in the order of the ranks.
pub(super) const REDUCE: Algorithm = Algorithm {
    operation: Operation::Reduce,
    parameters: &parameters(inter(Operation::Reduce, false)),
    applies: |call| are_consecutive(call.nodes) && super::applies(call, false),
    build: |call| reduce(call, false),
    ..BROADCAST
};

/// The reduction in any order.
pub(super) const REDUCE_COMMUTATIVE: Algorithm = Algorithm {
    name: COMMUTATIVE,
    parameters: &parameters(inter(Operation::Reduce, true)),
    commutative: true,
    applies: |call| super::applies(call, true),
    build: |call| reduce(call, true),
    ..REDUCE
};

/// The reduction whose result all ranks get, in the order of the ranks.
pub(super) const ALLREDUCE: Algorithm = Algorithm {
    operation: Operation::Allreduce,
    parameters: &parameters(inter(Operation::Allreduce, false)),
    applies: |call| are_consecutive(call.nodes) && super::applies(call, false),
    build: |call| allreduce(call, false),
    ..BROADCAST
};

/// The reduction whose result all ranks get, in any order.
pub(super) const ALLREDUCE_COMMUTATIVE: Algorithm = Algorithm {
    name: COMMUTATIVE,
    parameters: &parameters(inter(Operation::Allreduce, true)),
    commutative: true,
    applies: |call| super::applies(call, true),
    build: |call| allreduce(call, true),
    ..ALLREDUCE
};

/// The number of blocks of a schedule of a vector.
fn blocks(schedule: &Schedule) -> u32 {
    schedule.input().count.max(schedule.output().count)
}

/// Adds a part with these vectors, which have one block, or as many as the whole schedule.
fn add(s: &mut Builder, schedule: &Schedule, ranks: &[u32], tags: u32, [input, output]: [Slice; 2]) {
    let count = blocks(schedule);
    let parts = input.count.max(output.count);
    assert!(count == 1 || count == parts, "a part has {count} blocks of {parts}");
    let each = |vector: Slice| -> Vec<Vec<Slice>> {
        if count == 1 { vec![vec![vector]] } else { (0..vector.count).map(|b| vec![vector.part(b, 1)]).collect() }
    };
    let sizes = if count == 1 { vec![(0..parts).collect()] } else { (0..parts).map(|b| vec![b]).collect() };
    s.add_part(schedule, &Part { ranks, tags, input: each(input), output: each(output), sizes });
}

const fn input(parts: u32) -> Slice {
    Slice::input(0, parts)
}

const fn output(parts: u32) -> Slice {
    Slice::output(0, parts)
}

/// The slice that stands for no vector.
const NONE: Slice = Slice::new(Buffer::Scratch, 0, 0);

fn broadcast(call: &Call<'_>) -> Schedule {
    let levels = Levels::of(call);
    let leaders = scheduled(between(call, false), &levels.between(call, &[]));
    let parts = blocks(&leaders);
    let mut s = call.builder(parts);
    if levels.is_leader() {
        add(&mut s, &leaders, &levels.leaders, TAGS[1], [NONE, output(parts)]);
    }
    release(call, &levels, &mut s, parts);
    s.done()
}

/// Adds the broadcast of the output within the node.
fn release(call: &Call<'_>, levels: &Levels, s: &mut Builder, parts: u32) {
    if !levels.is_alone() {
        let operation = Operation::Broadcast;
        let schedule = scheduled(within(call, operation, false), &levels.within(call, operation, &[]));
        add(s, &schedule, levels.own(), TAGS[2], [NONE, output(parts)]);
    }
}

/// Adds the reduction within the node; the leader has the sum in `sum`.
fn check_in(call: &Call<'_>, levels: &Levels, s: &mut Builder, sum: Slice, in_place: bool, commutative: bool) {
    let operation = Operation::Reduce;
    let call_within = Call { in_place, ..levels.within(call, operation, &[]) };
    let schedule = scheduled(within(call, operation, commutative), &call_within);
    add(s, &schedule, levels.own(), TAGS[0], [input(sum.count), sum]);
}

fn reduce(call: &Call<'_>, commutative: bool) -> Schedule {
    let levels = Levels::of(call);
    let (is_root, is_alone) = (call.rank == call.root, levels.is_alone());
    let in_place = is_root && (call.in_place || !is_alone);
    let of_leader = Call { in_place, ..levels.between(call, &[]) };
    let leaders = scheduled(between(call, commutative), &of_leader);
    let parts = blocks(&leaders);
    let mut s = call.builder(parts);
    let mut sum = if is_root { output(parts) } else { input(parts) };
    if !is_alone {
        if levels.is_leader() && !is_root {
            sum = s.scratch(0..parts);
        }
        check_in(call, &levels, &mut s, sum, call.in_place && is_root, commutative);
    }
    if levels.is_leader() {
        let from = if is_root { input(parts) } else { sum };
        add(&mut s, &leaders, &levels.leaders, TAGS[1], [from, output(parts)]);
    }
    s.done()
}

fn allreduce(call: &Call<'_>, commutative: bool) -> Schedule {
    let levels = Levels::of(call);
    let of_leader = Call { in_place: call.in_place || !levels.is_alone(), ..levels.between(call, &[]) };
    let leaders = scheduled(between(call, commutative), &of_leader);
    let parts = blocks(&leaders);
    let mut s = call.builder(parts);
    if !levels.is_alone() {
        check_in(call, &levels, &mut s, output(parts), call.in_place, commutative);
    }
    if levels.is_leader() {
        add(&mut s, &leaders, &levels.leaders, TAGS[1], [input(parts), output(parts)]);
    }
    release(call, &levels, &mut s, parts);
    s.done()
}
