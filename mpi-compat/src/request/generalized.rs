#![allow(unsafe_code)]
//! Generalized requests, whose operations the program performs (MPI-5.0 section 13.2).

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::rc::Rc;

use super::get;
use crate::arguments::{Callback, Out, StatusOut};
use crate::constants::*;
use crate::fail::{Result, fail};
use crate::handle::Request;
use crate::lock::LOCK;
use crate::objects::Outcome;
use crate::runtime::{Call, Operation};
use crate::status::Status;

/// A generalized request: the user's callback functions, and their argument.
struct Generalized {
    query: Callback,
    free: Callback,
    cancel: Callback,
    extra: *mut c_void,
    /// Whether the program has called `MPI_Grequest_complete`.
    complete: Cell<bool>,
    /// Whether the program freed the request before it was complete.
    freed: Cell<bool>,
}

type Query = unsafe extern "C-unwind" fn(*mut c_void, *mut Status) -> c_int;
type Free = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;
type Cancel = unsafe extern "C-unwind" fn(*mut c_void, c_int) -> c_int;

/// The result of a callback.
fn checked(code: c_int, what: &str) -> Result {
    if code == MPI_SUCCESS { Ok(()) } else { Err(fail(code, format!("the {what} function returned {code}"))) }
}

impl Generalized {
    fn query(&self) -> (Status, Result) {
        let mut status = Status::EMPTY;
        let place = &raw mut status;
        // SAFETY: the program has passed a function of this type.
        let code = LOCK.outside(|| unsafe {
            let query = std::mem::transmute::<*const (), Query>(self.query.0 as *const ());
            query(self.extra, place)
        });
        (status, checked(code, "query"))
    }

    fn run_free(&self) -> Result {
        // SAFETY: as for `query`.
        let code = LOCK.outside(|| unsafe {
            let free = std::mem::transmute::<*const (), Free>(self.free.0 as *const ());
            free(self.extra)
        });
        checked(code, "free")
    }
}

impl Generalized {
    /// Marks the operation complete; returns whether its handle is to be released.
    fn complete(&self) -> Result<bool> {
        if self.complete.replace(true) {
            return Err(fail(MPI_ERR_REQUEST, "is already complete"));
        }
        if self.freed.get() {
            self.run_free()?;
        }
        Ok(self.freed.get())
    }
}

impl Operation for Generalized {
    fn has_ended(&self) -> bool {
        self.complete.get()
    }

    fn outcome(&self, _: &Call<'_>) -> Outcome {
        let (status, queried) = self.query();
        Outcome { status, failed: queried.err() }
    }

    fn complete(self: Rc<Self>, call: &Call<'_>, status: StatusOut) -> Result {
        let queried = self.outcome(call).put(status);
        queried.and(self.run_free())
    }

    fn cancel(&self, _: &Call<'_>) -> Result {
        // SAFETY: as for `query`.
        let code = LOCK.outside(|| unsafe {
            let cancel = std::mem::transmute::<*const (), Cancel>(self.cancel.0 as *const ());
            cancel(self.extra, self.complete.get().into())
        });
        checked(code, "cancel")
    }

    fn free(&self, _: &Call<'_>) -> Result<bool> {
        if self.complete.get() {
            self.run_free()?;
            return Ok(false);
        }
        // The program still has to complete the operation through the same handle.
        self.freed.set(true);
        Ok(true)
    }
}

pub fn grequest_start(
    call: &Call<'_>,
    query: Callback,
    free: Callback,
    cancel: Callback,
    extra: *mut c_void,
    request: Out<Request>,
) -> Result {
    for (function, name) in [(query, "query_fn"), (free, "free_fn"), (cancel, "cancel_fn")] {
        if function.0 == 0 {
            return Err(fail(MPI_ERR_ARG, "is a null pointer").named(name));
        }
    }
    let (complete, freed) = Default::default();
    let operation = Rc::new(Generalized { query, free, cancel, extra, complete, freed });
    request.set(call.requests.insert(operation));
    Ok(())
}

pub fn grequest_complete(call: &Call<'_>, request: Request) -> Result {
    let operation = get(call, request, "request")?;
    let not_generalized = || fail(MPI_ERR_REQUEST, "is not a generalized request");
    let generalized = operation.of_kind::<Generalized>().ok_or_else(not_generalized);
    let is_freed = generalized.and_then(Generalized::complete);
    if is_freed.map_err(|failed| failed.value(request.0).named("request"))? {
        call.requests.release(request)?;
    }
    Ok(())
}
