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
    #[inline]
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
    #[inline]
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

    /// Starts it.
    #[inline]
    fn start(&self, call: &Call<'_>) -> Result<Active> {
        self.start_with(call, &self.data)
    }

    /// Starts it with other memory of the same length.
    #[inline]
    fn start_with(&self, call: &Call<'_>, data: &Data) -> Result<Active> {
        let job = call.job()?;
        match self.way {
            Way::To(target, mode) => {
                let mode = match mode {
                    Mode::Standard | Mode::Ready => two_sided::Mode::Standard,
                    Mode::Synchronous => two_sided::Mode::Synchronous,
                    Mode::Buffered => return crate::buffer::send(call, self).map(|()| Active::Send(Sending::Done)),
                };
                // SAFETY: the program leaves the buffer alone until the send is complete; blocking calls forget a send that
                // fails, and requests are kept until they are over.
                let sending = unsafe { job.start_message(target, self.comm.1.context, self.tag, data.source(), mode) };
                Ok(Active::Send(sending?))
            }
            // SAFETY: as above.
            Way::From(pattern) => Ok(Active::Receive(unsafe { job.start_receive(pattern, data.sink()) }?)),
            Way::Nobody => Ok(Active::Nothing),
        }
    }

    /// Whether it is with another than `MPI_PROC_NULL`.
    fn is_real(&self) -> bool {
        !matches!(self.way, Way::Nobody)
    }

    /// Bytes of the data.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// A copy of the data, packed.
    pub fn copied(&self) -> Result<Box<[u8]>> {
        self.data.copied()
    }

    /// Starts a standard send of a copy of its data.
    pub fn start_copy(&self, call: &Call<'_>, copy: &[u8]) -> Result<Sending> {
        let message = match self.way {
            Way::To(target, _) => Self { way: Way::To(target, Mode::Standard), ..self.clone() },
            _ => self.clone(),
        };
        match message.start_with(call, &Data::of(copy))? {
            Active::Send(sending) => Ok(sending),
            _ => Ok(Sending::Done),
        }
    }

    /// Does it, blocking.
    #[inline]
    fn run(self, call: &Call<'_>, status: StatusOut) -> Result {
        let active = self.start(call).map_err(|failed| failed.on(&self.comm))?;
        if let Active::Send(Sending::Done) = active {
            return Ok(());
        }
        request::finish(call, &PointToPoint::new(self, Some(active), false), status)
    }

    /// Starts it and makes a request of it.
    #[inline]
    fn request(self, call: &Call<'_>) -> Result<Request> {
        let active = self.start(call).map_err(|failed| failed.on(&self.comm))?;
        if let Active::Send(Sending::Done) = active {
            return Ok(request::complete_send(call));
        }
        Ok(call.requests.insert(Rc::new(PointToPoint::new(self, Some(active), false))))
    }

    /// A persistent request for it.
    fn persistent(self, call: &Call<'_>) -> Request {
        call.requests.insert(Rc::new(PointToPoint::new(self, None, true)))
    }

    /// The status of what came in for it.
    fn status(&self, received: &two_sided::Status) -> Outcome {
        let status = Status::received(rank_of(&self.comm.1, received.source), received.tag, received.kept);
        let failed = (received.kept < received.len).then(|| {
            let text = format!(
                "a message of {} bytes from rank {} with tag {}, and the receive has room for {}",
                received.len, status.source, received.tag, received.kept
            );
            Box::new(fail(MPI_ERR_TRUNCATE, text).on(&self.comm))
        });
        Outcome { status, failed }
    }
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
        None => Err(fail(MPI_ERR_RANK, format!("is {rank}, and there are {} ranks", members.len())).named(names.rank)),
    }
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

/// A send or receive that was started.
enum Active {
    /// Of `MPI_PROC_NULL`.
    Nothing,
    Send(Sending),
    Receive(Rc<Receive>),
}

impl Active {
    fn is_over(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Send(sending) => sending.is_done(),
            Self::Receive(receive) => receive.is_done(),
        }
    }

    /// How it has ended, once, after it is over.
    fn outcome(&self, message: &Message) -> Result<Outcome, farside_core::Error> {
        match self {
            Self::Nothing => {
                let received = matches!(message.way, Way::Nobody);
                Ok(Outcome::from(if received { Status::FROM_NOBODY } else { Status::EMPTY }))
            }
            Self::Send(sending) => sending.outcome().map(|_| Outcome::from(Status::EMPTY)),
            Self::Receive(receive) => {
                let received = receive.outcome()?;
                Ok(received.map_or(Outcome::from(Status::EMPTY), |received| message.status(&received)))
            }
        }
    }

    /// Its memory is not touched any more.
    fn give_up(&self, job: &Job) {
        match self {
            Self::Nothing => {}
            Self::Send(sending) => job.forget_send(sending),
            Self::Receive(receive) => job.forget_receive(receive),
        }
    }
}

/// The operation of a request for a send or a receive.
struct PointToPoint {
    message: Message,
    /// `None` while a persistent request is inactive.
    active: RefCell<Option<Active>>,
    persistent: bool,
    cancelled: Cell<bool>,
    /// An outcome that was looked at.
    known: Cell<Option<Outcome>>,
}

impl PointToPoint {
    fn new(message: Message, active: Option<Active>, persistent: bool) -> Self {
        let (cancelled, known) = Default::default();
        Self { message, active: RefCell::new(active), persistent, cancelled, known }
    }

    fn ended(&self, active: Option<Active>) -> Outcome {
        let ended = active.map_or(Ok(Outcome::from(Status::EMPTY)), |active| active.outcome(&self.message));
        match ended {
            Ok(outcome) => outcome,
            Err(e) if self.cancelled.get() && e.kind() == ErrorKind::Aborted => Outcome::from(Status::CANCELLED),
            Err(e) => Outcome { status: Status::EMPTY, failed: Some(Box::new(Fail::from(e).on(&self.message.comm))) },
        }
    }
}

impl Operation for PointToPoint {
    fn hears(&self) -> Option<&dyn Hears> {
        Some(&self.message.comm)
    }

    fn is_persistent(&self) -> bool {
        self.persistent
    }

    fn is_active(&self) -> bool {
        self.active.borrow().is_some()
    }

    fn is_over(&self) -> bool {
        self.active.borrow().as_ref().is_none_or(Active::is_over)
    }

    fn outcome(&self, _: &Call<'_>, then: Then) -> Outcome {
        let active = self.active.take();
        let outcome = self.known.take().unwrap_or_else(|| self.ended(active));
        if then == Then::Keep {
            // Over, whatever it was.
            *self.active.borrow_mut() = Some(Active::Nothing);
            self.known.set(Some(outcome.clone()));
        }
        outcome
    }

    fn start(&self, call: &Call<'_>) -> Result {
        self.cancelled.set(false);
        let active = self.message.start(call).map_err(|failed| failed.on(&self.message.comm))?;
        *self.active.borrow_mut() = Some(active);
        Ok(())
    }

    fn cancel(&self, call: &Call<'_>) -> Result {
        match &*self.active.borrow() {
            Some(Active::Receive(receive)) if call.job()?.cancel_receive(receive) => self.cancelled.set(true),
            Some(Active::Send(sending)) => {
                call.job()?.withdraw_send(sending);
                self.cancelled.set(true);
            }
            _ => {}
        }
        Ok(())
    }

    fn give_up(&self, job: &Job) {
        self.active.borrow().iter().for_each(|active| active.give_up(job));
    }
}
