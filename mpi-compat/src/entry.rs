//! The entry point of every call: takes the lock, and passes errors to their error handlers.

use std::ffi::c_int;
use std::ops::Deref;

use crate::comm::record_failed_group_call;
use crate::constants::*;
use crate::errors::{self, HandlerCall, On};
use crate::fail::{Fail, Result, fail};
use crate::lock::{Biased, LOCK, Taken};
use crate::runtime::{Call, Runtime, WithoutLock, not_running};

/// The phases in which a function may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Running,
    Always,
}

/// A call of a function with a fast path. The fast path borrows its objects and either handles the usual case or does
/// nothing; the slow path holds its objects and reports all errors.
#[derive(Clone, Copy)]
pub struct Usual<'a> {
    runtime: &'a Runtime,
    /// `None` if only the fast path is executed.
    call: Option<&'a Call<'a>>,
}

impl<'a> Usual<'a> {
    /// A call with fast and slow path.
    #[inline(always)]
    pub fn of(call: &'a Call<'a>) -> Self {
        Self { runtime: call, call: Some(call) }
    }

    /// Whether the fast path is to be executed: in the thread to which the lock is biased, by [`try_fast`].
    #[inline(always)]
    pub fn is_fast_path(self) -> bool {
        self.call.is_none() || !LOCK.is_biased()
    }

    /// Runs the slow path; returns whether the call is complete.
    ///
    /// # Errors
    /// Those of `slow`.
    #[inline(always)]
    pub fn slow_path(self, slow: impl FnOnce(&Call<'_>) -> Result) -> Result<bool> {
        self.call.map_or(Ok(false), |call| slow(call).map(|()| true))
    }
}

impl Deref for Usual<'_> {
    type Target = Runtime;

    #[inline(always)]
    fn deref(&self) -> &Runtime {
        self.runtime
    }
}

/// Runs the fast path of a call in the thread to which the lock is biased; returns whether the call is complete. No
/// value is live across a nested call, so no registers need to be saved.
#[inline(always)]
pub fn try_fast(call: impl FnOnce(Usual<'_>) -> Result<bool>) -> bool {
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
    entered(Taken::new(), name, large, when, on, handles, body)
}

/// [`enter`] for a function that `without` may execute without the lock; see [`Taken::unless`].
#[inline(always)]
pub fn enter_unless(
    without: impl FnOnce(WithoutLock) -> Result<bool>,
    name: &'static str,
    large: bool,
    when: When,
    on: On,
    handles: impl FnOnce() -> Vec<(&'static str, usize)>,
    body: impl FnOnce(&Call<'_>) -> Result,
) -> c_int {
    let without = || Runtime::without_lock().is_some_and(|state| without(state).unwrap_or(false));
    let Some(taken) = Taken::unless(without) else { return MPI_SUCCESS };
    entered(taken, name, large, when, on, handles, body)
}

#[inline(always)]
fn entered(
    taken: Taken,
    name: &'static str,
    large: bool,
    when: When,
    on: On,
    handles: impl FnOnce() -> Vec<(&'static str, usize)>,
    body: impl FnOnce(&Call<'_>) -> Result,
) -> c_int {
    let call = Call::of(&taken, name, large);
    let may = when == When::Always || call.active.get();
    let result = if may { body(&call) } else { Err(not_running(call.phase.get())) };
    match result {
        Ok(()) => MPI_SUCCESS,
        Err(fail) => {
            let handles = handles();
            record_failed_group_call(&call, &handles);
            raise(taken, (name, large), on, fail, handles)
        }
    }
}

/// Adds the name of the argument, and calls the error handler. The handler may jump out of the call, so no value with a
/// destructor may be live.
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
