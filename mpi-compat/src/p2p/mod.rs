#![allow(unsafe_code)]
//! Point-to-point communication (MPI-5.0 chapter 3) over the two-sided messages of `farside_core`: sends, receives and
//! probes call it, and translate ranks of the communicator to ranks of the job.

mod operation;
mod probe;
mod receive;
mod send;

use std::ffi::c_int;
use std::rc::Rc;

use farside_core::two_sided::Sending;

use crate::fail::Result;
use crate::handle::{Comm, Request};
use crate::objects::{CommObject, Data, Mode, Partner, PointToPoint, Stage};
use crate::operands::{Buffer, Peer};
use crate::runtime::Call;

pub use probe::*;
pub use receive::*;
pub use send::*;

use operation::start_send;

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
        call.requests.insert(PointToPoint::new(call, self.comm, Some((self.partner, self.tag, self.data))))
    }

    /// Starts the message; a send takes its data from `copy` if there is one.
    fn begin(self, call: &Call<'_>, copy: Option<&[u8]>) -> Result<Rc<PointToPoint>> {
        let operation = PointToPoint::new(call, self.comm, None);
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
    Ok(Some(open_send(call, (to.comm, object), sending)))
}

/// The operation of a send that has not completed, or is to `MPI_PROC_NULL`.
#[inline(never)]
fn open_send(call: &Call<'_>, comm: (Comm, Rc<CommObject>), sending: Option<(u32, Sending)>) -> Rc<PointToPoint> {
    let operation = PointToPoint::new(call, comm, None);
    match sending {
        None => operation.stage.set(Stage::ProcNull),
        Some((target, sending)) => operation.sends(target, sending),
    }
    operation
}

/// Starts a receive.
#[inline(always)]
fn begin_receive(call: &Call<'_>, data: Buffer, from: Peer) -> Result<Rc<PointToPoint>> {
    let object = call.comms.get(from.comm)?;
    let partner = from.source(&object)?;
    let data = Data::new(call, data)?;
    let operation = PointToPoint::new(call, (from.comm, object), None);
    match partner {
        Partner::From(source) => operation.begin_receive((source, from.tag), &data)?,
        _ => operation.stage.set(Stage::ProcNull),
    }
    Ok(operation)
}
