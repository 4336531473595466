//! What a device lacks, done once above the seam.
//!
//! [`steps`]: accumulates, and compare-and-swaps on integers of less than 8 bytes, by reads, writes and atomics on words.
//! `target`: operations on memory of the same node that is not mapped, which its rank or its agent does.

pub mod steps;
pub(crate) mod target;
mod update;
