#![allow(unsafe_code)]
//! Point-to-point communication (MPI-5.0 chapter 3), over the two-sided messages of `farside_core`: sends, receives and probes
//! are calls of theirs, with ranks of the communicator made ranks of the job.

mod data;
mod operation;
mod probe;
mod receive;
mod send;

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use farside_core::matching::Pattern;
use farside_core::two_sided::{self, Sending};

use crate::comm::CommObject;
use crate::constants::*;
use crate::fail::{Fail, Result, fail};
use crate::handle::{Comm, Request, Type};
use crate::request::Outcome;
use crate::runtime::Call;
use crate::status::Status;

pub use data::{Data, Typed};
pub use operation::{PointToPoint, Spare};
pub use probe::*;
pub use receive::*;
pub use send::*;

use operation::Stage;

/// How a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Standard,
    Buffered,
    Synchronous,
    Ready,
}

/// The names of the arguments, for errors.
pub struct Names {
    pub buffer: &'static str,
    pub count: &'static str,
    pub rank: &'static str,
    pub tag: &'static str,
}

/// With whom a message is exchanged.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// `MPI_PROC_NULL`.
    Nobody,
    /// To a rank of the job.
    To(u32, Mode),
    /// From a rank of the job, or any.
    From(Option<u32>),
}

/// A send or a receive, its arguments checked.
#[derive(Clone)]
pub struct Message {
    pub comm: (Comm, Rc<CommObject>),
    way: Way,
    tag: c_int,
    data: Data,
}

impl Message {
    /// A send.
    pub fn send(
        call: &Call<'_>,
        names: &Names,
        (buffer, n, datatype): (*const c_void, i64, Type),
        (dest, tag, comm): (c_int, c_int, Comm),
        mode: Mode,
    ) -> Result<Self> {
        let object = call.comms.get(comm)?;
        if tag < 0 {
            return Err(bad_tag(names, tag));
        }
        let way = match target_of(&object, dest, names)? {
            Some(target) => Way::To(target, mode),
            None => Way::Nobody,
        };
        Ok(Self { data: Data::new(call, names, buffer, n, datatype)?, comm: (comm, object), way, tag })
    }

    /// A receive.
    pub fn receive(
        call: &Call<'_>,
        names: &Names,
        (buffer, n, datatype): (*mut c_void, i64, Type),
        (source, tag, comm): (c_int, c_int, Comm),
    ) -> Result<Self> {
        let object = call.comms.get(comm)?;
        let way = from(&object, names, source, tag)?;
        Ok(Self { data: Data::new(call, names, buffer, n, datatype)?, comm: (comm, object), way, tag })
    }

    /// Whether it is with another than `MPI_PROC_NULL`.
    fn is_real(&self) -> bool {
        !matches!(self.way, Way::Nobody)
    }

    /// A persistent request for it.
    fn persistent(self, call: &Call<'_>) -> Request {
        call.requests.insert(PointToPoint::new(call, self.comm, Some((self.way, self.tag, self.data))))
    }

    /// Starts it; a send takes its data from `copy` if there is one.
    fn begin(self, call: &Call<'_>, copy: Option<&[u8]>) -> Result<Rc<PointToPoint>> {
        let operation = PointToPoint::new(call, self.comm, None);
        operation.begin(call, self.way, self.tag, &copy.map_or(self.data, Data::of))?;
        Ok(operation)
    }
}

/// The status of what a receive has got.
#[inline(always)]
fn received_status(comm: &(Comm, Rc<CommObject>), received: &two_sided::Status) -> Outcome {
    let status = Status::received(rank_of(&comm.1, received.source), received.tag, received.kept);
    let failed = (received.kept < received.len).then(|| truncated(comm, received, status.source));
    Outcome { status, failed }
}

#[cold]
fn truncated(comm: &(Comm, Rc<CommObject>), received: &two_sided::Status, source: c_int) -> Fail {
    let text = format!(
        "a message of {} bytes from rank {source} with tag {}, and the receive has room for {}",
        received.len, received.tag, received.kept
    );
    fail(MPI_ERR_TRUNCATE, text).on(comm)
}

