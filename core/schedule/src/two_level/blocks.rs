//! Operations with a block for each rank in two levels. A block of the leaders' part consists of the blocks of the ranks of
//! a node.

use super::levels::{Levels, TAGS, are_consecutive};
use super::{Builder, COMMUTATIVE, NAME, Part, SOURCE, Slice, between, inter, parameters, scheduled, within};
use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::Schedule;

/// The scatter. All ranks must know the sizes.
pub(super) const SCATTER: Algorithm = Algorithm {
    operation: Operation::Scatter,
    name: NAME,
    source: SOURCE,
    parameters: &parameters(inter(Operation::Scatter, false)),
    applies: |call| call.sizes_known && super::applies(call, false),
    build: scatter,
    ..Algorithm::PLAIN
};

/// The gather. All ranks must know the sizes.
pub(super) const GATHER: Algorithm = Algorithm {
    operation: Operation::Gather,
    parameters: &parameters(inter(Operation::Gather, false)),
    build: gather,
    ..SCATTER
};

/// The gather whose result all ranks get.
pub(super) const ALLGATHER: Algorithm = Algorithm {
    operation: Operation::Allgather,
    parameters: &parameters(inter(Operation::Allgather, false)),
    applies: |call| super::applies(call, false),
    build: allgather,
    ..SCATTER
};

/// The exchange, only of equal blocks, since a rank does not know the sizes of blocks that other ranks exchange.
pub(super) const ALLTOALL: Algorithm = Algorithm {
    operation: Operation::Alltoall,
    parameters: &parameters(inter(Operation::Alltoall, false)),
    applies: |call| call.sizes.is_empty() && super::applies(call, false),
    build: alltoall,
    ..SCATTER
};

/// A reduction in the order of the ranks; each rank gets one block of the result.
pub(super) const REDUCE_SCATTER: Algorithm = Algorithm {
    operation: Operation::ReduceScatter,
    parameters: &parameters(inter(Operation::ReduceScatter, false)),
    applies: |call| are_consecutive(call.nodes) && super::applies(call, false),
    build: |call| reduce_scatter(call, false),
    ..SCATTER
};

/// A reduction in any order; each rank gets one block of the result.
pub(super) const REDUCE_SCATTER_COMMUTATIVE: Algorithm = Algorithm {
    name: COMMUTATIVE,
    parameters: &parameters(inter(Operation::ReduceScatter, true)),
    commutative: true,
    applies: |call| super::applies(call, true),
    build: |call| reduce_scatter(call, true),
    ..REDUCE_SCATTER
};

/// Output blocks of some ranks.
fn outputs(ranks: &[u32]) -> Vec<Slice> {
    ranks.iter().map(|rank| Slice::output(*rank, 1)).collect()
}

/// Input blocks of some ranks.
fn inputs(ranks: &[u32]) -> Vec<Slice> {
    ranks.iter().map(|rank| Slice::input(*rank, 1)).collect()
}

/// The blocks of a slice, one for each block of a part.
fn each(slice: Slice) -> Vec<Vec<Slice>> {
    (0..slice.count).map(|b| vec![slice.part(b, 1)]).collect()
}

/// The size numbers of the blocks of each rank of a node.
fn sizes_of(ranks: &[u32]) -> Vec<Vec<u32>> {
    ranks.iter().map(|rank| vec![*rank]).collect()
}

/// Adds a gather within the node: `own` is this rank's block, and the leader receives that of rank i into `into[i]`.
fn gather_within(call: &Call<'_>, levels: &Levels, s: &mut Builder, part: Part<'_>, in_place: bool) {
    let operation = Operation::Gather;
    let sizes = if call.operation == Operation::Alltoall { Vec::new() } else { levels.sizes_of_own(call) };
    let call_within = Call { in_place, sizes_known: true, ..levels.within(call, operation, &sizes) };
    let schedule = scheduled(within(call, operation, false), &call_within);
    s.add_part(&schedule, &Part { ranks: levels.own(), tags: TAGS[0], ..part });
}

/// Adds a scatter within the node: the leader's block for rank i is `part.input[i]`.
fn scatter_within(call: &Call<'_>, levels: &Levels, s: &mut Builder, part: Part<'_>, in_place: bool) {
    let operation = Operation::Scatter;
    let sizes = levels.sizes_of_own(call);
    let call_within = Call { in_place, sizes_known: true, ..levels.within(call, operation, &sizes) };
    let schedule = scheduled(within(call, operation, false), &call_within);
    s.add_part(&schedule, &Part { ranks: levels.own(), tags: TAGS[2], ..part });
}

