#![allow(unsafe_code)]
//! Point-to-point communication (MPI-5.0 chapter 3) over the two-sided messages of `farside_core`: sends, receives and
//! probes call it, and translate ranks of the communicator to ranks of the job.

mod operation;
mod probe;
mod receive;
mod send;

use std::ffi::c_int;
use std::rc::Rc;

use farside_core::two_sided::{Receive, Sending};

use crate::constants::MPI_REQUEST_NULL;
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

/// A send or receive with its arguments checked.
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
}

/// Starts a send; `None` if it completes at once.
#[inline(always)]
fn begin_send(call: &Call<'_>, data: Buffer, to: Peer, mode: Mode) -> Result<Option<Rc<PointToPoint>>> {
    let object = call.comms.get(to.comm)?;
    let target = to.target(&object)?;
    let data = Data::new(call, data)?;
    let sending = match target {
        None => None,
        Some(target) => match start_send(call, &object, (target, to.tag), mode, &data) {
            Ok(Sending::Done) => return Ok(None),
            Ok(open) => Some((target, open)),
            Err(failed) => return Err(failed.on(&(to.comm, object))),
        },
    };
    Ok(Some(open_send((to.comm, object), sending)))
}

/// The operation of a send that has not completed, or is to `MPI_PROC_NULL`.
#[inline(never)]
fn open_send(comm: (Comm, Rc<CommObject>), sending: Option<(u32, Sending)>) -> Rc<PointToPoint> {
    let operation = PointToPoint::at(Some(comm), Stage::ProcNull);
    if let Some((target, sending)) = sending {
        operation.sends(target, sending);
    }
    operation
}

/// Sends a message of a predefined type if that needs no request: [`at_once`](crate::entry::at_once).
#[inline(always)]
pub fn try_send(runtime: &Runtime, data: Buffer, to: Peer) -> Result<bool> {
    let Some(len) = runtime.plain.size(data.n, data.datatype) else { return Ok(false) };
    // SAFETY: the call does not wait, and calls no function of the program.
    let Some(comm) = (unsafe { runtime.comms.look(to.comm) }) else { return Ok(false) };
    let Some(target) = comm.peers.member(to.rank).filter(|_| to.tag >= 0 && !data.address.is_constant()) else {
        return Ok(false);
    };
    // SAFETY: the program does not change the message during the call.
    Ok(unsafe { comm.team.job().try_send_message(target, comm.context, to.tag, data.address.at(), len) })
}

impl Message {
    /// Starts the message as a receive; `None` if its source is `MPI_PROC_NULL`.
    fn begin_receive(self, call: &Call<'_>) -> Result<Option<Request>> {
        let Partner::From(source) = self.partner else { return Ok(None) };
        let pattern = pattern(&self.comm.1, source, self.tag);
        // SAFETY: requests are kept until they are over, and other receives are given up.
        open(call, self.comm, |comm, receive| unsafe { start_receive(comm, receive, pattern, &self.data) }).map(Some)
    }
}

/// A request for a receive that `start` starts.
fn open(
    call: &Call<'_>,
    comm: (Comm, Rc<CommObject>),
    start: impl FnOnce(&(Comm, Rc<CommObject>), &Rc<Receive>) -> Result,
) -> Result<Request> {
    let receive = call.receives.reserve();
    start(&comm, &receive)?;
    drop(receive);
    // SAFETY: used only for `open`. The receive is that of `reserve`, since starting it makes no request.
    let slot = unsafe { call.receives.next() };
    Ok(slot.map_or(MPI_REQUEST_NULL, |slot| call.receives.open(slot, comm)))
}
