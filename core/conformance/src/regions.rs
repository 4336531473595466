#![allow(unsafe_code)]
#![allow(dead_code)]
//! Regions in tests, which use no pointer into them after they have been given back.

use farside_core::device::{Registration, RemoteRegion};
use farside_core::memory::keys::AccumulateFn;
use farside_core::{Job, Result, Team, coll};

/// Releases a registration of this rank.
pub(crate) fn release(job: &Job, handle: u64) -> Result<()> {
    // SAFETY: the handle comes from a registration, or is unknown to the device; the test uses its memory no more.
    unsafe { job.device().release(handle) }
}

/// Forgets an imported region.
pub(crate) fn forget(job: &Job, handle: u64) {
    // SAFETY: the test uses no mapping of it any more.
    unsafe { job.device().forget(handle) };
}

/// Exchanges regions.
pub(crate) fn exchange_regions(
    team: &Team,
    own: Result<Registration>,
    accumulate: Option<AccumulateFn>,
) -> Result<(Registration, Vec<RemoteRegion>)> {
    // SAFETY: a registration of this job, which no test uses after a failure.
    unsafe { coll::exchange_regions(team, own, accumulate) }
}
