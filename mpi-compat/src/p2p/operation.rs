#![allow(unsafe_code)]
//! A send or a receive that has been started, and what programs do with it by its request. Up to 256
//! that are over are used again, so that a message of contiguous data needs no memory for its operation.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::rc::Rc;

use farside_core::bill::{Account, Awaited};
use farside_core::two_sided::{Receive, Sending};
use farside_core::{ErrorKind, Job};

use super::{Data, Way, pattern, received_status, start_send};
use crate::arguments::StatusOut;
use crate::comm::CommObject;
use crate::errors::HasErrhandler;
use crate::fail::{Fail, Result};
use crate::handle::Comm;
use crate::request::{Operation, Outcome, Then};
use crate::runtime::Call;
use crate::status::Status;

/// What an operation is at.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// It was not started, or has been completed.
    #[default]
    Inactive,
    /// Its outcome is known.
    Known,
    /// It is with `MPI_PROC_NULL`.
    Nobody,
    Sending,
    Receiving,
}

/// A send or a receive that is started, once or more often.
pub struct PointToPoint {
    /// `None` while it is spare, and for `MPI_MESSAGE_NO_PROC`.
    comm: Option<(Comm, Rc<CommObject>)>,
    /// Of a persistent one: what is started.
    again: Option<(Way, c_int, Data)>,
    pub(super) stage: Cell<Stage>,
    /// What core knows of a send, and its target.
    sending: RefCell<Sending>,
    target: Cell<u32>,
    /// What core knows of a receive.
    pub(super) receive: Rc<Receive>,
    cancelled: Cell<bool>,
    /// An outcome that was looked at.
    known: Cell<Option<Box<Outcome>>>,
}

/// Operations that are over and held by nothing else, of which new ones are made.
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
    /// Not started; a persistent one with what is started `again`.
    #[inline(always)]
    pub(super) fn new(call: &Call<'_>, comm: (Comm, Rc<CommObject>), again: Option<(Way, c_int, Data)>) -> Rc<Self> {
        let spare = call.spare.0.borrow_mut().pop();
        let mut operation = spare.unwrap_or_else(|| Self::empty(Stage::Inactive, None));
        // Held by nothing else.
        if let Some(own) = Rc::get_mut(&mut operation) {
            own.comm = Some(comm);
            if again.is_some() {
                own.again = again;
            }
        }
        operation
    }

    #[cold]
    fn empty(stage: Stage, known: Option<Outcome>) -> Rc<Self> {
        let (comm, again, target, cancelled) = Default::default();
        let (sending, receive) = (RefCell::new(Sending::Done), Receive::new());
        let (stage, known) = (Cell::new(stage), Cell::new(known.map(Box::new)));
        Rc::new(Self { comm, again, stage, sending, target, receive, cancelled, known })
    }

    /// The receive of `MPI_MESSAGE_NO_PROC`, which is over.
    pub(super) fn of_nobody() -> Rc<Self> {
        Self::empty(Stage::Known, Some(Status::FROM_NOBODY.into()))
    }

    /// Starts it.
    pub(super) fn begin(&self, call: &Call<'_>, way: Way, tag: c_int, data: &Data) -> Result {
        let Some(comm) = &self.comm else { return Ok(()) };
        match way {
            Way::Nobody => self.stage.set(Stage::Nobody),
            Way::To(target, mode) => {
                let sent = start_send(call, &comm.1, (target, tag), mode, data);
                self.sends(target, sent.map_err(|failed| failed.on(comm))?);
            }
            Way::From(source) => self.begin_receive((source, tag), data)?,
        }
        Ok(())
    }

    /// A send to rank `target` of the job was started for it.
    pub(super) fn sends(&self, target: u32, sending: Sending) {
        let _ = self.sending.replace(sending);
        self.target.set(target);
        self.stage.set(Stage::Sending);
    }

    /// Starts a receive.
    #[inline(always)]
    pub(super) fn begin_receive(&self, (source, tag): (Option<u32>, c_int), data: &Data) -> Result {
        let Some(comm) = &self.comm else { return Ok(()) };
        let (job, pattern) = (comm.1.team.job(), pattern(&comm.1, source, tag));
        // SAFETY: the program leaves the buffer alone until the receive is over; blocking calls forget one that fails, and
        // requests are kept until they are over.
        if let Err(e) = unsafe { job.start_receive(&self.receive, pattern, data.sink()) } {
            job.forget_receive(&self.receive);
            return Err(Fail::from(e).on(comm));
        }
        self.stage.set(Stage::Receiving);
        Ok(())
    }

    /// How it has ended, once, after it is over.
    #[inline(always)]
    fn ended(&self, stage: Stage) -> Outcome {
        let Some(comm) = &self.comm else { return Outcome::from(Status::EMPTY) };
        let ended = match stage {
            Stage::Nobody => return Outcome::from(Status::FROM_NOBODY),
            Stage::Inactive | Stage::Known => return Outcome::from(Status::EMPTY),
            Stage::Receiving => self.receive.outcome(),
            Stage::Sending => self.sending.replace(Sending::Done).outcome().map(|_| None),
        };
        match ended {
            Ok(Some(received)) => received_status(comm, &received),
            Ok(None) => Outcome::from(Status::EMPTY),
            Err(e) if self.cancelled.get() && e.kind() == ErrorKind::Aborted => Outcome::from(Status::CANCELLED),
            Err(e) => Outcome { status: Status::EMPTY, failed: Some(Fail::from(e).on(comm)) },
        }
    }
}