/// Starts a send to rank `target` of the job.
#[inline(always)]
pub fn start_send(
    call: &Call<'_>,
    comm: &CommObject,
    (target, tag): (u32, c_int),
    mode: Mode,
    data: &Data,
) -> Result<Sending> {
    let mode = match mode {
        Mode::Standard | Mode::Ready => two_sided::Mode::Standard,
        Mode::Synchronous => two_sided::Mode::Synchronous,
        Mode::Buffered => return crate::buffer::send(call, comm, (target, tag), data).map(|()| Sending::Done),
    };
    // SAFETY: the program leaves the buffer alone until the send is complete; blocking calls forget a send that fails, and
    // requests are kept until they are over.
    Ok(unsafe { comm.team.job().start_message(target, comm.context, tag, data.source(), mode) }?)
}

/// Starts a send; `None` for one that is complete.
#[inline(always)]
fn begin_send(
    call: &Call<'_>,
    names: &Names,
    (buffer, n, datatype): (*const c_void, i64, Type),
    (dest, tag, comm): (c_int, c_int, Comm),
    mode: Mode,
) -> Result<Option<Rc<PointToPoint>>> {
    let object = call.comms.get(comm)?;
    if tag < 0 {
        return Err(bad_tag(names, tag));
    }
    let target = target_of(&object, dest, names)?;
    let data = Data::new(call, names, buffer, n, datatype)?;
    let sending = match target {
        None => None,
        Some(target) => match start_send(call, &object, (target, tag), mode, &data) {
            Ok(Sending::Done) => return Ok(None),
            Ok(open) => Some((target, open)),
            Err(failed) => return Err(failed.on(&(comm, object))),
        },
    };
    Ok(Some(open_send(call, (comm, object), sending)))
}

/// A send that is not complete, or is to nobody.
#[inline(never)]
fn open_send(call: &Call<'_>, comm: (Comm, Rc<CommObject>), sending: Option<(u32, Sending)>) -> Rc<PointToPoint> {
    let operation = PointToPoint::new(call, comm, None);
    match sending {
        None => operation.stage.set(Stage::Nobody),
        Some((target, sending)) => operation.sends(target, sending),
    }
    operation
}

/// Starts a receive.
#[inline(always)]
fn begin_receive(
    call: &Call<'_>,
    names: &Names,
    (buffer, n, datatype): (*mut c_void, i64, Type),
    (source, tag, comm): (c_int, c_int, Comm),
) -> Result<Rc<PointToPoint>> {
    let object = call.comms.get(comm)?;
    let way = from(&object, names, source, tag)?;
    let data = Data::new(call, names, buffer, n, datatype)?;
    let operation = PointToPoint::new(call, (comm, object), None);
    match way {
        Way::From(source) => operation.begin_receive((source, tag), &data)?,
        _ => operation.stage.set(Stage::Nobody),
    }
    Ok(operation)
}

/// The rank in a communicator of a rank of the job.
#[inline(always)]
fn rank_of(comm: &CommObject, job_rank: u32) -> c_int {
    comm.peers.rank_of(job_rank).map_or(MPI_UNDEFINED, |rank| rank as c_int)
}

/// The rank of the job that a rank argument means; `None` for `MPI_PROC_NULL`.
#[inline]
pub fn target_of(comm: &CommObject, rank: c_int, names: &Names) -> Result<Option<u32>> {
    let members = &comm.peers.members;
    match usize::try_from(rank).ok().and_then(|rank| members.get(rank)) {
        Some(member) => Ok(Some(*member)),
        None if rank == MPI_PROC_NULL => Ok(None),
        None => Err(bad_rank(names, rank, members.len())),
    }
}

#[cold]
fn bad_rank(names: &Names, rank: c_int, ranks: usize) -> Fail {
    fail(MPI_ERR_RANK, format!("is {rank}, and there are {ranks} ranks")).named(names.rank)
}

/// What a receive or probe asks for.
#[inline(always)]
fn from(comm: &CommObject, names: &Names, source: c_int, tag: c_int) -> Result<Way> {
    if tag < 0 && tag != MPI_ANY_TAG {
        return Err(bad_tag(names, tag));
    }
    if source == MPI_ANY_SOURCE {
        return Ok(Way::From(None));
    }
    Ok(match target_of(comm, source, names)? {
        None => Way::Nobody,
        known => Way::From(known),
    })
}

/// The pattern of a receive or probe on a communicator.
#[inline]
fn pattern(comm: &CommObject, source: Option<u32>, tag: c_int) -> Pattern {
    Pattern::new(comm.context, source, (tag != MPI_ANY_TAG).then_some(tag))
}

#[cold]
fn bad_tag(names: &Names, tag: c_int) -> Fail {
    fail(MPI_ERR_TAG, format!("is {tag}, and tags are from 0 to MPI_TAG_UB")).named(names.tag)
}
