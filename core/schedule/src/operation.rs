//! Collective operations, their algorithms, and the input of an algorithm: a call.

use super::schedule::{Builder, Sizes};

/// A collective operation. The table defines the blocks of input and output, for rank `r` of `P`, root `R`; a block is
/// described by its size number ([`Sizes`]). `B` is the number of parts into which the algorithm divides a vector
/// evenly.
///
/// | | input | output | in place |
/// |---|---|---|---|
/// | barrier | | | |
/// | broadcast | | B, sizes 0.. | always: the root's data is in its output |
/// | scatter | at R: P, sizes 0.. | 1, size r | at R: the output is block R of the input, and is not written |
/// | gather | 1, size r | at R: P, sizes 0.. | at R: input is output block R |
/// | allgather | 1, size r | P, sizes 0.. | input is output block r |
/// | alltoall | P, sizes 0..P (to rank j: j) | P, sizes P..2P (from rank i: P + i) | the caller copies |
/// | reduce | B, sizes 0.. | at R: B, sizes 0.. | at R: input is output |
/// | allreduce | B, sizes 0.. | B, sizes 0.. | input is output |
/// | reduce_scatter | P, sizes 0.. | 1, size r | the caller copies |
/// | scan, exscan | B, sizes 0.. | B, sizes 0.. (exscan at 0: not written) | input is output |
/// | neighbour allgather | 1, size 0 | a block for each source, sizes 1.. | |
/// | neighbour alltoall | a block for each of the D destinations, sizes 0.. | a block for each source, sizes D.. | |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Operation {
    Barrier,
    Broadcast,
    Scatter,
    Gather,
    Allgather,
    Alltoall,
    Reduce,
    Allreduce,
    ReduceScatter,
    Scan,
    Exscan,
    NeighborAllgather,
    NeighborAlltoall,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 13] = [
        Self::Barrier,
        Self::Broadcast,
        Self::Scatter,
        Self::Gather,
        Self::Allgather,
        Self::Alltoall,
        Self::Reduce,
        Self::Allreduce,
        Self::ReduceScatter,
        Self::Scan,
        Self::Exscan,
        Self::NeighborAllgather,
        Self::NeighborAlltoall,
    ];

    /// The operation's name, as in `FARSIDE_COLL`.
    #[inline]
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::Scatter => "scatter",
            Self::Gather => "gather",
            Self::Allgather => "allgather",
            Self::Alltoall => "alltoall",
            Self::Reduce => "reduce",
            Self::Allreduce => "allreduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::Scan => "scan",
            Self::Exscan => "exscan",
            Self::NeighborAllgather => "neighbor_allgather",
            Self::NeighborAlltoall => "neighbor_alltoall",
        }
    }

    /// Whether the operation has a root.
    #[inline]
    #[must_use]
    pub const fn is_rooted(self) -> bool {
        matches!(self, Self::Broadcast | Self::Scatter | Self::Gather | Self::Reduce)
    }

    /// Whether the operation reduces.
    #[inline]
    #[must_use]
    pub const fn is_reduction(self) -> bool {
        matches!(self, Self::Reduce | Self::Allreduce | Self::ReduceScatter | Self::Scan | Self::Exscan)
    }

    /// Whether the input of every rank, or of the root, has a block for each rank.
    #[inline]
    #[must_use]
    pub const fn has_block_for_each(self) -> bool {
        matches!(self, Self::Scatter | Self::Alltoall | Self::ReduceScatter)
    }

    /// Whether the algorithm divides a vector into parts, and so chooses the number of blocks.
    #[inline]
    #[must_use]
    pub const fn is_of_a_vector(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce | Self::Allreduce | Self::Scan | Self::Exscan)
    }
}

