#![allow(unsafe_code)]
//! A send or a receive that has been started, and what programs do with it by its request. Up to 256
//! that are over are used again, so that a message of contiguous data needs no memory for its operation.

use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::c_int;
use std::rc::Rc;

use farside_core::bill::{Account, Awaited};
use farside_core::two_sided::{Receive, Sending};
use farside_core::{ErrorKind, Job};

use super::{Data, Message, Way, pattern, start_send};
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
    /// It is with `MPI_PROC_NULL`, or its outcome is known.
    Nothing,
    Sending,
    Receiving,
}

/// A send or a receive that is started, once or more often.
pub struct PointToPoint {
    /// Nothing while it is spare, and for `MPI_MESSAGE_NO_PROC`.
    pub(super) message: OnceCell<Message>,
    pub(super) stage: Cell<Stage>,
    /// What core knows of a send.
    pub(super) sending: RefCell<Sending>,
    /// What core knows of a receive.
    pub(super) receive: Rc<Receive>,
    persistent: Cell<bool>,
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
    /// Not started.
    #[inline(always)]
    pub(super) fn new(call: &Call<'_>, message: Message, persistent: bool) -> Rc<Self> {
        let spare = call.spare.0.borrow_mut().pop();
        let operation = spare.unwrap_or_else(|| Self::empty(Stage::Inactive, None));
        operation.persistent.set(persistent);
        operation.cancelled.set(false);
        operation.message.get_or_init(|| message);
        operation
    }

    #[cold]
    fn empty(stage: Stage, known: Option<Outcome>) -> Rc<Self> {
        let (message, persistent, cancelled) = Default::default();
        let (sending, receive) = (RefCell::new(Sending::Done), Receive::new());
        let (stage, known) = (Cell::new(stage), Cell::new(known.map(Box::new)));
        Rc::new(Self { message, stage, sending, receive, persistent, cancelled, known })
    }

    /// The receive of `MPI_MESSAGE_NO_PROC`, which is over.
    pub(super) fn of_nobody() -> Rc<Self> {
        Self::empty(Stage::Nothing, Some(Status::FROM_NOBODY.into()))
    }

    /// Starts it; a send takes its data from `copy` if there is one.
    pub(super) fn begin(&self, call: &Call<'_>, copy: Option<&[u8]>) -> Result {
        let Some(message) = self.message.get() else { return Ok(()) };
        match message.way {
            Way::Nobody => self.stage.set(Stage::Nothing),
            Way::To(target, mode) => {
                let copy = copy.map(Data::of);
                let data = copy.as_ref().unwrap_or(&message.data);
                let sent = start_send(call, &message.comm.1, (target, message.tag), mode, data);
                let _ = self.sending.replace(sent.map_err(|failed| failed.on(&message.comm))?);
                self.stage.set(Stage::Sending);
            }
            Way::From(source) => self.begin_receive(&message.comm, (source, message.tag), &message.data)?,
        }
        Ok(())
    }

    /// Starts a receive.
    #[inline(always)]
    pub(super) fn begin_receive(
        &self,
        comm: &(Comm, Rc<CommObject>),
        (source, tag): (Option<u32>, c_int),
        data: &Data,
    ) -> Result {
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
        let Some(message) = self.message.get() else { return Outcome::from(Status::EMPTY) };
        let ended = match stage {
            Stage::Receiving => self.receive.outcome(),
            Stage::Nothing if matches!(message.way, Way::Nobody) => return Outcome::from(Status::FROM_NOBODY),
            Stage::Inactive | Stage::Nothing => return Outcome::from(Status::EMPTY),
            Stage::Sending => self.sending.replace(Sending::Done).outcome().map(|_| None),
        };
        match ended {
            Ok(Some(received)) => message.status(&received),
            Ok(None) => Outcome::from(Status::EMPTY),
            Err(e) if self.cancelled.get() && e.kind() == ErrorKind::Aborted => Outcome::from(Status::CANCELLED),
            Err(e) => Outcome { status: Status::EMPTY, failed: Some(Fail::from(e).on(&message.comm)) },
        }
    }
}

impl Operation for PointToPoint {
    fn object(&self) -> Option<&dyn HasErrhandler> {
        self.message.get().map(|message| &message.comm as &dyn HasErrhandler)
    }

    fn is_persistent(&self) -> bool {
        self.persistent.get()
    }

    #[inline]
    fn is_active(&self) -> bool {
        self.stage.get() != Stage::Inactive
    }

    #[inline]
    fn is_over(&self) -> bool {
        match self.stage.get() {
            Stage::Receiving => self.receive.is_done(),
            Stage::Sending => self.sending.borrow().is_done(),
            Stage::Inactive | Stage::Nothing => true,
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
            self.stage.set(Stage::Nothing);
            self.known.set(Some(Box::new(outcome.clone())));
        }
        outcome
    }

    fn awaits(&self) -> Option<Awaited> {
        let message = self.message.get()?;
        match (self.stage.get(), &message.way) {
            (Stage::Sending, Way::To(target, _)) => {
                let account = Some(Account::team(message.comm.1.context));
                Some(Awaited { account, operation: "send", call: 0, from: Some(*target) })
            }
            (Stage::Receiving, _) => Some(self.receive.awaits()),
            _ => None,
        }
    }

    fn start(&self, call: &Call<'_>) -> Result {
        self.cancelled.set(false);
        self.begin(call, None)
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
            Stage::Inactive | Stage::Nothing => {}
            Stage::Sending => job.forget_send(&self.sending.borrow()),
            Stage::Receiving => job.forget_receive(&self.receive),
        }
    }

    #[inline]
    fn complete(mut self: Rc<Self>, call: &Call<'_>) -> Outcome {
        let stage = self.stage.take();
        let outcome = match self.known.take() {
            Some(known) => *known,
            None => self.ended(stage),
        };
        // One that others hold too is not used again.
        if let Some(own) = Rc::get_mut(&mut self)
            && Rc::strong_count(&own.receive) == 1
        {
            drop(own.message.take());
            call.spare.keep(self);
        }
        outcome
    }
}
