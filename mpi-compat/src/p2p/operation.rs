#![allow(unsafe_code)]
//! A send or a receive that has been started, and what programs do with it by its request. Up to 256
//! that are over are used again, so that a message of contiguous data needs no memory for its operation.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use farside_core::bill::{Account, Awaited};
use farside_core::two_sided::{Receive, Sending};
use farside_core::{ErrorKind, Job};

use super::{Data, Message, Way, pattern, start_send};
use crate::errors::HasErrhandler;
use crate::fail::{Fail, Result};
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
    /// `None` while it is spare, and for `MPI_MESSAGE_NO_PROC`.
    pub(super) message: Option<Message>,
    pub(super) stage: Cell<Stage>,
    /// What core knows of a send.
    pub(super) sending: RefCell<Sending>,
    /// What core knows of a receive.
    pub(super) receive: Rc<Receive>,
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
    pub(super) fn new(call: &Call<'_>, message: Message, persistent: bool) -> Rc<Self> {
        let spare = call.spare.0.borrow_mut().pop();
        if let Some(mut operation) = spare
            && let Some(own) = Rc::get_mut(&mut operation)
        {
            (own.message, own.persistent) = (Some(message), persistent);
            own.cancelled.set(false);
            return operation;
        }
        let (stage, cancelled, known) = Default::default();
        let (sending, receive) = (RefCell::new(Sending::Done), Receive::new());
        Rc::new(Self { message: Some(message), stage, sending, receive, persistent, cancelled, known })
    }

    /// The receive of `MPI_MESSAGE_NO_PROC`, which is over.
    pub(super) fn of_nobody() -> Rc<Self> {
        let (stage, known) = (Cell::new(Stage::Nothing), Cell::new(Some(Box::new(Status::FROM_NOBODY.into()))));
        let (sending, receive) = (RefCell::new(Sending::Done), Receive::new());
        Rc::new(Self { message: None, stage, sending, receive, persistent: false, cancelled: Cell::default(), known })
    }

    /// Starts it; a send takes its data from `copy` if there is one.
    #[inline(always)]
    pub(super) fn begin(&self, call: &Call<'_>, copy: Option<&[u8]>) -> Result {
        let Some(message) = &self.message else { return Ok(()) };
        let begun = match message.way {
            Way::Nobody => Ok(Stage::Nothing),
            Way::To(target, mode) => {
                let copy = copy.map(Data::of);
                let data = copy.as_ref().unwrap_or(&message.data);
                let sent = start_send(call, &message.comm.1, (target, message.tag), mode, data);
                sent.map(|sending| self.sending.replace(sending)).map(|_| Stage::Sending)
            }
            Way::From(source) => {
                let (comm, pattern) = (&message.comm.1, pattern(&message.comm.1, source, message.tag));
                // SAFETY: the program leaves the buffer alone until the receive is over; blocking calls forget one that fails,
                // and requests are kept until they are over.
                let begun = unsafe { comm.team.job().start_receive(&self.receive, pattern, message.data.sink()) };
                let begun = begun.inspect_err(|_| comm.team.job().forget_receive(&self.receive));
                begun.map(|()| Stage::Receiving).map_err(Fail::from)
            }
        };
        self.stage.set(begun.map_err(|failed| failed.on(&message.comm))?);
        Ok(())
    }

    /// How it has ended, once, after it is over.
    #[inline]
    fn ended(&self, stage: Stage) -> Outcome {
        let Some(message) = &self.message else { return Outcome::from(Status::EMPTY) };
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
            Err(e) => Outcome { status: Status::EMPTY, failed: Some(Box::new(Fail::from(e).on(&message.comm))) },
        }
    }
}

impl Operation for PointToPoint {
    fn object(&self) -> Option<&dyn HasErrhandler> {
        self.message.as_ref().map(|message| &message.comm as &dyn HasErrhandler)
    }

    fn is_persistent(&self) -> bool {
        self.persistent
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
        let message = self.message.as_ref()?;
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
        let outcome = self.outcome(call, Then::Complete);
        // One that others hold too is not used again.
        if let Some(own) = Rc::get_mut(&mut self)
            && Rc::get_mut(&mut own.receive).is_some()
        {
            own.message = None;
            call.spare.keep(self);
        }
        outcome
    }
}
