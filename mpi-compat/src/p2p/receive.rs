#![allow(unsafe_code)]
//! Receives, and combined sends and receives (MPI-5.0 sections 3.2, 3.7, 3.9 to 3.11).

use std::rc::Rc;

use farside_core::Job;

use super::{Message, is_sent_at_once};
use crate::arguments::{Out, StatusOut};
use crate::constants::MPI_ERR_BUFFER;
use crate::entry::Usual;
use crate::errhandler::HasErrhandler;
use crate::fail::{Result, fail};
use crate::handle::{Comm, Request};
use crate::objects::{CommObject, Mode, Outcome, PointToPoint, Stage};
use crate::operands::{Buffer, Peer};
use crate::request::{abandon_receive, finish_receive, on};
use crate::runtime::{Call, Operation};

pub fn recv(call: &Call<'_>, data: Buffer, from: Peer, status: StatusOut) -> Result {
    finish_receive(call, Message::receive(call, data, from)?.begin_receive(call)?, status)
}

/// A request for a receive from `MPI_PROC_NULL`, or of `MPI_MESSAGE_NO_PROC`.
pub(super) fn of_proc_null(call: &Call<'_>, comm: Option<(Comm, Rc<CommObject>)>) -> Request {
    call.requests.insert(PointToPoint::at(comm, Stage::ProcNull))
}

#[inline(always)]
pub fn irecv(call: Usual<'_>, data: Buffer, from: Peer, request: Out<Request>) -> Result<bool> {
    if call.is_fast_path()
        && let Some(len) = call.plain.size(data.n, data.datatype)
        // SAFETY: the communicator is borrowed until the request holds it; posting a receive makes no progress.
        && let Some(comm) = unsafe { call.comms.borrow_object(from.comm) }
        && let Some(pattern) = from.pattern(comm)
        && !data.address.is_constant()
        // SAFETY: posting a receive creates no request.
        && let Some(slot) = unsafe { call.receives.next() }
    {
        // SAFETY: the program does not access the buffer until the receive has ended; the receive of a free slot has
        // ended, and members are job ranks.
        if unsafe { comm.team.job().try_post_receive(&slot.receive, pattern, data.address.at(), len) } {
            request.set(call.receives.open(slot, (from.comm, Rc::clone(comm))));
            return Ok(true);
        }
    }
    call.slow_path(|call| {
        let message = Message::receive(call, data, from)?;
        let comm = (message.comm.0, Rc::clone(&message.comm.1));
        let begun = message.begin_receive(call)?;
        request.set(begun.unwrap_or_else(|| of_proc_null(call, Some(comm))));
        Ok(())
    })
}

pub fn recv_init(call: &Call<'_>, data: Buffer, from: Peer, request: Out<Request>) -> Result {
    request.set(Message::receive(call, data, from)?.persistent(call));
    Ok(())
}

/// A send and a receive that have been started together.
struct Exchange {
    send: Rc<PointToPoint>,
    receive: Rc<PointToPoint>,
    /// The copy of the bytes to send, if there is one.
    _copy: Option<Box<[u8]>>,
}

impl Exchange {
    /// Starts both; the send takes its data from `copy`, if given.
    fn start(call: &Call<'_>, send: Message, receive: Message, copy: Option<Box<[u8]>>) -> Result<Self> {
        let receive = receive.begin(call, None)?;
        match send.begin(call, copy.as_deref()) {
            Ok(send) => Ok(Self { send, receive, _copy: copy }),
            Err(failed) => {
                receive.abandon(&call.job()?);
                Err(failed)
            }
        }
    }
}

impl Operation for Exchange {
    fn object(&self) -> Option<&dyn HasErrhandler> {
        self.receive.object()
    }

    fn has_ended(&self) -> bool {
        self.send.has_ended() && self.receive.has_ended()
    }

    fn outcome(&self, call: &Call<'_>) -> Outcome {
        let (sent, received) = (self.send.outcome(call), self.receive.outcome(call));
        Outcome { failed: received.failed.or(sent.failed), ..received }
    }

