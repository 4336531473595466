//! Functions that a device lacks, implemented once above the device interface.
//!
//! [`steps`]: accumulates, and compare-and-swaps of integers shorter than 8 bytes, by reads, writes and atomics on
//! words. `open`: chooses the device of a job, and adds the steps that it needs.

pub(crate) mod open;
pub mod steps;
mod update;
