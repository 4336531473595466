//! What a device lacks, done once above the seam, out of what it has.
//!
//! [`steps`]: accumulates, and compare-and-swaps on integers of less than 8 bytes, by reads, writes and atomics on words.

pub mod steps;
mod update;
