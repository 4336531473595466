//! The entry of every call: takes the lock, and passes an error to its handler.

use std::ffi::c_int;

use crate::constants::*;
use crate::errors::{self, HandlerCall, On};
use crate::fail::{Fail, Result, fail};
use crate::lock::{Biased, LOCK, Taken};
use crate::runtime::{Call, Runtime, not_running};

/// When a function may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Running,
    Always,
}

/// Runs the usual case of a function in the thread to which the lock is biased: `now` returns whether the call is
/// complete, and otherwise has changed nothing. Nothing of it is needed after a call, so it saves no registers.
#[inline(always)]
pub fn at_once(now: impl FnOnce(&Runtime) -> Result<bool>) -> bool {
    let Some(biased) = Biased::new() else { return false };
    let done = now(Runtime::of_biased(&biased)).unwrap_or(false);
    if !done {
        biased.take_again();
    }
    done
}

/// Runs the usual case of a function in a thread to which the lock is not biased; in any other, [`at_once`] has tried.
#[inline(always)]
pub fn try_unbiased(call: &Call<'_>, now: impl FnOnce(&Runtime) -> Result<bool>) -> bool {
    !LOCK.is_biased() && now(call).unwrap_or(false)
}

/// Runs the body of a function, and calls an error handler if it fails. `handles` are the names and values of the
/// arguments that are handles.
#[inline(always)]
pub fn enter(
    name: &'static str,
    large: bool,
    when: When,
    on: On,
    handles: impl FnOnce() -> Vec<(&'static str, usize)>,
    body: impl FnOnce(&Call<'_>) -> Result,
) -> c_int {
    let taken = Taken::new();
    let call = Call::of(&taken, name, large);
    let may = when == When::Always || call.active.get();
    let result = if may { body(&call) } else { Err(not_running(call.phase.get())) };
    match result {
        Ok(()) => MPI_SUCCESS,
        Err(fail) => raise(taken, (name, large), on, fail, handles()),
    }
}

/// Adds the name of the argument, and calls the error handler. That may jump out of the call, so no value with a
/// destructor is live then.
#[cold]
fn raise(
    taken: Taken,
    (name, large): (&'static str, bool),
    on: On,
    mut fail: Fail,
    handles: Vec<(&'static str, usize)>,
) -> c_int {
    if fail.argument.is_none() {
        let named = |value| handles.iter().find(|(_, handle)| *handle == value).map(|(name, _)| *name);
        fail.argument = fail.handle.and_then(named);
    }
    drop(handles);
    let (code, function) = errors::raise(&Call::of(&taken, name, large), on, fail);
    drop(taken);
    function.map_or(code, HandlerCall::call)
}

/// The error of a function that is not implemented.
#[cold]
pub fn not_yet(name: &'static str, on: On) -> c_int {
    let body = |_: &Call<'_>| {
        Err(fail(MPI_ERR_UNSUPPORTED_OPERATION, "not supported yet (mpi-compat/README.md lists what is supported)"))
    };
    enter(name, false, When::Always, on, Vec::new, body)
}
