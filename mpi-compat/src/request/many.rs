//! Completion of one or some of many requests. When a program completes them one after the other, each call checks only
//! the changes since the previous call: receives record their completion in a list, and the array is compared with the
//! handles that the previous call left in it. Only operations of other kinds are checked one by one.

use std::ffi::c_int;

use super::completion::{Consume, Requests, all_of, of, with};
use super::{Active, is_null};
use crate::arguments::{List, ListOut, Out, StatusOut, count, list_of};
use crate::constants::*;
use crate::fail::Result;
use crate::handle::Request;
use crate::objects::{KnownRequests, RequestKind};
use crate::runtime::Call;
use crate::status::Status;

/// Minimum number of requests for which a call caches the array.
const MIN_REMEMBERED: usize = 16;

impl KnownRequests {
    /// Records the handle at an index.
    fn set(&mut self, call: &Call<'_>, at: usize, handle: Request) -> Result {
        let kind = match handle {
            null if is_null(null) => RequestKind::Null,
            receive if call.receives.watch(receive, &self.ended, at as u32) => RequestKind::Receive,
            other => {
                Active::of(call, other, "array_of_requests")?;
                RequestKind::Other
            }
        };
        let former = std::mem::replace(&mut self.kinds[at], kind);
        self.receives += usize::from(kind == RequestKind::Receive);
        self.receives -= usize::from(former == RequestKind::Receive);
        if kind == RequestKind::Other && former != RequestKind::Other {
            self.others.push(at as u32);
        }
        self.handles[at] = handle;
        Ok(())
    }

    /// Updates the cache to the contents of an array.
    fn read(&mut self, call: &Call<'_>, array: List<Request>, len: usize) -> Result {
        if (self.address, self.handles.len()) != (array.address(), len) {
            *self = Self { address: array.address(), ..Self::default() };
            self.handles = list_of(len, "array_of_requests")?;
            self.handles.resize(len, MPI_REQUEST_NULL);
            self.kinds = list_of(len, "array_of_requests")?;
            self.kinds.resize(len, RequestKind::Null);
        }
        let mut from = 0;
        while let Some(at) = array.first_difference(from, &self.handles)? {
            self.set(call, at, array.get(at, len)?)?;
            from = at + 1;
        }
        Ok(())
    }

    /// The index of a request whose operation has ended, if there is one.
    fn over(&mut self, call: &Call<'_>) -> Option<usize> {
        while let Some(at) = self.ended.take() {
            let at = at as usize;
            // The program may have stored another request at this index since then.
            if self.kinds[at] == RequestKind::Receive && call.receives.has_ended(self.handles[at]) {
                return Some(at);
            }
        }
        for _ in 0..self.others.len() {
            if self.next >= self.others.len() {
                self.next = 0;
            }
            let at = self.others[self.next] as usize;
            if self.kinds[at] != RequestKind::Other {
                self.others.swap_remove(self.next);
                continue;
            }
            let active = Active::of(call, self.handles[at], "array_of_requests").ok().flatten();
            if active.is_some_and(|one| one.has_ended(call)) {
                return Some(at);
            }
            self.next += 1;
        }
        None
    }

    /// An operation that has not ended.
    fn open(&self, call: &Call<'_>) -> Option<Active> {
        let active = |at: usize| Active::of(call, self.handles[at], "array_of_requests").ok().flatten();
        (0..self.handles.len()).filter(|at| self.kinds[*at] != RequestKind::Null).find_map(active)
    }

    fn is_active(&self, call: &Call<'_>) -> bool {
        let active = |at: &u32| {
            let at = *at as usize;
            self.kinds[at] == RequestKind::Other && matches!(Active::of(call, self.handles[at], ""), Ok(Some(_)))
        };
        self.receives > 0 || self.others.iter().any(active)
    }
}

/// The requests of a call.
struct Many<'c> {
    call: &'c Call<'c>,
    known: KnownRequests,
    consume: Consume,
    array: ListOut<Request>,
}

