//! Suite "barrier": the team's barrier.

use farside_core::error::Result;

use super::{Bench, What};
use crate::record::{Op, Suite, Sync, Window};

/// An iteration: one barrier of all ranks.
pub(super) fn run(bench: &Bench<'_>) -> Result<()> {
    let what = What {
        suite: Suite::Barrier,
        window: Window::None,
        sync: Sync::None,
        op: Op::Barrier,
        bytes: 0,
        per_iteration: 1,
    };
    bench.measure(&what, true, &mut |iterations| (0..iterations).try_for_each(|_| bench.team.barrier()))
}
