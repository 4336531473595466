//! What a device lacks, done once above the seam.
//!
//! [`steps`]: accumulates, and compare-and-swaps on integers of less than 8 bytes, by reads, writes and atomics on words. `open`: which device a job uses, with the steps
//! that it needs.

pub(crate) mod open;
pub mod steps;
mod update;
