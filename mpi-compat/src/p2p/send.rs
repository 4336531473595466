//! Sends (MPI-5.0 sections 3.2, 3.4, 3.7, 3.9): four modes, each blocking, non-blocking and persistent.

use super::{Message, begin_send, is_sent};
use crate::arguments::{Out, StatusOut};
use crate::entry::Usual;
use crate::fail::Result;
use crate::handle::Request;
use crate::objects::Mode;
use crate::operands::{Buffer, Peer};
use crate::request::{complete_send, finish};
use crate::runtime::Call;

fn wait(call: &Call<'_>, data: Buffer, to: Peer, mode: Mode) -> Result {
    match begin_send(call, data, to, mode)? {
        None => Ok(()),
        Some(open) => finish(call, open, StatusOut::IGNORE),
    }
}

fn start(call: &Call<'_>, data: Buffer, to: Peer, mode: Mode, request: Out<Request>) -> Result {
    request.set(match begin_send(call, data, to, mode)? {
        None => complete_send(call),
        Some(open) => call.requests.insert(open),
    });
    Ok(())
}

fn persistent(call: &Call<'_>, data: Buffer, to: Peer, mode: Mode, request: Out<Request>) -> Result {
    request.set(Message::send(call, data, to, mode)?.persistent(call));
    Ok(())
}

#[inline(always)]
pub fn send(call: Usual<'_>, data: Buffer, to: Peer) -> Result<bool> {
    if is_sent(call, data, to) {
        return Ok(true);
    }
    call.slow_path(|call| wait(call, data, to, Mode::Standard))
}

#[inline(always)]
pub fn isend(call: Usual<'_>, data: Buffer, to: Peer, request: Out<Request>) -> Result<bool> {
    if is_sent(call, data, to) {
        request.set(call.complete_send.get());
        return Ok(true);
    }
    call.slow_path(|call| start(call, data, to, Mode::Standard, request))
}

pub fn send_init(call: &Call<'_>, data: Buffer, to: Peer, request: Out<Request>) -> Result {
    persistent(call, data, to, Mode::Standard, request)
}

pub fn bsend(call: &Call<'_>, data: Buffer, to: Peer) -> Result {
    wait(call, data, to, Mode::Buffered)
}

pub fn ibsend(call: &Call<'_>, data: Buffer, to: Peer, request: Out<Request>) -> Result {
    start(call, data, to, Mode::Buffered, request)
}

pub fn bsend_init(call: &Call<'_>, data: Buffer, to: Peer, request: Out<Request>) -> Result {
    persistent(call, data, to, Mode::Buffered, request)
}

pub fn ssend(call: &Call<'_>, data: Buffer, to: Peer) -> Result {
    wait(call, data, to, Mode::Synchronous)
}

pub fn issend(call: &Call<'_>, data: Buffer, to: Peer, request: Out<Request>) -> Result {
    start(call, data, to, Mode::Synchronous, request)
}

pub fn ssend_init(call: &Call<'_>, data: Buffer, to: Peer, request: Out<Request>) -> Result {
    persistent(call, data, to, Mode::Synchronous, request)
}

pub fn rsend(call: &Call<'_>, data: Buffer, to: Peer) -> Result {
    wait(call, data, to, Mode::Ready)
}

pub fn irsend(call: &Call<'_>, data: Buffer, to: Peer, request: Out<Request>) -> Result {
    start(call, data, to, Mode::Ready, request)
}

pub fn rsend_init(call: &Call<'_>, data: Buffer, to: Peer, request: Out<Request>) -> Result {
    persistent(call, data, to, Mode::Ready, request)
}
