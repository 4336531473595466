//! Requests (MPI-5.0 sections 3.7 and 3.9). Every chapter that starts operations creates objects of trait [`Operation`]
//! and stores them in `Runtime::requests`.

mod active;
mod completion;
mod generalized;
mod many;

use std::ffi::c_int;
use std::rc::Rc;

use farside_core::Job;

use crate::arguments::{ListOut, Out, StatusOut, count};
use crate::constants::*;
use crate::fail::{Fail, Result, fail};
use crate::handle::{Handle, Request};
use crate::runtime::{Call, Operation, Persistence};
use crate::status::Status;

use active::Active;

pub use completion::*;
pub use generalized::*;
pub use many::*;

/// A request for a send that is already complete.
#[inline]
pub fn complete_send(call: &Call<'_>) -> Request {
    call.complete_send.get()
}

/// Waits for an operation without a request; cancels it on failure.
#[inline]
pub fn finish(call: &Call<'_>, operation: Rc<impl Operation>, status: StatusOut) -> Result {
    if let Err(failed) = call.wait_until(|| operation.awaits(), || operation.has_ended()) {
        operation.abandon(&call.job()?);
        return Err(on(&*operation, failed));
    }
    operation.complete(call, status)
}

/// Waits for a receive; cancels it on failure. `None` is a receive from `MPI_PROC_NULL`.
pub fn finish_receive(call: &Call<'_>, request: Option<Request>, status: StatusOut) -> Result {
    let Some(mut request) = request else {
        status.set(Status::FROM_PROC_NULL);
        return Ok(());
    };
    let receive = Active::Receive(request);
    if let Err(failed) = call.wait_until(|| receive.awaits(call), || receive.has_ended(call)) {
        let failed = receive.direct_error(call, failed);
        abandon_receive(call, Some(request))?;
        return Err(failed);
    }
    receive.complete(call, &mut request, status)
}

/// Cancels a receive, and frees its request.
pub fn abandon_receive(call: &Call<'_>, request: Option<Request>) -> Result {
    if let Some(operation) = request.and_then(|request| call.receives.operation(request)) {
        operation.abandon(&call.job()?);
        request.and_then(|request| call.receives.release(request));
    }
    Ok(())
}

/// Directs an error to the error handler of the operation's object.
pub fn on(operation: &dyn Operation, failed: Fail) -> Fail {
    match operation.object() {
        Some(object) => failed.on(object),
        None => failed,
    }
}

/// The operation of a request that must not be null.
#[inline]
pub fn get(call: &Call<'_>, request: Request, name: &'static str) -> Result<Rc<dyn Operation>> {
    if let Some(receive) = call.receives.operation(request) {
        return Ok(receive);
    }
    call.requests.get(request).map_err(|failed| failed.named(name))
}

/// Frees a request whose operation the caller holds.
fn release(call: &Call<'_>, request: Request) {
    // A request that occurs twice in one call has already been released.
    if call.receives.release(request).is_none() {
        let _ = call.requests.release(request);
    }
}

pub fn request_free(call: &Call<'_>, request: Out<Request>) -> Result {
    let handle = request.get();
    let operation = get(call, handle, "request")?;
    if !operation.free(call)? {
        release(call, handle);
        call.freed.borrow_mut().add(operation);
    }
    request.set(MPI_REQUEST_NULL);
    Ok(())
}

/// Waits, before MPI ends, until the operations whose requests were freed have ended. After the time limit of the job,
/// cancels the remaining ones and fails.
pub fn drain(call: &Call<'_>, job: &Job) -> Result {
    let freed = call.freed.take().operations;
    let limit = job.settings().timeout();
    let over = || Ok(freed.iter().all(|operation| operation.has_ended()).then_some(()));
    let waited = job.within(limit, || job.wait(call.name, over));
    freed.iter().for_each(|operation| operation.abandon(job));
    Ok(waited?)
}

pub fn cancel(call: &Call<'_>, request: Out<Request>) -> Result {
    let operation = get(call, request.get(), "request")?;
    if operation.persistence() == Persistence::Inactive {
        return Err(on(
            &*operation,
            fail(MPI_ERR_REQUEST, "is inactive, so there is no operation to cancel")
                .value(request.get().0)
                .named("request"),
        ));
    }
    operation.cancel(call).map_err(|failed| on(&*operation, failed))
}

fn start_one(call: &Call<'_>, request: Request, name: &'static str) -> Result {
    let operation = get(call, request, name)?;
    let cannot = |why: &str| Err(fail(MPI_ERR_REQUEST, why).value(request.0).named(name));
    let started = match operation.persistence() {
        Persistence::None => cannot("is not persistent"),
        Persistence::Active => cannot("has already been started"),
        Persistence::Inactive => operation.start(call),
    };
    started.map_err(|failed| on(&*operation, failed))
}

pub fn start(call: &Call<'_>, request: Out<Request>) -> Result {
    start_one(call, request.get(), "request")
}

pub fn startall(call: &Call<'_>, n: c_int, requests: ListOut<Request>) -> Result {
    let requests = requests.read(count(n.into(), "count")? as i64)?;
    requests.into_iter().try_for_each(|request| start_one(call, request, "array_of_requests"))
}

/// Whether a handle is the null request.
#[inline]
fn is_null(request: Request) -> bool {
    request.0 == Request::NULL
}
