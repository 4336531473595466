//! Aggregated operations: many small operations on the memory of other ranks travel in blocks, a message each.
//!
//! | you want | take |
//! |---|---|
//! | to accumulate into elements anywhere | [`Symmetric::aggregated`](crate::Symmetric::aggregated), [`GlobalArray::aggregated`](crate::GlobalArray::aggregated) |
//! | to get elements from anywhere, in any order | [`Symmetric::gather_aggregated`](crate::Symmetric::gather_aggregated), [`GlobalArray::gather_aggregated`](crate::GlobalArray::gather_aggregated) |
//! | to send records to ranks that process them | [`Conveyor`] |
//!
//! Where memory is mapped, updates and gathers are CPU atomics and loads, as without aggregation, and no block is made.
//!
//! **Blocks.** A rank fills a block for each rank to which it sends. A block leaves when it is full, when it is asked for
//! (`flush`), or when its rank has nothing else to do (in `finish`, and in `advance` without progress). Items of `n` bytes
//! take ⌈items / ⌊block / n⌋⌉ messages to each target, and a short message back for each block; an update has 8 bytes more
//! than its value, and an item that makes several hops 8 bytes more.
//!
//! **Hops.** Where ranks are many, blocks travel over one or two intermediate ranks, in a grid of ranks: with two hops a
//! rank sends to 2 √P others, with three to 3 ∛P. Each hop is a further message of an item, but fewer ranks share the
//! memory, so blocks are longer. The fewest hops are taken with which blocks have at least 2 KiB, unless [`Options`] say
//! otherwise. The scheme is that of conveyors (Maley, DeVinney 2019, "Conveyors for streaming many-to-many
//! communication").
//!
//! **Memory.** A rank has at most two blocks to each target that have not been consumed, and then pushes no further ones:
//! updates wait, [`Conveyor::push`] returns `false`. So the buffers of all blocks, sent and received, stay within
//! [`Options::bytes`]. A block is allocated at its first item.
//!
//! **Order.** Items of one rank to one other arrive in the order in which they were pushed, each exactly once. A lost rank
//! is an error that names it, at every rank that waits; what has arrived until then has been applied once, and the rest not.
//! Owners apply updates by their processors. Where the device's atomics are not coherent with these (over verbs), other
//! atomics of the memory get `WrongEpoch` until the updates are finished.
//!
//! **Progress.** Updates are applied, and blocks passed on, whenever a rank is inside the runtime, by any call that waits.

mod blocks;
mod conveyor;
mod finish;
mod gather;
mod grid;
mod receive;
mod state;
mod stream;
mod updates;
mod wire;

pub use conveyor::{Conveyor, Outbox};
pub(crate) use finish::{Step, Tree};
pub(crate) use stream::Stream;
pub use updates::{ArrayUpdates, Updates};

/// The memory and the hops of aggregated operations, the same at every rank.
///
/// ```
/// use farside_rma::aggregate::Options;
/// use farside_rma::prelude::*;
///
/// Job::threads(4, |job| {
///     let team = job.world()?;
///     let table = Symmetric::<u32>::allocate(&team, 1)?;
///     let mut sums = table.aggregated_with(Op::Sum, Options { bytes: 64 << 10, hops: Some(2) })?;
///     for rank in 0..team.size() {
///         sums.add(rank, 0, 1)?;
///     }
///     sums.finish()?;
///     assert_eq!(table.local().load(0)?, 4);
///     table.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of a rank for blocks, at least one item for each block.
    pub bytes: usize,
    /// Number of hops, 1 to 3; `None` for the fewest with which blocks are long enough.
    pub hops: Option<usize>,
}

impl Default for Options {
    /// 1 MiB, and hops chosen by the number of ranks.
    fn default() -> Self {
        Self { bytes: 1 << 20, hops: None }
    }
}