impl Operation for PointToPoint {
    fn object(&self) -> Option<&dyn HasErrhandler> {
        self.comm.as_ref().map(|comm| comm as &dyn HasErrhandler)
    }

    fn is_persistent(&self) -> bool {
        self.again.is_some()
    }

    #[inline]
    fn is_active(&self) -> bool {
        self.stage.get() != Stage::Inactive
    }

    #[inline]
    fn is_over(&self) -> bool {
        let stage = self.stage.get();
        // A chain: a table of jumps costs more.
        if stage == Stage::Receiving {
            self.receive.is_done()
        } else {
            stage != Stage::Sending || self.sending.borrow().is_done()
        }
    }

    #[inline]
    fn outcome(&self, _: &Call<'_>, then: Then) -> Outcome {
        let stage = self.stage.take();
        let outcome = match self.known.take() {
            Some(known) => *known,
            None => self.ended(stage),
        };
        if then == Then::Keep {
            // Over, whatever it was.
            self.stage.set(Stage::Known);
            self.known.set(Some(Box::new(outcome.clone())));
        }
        outcome
    }

    fn awaits(&self) -> Option<Awaited> {
        let comm = self.comm.as_ref()?;
        match self.stage.get() {
            Stage::Sending => {
                let account = Some(Account::team(comm.1.context));
                Some(Awaited { account, operation: "send", call: 0, from: Some(self.target.get()) })
            }
            Stage::Receiving => Some(self.receive.awaits()),
            _ => None,
        }
    }

    fn start(&self, call: &Call<'_>) -> Result {
        let Some((way, tag, data)) = &self.again else { return Ok(()) };
        self.cancelled.set(false);
        self.begin(call, *way, *tag, data)
    }

    fn cancel(&self, call: &Call<'_>) -> Result {
        match self.stage.get() {
            Stage::Receiving if call.job()?.cancel_receive(&self.receive) => self.cancelled.set(true),
            Stage::Sending => {
                call.job()?.withdraw_send(&self.sending.borrow());
                self.cancelled.set(true);
            }
            _ => {}
        }
        Ok(())
    }

    fn give_up(&self, job: &Job) {
        match self.stage.get() {
            Stage::Inactive | Stage::Known | Stage::Nobody => {}
            Stage::Sending => job.forget_send(&self.sending.borrow()),
            Stage::Receiving => job.forget_receive(&self.receive),
        }
    }

    #[inline]
    fn complete(mut self: Rc<Self>, call: &Call<'_>, status: StatusOut) -> Result {
        let stage = self.stage.take();
        let completed = match self.known.take() {
            Some(known) => known.put(status),
            None => self.ended(stage).put(status),
        };
        // One that others hold too is not used again.
        if let Some(own) = Rc::get_mut(&mut self)
            && Rc::strong_count(&own.receive) == 1
        {
            own.comm = None;
            own.cancelled.set(false);
            call.spare.keep(self);
        }
        completed
    }
}