    fn complete(self: Rc<Self>, call: &Call<'_>, status: StatusOut) -> Result {
        match Rc::try_unwrap(self) {
            Ok(Self { send, receive, .. }) => {
                let sent = send.complete(call, StatusOut::IGNORE);
                receive.complete(call, status).and(sent)
            }
            Err(shared) => shared.outcome(call).put(status),
        }
    }

    fn cancel(&self, call: &Call<'_>) -> Result {
        self.receive.cancel(call)
    }

    fn abandon(&self, job: &Job) {
        self.send.abandon(job);
        self.receive.abandon(job);
    }
}

/// The two messages of an exchange.
fn messages(call: &Call<'_>, sent: Buffer, to: Peer, received: Buffer, from: Peer) -> Result<(Message, Message)> {
    let send = Message::send(call, sent, to, Mode::Standard)?;
    let receive = Message::receive(call, received, from)?;
    if send.is_real() && receive.is_real() && send.data.overlaps(&receive.data) {
        return Err(fail(MPI_ERR_BUFFER, "overlaps sendbuf").named(received.address.name()));
    }
    Ok((send, receive))
}

/// The two messages of an exchange in a single buffer, and a copy of the bytes to send.
fn replacing(call: &Call<'_>, data: Buffer, to: Peer, from: Peer) -> Result<(Message, Message, Box<[u8]>)> {
    let send = Message::send(call, data, to, Mode::Standard)?;
    let receive = Message::receive(call, data, from)?;
    let copy = send.data.copied()?;
    Ok((send, receive, copy))
}

/// Starts both messages, and waits for both.
fn exchange(call: &Call<'_>, send: Message, receive: Message, copy: Option<&[u8]>, status: StatusOut) -> Result {
    let receiving = receive.begin_receive(call)?;
    let has_ended = || receiving.is_none_or(|request| call.receives.has_ended(request));
    let sent = send.begin_send(call, false, copy).and_then(|send| {
        let Some(send) = send else { return Ok(None) };
        let awaited = || if has_ended() { send.awaits() } else { receiving.and_then(|r| call.receives.awaits(r)) };
        let waited = call.wait_until(awaited, || has_ended() && send.has_ended());
        if let Err(failed) = waited {
            send.abandon(&call.job()?);
            return Err(on(&*send, failed));
        }
        Ok(Some(send))
    });
    match sent {
        Ok(send) => {
            let sent = send.map_or(Ok(()), |send| send.complete(call, StatusOut::IGNORE));
            finish_receive(call, receiving, status).and(sent)
        }
        Err(failed) => {
            abandon_receive(call, receiving)?;
            Err(failed)
        }
    }
}

pub fn sendrecv(call: &Call<'_>, sent: Buffer, to: Peer, received: Buffer, from: Peer, status: StatusOut) -> Result {
    let receive = Message::receive(call, received, from)?;
    if let Some(len) = call.plain.size(sent.n, sent.datatype)
        && receive.data.is_apart(sent.address.at().addr(), len)
        && is_sent_at_once(call, sent, to)
    {
        return finish_receive(call, receive.begin_receive(call)?, status);
    }
    let (send, receive) = messages(call, sent, to, received, from)?;
    exchange(call, send, receive, None, status)
}

pub fn isendrecv(
    call: &Call<'_>,
    sent: Buffer,
    to: Peer,
    received: Buffer,
    from: Peer,
    request: Out<Request>,
) -> Result {
    let (send, receive) = messages(call, sent, to, received, from)?;
    request.set(call.requests.insert(Rc::new(Exchange::start(call, send, receive, None)?)));
    Ok(())
}

pub fn sendrecv_replace(call: &Call<'_>, data: Buffer, to: Peer, from: Peer, status: StatusOut) -> Result {
    let (send, receive, copy) = replacing(call, data, to, from)?;
    exchange(call, send, receive, Some(&copy), status)
}

pub fn isendrecv_replace(call: &Call<'_>, data: Buffer, to: Peer, from: Peer, request: Out<Request>) -> Result {
    let (send, receive, copy) = replacing(call, data, to, from)?;
    request.set(call.requests.insert(Rc::new(Exchange::start(call, send, receive, Some(copy))?)));
    Ok(())
}