impl Many<'_> {
    /// The index of a request whose operation has ended: waits for one, or makes one round of progress.
    fn first(&mut self, wait: bool) -> Result<Option<usize>> {
        let call = self.call;
        // Searching for the awaited operation is expensive, and only a bill needs it.
        let billed = call.job()?.bill().is_some().then(|| self.known.open(call));
        let awaited = billed.flatten().and_then(|one| one.awaits(call));
        let (known, mut first) = (&mut self.known, None);
        let ready = || {
            first = known.over(call);
            first.is_some()
        };
        let met = if wait { call.wait_until(|| awaited, ready) } else { call.test(ready).map(|_| ()) };
        met.map_err(|failed| match self.known.open(call) {
            Some(one) => one.direct_error(call, failed),
            None => failed,
        })?;
        Ok(first)
    }

    /// Returns the status and error of the request at an index, whose operation has ended, and writes back its handle.
    fn take(&mut self, at: usize, status: StatusOut) -> Result {
        let mut handle = self.known.handles[at];
        let Some(one) = Active::of(self.call, handle, "array_of_requests")? else {
            status.set(Status::EMPTY);
            return Ok(());
        };
        if self.consume == Consume::No {
            if self.known.kinds[at] == RequestKind::Receive {
                self.known.ended.add(at as u32);
            }
            return one.read(self.call, status);
        }
        let taken = one.complete(self.call, &mut handle, status);
        self.array.put(at, handle);
        self.known.set(self.call, at, handle).and(taken)
    }

    /// Completes a request whose operation has ended.
    fn any(&mut self, wait: bool, flag: Option<Out<c_int>>, indx: Out<c_int>, status: StatusOut) -> Result {
        let active = self.known.is_active(self.call);
        let first = if active { self.first(wait)? } else { None };
        flag.iter().for_each(|flag| flag.set((first.is_some() || !active).into()));
        indx.set(first.map_or(MPI_UNDEFINED, |at| at as c_int));
        match first {
            Some(at) => self.take(at, status),
            None => {
                if !active {
                    status.set_empty();
                }
                Ok(())
            }
        }
    }

    /// Completes all requests whose operations have ended.
    fn some(&mut self, wait: bool, outcount: Out<c_int>, indices: ListOut<c_int>, statuses: StatusOut) -> Result {
        if !self.known.is_active(self.call) {
            outcount.set(MPI_UNDEFINED);
            return Ok(());
        }
        let mut which: Vec<usize> = self.first(wait)?.into_iter().collect();
        if !which.is_empty() {
            let known = &mut self.known;
            while let Some(at) = known.ended.take().map(|at| at as usize) {
                if known.kinds[at] == RequestKind::Receive && self.call.receives.has_ended(known.handles[at]) {
                    which.push(at);
                }
            }
            let call = self.call;
            let over = |at: &usize| {
                let active = Active::of(call, known.handles[*at], "array_of_requests").ok().flatten();
                known.kinds[*at] == RequestKind::Other && active.is_some_and(|one| one.has_ended(call))
            };
            which.extend(known.others.iter().map(|at| *at as usize).filter(over));
            which.sort_unstable();
            which.dedup();
        }
        outcount.set(which.len() as c_int);
        indices.write(&which.iter().map(|at| *at as c_int).collect::<Vec<_>>())?;
        let call = self.call;
        all_of(call, which.into_iter(), statuses, |at, status| self.take(at, status))
    }
}

/// Calls `f` with the many requests of an array.
fn with_many(
    call: &Call<'_>,
    consume: Consume,
    len: usize,
    array: ListOut<Request>,
    f: impl FnOnce(&mut Many<'_>) -> Result,
) -> Result {
    let mut many = Many { call, known: call.known.take(), consume, array };
    let read = many.known.read(call, array.as_list(), len);
    let done = read.and_then(|()| f(&mut many));
    call.known.replace(many.known);
    done
}

/// Completes one of the requests of an array, or reads its outcome: waits for it, or tests, which sets `flag`.
fn any_of(
    call: &Call<'_>,
    consume: Consume,
    n: c_int,
    array: ListOut<Request>,
    indx: Out<c_int>,
    flag: Option<Out<c_int>>,
    status: StatusOut,
) -> Result {
    let (len, wait) = (count(n.into(), "count")? as usize, flag.is_none());
    if len >= MIN_REMEMBERED {
        return with_many(call, consume, len, array, |many| many.any(wait, flag, indx, status));
    }
    match consume {
        Consume::Yes => with(call, (n, "count"), array, |few| few.any(wait, flag, indx, status)),
        Consume::No => of(call, consume, (n, "count"), array.as_list(), |few| few.any(wait, flag, indx, status)),
    }
}

pub fn waitany(call: &Call<'_>, n: c_int, array: ListOut<Request>, indx: Out<c_int>, status: StatusOut) -> Result {
    any_of(call, Consume::Yes, n, array, indx, None, status)
}

pub fn testany(
    call: &Call<'_>,
    n: c_int,
    array: ListOut<Request>,
    indx: Out<c_int>,
    flag: Out<c_int>,
    status: StatusOut,
) -> Result {
    any_of(call, Consume::Yes, n, array, indx, Some(flag), status)
}

pub fn request_get_status_any(
    call: &Call<'_>,
    n: c_int,
    array: List<Request>,
    indx: Out<c_int>,
    flag: Out<c_int>,
    status: StatusOut,
) -> Result {
    any_of(call, Consume::No, n, array.as_list_out(), indx, Some(flag), status)
}

/// Completes all requests of an array whose operations have ended, or reads their outcomes; with `wait`, waits for at
/// least one.
fn some_of(
    call: &Call<'_>,
    (consume, wait): (Consume, bool),
    n: c_int,
    array: ListOut<Request>,
    outcount: Out<c_int>,
    indices: ListOut<c_int>,
    statuses: StatusOut,
) -> Result {
    let len = count(n.into(), "incount")? as usize;
    if len >= MIN_REMEMBERED {
        return with_many(call, consume, len, array, |many| many.some(wait, outcount, indices, statuses));
    }
    let some = |few: &mut Requests<'_>| few.some(wait, outcount, indices, statuses);
    match consume {
        Consume::Yes => with(call, (n, "incount"), array, some),
        Consume::No => of(call, consume, (n, "incount"), array.as_list(), some),
    }
}

pub fn waitsome(
    call: &Call<'_>,
    n: c_int,
    array: ListOut<Request>,
    outcount: Out<c_int>,
    indices: ListOut<c_int>,
    statuses: StatusOut,
) -> Result {
    some_of(call, (Consume::Yes, true), n, array, outcount, indices, statuses)
}

pub fn testsome(
    call: &Call<'_>,
    n: c_int,
    array: ListOut<Request>,
    outcount: Out<c_int>,
    indices: ListOut<c_int>,
    statuses: StatusOut,
) -> Result {
    some_of(call, (Consume::Yes, false), n, array, outcount, indices, statuses)
}

pub fn request_get_status_some(
    call: &Call<'_>,
    n: c_int,
    array: List<Request>,
    outcount: Out<c_int>,
    indices: ListOut<c_int>,
    statuses: StatusOut,
) -> Result {
    some_of(call, (Consume::No, false), n, array.as_list_out(), outcount, indices, statuses)
}
