//! The table of conditions. The limits are those that MPICH 4 (variables `MPIR_CVAR_*`; Thakur, Rabenseifner, Gropp
//! 2005) and Open MPI (fixed decisions of `coll_tuned`; Pješivac-Grbović et al. 2007) have published, if they have the
//! algorithm.

use super::{Choice, Facts, Placement};
use crate::operation::Operation as O;
use crate::table;

/// Conditions, and the algorithm to use if they hold. The algorithm must also be able to make the call, and the
/// reduction must be commutative if the algorithm needs that; otherwise the next row is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// The operation.
    pub operation: O,
    /// Maximum number of ranks.
    pub(crate) most_ranks: u32,
    /// Minimum and maximum number of bytes, counted as in [`Facts::bytes`].
    pub(crate) least_bytes: u64,
    pub(crate) most_bytes: u64,
    /// Maximum product of bytes and ranks.
    pub(crate) most_together: u64,
    /// The placement of the ranks.
    pub(crate) placement: Placement,
    /// Whether the number of ranks must be a power of two.
    pub(crate) power_of_two: bool,
    /// The algorithm.
    pub(crate) algorithm: &'static str,
    /// Values of its first parameters; others have their defaults.
    pub parameters: &'static [Value],
}

/// The value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// A fixed value.
    Is(u32),
    /// The number of segments is the minimum for which no segment exceeds this many bytes.
    SegmentsOf(u64),
}

impl Row {
    /// Whether the row's conditions hold, without those of its algorithm.
    pub(crate) fn holds(&self, ranks: u32, facts: &Facts) -> bool {
        ranks <= self.most_ranks
            && (self.least_bytes..=self.most_bytes).contains(&facts.bytes)
            && facts.bytes.saturating_mul(ranks.into()) <= self.most_together
            && facts.placement >= self.placement
            && (ranks.is_power_of_two() || !self.power_of_two)
    }

    /// The row's algorithm with its parameters. `None` if no algorithm has this name.
    #[must_use]
    pub fn choice(&self, facts: &Facts) -> Option<Choice> {
        let algorithm = table::named(self.operation, self.algorithm)?;
        let value = |v: &Value| match v {
            Value::Is(value) => *value,
            Value::SegmentsOf(bytes) => facts.bytes.div_ceil(*bytes).try_into().unwrap_or(u32::MAX),
        };
        let given: Vec<u32> = self.parameters.iter().map(value).collect();
        Some(Choice { algorithm, parameters: algorithm.within_limits(&given) })
    }

    const fn ranks(self, most_ranks: u32) -> Self {
        Self { most_ranks, ..self }
    }

    const fn bytes(self, most_bytes: u64) -> Self {
        Self { most_bytes, ..self }
    }

    const fn together(self, most_together: u64) -> Self {
        Self { most_together, ..self }
    }

    const fn least(self, least_bytes: u64) -> Self {
        Self { least_bytes, ..self }
    }

    const fn one_node(self) -> Self {
        Self { placement: Placement::OneNode, ..self }
    }

    const fn oversubscribed(self) -> Self {
        Self { placement: Placement::OversubscribedNode, ..self }
    }

    const fn power_of_two(self) -> Self {
        Self { power_of_two: true, ..self }
    }

    const fn with(self, parameters: &'static [Value]) -> Self {
        Self { parameters, ..self }
    }
}

/// A row for every call of an operation.
const fn row(operation: O, algorithm: &'static str) -> Row {
    Row {
        operation,
        most_ranks: u32::MAX,
        least_bytes: 0,
        most_bytes: u64::MAX,
        most_together: u64::MAX,
        placement: Placement::Anywhere,
        power_of_two: false,
        algorithm,
        parameters: &[],
    }
}

/// Minimum length in bytes of a message that an intra-node device sends by rendezvous.
const RENDEZVOUS_BYTES: u64 = (16 << 10) + 1;

/// Maximum number of bytes, of all ranks together, for which short data is faster than messages: a rank reads the cache
/// lines of P - 1 others, while with messages in log2 P rounds it reads those of log2 P others, and some more lines for
/// each message.
const SHORT_DATA_BYTES: u64 = 1024;

/// Maximum number of bytes of a rank for which short data is faster than messages if ranks share processors: these wait
/// for each other once, and not in every round.
const SHORT_DATA_BYTES_SHARED: u64 = 4096;

/// Maximum length in bytes of a vector that leaders reduce in less time than a round between nodes takes.
const LEADERS: u64 = 32 << 10;

