//! The entry of every call: it takes the lock, and an error goes to a handler.

use std::ffi::c_int;

use crate::constants::*;
use crate::errors::{self, On};
use crate::fail::{Fail, Result, fail};
use crate::lock::Taken;
use crate::runtime::{Call, not_running};

/// When a function may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Running,
    Always,
}

/// Runs the body of a function, and tells an error handler if it fails. `handles` are names and values of those among
/// the arguments.
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

/// Names the argument, and calls the error handler, which may jump out of the call: nothing is held then that would be lost.
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
    if let Some(function) = function {
        function.call();
    }
    code
}

/// A function that is not there yet.
#[cold]
pub fn not_yet(name: &'static str, on: On) -> c_int {
    let body = |_: &Call<'_>| {
        Err(fail(MPI_ERR_UNSUPPORTED_OPERATION, "is not there yet: see the support table of the README"))
    };
    enter(name, false, When::Always, on, Vec::new, body)
}
