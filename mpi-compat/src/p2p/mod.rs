#![allow(unsafe_code)]
//! Point-to-point communication (MPI-5.0 chapter 3) over the two-sided messages of `farside_core`: sends, receives and
//! probes translate ranks of the communicator to job ranks and call it.

mod operation;
mod probe;
mod receive;
mod send;

use std::ffi::c_int;
use std::rc::Rc;

use farside_core::two_sided::{Receive, Sending};

use crate::constants::MPI_REQUEST_NULL;
use crate::entry::Usual;
use crate::fail::Result;
use crate::handle::{Comm, Request};
use crate::message::pattern;
use crate::objects::{CommObject, Data, Mode, Partner, PointToPoint, Stage};
use crate::operands::{Buffer, Peer};
use crate::runtime::{Call, Runtime};

pub use probe::*;
pub use receive::*;
pub use send::*;

use operation::{start_receive, start_send};

/// A send or receive with validated arguments.
#[derive(Clone)]
pub struct Message {
    pub comm: (Comm, Rc<CommObject>),
    partner: Partner,
    tag: c_int,
    data: Data,
}

impl Message {
    /// A send.
    pub fn send(call: &Call<'_>, data: Buffer, to: Peer, mode: Mode) -> Result<Self> {
        let object = call.comms.get(to.comm)?;
        let partner = to.target(&object)?.map_or(Partner::ProcNull, |target| Partner::To(target, mode));
        Ok(Self { data: Data::new(call, data)?, comm: (to.comm, object), partner, tag: to.tag })
    }

    /// A receive.
    pub fn receive(call: &Call<'_>, data: Buffer, from: Peer) -> Result<Self> {
        let object = call.comms.get(from.comm)?;
        let partner = from.source(&object)?;
        Ok(Self { data: Data::new(call, data)?, comm: (from.comm, object), partner, tag: from.tag })
    }

    /// Whether the peer is not `MPI_PROC_NULL`.
    fn is_real(&self) -> bool {
        !matches!(self.partner, Partner::ProcNull)
    }

    /// Makes a persistent request for the message.
    fn persistent(self, call: &Call<'_>) -> Request {
        let again = Some((self.partner, self.tag, self.data));
        call.requests.insert(Rc::new(PointToPoint::new(Some(self.comm), again)))
    }

    /// Starts the message; a send takes its data from `copy` if there is one.
    fn begin(self, call: &Call<'_>, copy: Option<&[u8]>) -> Result<Rc<PointToPoint>> {
        let operation = PointToPoint::at(Some(self.comm), Stage::Inactive);
        operation.begin(call, self.partner, self.tag, &copy.map_or(self.data, Data::of))?;
        Ok(operation)
    }

    /// Starts the message as a send, which takes its data from `copy` if there is one; `None` if it is complete. `is_tried`:
    /// [`is_sent`] has tried it.
    fn begin_send(self, call: &Call<'_>, is_tried: bool, copy: Option<&[u8]>) -> Result<Option<Rc<PointToPoint>>> {
        let Self { comm, partner, tag, data } = self;
        let Partner::To(target, mode) = partner else {
            return Ok(Some(PointToPoint::at(Some(comm), Stage::ProcNull)));
        };
        match start_send(call, &comm.1, (target, tag), (mode, is_tried), &copy.map_or(data, Data::of)) {
            Ok(Sending::Done) => Ok(None),
            Ok(open) => {
                let operation = PointToPoint::at(Some(comm), Stage::ProcNull);
                operation.sends(target, open);
                Ok(Some(operation))
            }
            Err(failed) => Err(failed.on(&comm)),
        }
    }

    /// Starts the message as a receive; `None` if its source is `MPI_PROC_NULL`.
    fn begin_receive(self, call: &Call<'_>) -> Result<Option<Request>> {
        let Partner::From(source) = self.partner else { return Ok(None) };
        let pattern = pattern(&self.comm.1, source, self.tag);
        // SAFETY: requests live until their operations have ended, and other receives are cancelled on failure.
        open(call, self.comm, |comm, receive| unsafe { start_receive(comm, receive, pattern, &self.data) }).map(Some)
    }
}

/// [`is_sent_at_once`], in calls with a fast path.
#[inline(always)]
fn is_sent(call: Usual<'_>, data: Buffer, to: Peer) -> bool {
    call.is_fast_path() && is_sent_at_once(&call, data, to)
}

/// Sends a standard-mode message of a predefined type if that needs no request and no progress; returns whether it did.
#[inline(always)]
fn is_sent_at_once(runtime: &Runtime, data: Buffer, to: Peer) -> bool {
    if let Some(len) = runtime.plain.size(data.n, data.datatype)
        // SAFETY: the communicator is borrowed for a send that does not wait and calls no function of the program.
        && let Some(comm) = unsafe { runtime.comms.borrow_object(to.comm) }
        && let Some(target) = comm.peers.member(to.rank)
        && to.tag >= 0
        && !data.address.is_constant()
    {
        // SAFETY: the program does not change the message during the call.
        return unsafe { comm.team.job().try_send_message(target, comm.context, to.tag, data.address.at(), len) };
    }
    false
}

/// Starts a send; a standard-mode send of a predefined type has already been tried by [`is_sent`]. `None` if the send
/// is complete.
fn begin_send(call: &Call<'_>, data: Buffer, to: Peer, mode: Mode) -> Result<Option<Rc<PointToPoint>>> {
    let is_tried = mode == Mode::Standard && call.plain.size(data.n, data.datatype).is_some();
    Message::send(call, data, to, mode)?.begin_send(call, is_tried, None)
}

/// Starts a receive by `start`, and returns its request.
fn open(
    call: &Call<'_>,
    comm: (Comm, Rc<CommObject>),
    start: impl FnOnce(&(Comm, Rc<CommObject>), &Rc<Receive>) -> Result,
) -> Result<Request> {
    let receive = call.receives.reserve();
    start(&comm, &receive)?;
    drop(receive);
    // SAFETY: used only for `open`. The slot is still that of `reserve`, since starting the receive creates no request.
    let slot = unsafe { call.receives.next() };
    Ok(slot.map_or(MPI_REQUEST_NULL, |slot| call.receives.open(slot, comm)))
}
