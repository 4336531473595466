#![allow(unsafe_code)]
//! Probes and matched receives (MPI-5.0 section 3.8).

use std::cell::Cell;
use std::ffi::c_int;
use std::rc::Rc;

use farside_core::bill::{Account, Awaited};
use farside_core::matching::Pattern;

use super::open;
use super::receive::of_proc_null;
use crate::arguments::{Out, StatusOut};
use crate::constants::*;
use crate::fail::{Result, fail};
use crate::handle::{self, Comm, Request};
use crate::message::{pattern, rank_of};
use crate::objects::{CommObject, Data, MessageObject, Partner};
use crate::operands::{Buffer, Peer};
use crate::request::finish_receive;
use crate::runtime::Call;
use crate::status::Status;

/// The matching pattern of a probe.
struct Probe {
    comm: (Comm, Rc<CommObject>),
    /// `None` for `MPI_PROC_NULL`, whose message is always available.
    pattern: Option<Pattern>,
}

impl Probe {
    fn new(call: &Call<'_>, from: Peer) -> Result<Self> {
        let object = call.comms.get(from.comm)?;
        let pattern = match from.source(&object)? {
            Partner::From(source) => Some(pattern(&object, source, from.tag)),
            _ => None,
        };
        Ok(Self { comm: (from.comm, object), pattern })
    }

    /// The status of a message that matches, if one has arrived.
    fn borrow_object(&self, call: &Call<'_>) -> Result<Option<Status>> {
        let Some(pattern) = &self.pattern else { return Ok(Some(Status::FROM_PROC_NULL)) };
        let found = call.job()?.probe(pattern)?;
        Ok(found.map(|found| self.status(&found)))
    }

    fn status(&self, found: &farside_core::two_sided::Status) -> Status {
        Status::received(rank_of(&self.comm.1, found.source), found.tag, found.len)
    }

    /// Whether a message matches, after one round of progress.
    fn test(&self, call: &Call<'_>) -> Result<bool> {
        call.test(|| self.has_matched(call))
    }

    fn wait(&self, call: &Call<'_>) -> Result {
        let account = Account::team(self.comm.1.context);
        let awaited = |pattern: &Pattern| Awaited {
            account: Some(account),
            operation: call.name,
            call: 0,
            from: pattern.source(),
        };
        call.wait_until(|| self.pattern.as_ref().map(awaited), || self.has_matched(call))
    }

    /// Whether a message matches, or an error ends the wait; the next call reports the error.
    fn has_matched(&self, call: &Call<'_>) -> bool {
        !matches!(self.borrow_object(call), Ok(None))
    }

    /// Removes the matching message from matching, as a message object.
    fn take(self, call: &Call<'_>) -> Result<Option<(handle::Message, Status)>> {
        let Some(pattern) = &self.pattern else { return Ok(Some((MPI_MESSAGE_NO_PROC, Status::FROM_PROC_NULL))) };
        let Some(matched) = call.job()?.take_message(pattern)? else { return Ok(None) };
        let status = self.status(&matched.status());
        let object = MessageObject { comm: Some(self.comm), matched: Cell::new(Some(matched)) };
        Ok(Some((call.messages.insert(Rc::new(object)), status)))
    }
}

pub fn probe(call: &Call<'_>, from: Peer, status: StatusOut) -> Result {
    let probe = Probe::new(call, from)?;
    loop {
        probe.wait(call)?;
        // Another thread may have received the message in the meantime.
        if let Some(found) = probe.borrow_object(call)? {
            status.set(found);
            return Ok(());
        }
    }
}

pub fn iprobe(call: &Call<'_>, from: Peer, flag: Out<c_int>, status: StatusOut) -> Result {
    let probe = Probe::new(call, from)?;
    probe.test(call)?;
    let found = probe.borrow_object(call)?;
    flag.set(found.is_some().into());
    found.into_iter().for_each(|found| status.set(found));
    Ok(())
}

pub fn mprobe(call: &Call<'_>, from: Peer, message: Out<handle::Message>, status: StatusOut) -> Result {
    loop {
        let probe = Probe::new(call, from)?;
        probe.wait(call)?;
        if let Some((handle, found)) = probe.take(call)? {
            message.set(handle);
            status.set(found);
            return Ok(());
        }
    }
}

pub fn improbe(
    call: &Call<'_>,
    from: Peer,
    flag: Out<c_int>,
    message: Out<handle::Message>,
    status: StatusOut,
) -> Result {
    let probe = Probe::new(call, from)?;
    probe.test(call)?;
    let taken = probe.take(call)?;
    flag.set(taken.is_some().into());
    if let Some((handle, found)) = taken {
        message.set(handle);
        status.set(found);
    }
    Ok(())
}

/// Starts the receive of a matched message, whose handle becomes null; `None` for `MPI_MESSAGE_NO_PROC`.
fn start(call: &Call<'_>, data: Buffer, message: Out<handle::Message>) -> Result<Option<Request>> {
    let handle = message.get();
    let object = call.messages.get(handle).map_err(|failed| failed.named("message"))?;
    let data = Data::new(call, data);
    let Some(blame) = &object.comm else {
        data?;
        message.set(MPI_MESSAGE_NULL);
        return Ok(None);
    };
    let data = data.map_err(|failed| failed.on(blame))?;
    let comm = (blame.0, Rc::clone(&blame.1));
    let taken = object.matched.take();
    let taken = taken.ok_or_else(|| fail(MPI_ERR_REQUEST, "has already been received").named("message").on(blame))?;
    call.messages.release(handle)?;
    message.set(MPI_MESSAGE_NULL);
    let started = open(call, comm, |comm, receive| {
        let job = comm.1.team.job();
        // SAFETY: the program does not access the buffer until the receive has ended; a receive that fails is
        // cancelled.
        let begun = unsafe { job.receive_message(receive, taken, data.sink()) };
        begun.inspect_err(|_| job.forget_receive(receive))?;
        Ok(())
    });
    started.map(Some).map_err(|failed| failed.on(blame))
}

pub fn mrecv(call: &Call<'_>, data: Buffer, message: Out<handle::Message>, status: StatusOut) -> Result {
    finish_receive(call, start(call, data, message)?, status)
}

pub fn imrecv(call: &Call<'_>, data: Buffer, message: Out<handle::Message>, request: Out<Request>) -> Result {
    let started = start(call, data, message)?;
    request.set(started.unwrap_or_else(|| of_proc_null(call, None)));
    Ok(())
}
