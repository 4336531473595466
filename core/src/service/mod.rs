//! Functions that a device lacks, implemented once above the device interface.
//!
//! `steps`: accumulates, and compare-and-swaps of integers shorter than 8 bytes, by reads, writes and atomics on words.
//! [`records`]: accumulates and compare-and-swaps that the target's CPU applies. `open`: chooses the device of a job,
//! and adds the steps that the device needs.

pub(crate) mod open;
pub mod records;
pub(crate) mod steps;
mod update;