/// The neighbours of a rank on a graph, in the order of its buffers. Multiple edges and edges to the rank itself are
/// allowed.
///
/// ```
/// use farside_schedule::operation::Neighbors;
///
/// // Rank 1 of a ring of four ranks, which passes data on to the right.
/// let ring = Neighbors { sources: &[0], destinations: &[2] };
/// assert_eq!((ring.sources.len(), ring.destinations.len()), (1, 1));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neighbors<'a> {
    /// Ranks that send to this one.
    pub sources: &'a [u32],
    /// Ranks to which this one sends.
    pub destinations: &'a [u32],
}

/// A call of a collective: everything on which a schedule depends.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The operation.
    pub operation: Operation,
    /// This rank.
    pub rank: u32,
    /// The number of ranks, P.
    pub size: u32,
    /// The root, for rooted operations.
    pub root: u32,
    /// Elements of each size number, for operations with blocks by rank; empty if all sizes are equal. Algorithms may
    /// depend on which blocks are empty and on how sizes compare. The list is the same at all ranks, except in alltoall
    /// and neighbour operations and where the sizes are not known.
    pub sizes: &'a [u64],
    /// Whether every rank knows the sizes of all blocks. If not (scatterv and gatherv of MPI), the root knows all
    /// sizes, and any other rank only the size of its own block: its schedule must not name another size number, nor
    /// depend on `sizes`.
    pub sizes_known: bool,
    /// Elements of the vector, for operations that divide one into parts; otherwise elements of each block, if all are
    /// equal.
    pub elements: u64,
    /// Values of [`Algorithm::parameters`], in their order.
    pub parameters: &'a [u32],
    /// The neighbours of the rank, for operations on a graph.
    pub neighbors: Neighbors<'a>,
    /// Whether input and output share memory according to the table of [`Operation`].
    pub in_place: bool,
    /// Whether the ranks share a node, so that they can lend each other memory.
    pub lends: bool,
    /// The node of each rank; nodes are numbered from 0 in the order of their lowest ranks. Empty if all ranks are on one
    /// node, and if their nodes are not known.
    pub nodes: &'a [u32],
    /// Whether the network has an in-switch barrier that the ranks can use.
    pub switch: bool,
}

impl<'a> Call<'a> {
    /// A call with defaults: root 0, equal blocks, out of place, on one node, without an in-switch barrier.
    #[must_use]
    pub fn new(operation: Operation, rank: u32, size: u32) -> Self {
        Self {
            operation,
            rank,
            size,
            root: 0,
            sizes: &[],
            sizes_known: true,
            elements: 0,
            parameters: &[],
            neighbors: Neighbors::default(),
            in_place: false,
            lends: true,
            nodes: &[],
            switch: false,
        }
    }

    /// The number of parts of a vector if the algorithm requests `wanted`: at most the number of elements, and at least
    /// one.
    pub(crate) fn parts(&self, wanted: u32) -> u32 {
        u64::from(wanted).min(self.elements).max(1) as u32
    }

    /// The rank's number counted from the root.
    pub(crate) fn relative(&self) -> u32 {
        (self.rank + self.size - self.root) % self.size
    }

    /// The rank at distance `relative` after the root.
    pub(crate) fn absolute(&self, relative: u32) -> u32 {
        (relative + self.root) % self.size
    }

    /// Whether a block of size number `number` has elements, as far as is known.
    pub(crate) fn has_elements(&self, number: u32) -> bool {
        self.sizes.get(number as usize).is_none_or(|n| *n > 0)
    }