/// Adds the leaders' part of the operation. Block j has the blocks of the ranks of node j.
fn add_leaders(call: &Call<'_>, levels: &Levels, s: &mut Builder, part: Part<'_>, in_place: bool, commutative: bool) {
    let sizes = levels.sizes_of_nodes(call);
    let of_leader = Call { in_place, ..levels.between(call, &sizes) };
    let schedule = scheduled(between(call, commutative), &of_leader);
    let sizes = if part.sizes.is_empty() { levels.nodes.clone() } else { part.sizes };
    s.add_part(&schedule, &Part { ranks: &levels.leaders, tags: TAGS[1], sizes, ..part });
}

fn scatter(call: &Call<'_>) -> Schedule {
    let levels = Levels::of(call);
    let (own, is_root) = (levels.own(), call.rank == call.root);
    let mut s = call.builder(1);
    let output = vec![vec![Slice::output(0, 1)]];
    let mut input: Vec<Vec<Slice>> = own.iter().map(|rank| inputs(&[*rank])).collect();
    if levels.is_leader() {
        let into = match (levels.is_alone(), is_root) {
            (true, _) => output.clone(),
            // The blocks of the leader's own node stay in place.
            (false, true) => vec![Vec::new()],
            (false, false) => {
                let blocks = s.scratch(own.iter().copied());
                input = each(blocks);
                vec![vec![blocks]]
            }
        };
        let from = levels.nodes.iter().map(|ranks| inputs(ranks)).collect();
        let in_place = is_root && (call.in_place || !levels.is_alone());
        let part = Part { input: from, output: into, ..Part::default() };
        add_leaders(call, &levels, &mut s, part, in_place, false);
    }
    if !levels.is_alone() {
        let part = Part { input, output, sizes: sizes_of(own), ..Part::default() };
        scatter_within(call, &levels, &mut s, part, call.in_place && is_root);
    }
    s.done()
}

fn gather(call: &Call<'_>) -> Schedule {
    let levels = Levels::of(call);
    let (own, is_root) = (levels.own(), call.rank == call.root);
    let mut s = call.builder(1);
    let mut blocks = vec![Slice::input(0, 1)];
    if !levels.is_alone() {
        let mut into = own.iter().map(|rank| outputs(&[*rank])).collect();
        if levels.is_leader() && !is_root {
            let gathered = s.scratch(own.iter().copied());
            (into, blocks) = (each(gathered), vec![gathered]);
        }
        let input = vec![vec![Slice::input(0, 1)]];
        let part = Part { input, output: into, sizes: sizes_of(own), ..Part::default() };
        gather_within(call, &levels, &mut s, part, call.in_place && is_root);
    }
    if levels.is_leader() {
        let output = levels.nodes.iter().map(|ranks| outputs(ranks)).collect();
        let in_place = is_root && (call.in_place || !levels.is_alone());
        let part = Part { input: vec![blocks], output, ..Part::default() };
        add_leaders(call, &levels, &mut s, part, in_place, false);
    }
    s.done()
}

fn allgather(call: &Call<'_>) -> Schedule {
    let levels = Levels::of(call);
    let own = levels.own();
    let mut s = call.builder(0);
    let input = || vec![vec![Slice::input(0, 1)]];
    if !levels.is_alone() {
        let output = own.iter().map(|rank| outputs(&[*rank])).collect();
        let part = Part { input: input(), output, sizes: sizes_of(own), ..Part::default() };
        gather_within(call, &levels, &mut s, part, call.in_place);
    }
    if levels.is_leader() {
        let output = levels.nodes.iter().map(|ranks| outputs(ranks)).collect();
        let in_place = call.in_place || !levels.is_alone();
        let part = Part { input: input(), output, ..Part::default() };
        add_leaders(call, &levels, &mut s, part, in_place, false);
    }
    if !levels.is_alone() {
        let operation = Operation::Broadcast;
        let schedule = scheduled(within(call, operation, false), &levels.within(call, operation, &[]));
        let part = Part {
            ranks: own,
            tags: TAGS[2],
            input: Vec::new(),
            output: vec![vec![Slice::output(0, call.size)]],
            sizes: vec![(0..call.size).collect()],
        };
        s.add_part(&schedule, &part);
    }
    s.done()
}

