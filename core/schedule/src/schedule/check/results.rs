//! The contents of a rank's buffers before a call, and the required results after it.

use super::value::{Ranks, Value};
use super::{Fault, FaultKind};
use crate::operation::{Call, Operation};
use crate::schedule::{Buffer, Schedule};

/// The contents of a rank's buffers.
pub(super) struct Memory([Vec<Option<Value>>; 3]);

impl Memory {
    /// The content of the buffers at the start of a call.
    pub(crate) fn new(call: &Call<'_>, schedule: &Schedule) -> Self {
        use Operation as O;
        let mut memory =
            Self([Buffer::Input, Buffer::Output, Buffer::Scratch].map(|b| vec![None; schedule.blocks_of(b) as usize]));
        let [input, output, _] = &mut memory.0;
        let first = match call.operation {
            O::Gather | O::Allgather => call.rank,
            _ => 0,
        };
        let contribution = |b: usize| Some(Value::of(first + b as u32, call.rank));
        let fill = |at: &mut [Option<Value>]| at.iter_mut().enumerate().for_each(|(b, at)| *at = contribution(b));
        let at_root = call.rank == call.root;
        // In place, the steps read the output instead of the input.
        match call.operation {
            O::Broadcast if at_root => fill(output),
            O::Gather if call.in_place && at_root => fill(&mut output[call.rank as usize..][..1]),
            O::Allgather if call.in_place => fill(&mut output[call.rank as usize..][..1]),
            O::Reduce if call.in_place && at_root => fill(output),
            O::Allreduce | O::Scan | O::Exscan if call.in_place => fill(output),
            _ => fill(input),
        }
        memory
    }

    pub(crate) fn at(&mut self, buffer: Buffer, block: u32) -> &mut Option<Value> {
        &mut self.0[buffer as usize][block as usize]
    }

    fn output(&self) -> &[Option<Value>] {
        &self.0[Buffer::Output as usize]
    }
}

/// Checks that the outputs are what the operation requires, except in blocks without elements. Returns whether all
/// blocks of a reduction have the same bracketing.
pub(crate) fn check_results(
    calls: &[Call<'_>],
    memories: &[Memory],
    has_elements: impl Fn(u32, u32) -> bool,
) -> Result<bool, Fault> {
    let operation = calls.first().map(|c| c.operation);
    // The bracketing of each block at the first rank that has the block.
    let mut first = vec![None; memories.iter().map(|m| m.output().len()).max().unwrap_or(0)];
    let mut same = true;
    for (call, memory) in calls.iter().zip(memories).filter(|(call, _)| !is_idle(call)) {
        let fault = |kind: FaultKind, what: String| Fault { rank: call.rank, step: None, kind, description: what };
        let mut own = None;
        for (value, b) in memory.output().iter().zip(0..).filter(|(_, b)| has_elements(call.rank, *b)) {
            let Some(value) = value.filter(|v| is_right(calls, call, b, v)) else {
                let what = format!("block {b} of the output of {} is {value:?}", call.operation.name());
                return Err(fault(FaultKind::Result, what));
            };
            let like = *first[b as usize].get_or_insert(value.tree);
            if operation == Some(Operation::Allreduce) && like != value.tree {
                let what = format!("block {b} was combined in a different order than at an earlier rank");
                return Err(fault(FaultKind::Bracketing, what));
            }
            // In a reduce_scatter each rank has one block of the same result; otherwise each rank has all blocks of its
            // own result.
            let of = if operation == Some(Operation::ReduceScatter) { like } else { *own.get_or_insert(value.tree) };
            same &= of == value.tree;
        }
    }
    Ok(same || operation.is_none_or(|o| !o.is_reduction()))
}

/// Whether the rank has an output that the call does not write.
fn is_idle(call: &Call<'_>) -> bool {
    match call.operation {
        Operation::Exscan => call.rank == 0,
        Operation::Scatter => call.in_place && call.rank == call.root,
        _ => false,
    }
}

/// Whether the value is what block `b` of the output must be.
fn is_right(calls: &[Call<'_>], call: &Call<'_>, b: u32, value: &Value) -> bool {
    use Operation as O;
    let (p, rank, root) = (call.size, call.rank, call.root);
    let own = |block: u32, rank: u32| value.is(block, rank, rank + 1);
    match call.operation {
        O::Barrier => true,
        O::Broadcast => own(b, root),
        O::Scatter => own(rank, root),
        O::Gather | O::Allgather => own(b, b),
        O::Alltoall => own(rank, b),
        O::Reduce | O::Allreduce => value.is(b, 0, p),
        O::ReduceScatter => value.is(rank, 0, p),
        O::Scan => value.is(b, 0, rank + 1),
        O::Exscan => value.is(b, 0, rank),
        O::NeighborAllgather => own(0, call.neighbors.sources[b as usize]),
        O::NeighborAlltoall => {
            // If two ranks have several edges, the first block sent is the first received.
            let sources = &call.neighbors.sources[..=b as usize];
            let source = sources[b as usize];
            let before = sources.iter().filter(|s| **s == source).count() - 1;
            let mut edges = calls[source as usize].neighbors.destinations.iter().zip(0..).filter(|(d, _)| **d == rank);
            value.ranks == Ranks::Run(source, source + 1) && edges.nth(before).is_some_and(|(_, e)| value.block == e)
        }
    }
}
