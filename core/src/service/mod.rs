//! Functions that a device lacks, implemented once above the device interface.
//!
//! `steps`: accumulates, and compare-and-swaps of integers shorter than 8 bytes, by reads, writes and atomics on words.
//! `ordered`: order of writes and signals, and atomics, for networks without. `served`: its updates that the target's
//! processor makes. [`records`]: accumulates and compare-and-swaps that the target's CPU applies. `open`: chooses the
//! device of a job.

pub(crate) mod open;
mod ordered;
pub mod records;
mod served;
pub(crate) mod steps;
mod update;

use crate::device::Device;
use ordered::Ordered;
use steps::Steps;

/// Adds to the device of rank `me` the order and the atomics that it lacks.
pub(crate) fn with_order(device: Box<dyn Device>, me: u32) -> Box<dyn Device> {
    if Ordered::is_needed(device.capabilities()) { Box::new(Ordered::over(device, me)) } else { device }
}

/// Adds to a device the updates that it lacks.
pub(crate) fn with_updates(device: Box<dyn Device>) -> Box<dyn Device> {
    if device.capabilities().accumulate { device } else { Box::new(Steps::over(device)) }
}