fn reduce_scatter(call: &Call<'_>, commutative: bool) -> Schedule {
    let levels = Levels::of(call);
    let (own, is_alone, is_leader) = (levels.own(), levels.is_alone(), levels.is_leader());
    let mut s = call.builder(1);
    let all = Slice::input(0, call.size);
    let (mut sums, mut blocks) = (all, Slice::output(0, 1));
    if !is_alone {
        if is_leader {
            sums = s.scratch(0..call.size);
            blocks = s.scratch(own.iter().copied());
        }
        let operation = Operation::Reduce;
        let call_within = Call { in_place: false, ..levels.within(call, operation, &[]) };
        let schedule = scheduled(within(call, operation, commutative), &call_within);
        let part = Part {
            ranks: own,
            tags: TAGS[0],
            input: vec![vec![all]],
            output: vec![vec![sums]],
            sizes: vec![(0..call.size).collect()],
        };
        s.add_part(&schedule, &part);
    }
    if is_leader {
        let of = |ranks: &Vec<u32>| ranks.iter().map(|rank| sums.part(*rank, 1)).collect();
        let input = levels.nodes.iter().map(of).collect();
        let part = Part { input, output: vec![vec![blocks]], ..Part::default() };
        add_leaders(call, &levels, &mut s, part, false, commutative);
    }
    if !is_alone {
        let input = if is_leader { each(blocks) } else { Vec::new() };
        let output = vec![vec![Slice::output(0, 1)]];
        scatter_within(call, &levels, &mut s, Part { input, output, sizes: sizes_of(own), ..Part::default() }, false);
    }
    s.done()
}

fn alltoall(call: &Call<'_>) -> Schedule {
    let levels = Levels::of(call);
    let (p, own, is_alone) = (call.size, levels.own(), levels.is_alone());
    let count = own.len() as u32;
    let mut s = call.builder(0);
    // The gathered data: the blocks of each rank of the node for all ranks.
    let mut gathered = vec![Slice::input(0, p)];
    // The exchanged data: the blocks of the ranks of each node for the ranks of this node.
    let mut received: Vec<Vec<Slice>> = levels.nodes.iter().map(|ranks| outputs(ranks)).collect();
    // All blocks have the same size.
    let blocks = |count: u32| (0..count).map(|_| 0);
    if !is_alone {
        if levels.is_leader() {
            gathered = own.iter().map(|_| s.scratch(blocks(p))).collect();
            received = levels.nodes.iter().map(|ranks| vec![s.scratch(blocks(ranks.len() as u32 * count))]).collect();
        }
        let output = gathered.iter().map(|of_rank| vec![*of_rank]).collect();
        let sizes = vec![blocks(p).collect(); own.len()];
        let part = Part { input: vec![vec![Slice::input(0, p)]], output, sizes, ..Part::default() };
        gather_within(call, &levels, &mut s, part, false);
    }
    if levels.is_leader() {
        let to = |ranks: &Vec<u32>| -> Vec<Slice> {
            gathered.iter().flat_map(|of_rank| ranks.iter().map(|rank| of_rank.part(*rank, 1))).collect()
        };
        let input: Vec<Vec<Slice>> = levels.nodes.iter().map(to).collect();
        let of_node = |ranks: &Vec<u32>| blocks(ranks.len() as u32 * count).collect();
        let sizes = levels.nodes.iter().chain(&levels.nodes).map(of_node).collect();
        let part = Part { input, output: received.clone(), sizes, ..Part::default() };
        add_leaders(call, &levels, &mut s, part, false, false);
    }
    if !is_alone {
        // Each rank of the node gets its block from each rank.
        let to = |number: u32| -> Vec<Slice> {
            let mut at = vec![0; levels.nodes.len()];
            let of = |node: &u32| {
                let from = received[*node as usize][0].part(at[*node as usize] * count + number, 1);
                at[*node as usize] += 1;
                from
            };
            call.nodes.iter().map(of).collect()
        };
        let input = if levels.is_leader() { (0..count).map(to).collect() } else { Vec::new() };
        let sizes = vec![blocks(p).collect(); own.len()];
        let part = Part { input, output: vec![vec![Slice::output(0, p)]], sizes, ..Part::default() };
        scatter_within(call, &levels, &mut s, part, false);
    }
    s.done()
}
