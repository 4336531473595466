#![allow(unsafe_code)]
//! Point-to-point communication (MPI-5.0 chapter 3), over the two-sided messages of `farside_core`: sends, receives and probes
//! are calls of theirs, with ranks of the communicator made ranks of the job.

mod data;
mod probe;
mod receive;
mod send;

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::rc::Rc;

use farside_core::bill::{Account, Awaited};
use farside_core::matching::Pattern;
use farside_core::two_sided::{self, Receive, Sending};
use farside_core::{ErrorKind, Job};

use crate::arguments::StatusOut;
use crate::comm::CommObject;
use crate::constants::*;
use crate::errors::Hears;
use crate::fail::{Fail, Result, fail};
use crate::handle::{Comm, Request, Type};
use crate::request::{self, Operation, Outcome, Then};
use crate::runtime::Call;
use crate::status::Status;

pub use data::{Data, Typed};
pub use probe::*;
pub use receive::*;
pub use send::*;

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
    From(Pattern),
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
    #[inline(always)]
    pub fn receive(
        call: &Call<'_>,
        names: &Names,
        (buffer, n, datatype): (*mut c_void, i64, Type),
        (source, tag, comm): (c_int, c_int, Comm),
    ) -> Result<Self> {
        let object = call.comms.get(comm)?;
        let way = pattern(&object, names, source, tag)?.map_or(Way::Nobody, Way::From);
        Ok(Self { data: Data::new(call, names, buffer, n, datatype)?, comm: (comm, object), way, tag })
    }

    /// Whether it is with another than `MPI_PROC_NULL`.
    fn is_real(&self) -> bool {
        !matches!(self.way, Way::Nobody)
    }

    /// A persistent request for it.
    fn persistent(self, call: &Call<'_>) -> Request {
        call.requests.insert(PointToPoint::new(call, self, true))
    }

    /// The status of what came in for it.
    #[inline]
    fn status(&self, received: &two_sided::Status) -> Outcome {
        let status = Status::received(rank_of(&self.comm.1, received.source), received.tag, received.kept);
        let failed = (received.kept < received.len).then(|| self.truncated(received, status.source));
        Outcome { status, failed }
    }

    #[cold]
    fn truncated(&self, received: &two_sided::Status, source: c_int) -> Box<Fail> {
        let text = format!(
            "a message of {} bytes from rank {source} with tag {}, and the receive has room for {}",
            received.len, received.tag, received.kept
        );
        Box::new(fail(MPI_ERR_TRUNCATE, text).on(&self.comm))
    }
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
    let (way, active) = match target {
        None => (Way::Nobody, Active::Nothing),
        Some(target) => match start_send(call, &object, (target, tag), mode, &data) {
            Ok(Sending::Done) => return Ok(None),
            Ok(open) => (Way::To(target, mode), Active::Send(open)),
            Err(failed) => return Err(failed.on(&(comm, object))),
        },
    };
    let operation = PointToPoint::new(call, Message { comm: (comm, object), way, tag, data }, false);
    *operation.active.borrow_mut() = active;
    Ok(Some(operation))
}

/// Starts a receive.
#[inline(always)]
fn begin_receive(
    call: &Call<'_>,
    names: &Names,
    data: (*mut c_void, i64, Type),
    from: (c_int, c_int, Comm),
) -> Result<Rc<PointToPoint>> {
    let operation = PointToPoint::new(call, Message::receive(call, names, data, from)?, false);
    operation.begin(call, None)?;
    Ok(operation)
}

/// Waits for an operation without a request.
#[inline]
fn finish(call: &Call<'_>, operation: Rc<PointToPoint>, status: StatusOut) -> Result {
    let finished = request::finish(call, &*operation, status);
    operation.recycle(call);
    finished
}

/// The rank in a communicator of a rank of the job.
fn rank_of(comm: &CommObject, job_rank: u32) -> c_int {
    comm.peers().rank_of(job_rank).map_or(MPI_UNDEFINED, |rank| rank as c_int)
}

