//! Linear: a message for each edge of the graph, all at the same time. If two ranks have several edges, the nth edge at
//! one is the nth edge at the other (MPI-5.0 section 8.6); edges of a rank to itself are copies. An edge whose block is
//! known to be empty has no message: both of its ranks know the size.

use rustc_hash::FxHashMap;

use crate::operation::{Algorithm, Call, Operation};
use crate::schedule::{Schedule, Slice};

/// Neighbour allgather: one block to all destinations.
pub(crate) const ALLGATHER: Algorithm = Algorithm {
    operation: Operation::NeighborAllgather,
    name: "linear",
    source: "MPI-5.0, section 8.6",
    build,
    ..Algorithm::PLAIN
};

/// Neighbour alltoall: a block for each destination.
pub(crate) const ALLTOALL: Algorithm = Algorithm { operation: Operation::NeighborAlltoall, build, ..ALLGATHER };

/// The edges to or from each rank, with their position in the list and their number among the edges of the same rank.
fn numbered(ranks: &[u32]) -> impl Iterator<Item = (u32, u32, u32)> {
    let mut seen = FxHashMap::<u32, u32>::default();
    (0..).zip(ranks).map(move |(edge, rank)| {
        let number = seen.entry(*rank).or_default();
        *number += 1;
        (edge, *rank, *number - 1)
    })
}

fn build(call: &Call<'_>) -> Schedule {
    let (me, neighbors) = (call.rank, call.neighbors);
    let sent = |edge: u32| if call.operation == Operation::NeighborAllgather { 0 } else { edge };
    let inputs = if call.operation == Operation::NeighborAllgather { 1 } else { neighbors.destinations.len() as u32 };
    let own: Vec<u32> = numbered(neighbors.destinations).filter(|e| e.1 == me).map(|e| sent(e.0)).collect();
    let mut s = call.builder(0);
    for (edge, source, number) in numbered(neighbors.sources) {
        let into = [Slice::output(edge, 1)];
        if source == me {
            // If the two lists of a rank disagree about edges to itself, some of these edges have no other end.
            if let Some(block) = own.get(number as usize) {
                s.copy(&[Slice::input(*block, 1)], &into);
            }
        } else if call.has_elements(inputs + edge) {
            s.receive(source, number, &into);
        }
    }
    for (edge, to, number) in numbered(neighbors.destinations).filter(|e| e.1 != me) {
        if call.has_elements(sent(edge)) {
            s.send(to, number, &[Slice::input(sent(edge), 1)]);
        }
    }
    s.done()
}
