//! Receives, and combined sends and receives (MPI-5.0 sections 3.2, 3.7, 3.9 to 3.11).

use std::rc::Rc;

use farside_core::Job;

use super::{Message, begin_receive};
use crate::arguments::{Out, StatusOut};
use crate::constants::MPI_ERR_BUFFER;
use crate::errhandler::HasErrhandler;
use crate::fail::{Result, fail};
use crate::handle::Request;
use crate::objects::{Mode, Outcome, PointToPoint};
use crate::operands::{Buffer, Peer};
use crate::request::finish;
use crate::runtime::{Call, Operation};

#[inline(always)]
pub fn recv(call: &Call<'_>, data: Buffer, from: Peer, status: StatusOut) -> Result {
    finish(call, begin_receive(call, data, from)?, status)
}

#[inline(always)]
pub fn irecv(call: &Call<'_>, data: Buffer, from: Peer, request: Out<Request>) -> Result {
    request.set(call.requests.insert(begin_receive(call, data, from)?));
    Ok(())
}

pub fn recv_init(call: &Call<'_>, data: Buffer, from: Peer, request: Out<Request>) -> Result {
    request.set(Message::receive(call, data, from)?.persistent(call));
    Ok(())
}

/// A send and a receive that have been started together.
struct Exchange {
    send: Rc<PointToPoint>,
    receive: Rc<PointToPoint>,
    /// The bytes to send, if they are a copy.
    _copy: Option<Box<[u8]>>,
}

impl Exchange {
    /// Starts both; the send takes its data from `copy` if there is one.
    fn start(call: &Call<'_>, send: Message, receive: Message, copy: Option<Box<[u8]>>) -> Result<Self> {
        let receive = receive.begin(call, None)?;
        match send.begin(call, copy.as_deref()) {
            Ok(send) => Ok(Self { send, receive, _copy: copy }),
            Err(failed) => {
                receive.give_up(&call.job()?);
                Err(failed)
            }
        }
    }
}

impl Operation for Exchange {
    fn object(&self) -> Option<&dyn HasErrhandler> {
        self.receive.object()
    }

    fn is_over(&self) -> bool {
        self.send.is_over() && self.receive.is_over()
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

    fn give_up(&self, job: &Job) {
        self.send.give_up(job);
        self.receive.give_up(job);
    }
}

fn exchange(call: &Call<'_>, sent: Buffer, to: Peer, received: Buffer, from: Peer) -> Result<Exchange> {
    let send = Message::send(call, sent, to, Mode::Standard)?;
    let receive = Message::receive(call, received, from)?;
    if send.is_real() && receive.is_real() && send.data.overlaps(&receive.data) {
        return Err(fail(MPI_ERR_BUFFER, "overlaps sendbuf").named(received.address.name()));
    }
    Exchange::start(call, send, receive, None)
}

fn replace(call: &Call<'_>, data: Buffer, to: Peer, from: Peer) -> Result<Exchange> {
    let send = Message::send(call, data, to, Mode::Standard)?;
    let receive = Message::receive(call, data, from)?;
    let copy = send.data.copied()?;
    Exchange::start(call, send, receive, Some(copy))
}

pub fn sendrecv(call: &Call<'_>, sent: Buffer, to: Peer, received: Buffer, from: Peer, status: StatusOut) -> Result {
    finish(call, Rc::new(exchange(call, sent, to, received, from)?), status)
}

pub fn isendrecv(
    call: &Call<'_>,
    sent: Buffer,
    to: Peer,
    received: Buffer,
    from: Peer,
    request: Out<Request>,
) -> Result {
    request.set(call.requests.insert(Rc::new(exchange(call, sent, to, received, from)?)));
    Ok(())
}

pub fn sendrecv_replace(call: &Call<'_>, data: Buffer, to: Peer, from: Peer, status: StatusOut) -> Result {
    finish(call, Rc::new(replace(call, data, to, from)?), status)
}

pub fn isendrecv_replace(call: &Call<'_>, data: Buffer, to: Peer, from: Peer, request: Out<Request>) -> Result {
    request.set(call.requests.insert(Rc::new(replace(call, data, to, from)?)));
    Ok(())
}