/// The rank of the job that a rank argument means; `None` for `MPI_PROC_NULL`.
#[inline]
pub fn target_of(comm: &CommObject, rank: c_int, names: &Names) -> Result<Option<u32>> {
    let members = &comm.peers().members;
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

/// What a receive or probe asks for; `None` for `MPI_PROC_NULL`.
#[inline]
fn pattern(comm: &CommObject, names: &Names, source: c_int, tag: c_int) -> Result<Option<Pattern>> {
    if tag < 0 && tag != MPI_ANY_TAG {
        return Err(bad_tag(names, tag));
    }
    let source = match source {
        MPI_ANY_SOURCE => None,
        source => match target_of(comm, source, names)? {
            None => return Ok(None),
            known => known,
        },
    };
    Ok(Some(Pattern { context: comm.context, source, tag: (tag != MPI_ANY_TAG).then_some(tag) }))
}

#[cold]
fn bad_tag(names: &Names, tag: c_int) -> Fail {
    fail(MPI_ERR_TAG, format!("is {tag}, and tags are from 0 to MPI_TAG_UB")).named(names.tag)
}

/// What an operation is at.
#[derive(Default)]
enum Active {
    /// It was not started, or has been completed.
    #[default]
    Inactive,
    /// It is with `MPI_PROC_NULL`, or its outcome is known.
    Nothing,
    Send(Sending),
    Receive,
}

/// A send or a receive that is started, once or more often.
pub struct PointToPoint {
    /// `None` while it is spare.
    message: Option<Message>,
    active: RefCell<Active>,
    /// What core knows of a receive.
    receive: Rc<Receive>,
    persistent: bool,
    cancelled: Cell<bool>,
    /// An outcome that was looked at.
    known: Cell<Option<Box<Outcome>>>,
}

/// Operations that are over, of which new ones are made.
#[derive(Default)]
pub struct Spare(RefCell<Vec<Rc<PointToPoint>>>);

impl Spare {
    const MOST: usize = 256;

    #[inline]
    fn keep(&self, operation: Rc<PointToPoint>) {
        let mut spare = self.0.borrow_mut();
        if spare.len() < Self::MOST {
            spare.push(operation);
        }
    }
}

impl PointToPoint {
    /// Not started.
    #[inline(always)]
    fn new(call: &Call<'_>, message: Message, persistent: bool) -> Rc<Self> {
        let spare = call.spare.0.borrow_mut().pop();
        if let Some(mut operation) = spare
            && let Some(own) = Rc::get_mut(&mut operation)
        {
            (own.message, own.persistent) = (Some(message), persistent);
            own.cancelled.set(false);
            return operation;
        }
        let (active, cancelled, known) = Default::default();
        Rc::new(Self { message: Some(message), active, receive: Receive::new(), persistent, cancelled, known })
    }

    /// Starts it; a send takes its data from `copy` if there is one.
    #[inline(always)]
    fn begin(&self, call: &Call<'_>, copy: Option<&[u8]>) -> Result {
        let Some(message) = &self.message else { return Ok(()) };
        let begun = match message.way {
            Way::Nobody => Ok(Active::Nothing),
            Way::To(target, mode) => {
                let copy = copy.map(Data::of);
                let data = copy.as_ref().unwrap_or(&message.data);
                start_send(call, &message.comm.1, (target, message.tag), mode, data).map(Active::Send)
            }
            Way::From(pattern) => {
                // SAFETY: the program leaves the buffer alone until the receive is over; blocking calls forget one that fails,
                // and requests are kept until they are over.
                let begun =
                    unsafe { message.comm.1.team.job().start_receive(&self.receive, pattern, message.data.sink()) };
                begun.map(|()| Active::Receive).map_err(Fail::from)
            }
        };
        *self.active.borrow_mut() = begun.map_err(|failed| failed.on(&message.comm))?;
        Ok(())
    }

    /// How it has ended, once, after it is over.
    #[inline]
    fn ended(&self, active: Active) -> Outcome {
        let Some(message) = &self.message else { return Outcome::from(Status::EMPTY) };
        let ended = match active {
            Active::Nothing if matches!(message.way, Way::Nobody) => return Outcome::from(Status::FROM_NOBODY),
            Active::Inactive | Active::Nothing => return Outcome::from(Status::EMPTY),
            Active::Send(sending) => sending.outcome().map(|_| None),
            Active::Receive => self.receive.outcome(),
        };
        match ended {
            Ok(Some(received)) => message.status(&received),
            Ok(None) => Outcome::from(Status::EMPTY),
            Err(e) if self.cancelled.get() && e.kind() == ErrorKind::Aborted => Outcome::from(Status::CANCELLED),
            Err(e) => Outcome { status: Status::EMPTY, failed: Some(Box::new(Fail::from(e).on(&message.comm))) },
        }
    }
}

impl Operation for PointToPoint {
    fn hears(&self) -> Option<&dyn Hears> {
        self.message.as_ref().map(|message| &message.comm as &dyn Hears)
    }

    fn is_persistent(&self) -> bool {
        self.persistent
    }

    #[inline]
    fn is_active(&self) -> bool {
        !matches!(*self.active.borrow(), Active::Inactive)
    }

    fn is_over(&self) -> bool {
        match &*self.active.borrow() {
            Active::Inactive | Active::Nothing => true,
            Active::Send(sending) => sending.is_done(),
            Active::Receive => self.receive.is_done(),
        }
    }

    fn outcome(&self, _: &Call<'_>, then: Then) -> Outcome {
        let active = self.active.take();
        let outcome = match self.known.take() {
            Some(known) => *known,
            None => self.ended(active),
        };
        if then == Then::Keep {
            // Over, whatever it was.
            *self.active.borrow_mut() = Active::Nothing;
            self.known.set(Some(Box::new(outcome.clone())));
        }
        outcome
    }

    fn awaits(&self) -> Option<Awaited> {
        let message = self.message.as_ref()?;
        match (&*self.active.borrow(), &message.way) {
            (Active::Send(_), Way::To(target, _)) => {
                let account = Some(Account::team(message.comm.1.context));
                Some(Awaited { account, operation: "send", call: 0, from: Some(*target) })
            }
            (Active::Receive, _) => Some(self.receive.awaits()),
            _ => None,
        }
    }

    fn start(&self, call: &Call<'_>) -> Result {
        self.cancelled.set(false);
        self.begin(call, None)
    }

    fn cancel(&self, call: &Call<'_>) -> Result {
        match &*self.active.borrow() {
            Active::Receive if call.job()?.cancel_receive(&self.receive) => self.cancelled.set(true),
            Active::Send(sending) => {
                call.job()?.withdraw_send(sending);
                self.cancelled.set(true);
            }
            _ => {}
        }
        Ok(())
    }

    fn give_up(&self, job: &Job) {
        match &*self.active.borrow() {
            Active::Inactive | Active::Nothing => {}
            Active::Send(sending) => job.forget_send(sending),
            Active::Receive => job.forget_receive(&self.receive),
        }
    }

    fn recycle(mut self: Rc<Self>, call: &Call<'_>) {
        // One that others hold too, or whose memory may still be touched, is not used again.
        if self.is_over()
            && let Some(own) = Rc::get_mut(&mut self)
            && Rc::get_mut(&mut own.receive).is_some()
        {
            own.message = None;
            *own.active.get_mut() = Active::Inactive;
            call.spare.keep(self);
        }
    }
}