/// Number of bytes of a segment that stays in the first-level caches of a processor, next to another one, until it is
/// written.
const PIECE: u64 = 128 << 10;

/// The table. The first row of an operation that holds is used; the last row of each operation is for every call.
///
/// If ranks share processors, the total work and the number of wake-ups matter, not the number of rounds: these rows
/// follow measurements with 4 and 8 ranks on 2 processors.
///
/// Ranks of a node access data in place if it is longer than an eager message: it is copied once, and takes two
/// messages per pair, as a rendezvous does.
pub const ROWS: &[Row] = &[
    // On networks that have an in-switch barrier, it takes two messages per rank, whatever the number of ranks; a team
    // of few nodes does not use it.
    row(O::Barrier, "switch"),
    // For ranks that share nodes: one inter-node round for each round of the leaders' algorithm.
    row(O::Barrier, "two-level"),
    // Blocking calls use short data for this row.
    row(O::Barrier, "dissemination").ranks(16).one_node().with(&[Value::Is(15)]),
    row(O::Barrier, "dissemination"),
    row(O::Broadcast, "two-level").bytes(131_071),
    row(O::Broadcast, "k-ary").ranks(16).bytes(8192).oversubscribed().with(&[Value::Is(4)]),
    // In this variant the root does not wait for a processor to write.
    row(O::Broadcast, "direct").oversubscribed().with(&[Value::Is(0)]),
    row(O::Broadcast, "flat").ranks(16).together(SHORT_DATA_BYTES).one_node(),
    row(O::Broadcast, "direct").least(RENDEZVOUS_BYTES).one_node(),
    // For short vectors and few ranks, as in MPICH.
    row(O::Broadcast, "binomial").bytes(12_287),
    row(O::Broadcast, "binomial").ranks(2),
    row(O::Broadcast, "binomial").ranks(7).bytes(131_071),
    row(O::Broadcast, "scatter-doubling").bytes(524_287),
    row(O::Broadcast, "scatter-bruck").bytes(524_287),
    // A pipeline through few ranks transfers the vector once; scatter and allgather transfer it twice. The segments are
    // those of Open MPI.
    row(O::Broadcast, "chain").ranks(16).with(&[Value::SegmentsOf(131_072)]),
    row(O::Broadcast, "scatter-ring"),
    row(O::Scatter, "two-level").bytes(1024),
    row(O::Scatter, "direct").least(RENDEZVOUS_BYTES).one_node(),
    // Open MPI.
    row(O::Scatter, "flat").ranks(10),
    row(O::Scatter, "binomial").bytes(300),
    row(O::Scatter, "flat"),
    row(O::Gather, "two-level").bytes(1024),
    row(O::Gather, "direct").least(RENDEZVOUS_BYTES).one_node(),
    row(O::Gather, "flat").ranks(10).bytes(6000),
    row(O::Gather, "binomial").bytes(1024),
    row(O::Gather, "flat").ranks(60).bytes(6000),
    // A block that passes through other ranks of the node is copied more often.
    row(O::Gather, "flat").one_node(),
    row(O::Gather, "binomial").bytes(6000),
    // Only the root knows these sizes.
    row(O::Gather, "flat").bytes(6000),
    row(O::Gather, "flat-window").bytes(92_160).with(&[Value::Is(8)]),
    row(O::Gather, "flat-window").with(&[Value::Is(2)]),
    row(O::Allgather, "two-level").bytes(81_919),
    row(O::Allgather, "direct").least(2 * RENDEZVOUS_BYTES).one_node(),
    // Few ranks that share memory read from all others at the same time; short data is sent with signals.
    row(O::Allgather, "linear").ranks(2),
    row(O::Allgather, "linear").ranks(4).one_node(),
    row(O::Allgather, "linear").ranks(16).bytes(SHORT_DATA_BYTES).one_node(),
    row(O::Allgather, "linear").ranks(16).oversubscribed(),
    // MPICH.
    row(O::Allgather, "recursive-doubling").bytes(524_287).power_of_two(),
    row(O::Allgather, "bruck").bytes(81_919),
    row(O::Allgather, "ring"),
    row(O::Alltoall, "two-level").bytes(256),
    row(O::Alltoall, "direct").least(RENDEZVOUS_BYTES).one_node(),
    row(O::Alltoall, "linear").ranks(7).bytes(32_768),
    row(O::Alltoall, "linear").ranks(16).bytes(32_768).oversubscribed(),
    row(O::Alltoall, "linear").ranks(16).together(SHORT_DATA_BYTES).one_node(),
    row(O::Alltoall, "bruck").bytes(256),
    row(O::Alltoall, "linear").bytes(32_768),
    row(O::Alltoall, "pairwise-exchange"),
    row(O::Reduce, "two-level-commutative").bytes(LEADERS),
    row(O::Reduce, "two-level").bytes(LEADERS),
    // MPICH if P is a power of two; for other P eliminations, which take fewer rounds than folding to a power of two.
    row(O::Reduce, "flat").ranks(16).together(SHORT_DATA_BYTES).one_node(),
    row(O::Reduce, "flat").ranks(16).bytes(8192).oversubscribed(),
    row(O::Reduce, "direct").oversubscribed().least(8193).with(&[Value::SegmentsOf(PIECE)]),
    row(O::Reduce, "direct").one_node().least(RENDEZVOUS_BYTES).with(&[Value::SegmentsOf(PIECE)]),
    row(O::Reduce, "binomial-rotated").bytes(2048),
    row(O::Reduce, "binomial-rotated").ranks(4).bytes(4096).one_node(),
    // The segments fit in packets, so they need no rendezvous.
    row(O::Reduce, "chain").ranks(4).bytes(32_768).one_node().with(&[Value::SegmentsOf(4096)]),
    row(O::Reduce, "binomial").bytes(2048),
    row(O::Reduce, "rabenseifner").power_of_two(),
    row(O::Reduce, "elimination-3-2"),
    row(O::Allreduce, "two-level-commutative").bytes(LEADERS),
    row(O::Allreduce, "two-level").bytes(LEADERS),
    row(O::Allreduce, "linear").ranks(16).together(SHORT_DATA_BYTES).one_node(),
    row(O::Allreduce, "linear").ranks(16).bytes(SHORT_DATA_BYTES_SHARED).oversubscribed(),
    row(O::Allreduce, "direct").least(RENDEZVOUS_BYTES).one_node().with(&[Value::SegmentsOf(PIECE)]),
    row(O::Allreduce, "recursive-doubling").ranks(2).bytes(32_768),
    row(O::Allreduce, "recursive-doubling").bytes(2048).power_of_two(),
    row(O::Allreduce, "butterfly"),
    row(O::Allreduce, "factorized"),
    row(O::ReduceScatter, "two-level-commutative").bytes(LEADERS),
    row(O::ReduceScatter, "two-level").bytes(LEADERS),
    row(O::ReduceScatter, "direct").least(2 * RENDEZVOUS_BYTES).one_node(),
    // A single exchange, received directly into the result.
    row(O::ReduceScatter, "pairwise").ranks(2),
    row(O::ReduceScatter, "pairwise").ranks(4).one_node(),
    row(O::ReduceScatter, "pairwise").ranks(16).oversubscribed(),
    row(O::ReduceScatter, "pairwise").ranks(16).bytes(SHORT_DATA_BYTES).one_node(),
    row(O::ReduceScatter, "recursive-halving").bytes(524_287),
    row(O::ReduceScatter, "butterfly").bytes(524_287),
    row(O::ReduceScatter, "pairwise"),
    row(O::Scan, "direct").least(RENDEZVOUS_BYTES).one_node(),
    row(O::Scan, "chain").ranks(16).bytes(8192).oversubscribed().with(&[Value::Is(1)]),
    row(O::Scan, "linear").ranks(16).together(SHORT_DATA_BYTES).one_node(),
    // The limit is MPICH's. Recursive doubling sends the whole vector in every round, so for long vectors and few ranks
    // a chain of segments takes less time.
    row(O::Scan, "recursive-doubling").bytes(262_144),
    row(O::Scan, "chain").ranks(32).with(&[Value::SegmentsOf(65_536)]),
    row(O::Scan, "recursive-doubling"),
    row(O::Exscan, "direct").least(RENDEZVOUS_BYTES).one_node(),
    row(O::Exscan, "chain").ranks(16).bytes(8192).oversubscribed().with(&[Value::Is(1)]),
    row(O::Exscan, "linear").ranks(16).together(SHORT_DATA_BYTES).one_node(),
    // With one message there are no steps to overlap.
    row(O::Exscan, "chain").ranks(2).with(&[Value::Is(1)]),
    row(O::Exscan, "123-doubling").bytes(262_144),
    row(O::Exscan, "chain").ranks(32).with(&[Value::SegmentsOf(65_536)]),
    row(O::Exscan, "123-doubling"),
    row(O::NeighborAllgather, "linear"),
    row(O::NeighborAlltoall, "linear"),
];
