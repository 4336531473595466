//! Completion of one, any, some and all of several requests (MPI-5.0 sections 3.7.3 to 3.7.6): wait, test, and the
//! calls that do not free the requests.

use std::ffi::c_int;

use smallvec::SmallVec;

use super::Active;
use crate::arguments::{List, ListOut, Out, StatusOut, count};
use crate::constants::*;
use crate::entry::Usual;
use crate::fail::{Result, fail};
use crate::handle::Request;
use crate::message::status_of;
use crate::runtime::Call;
use crate::status::Status;

/// Whether a call completes requests or only reads their outcomes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Consume {
    Yes,
    No,
}

/// Completes and frees the request of a send that was complete at its start, or of a receive that has succeeded;
/// otherwise changes nothing and returns false.
#[inline(always)]
fn is_completed(call: Usual<'_>, request: Out<Request>, status: StatusOut) -> bool {
    if !call.is_fast_path() {
        return false;
    }
    let handle = request.get();
    if handle == call.complete_send.get() {
        status.set(Status::EMPTY);
        request.set(MPI_REQUEST_NULL);
        return true;
    }
    call.receives.close_whole(handle, |received, comm| {
        status.set_made(|| status_of(comm, received));
        request.set(MPI_REQUEST_NULL);
    })
}

#[inline(always)]
pub fn wait(call: Usual<'_>, request: Out<Request>, status: StatusOut) -> Result<bool> {
    if is_completed(call, request, status) { Ok(true) } else { call.slow_path(|call| wait_slow(call, request, status)) }
}

/// The slow path of [`wait`].
fn wait_slow(call: &Call<'_>, request: Out<Request>, status: StatusOut) -> Result {
    let mut handle = request.get();
    let Some(active) = Active::of(call, handle, "request")? else {
        status.set_empty();
        return Ok(());
    };
    call.wait_until(|| active.awaits(call), || active.has_ended(call))
        .map_err(|failed| active.direct_error(call, failed))?;
    let completed = active.complete(call, &mut handle, status);
    request.set(handle);
    completed
}

fn test_one(call: &Call<'_>, handle: &mut Request, flag: Out<c_int>, status: StatusOut, consume: Consume) -> Result {
    let Some(active) = Active::of(call, *handle, "request")? else {
        flag.set(1);
        status.set_empty();
        return Ok(());
    };
    let over = call.test(|| active.has_ended(call)).map_err(|failed| active.direct_error(call, failed))?;
    flag.set(over.into());
    match consume {
        _ if !over => Ok(()),
        Consume::Yes => active.complete(call, handle, status),
        Consume::No => active.read(call, status),
    }
}

#[inline(always)]
pub fn test(call: Usual<'_>, request: Out<Request>, flag: Out<c_int>, status: StatusOut) -> Result<bool> {
    if is_completed(call, request, status) {
        flag.set(1);
        return Ok(true);
    }
    call.slow_path(|call| {
        let mut handle = request.get();
        let tested = test_one(call, &mut handle, flag, status, Consume::Yes);
        request.set(handle);
        tested
    })
}

pub fn request_get_status(call: &Call<'_>, request: Request, flag: Out<c_int>, status: StatusOut) -> Result {
    let mut handle = request;
    test_one(call, &mut handle, flag, status, Consume::No)
}

/// Calls with at most this number of requests allocate no memory.
const MAX_INLINE_REQUESTS: usize = 8;

/// The requests of a call with few requests, or of a call that completes all of them.
pub struct Requests<'c> {
    call: &'c Call<'c>,
    handles: SmallVec<[Request; MAX_INLINE_REQUESTS]>,
    /// The operation of each request; `None` if the request is null or inactive.
    operations: SmallVec<[Option<Active>; MAX_INLINE_REQUESTS]>,
    consume: Consume,
}

