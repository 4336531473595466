#![allow(unsafe_code)]
//! The operation of a send or a receive, which programs access through its request.

use std::ffi::c_int;
use std::rc::Rc;

use farside_core::bill::{Account, Awaited};
use farside_core::matching::Pattern;
use farside_core::two_sided::{self, Receive, Sending};
use farside_core::{ErrorKind, Job};

use crate::arguments::StatusOut;
use crate::errhandler::HasErrhandler;
use crate::fail::{Fail, Result};
use crate::handle::Comm;
use crate::message::{self, pattern};
use crate::objects::{CommObject, Data, Mode, Outcome, Partner, PointToPoint, Stage};
use crate::runtime::{Call, Operation, Persistence};
use crate::status::Status;

/// Starts a receive, which is cancelled on failure.
///
/// # Safety
/// The program does not access the buffer until the receive has ended or is cancelled.
pub(super) unsafe fn start_receive(
    comm: &(Comm, Rc<CommObject>),
    receive: &Rc<Receive>,
    pattern: Pattern,
    data: &Data,
) -> Result {
    let job = comm.1.team.job();
    // SAFETY: the same contract.
    unsafe { job.start_receive(receive, pattern, data.sink()) }.map_err(|e| {
        job.forget_receive(receive);
        Fail::from(e).on(comm)
    })
}

/// Starts a send to rank `target` of the job, as [`message::start_send`].
pub(super) fn start_send(
    call: &Call<'_>,
    comm: &CommObject,
    to: (u32, c_int),
    (mode, is_tried): (Mode, bool),
    data: &Data,
) -> Result<Sending> {
    let mode = match mode {
        Mode::Standard | Mode::Ready => two_sided::Mode::Standard,
        Mode::Synchronous => two_sided::Mode::Synchronous,
        Mode::Buffered => return crate::buffer::send(call, comm, to, data).map(|()| Sending::Done),
    };
    message::start_send(comm, to, (mode, is_tried), data)
}

impl PointToPoint {
    /// Starts the operation.
    pub(super) fn begin(&self, call: &Call<'_>, partner: Partner, tag: c_int, data: &Data) -> Result {
        let Some(comm) = &self.comm else { return Ok(()) };
        match partner {
            Partner::ProcNull => self.stage.set(Stage::ProcNull),
            Partner::To(target, mode) => {
                let sent = start_send(call, &comm.1, (target, tag), (mode, false), data);
                self.sends(target, sent.map_err(|failed| failed.on(comm))?);
            }
            Partner::From(source) => self.begin_receive((source, tag), data)?,
        }
        Ok(())
    }

    /// Records that a send to rank `target` of the job has been started for this operation.
    pub(super) fn sends(&self, target: u32, sending: Sending) {
        let _ = self.sending.replace(sending);
        self.target.set(target);
        self.stage.set(Stage::Sending);
    }

    /// Starts a receive.
    fn begin_receive(&self, (source, tag): (Option<u32>, c_int), data: &Data) -> Result {
        let Some(comm) = &self.comm else { return Ok(()) };
        // SAFETY: requests live until their operations have ended, and other receives are cancelled on failure.
        unsafe { start_receive(comm, self.receive(), pattern(&comm.1, source, tag), data) }?;
        self.stage.set(Stage::Receiving);
        Ok(())
    }

    /// The outcome of an operation that has ended. Called once.
    #[inline(always)]
    fn ended(&self, stage: Stage) -> Outcome {
        let ended = match stage {
            Stage::ProcNull => return Outcome::from(Status::FROM_PROC_NULL),
            Stage::Inactive | Stage::Known => return Outcome::from(Status::EMPTY),
            Stage::Receiving => self.receive().outcome(),
            Stage::Sending => self.sending.replace(Sending::Done).outcome().map(|_| None),
        };
        let Some(comm) = &self.comm else { return Outcome::from(Status::EMPTY) };
        match ended {
            Ok(Some(received)) => Outcome::received(comm, &received),
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

    #[inline]
    fn persistence(&self) -> Persistence {
        match (&self.again, self.stage.get()) {
            (None, _) => Persistence::None,
            (Some(_), Stage::Inactive) => Persistence::Inactive,
            (Some(_), _) => Persistence::Active,
        }
    }

    #[inline]
    fn has_ended(&self) -> bool {
        let stage = self.stage.get();
        // Comparisons one after the other are faster here than a jump table.
        if stage == Stage::Receiving {
            self.receive().is_done()
        } else {
            stage != Stage::Sending || self.sending.borrow().is_done()
        }
    }

    fn outcome(&self, _: &Call<'_>) -> Outcome {
        // The operation has ended, whatever its stage was.
        let stage = self.stage.replace(Stage::Known);
        let outcome = self.known.take().map_or_else(|| self.ended(stage), |known| *known);
        self.known.set(Some(Box::new(outcome.clone())));
        outcome
    }

    fn awaits(&self) -> Option<Awaited> {
        let comm = self.comm.as_ref()?;
        match self.stage.get() {
            Stage::Sending => {
                let account = Some(Account::team(comm.1.context));
                Some(Awaited { account, operation: "send", call: 0, from: Some(self.target.get()) })
            }
            Stage::Receiving => Some(self.receive().awaits()),
            _ => None,
        }
    }

    fn start(&self, call: &Call<'_>) -> Result {
        let Some((partner, tag, data)) = &self.again else { return Ok(()) };
        self.cancelled.set(false);
        self.begin(call, *partner, *tag, data)
    }

    fn cancel(&self, call: &Call<'_>) -> Result {
        match self.stage.get() {
            Stage::Receiving if call.job()?.cancel_receive(self.receive()) => self.cancelled.set(true),
            Stage::Sending => {
                call.job()?.withdraw_send(&self.sending.borrow());
                self.cancelled.set(true);
            }
            _ => {}
        }
        Ok(())
    }

    fn abandon(&self, job: &Job) {
        match self.stage.get() {
            Stage::Inactive | Stage::Known | Stage::ProcNull => {}
            Stage::Sending => job.forget_send(&self.sending.borrow()),
            Stage::Receiving => job.forget_receive(self.receive()),
        }
    }

    fn complete(self: Rc<Self>, _: &Call<'_>, status: StatusOut) -> Result {
        let stage = self.stage.take();
        self.known.take().map_or_else(|| self.ended(stage), |known| *known).put(status)
    }
}
