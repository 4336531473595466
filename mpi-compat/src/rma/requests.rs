//! Request-based operations (MPI-5.0 section 12.3.5).

use std::rc::Rc;

use farside_core::Job;
use farside_rma::raw;

use super::access::{Local, Remote};
use super::accumulate::Accumulate;
use super::transfer::Direction;
use crate::arguments::Out;
use crate::errhandler::HasErrhandler;
use crate::fail::{Fail, Result};
use crate::handle::{Op, Request, Win};
use crate::objects::{Outcome, WinObject};
use crate::operands::{Buffer, Place};
use crate::request;
use crate::runtime::{Call, Operation};
use crate::status::Status;

/// The operation of a request on a window.
struct OnWindow {
    request: raw::Request,
    /// Keeps the window and its job alive as long as the request lives.
    win: (Win, Rc<WinObject>),
}

impl Operation for OnWindow {
    fn object(&self) -> Option<&dyn HasErrhandler> {
        Some(&self.win)
    }

    fn has_ended(&self) -> bool {
        self.request.done()
    }

    fn outcome(&self, _: &Call<'_>) -> Outcome {
        let failed = self.request.outcome().err().map(|e| Fail::from(e).on(&self.win));
        Outcome { status: Status::EMPTY, failed }
    }

    fn abandon(&self, job: &Job) {
        self.request.cancel(job);
    }
}

/// Issues an operation and creates its request. Waits for the window's lock first, so that the operation starts when it
/// is issued and needs only progress to complete.
fn start(call: &Call<'_>, handle: Win, remote: &Remote, request: Out<Request>, issue: &dyn Fn() -> Result) -> Result {
    let win = &remote.win;
    win.raw().hold(remote.target)?;
    let mut failed = None;
    let issued = win.raw().request(|| {
        failed = issue().err();
        Ok(())
    })?;
    match failed {
        Some(failed) => Err(failed),
        None if issued.done() && issued.outcome().is_ok() => {
            request.set(request::complete_send(call));
            Ok(())
        }
        None => {
            let win = (handle, Rc::clone(win));
            request.set(call.requests.insert(Rc::new(OnWindow { request: issued, win })));
            Ok(())
        }
    }
}

fn transfer(call: &Call<'_>, origin: Buffer, at: Place, request: Out<Request>, direction: Direction) -> Result {
    let remote = Remote::new(call, at)?;
    let local = Local::new(call, origin)?;
    let Some(remote) = remote else {
        request.set(request::complete_send(call));
        return Ok(());
    };
    start(call, at.win, &remote, request, &|| remote.transfer(&local, direction))
}

pub fn rput(call: &Call<'_>, origin: Buffer, at: Place, request: Out<Request>) -> Result {
    transfer(call, origin, at, request, Direction::Put)
}

pub fn rget(call: &Call<'_>, origin: Buffer, at: Place, request: Out<Request>) -> Result {
    transfer(call, origin, at, request, Direction::Get)
}

fn accumulate(call: &Call<'_>, accumulate: Accumulate, request: Out<Request>) -> Result {
    let win = accumulate.at.win;
    let Some(checked) = accumulate.checked(call)? else {
        request.set(request::complete_send(call));
        return Ok(());
    };
    start(call, win, &checked.remote, request, &|| checked.issue())
}

pub fn raccumulate(call: &Call<'_>, origin: Buffer, at: Place, op: Op, request: Out<Request>) -> Result {
    accumulate(call, Accumulate { origin, result: None, at, op }, request)
}

pub fn rget_accumulate(
    call: &Call<'_>,
    origin: Buffer,
    result: Buffer,
    at: Place,
    op: Op,
    request: Out<Request>,
) -> Result {
    accumulate(call, Accumulate { origin, result: Some(result), at, op }, request)
}
