//! Checks of an algorithm's schedule against its call, once, before its plan is stored. The execution accesses the
//! caller's memory by the schedule's blocks, and the algorithm may be the program's own.
//!
//! | The execution relies on | checked by |
//! |---|---|
//! | slices inside their buffers; an input that is not written; no block reduced into itself; steps that wait for earlier ones only, and are ordered if they touch the same block or loan; loans that end; peers that are other ranks of the call; tags below those of the runtime | the [`Builder`](crate::coll::schedule::Builder), which alone makes schedules that are executed |
//! | rank, number of ranks, and input and output with the sizes of the operation's table | [`check`] |
//! | no access to the input of a call in place, nor to an output that the rank does not have | [`check`] |
//! | reductions only where the call reduces | [`check`] |
//! | one message of each tag between two ranks | [`check`] |
//! | a size for each block, and offsets and lengths in the address space | `Plan`, [`lengths`] |
//! | copies and operands as long as their destination | [`lengths`] |
//!
//! Lengths of messages and of loans are compared when they arrive.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::coll::operation::{Algorithm, Call, Operation};
use crate::coll::schedule::{Action, Buffer, Schedule, Slice};

/// Why a schedule is not executed.
type Checked<R> = std::result::Result<R, String>;

/// Whether an algorithm supports a call, according to its own function.
pub(super) fn applies(algorithm: &Algorithm, call: &Call<'_>) -> Checked<bool> {
    caught("applies", || (algorithm.applies)(call))
}

/// Whether a call has one round, according to the algorithm's own function.
pub(super) fn has_one_round(algorithm: &Algorithm, call: &Call<'_>) -> Checked<bool> {
    caught("one_round", || (algorithm.one_round)(call))
}

/// The schedule of an algorithm for a call, checked for execution.
pub(super) fn build(algorithm: &Algorithm, call: &Call<'_>) -> Checked<Schedule> {
    let schedule = caught("build", || (algorithm.build)(call))?;
    check(&schedule, call)?;
    Ok(schedule)
}

/// Runs a function of an algorithm; a panic becomes an error with its text.
fn caught<R>(name: &str, f: impl FnOnce() -> R) -> Checked<R> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let text = format!("function {name} of the algorithm panicked: {}", panic_text(&*panic));
        // The payload of a panic may panic when it is dropped.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(again);
        }
        text
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message")
}

fn check(schedule: &Schedule, call: &Call<'_>) -> Checked<()> {
    use Operation as O;
    if !schedule.is_checked() {
        return Err("the schedule was not made by a Builder".to_owned());
    }
    if (schedule.rank(), schedule.size()) != (call.rank, call.size) {
        return Err(format!("the schedule is for rank {} of {}", schedule.rank(), schedule.size()));
    }
    let parts = schedule.input().count.max(schedule.output().count);
    let (input, output, in_place) = call.buffers(parts);
    if (schedule.input(), schedule.output()) != (input, output) || call.operation.is_of_a_vector() && parts == 0 {
        let (has, other) = ((schedule.input(), schedule.output()), (input, output));
        return Err(format!("input and output of the schedule are {has:?}, but those of the call are {other:?}"));
    }
    let is_first_of_exscan = call.operation == O::Exscan && call.rank == 0;
    let is_whole_at_root = call.operation == O::Scatter && call.in_place && call.rank == call.root;
    let no_output = is_whole_at_root || is_first_of_exscan && !call.in_place;
    let mut messages = Vec::new();
    for (number, step) in schedule.steps().enumerate() {
        let uses = |slices: &[Slice], buffer: Buffer| slices.iter().any(|slice| slice.buffer == buffer);
        let wrong = |what: &str| Err(format!("step {number} of the schedule {what}: {:?}", step.action));
        if in_place.is_some() && uses(step.from, Buffer::Input) {
            return wrong("reads the input of an in-place call, which has none");
        }
        if (no_output || is_first_of_exscan) && uses(step.into, Buffer::Output) {
            return wrong("writes the output, which the call does not write at this rank");
        }
        if no_output && uses(step.from, Buffer::Output) {
            return wrong("reads the output, which this rank does not have");
        }
        let reduces =
            matches!(step.action, Action::Reduce { .. } | Action::ReceiveReduce { .. } | Action::ReadReduce { .. });
        if reduces && !call.operation.is_reduction() {
            return wrong("reduces, but the operation is not a reduction");
        }
        messages.extend(step.action.message(call.rank).map(|(_, message)| message));
    }
    messages.sort_unstable();
    match messages.windows(2).find(|pair| pair[0] == pair[1]) {
        Some([(from, to, tag), ..]) => {
            Err(format!("the schedule has two messages from rank {from} to rank {to} with tag {tag}"))
        }
        _ => Ok(()),
    }
}

/// For each step of a schedule: the number of bytes that it sends, or else receives. `starts` are the offsets of the
/// blocks of each buffer; with `may_be_shorter`, a message may be shorter than its destination.
pub(super) fn lengths(schedule: &Schedule, starts: &[Vec<usize>; 3], may_be_shorter: bool) -> Checked<Vec<usize>> {
    let of_slice = |slice: &Slice| {
        let starts = &starts[slice.buffer as usize];
        starts[(slice.first + slice.count) as usize] - starts[slice.first as usize]
    };
    let of = |slices: &[Slice]| {
        let sum = slices.iter().try_fold(0usize, |sum, slice| sum.checked_add(of_slice(slice)));
        sum.filter(|sum| isize::try_from(*sum).is_ok())
    };
    let bytes_of_step = |(number, step): (usize, crate::coll::schedule::Step<'_>)| {
        let too_long = || format!("step {number} of the schedule moves more bytes than the address space holds");
        let (from, into) = (of(step.from).ok_or_else(too_long)?, of(step.into).ok_or_else(too_long)?);
        let fits = from == into || may_be_shorter && from < into;
        if matches!(step.action, Action::Copy | Action::Reduce { .. }) && !fits {
            return Err(format!(
                "step {number} of the schedule moves {from} bytes into a block of {into}: {:?}",
                step.action
            ));
        }
        Ok(if step.from.is_empty() { into } else { from })
    };
    schedule.steps().enumerate().map(bytes_of_step).collect()
}