    /// Input and output of this call by the table of [`Operation`], and, if the call is in place, the output block that
    /// is block 0 of the input. `parts` is the number of blocks of operations that divide a vector
    /// ([`Operation::is_of_a_vector`]).
    #[must_use]
    pub fn buffers(&self, parts: u32) -> (Sizes, Sizes, Option<u32>) {
        use Operation as O;
        let (p, r) = (self.size, self.rank);
        let at_root = |sizes: Sizes| if r == self.root { sizes } else { Sizes::NONE };
        let (all, own, vector) = (Sizes::new(0, p), Sizes::new(r, 1), Sizes::new(0, parts));
        let (sources, destinations) = (self.neighbors.sources.len() as u32, self.neighbors.destinations.len() as u32);
        let (input, output, in_place) = match self.operation {
            O::Barrier => (Sizes::NONE, Sizes::NONE, None),
            O::Broadcast => (Sizes::NONE, vector, None),
            O::Scatter => (at_root(all), own, None),
            O::Gather => (own, at_root(all), Some(r).filter(|_| r == self.root)),
            O::Allgather => (own, all, Some(r)),
            O::Alltoall => (all, Sizes::new(p, p), None),
            O::Reduce => (vector, at_root(vector), Some(0).filter(|_| r == self.root)),
            O::Allreduce | O::Scan | O::Exscan => (vector, vector, Some(0)),
            O::ReduceScatter => (all, own, None),
            O::NeighborAllgather => (Sizes::new(0, 1), Sizes::new(1, sources), None),
            O::NeighborAlltoall => (Sizes::new(0, destinations), Sizes::new(destinations, sources), None),
        };
        (input, output, in_place.filter(|_| self.in_place))
    }

    /// An empty schedule with the input and output of this call; `parts` is the number of blocks of operations that
    /// divide a vector ([`Operation::is_of_a_vector`]).
    #[must_use]
    pub fn builder(&self, parts: u32) -> Builder {
        let (input, output, in_place) = self.buffers(parts);
        Builder::new(self.rank, self.size, input, output).in_place(in_place)
    }
}

/// A parameter of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The parameter's name.
    pub name: &'static str,
    /// The default value.
    pub default: u32,
    /// The minimum value.
    pub least: u32,
    /// The maximum value.
    pub most: u32,
    /// The meaning of the parameter.
    pub help: &'static str,
}

/// An algorithm, as data.
#[derive(Debug)]
pub struct Algorithm {
    /// The operation that the algorithm implements.
    pub operation: Operation,
    /// The published name, in small letters with hyphens.
    pub name: &'static str,
    /// The publication that describes the algorithm.
    pub source: &'static str,
    /// The algorithm's parameters.
    pub parameters: &'static [Parameter],
    /// Whether contributions are reduced in another order than that of the ranks, so that the operator must be
    /// commutative.
    pub commutative: bool,
    /// Whether the algorithm can make this call, with its number of ranks, parameters and sizes.
    pub applies: fn(&Call<'_>) -> bool,
    /// Whether this call has one round: every rank sends only data that it has from the start, the same block to all
    /// its destinations unless the input has a block for each, and gets at most one message from each other rank. The
    /// same at all ranks.
    pub one_round: fn(&Call<'_>) -> bool,
    /// Makes the schedule of one rank, with [`Call::builder`]. A schedule is not executed if its input and output
    /// are not those of the table of [`Operation`], or if its steps were not made by a [`Builder`].
    pub build: fn(&Call<'_>) -> super::schedule::Schedule,
}

impl Algorithm {
    /// Defaults of the fields: no parameters, reduction in the order of the ranks, every call, several rounds. The name and
    /// the steps are empty.
    pub const PLAIN: Self = Self {
        operation: Operation::Barrier,
        name: "",
        source: "",
        parameters: &[],
        commutative: false,
        applies: |_| true,
        one_round: |_| false,
        build: |call| call.builder(1).done(),
    };

    /// Values of the algorithm's parameters: the given ones, clamped to their limits, and defaults for the others.
    #[must_use]
    pub fn within_limits(&self, given: &[u32]) -> Vec<u32> {
        let value = |(i, p): (usize, &Parameter)| given.get(i).map_or(p.default, |v| (*v).max(p.least).min(p.most));
        self.parameters.iter().enumerate().map(value).collect()
    }

    /// Defaults of the algorithm's parameters.
    #[must_use]
    pub fn defaults(&self) -> Vec<u32> {
        self.parameters.iter().map(|p| p.default).collect()
    }
}