impl<'c> Requests<'c> {
    /// Reads the `n` requests of an array.
    fn read(&mut self, (n, name): (c_int, &'static str), array: List<Request>) -> Result {
        let len = count(n.into(), name)? as usize;
        for at in 0..len {
            let handle = array.get(at, len)?;
            self.operations.push(Active::of(self.call, handle, "array_of_requests")?);
            self.handles.push(handle);
        }
        Ok(())
    }

    /// The index of the first request whose operation has ended.
    fn first_ended(&self) -> Option<usize> {
        self.operations.iter().position(|one| one.as_ref().is_some_and(|one| one.has_ended(self.call)))
    }

    /// Waits until `ready`, or tests it with one round of progress. An error is raised on the first request whose
    /// operation has not ended.
    fn until(&self, wait: bool, ready: impl FnMut() -> bool) -> Result<bool> {
        let call = self.call;
        let open = || self.operations.iter().flatten().find(|one| !one.has_ended(call));
        let awaited = || open().and_then(|one| one.awaits(call));
        let met = if wait { call.wait_until(awaited, ready).map(|()| true) } else { call.test(ready) };
        met.map_err(|failed| match open() {
            Some(one) => one.direct_error(call, failed),
            None => failed,
        })
    }

    /// Completes all requests if all operations have ended; returns whether they have.
    fn all(&mut self, wait: bool, statuses: StatusOut) -> Result<bool> {
        let mut at = 0;
        let over = self.until(wait, || {
            while self.operations.get(at).is_some_and(|one| one.as_ref().is_none_or(|one| one.has_ended(self.call))) {
                at += 1;
            }
            at == self.operations.len()
        })?;
        if over { self.take_all(0..self.handles.len(), statuses).map(|()| true) } else { Ok(false) }
    }

    fn test_all(&mut self, flag: Out<c_int>, statuses: StatusOut) -> Result {
        // The flag is set first, since an outcome may be an error.
        flag.set(1);
        let over = self.all(false, statuses)?;
        flag.set(over.into());
        Ok(())
    }

    /// Completes the first request whose operation has ended.
    pub fn any(&mut self, wait: bool, flag: Option<Out<c_int>>, indx: Out<c_int>, status: StatusOut) -> Result {
        let active = self.operations.iter().any(Option::is_some);
        let over = !active || self.until(wait, || self.first_ended().is_some())?;
        flag.iter().for_each(|flag| flag.set(over.into()));
        let first = self.first_ended();
        indx.set(first.map_or(MPI_UNDEFINED, |at| at as c_int));
        match first {
            Some(at) => self.take(at, status),
            None => {
                if over {
                    status.set_empty();
                }
                Ok(())
            }
        }
    }

    /// Completes all requests whose operations have ended.
    pub fn some(&mut self, wait: bool, outcount: Out<c_int>, indices: ListOut<c_int>, statuses: StatusOut) -> Result {
        if self.operations.iter().all(Option::is_none) {
            outcount.set(MPI_UNDEFINED);
            return Ok(());
        }
        self.until(wait, || self.first_ended().is_some())?;
        let over = |at: &usize| self.operations[*at].as_ref().is_some_and(|one| one.has_ended(self.call));
        let which: Vec<usize> = (0..self.operations.len()).filter(over).collect();
        outcount.set(which.len() as c_int);
        indices.write(&which.iter().map(|at| *at as c_int).collect::<Vec<_>>())?;
        self.take_all(which.into_iter(), statuses)
    }

    /// Returns the status and error of request `at`, whose operation has ended.
    fn take(&mut self, at: usize, status: StatusOut) -> Result {
        match self.operations[at].take() {
            Some(one) if self.consume == Consume::Yes => one.complete(self.call, &mut self.handles[at], status),
            Some(one) => one.read(self.call, status),
            None => {
                status.set(Status::EMPTY);
                Ok(())
            }
        }
    }

    /// Completes the requests with these indices, whose operations have all ended ([`all_of`]).
    fn take_all(&mut self, which: impl ExactSizeIterator<Item = usize>, statuses: StatusOut) -> Result {
        all_of(self.call, which, statuses, |at, status| self.take(at, status))
    }
}

/// Completes the requests `which` and writes their statuses one after the other. If one has failed, all statuses
/// include the error field.
pub fn all_of(
    call: &Call<'_>,
    which: impl ExactSizeIterator<Item = usize>,
    statuses: StatusOut,
    mut take: impl FnMut(usize, StatusOut) -> Result,
) -> Result {
    let (len, mut failures) = (which.len(), Vec::new());
    for (i, at) in which.enumerate() {
        let taken = take(at, statuses.at(i));
        failures.extend(taken.err().map(|failed| (i, at, failed)));
    }
    if failures.is_empty() {
        return Ok(());
    }
    (0..len).for_each(|i| statuses.at(i).set_error(MPI_SUCCESS));
    for (i, _, failed) in &failures {
        statuses.at(*i).set_error(call.errors.code_of(failed.code, &failed.text));
    }
    let (_, at, mut first) = failures.swap_remove(0);
    let mut failed = fail(MPI_ERR_IN_STATUS, format!("request {at}: {}", first.text)).named("array_of_statuses");
    failed.on = first.on.take();
    Err(failed)
}

/// Calls `f` with the requests of an array; `consume` decides whether completed requests are freed.
pub fn of(
    call: &Call<'_>,
    consume: Consume,
    array_of: (c_int, &'static str),
    array: List<Request>,
    f: impl FnOnce(&mut Requests<'_>) -> Result,
) -> Result {
    let mut requests = Requests { call, handles: SmallVec::new(), operations: SmallVec::new(), consume };
    requests.read(array_of, array)?;
    f(&mut requests)
}

/// Calls `f` with the requests of an array, and writes the changed handles back.
pub fn with(
    call: &Call<'_>,
    array_of: (c_int, &'static str),
    array: ListOut<Request>,
    f: impl FnOnce(&mut Requests<'_>) -> Result,
) -> Result {
    of(call, Consume::Yes, array_of, array.as_list(), |requests| {
        let done = f(requests);
        array.write(&requests.handles)?;
        done
    })
}

pub fn waitall(call: &Call<'_>, n: c_int, array: ListOut<Request>, statuses: StatusOut) -> Result {
    with(call, (n, "count"), array, |requests| requests.all(true, statuses).map(|_| ()))
}

pub fn testall(call: &Call<'_>, n: c_int, array: ListOut<Request>, flag: Out<c_int>, statuses: StatusOut) -> Result {
    with(call, (n, "count"), array, |requests| requests.test_all(flag, statuses))
}

pub fn request_get_status_all(
    call: &Call<'_>,
    n: c_int,
    array: List<Request>,
    flag: Out<c_int>,
    statuses: StatusOut,
) -> Result {
    of(call, Consume::No, (n, "count"), array, |requests| requests.test_all(flag, statuses))
}
