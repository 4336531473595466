//! The entry of every call: takes the lock, and passes an error to its handler.

use std::ffi::c_int;
use std::ops::Deref;

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

/// A call of a function that borrows its objects in the usual case. Its first part does that case or nothing; the rest holds
/// its objects, and has every error.
#[derive(Clone, Copy)]
pub struct Usual<'a> {
    runtime: &'a Runtime,
    /// `None` for the first part alone.
    call: Option<&'a Call<'a>>,
}

impl<'a> Usual<'a> {
    /// The whole call.
    #[inline(always)]
    pub fn of(call: &'a Call<'a>) -> Self {
        Self { runtime: call, call: Some(call) }
    }

    /// Whether the first part is to be done: in the thread to which the lock is biased, by [`at_once`].
    #[inline(always)]
    pub fn is_first(self) -> bool {
        self.call.is_none() || !LOCK.is_biased()
    }

    /// Runs the rest of the call; returns whether the call is complete.
    ///
    /// # Errors
    /// Those of `rest`.
    #[inline(always)]
    pub fn rest(self, rest: impl FnOnce(&Call<'_>) -> Result) -> Result<bool> {
        self.call.map_or(Ok(false), |call| rest(call).map(|()| true))
    }
}

impl Deref for Usual<'_> {
    type Target = Runtime;

    #[inline(always)]
    fn deref(&self) -> &Runtime {
        self.runtime
    }
}

/// Runs the first part of a call in the thread to which the lock is biased; returns whether the call is complete. Nothing of
/// it is needed after a call, so it saves no registers.
#[inline(always)]
pub fn at_once(call: impl FnOnce(Usual<'_>) -> Result<bool>) -> bool {
    let Some(biased) = Biased::new() else { return false };
    let done = call(Usual { runtime: Runtime::of_biased(&biased), call: None }).unwrap_or(false);
    if !done {
        biased.take_again();
    }
    done
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
