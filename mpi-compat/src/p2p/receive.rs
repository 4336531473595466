//! Receives, and sends with receives (MPI-5.0 sections 3.2, 3.7, 3.9 to 3.11).

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use farside_core::Job;

use super::{Message, begin_receive};
use crate::arguments::{Out, StatusOut};
use crate::constants::MPI_ERR_BUFFER;
use crate::errhandler::HasErrhandler;
use crate::fail::{Result, fail};
use crate::handle::{Comm, Request, Type};
use crate::message::Names;
use crate::objects::{Consume, Mode, Outcome, PointToPoint};
use crate::request::finish;
use crate::runtime::{Call, Operation};

const NAMES: Names = Names { buffer: "buf", count: "count", rank: "source", tag: "tag" };

#[inline(always)]
pub fn recv(
    call: &Call<'_>,
    buf: *mut c_void,
    n: i64,
    datatype: Type,
    source: c_int,
    tag: c_int,
    comm: Comm,
    status: StatusOut,
) -> Result {
    finish(call, begin_receive(call, &NAMES, (buf, n, datatype), (source, tag, comm))?, status)
}

#[inline(always)]
pub fn irecv(
    call: &Call<'_>,
    buf: *mut c_void,
    n: i64,
    datatype: Type,
    source: c_int,
    tag: c_int,
    comm: Comm,
    request: Out<Request>,
) -> Result {
    request.set(call.requests.insert(begin_receive(call, &NAMES, (buf, n, datatype), (source, tag, comm))?));
    Ok(())
}

pub fn recv_init(
    call: &Call<'_>,
    buf: *mut c_void,
    n: i64,
    datatype: Type,
    source: c_int,
    tag: c_int,
    comm: Comm,
    request: Out<Request>,
) -> Result {
    let message = Message::receive(call, &NAMES, (buf, n, datatype), (source, tag, comm))?;
    request.set(message.persistent(call));
    Ok(())
}

/// A send and a receive that were started together.
struct Exchange {
    send: Rc<PointToPoint>,
    receive: Rc<PointToPoint>,
    /// What is sent, where that is a copy.
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

    fn outcome(&self, call: &Call<'_>, consume: Consume) -> Outcome {
        let (sent, received) = (self.send.outcome(call, consume), self.receive.outcome(call, consume));
        Outcome { failed: received.failed.or(sent.failed), ..received }
    }

    fn complete(self: Rc<Self>, call: &Call<'_>, status: StatusOut) -> Result {
        match Rc::try_unwrap(self) {
            Ok(Self { send, receive, .. }) => {
                let sent = send.complete(call, StatusOut::IGNORE);
                receive.complete(call, status).and(sent)
            }
            Err(shared) => shared.outcome(call, Consume::Yes).put(status),
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

const SEND: Names = Names { buffer: "sendbuf", count: "sendcount", rank: "dest", tag: "sendtag" };
const RECEIVE: Names = Names { buffer: "recvbuf", count: "recvcount", rank: "source", tag: "recvtag" };
const REPLACE: Names = Names { buffer: "buf", count: "count", rank: "dest", tag: "sendtag" };
const REPLACED: Names = Names { buffer: "buf", count: "count", rank: "source", tag: "recvtag" };

fn exchange(
    call: &Call<'_>,
    (sendbuf, sendcount, sendtype): (*const c_void, i64, Type),
    (dest, sendtag): (c_int, c_int),
    (recvbuf, recvcount, recvtype): (*mut c_void, i64, Type),
    (source, recvtag): (c_int, c_int),
    comm: Comm,
) -> Result<Exchange> {
    let mode = Mode::Standard;
    let send = Message::send(call, &SEND, (sendbuf, sendcount, sendtype), (dest, sendtag, comm), mode)?;
    let receive = Message::receive(call, &RECEIVE, (recvbuf, recvcount, recvtype), (source, recvtag, comm))?;
    if send.is_real() && receive.is_real() && send.data.overlaps(&receive.data) {
        return Err(fail(MPI_ERR_BUFFER, "overlaps sendbuf").named(RECEIVE.buffer));
    }
    Exchange::start(call, send, receive, None)
}

fn replace(
    call: &Call<'_>,
    (buf, n, datatype): (*mut c_void, i64, Type),
    (dest, sendtag): (c_int, c_int),
    (source, recvtag): (c_int, c_int),
    comm: Comm,
) -> Result<Exchange> {
    let send = Message::send(call, &REPLACE, (buf, n, datatype), (dest, sendtag, comm), Mode::Standard)?;
    let receive = Message::receive(call, &REPLACED, (buf, n, datatype), (source, recvtag, comm))?;
    let copy = send.data.copied()?;
    Exchange::start(call, send, receive, Some(copy))
}

pub fn sendrecv(
    call: &Call<'_>,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Type,
    dest: c_int,
    sendtag: c_int,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Type,
    source: c_int,
    recvtag: c_int,
    comm: Comm,
    status: StatusOut,
) -> Result {
    let (send, receive) = ((sendbuf, sendcount, sendtype), (recvbuf, recvcount, recvtype));
    let exchange = exchange(call, send, (dest, sendtag), receive, (source, recvtag), comm)?;
    finish(call, Rc::new(exchange), status)
}

pub fn isendrecv(
    call: &Call<'_>,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Type,
    dest: c_int,
    sendtag: c_int,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Type,
    source: c_int,
    recvtag: c_int,
    comm: Comm,
    request: Out<Request>,
) -> Result {
    let (send, receive) = ((sendbuf, sendcount, sendtype), (recvbuf, recvcount, recvtype));
    let exchange = exchange(call, send, (dest, sendtag), receive, (source, recvtag), comm)?;
    request.set(call.requests.insert(Rc::new(exchange)));
    Ok(())
}

pub fn sendrecv_replace(
    call: &Call<'_>,
    buf: *mut c_void,
    n: i64,
    datatype: Type,
    dest: c_int,
    sendtag: c_int,
    source: c_int,
    recvtag: c_int,
    comm: Comm,
    status: StatusOut,
) -> Result {
    finish(call, Rc::new(replace(call, (buf, n, datatype), (dest, sendtag), (source, recvtag), comm)?), status)
}

pub fn isendrecv_replace(
    call: &Call<'_>,
    buf: *mut c_void,
    n: i64,
    datatype: Type,
    dest: c_int,
    sendtag: c_int,
    source: c_int,
    recvtag: c_int,
    comm: Comm,
    request: Out<Request>,
) -> Result {
    let exchange = replace(call, (buf, n, datatype), (dest, sendtag), (source, recvtag), comm)?;
    request.set(call.requests.insert(Rc::new(exchange)));
    Ok(())
}
