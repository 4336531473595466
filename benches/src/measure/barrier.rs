//! Suite "barrier": the team's barrier; of two ranks in turns with a line that goes one way, and with a bare meeting.

use farside_core::error::Result;

use super::lines::{Lines, Pattern};
use super::turns::Way;
use super::{Bench, What};
use crate::record::{Library, Op, Suite, Sync, Window};

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
    let mut barrier = |iterations| (0..iterations).try_for_each(|_| bench.team.barrier());
    let Some(lines) = Lines::open(bench)? else { return bench.measure(&what, true, &mut barrier) };
    let mut line = |iterations| lines.pass(bench, Pattern::RoundTrip, iterations);
    let mut meeting = |iterations| lines.pass(bench, Pattern::Meeting, iterations);
    let mut ways = [
        Way::of(Library::Farside, &mut barrier),
        Way { per_iteration: 2, ..Way::of(Library::Limit, &mut line) },
        Way { op: Some(Op::BareMeeting), ..Way::of(Library::Limit, &mut meeting) },
    ];
    bench.turns(what.key(bench.ranks), true, &mut ways)?;
    lines.free()
}
