#![allow(unsafe_code)]
//! Sends and receives in progress. Dropping one cancels it, so its buffer is not accessed after the drop.

use std::cell::Cell;
use std::rc::Rc;

use bytemuck::Pod;
use farside_core::am::{Sink, Source};
use farside_core::bill::{Account, Awaited};
use farside_core::matching::Pattern;
use farside_core::two_sided::{self, Matched, Mode, Receive};
use farside_core::{Error, ErrorKind, Result, Team};

use super::Status;
use super::status::refused;
use crate::collectives::Pending;

pub(crate) const SEND: &str = "send a message";
pub(crate) const RECEIVE: &str = "receive a message";
pub(crate) const PROBE: &str = "probe for a message";

/// The matching pattern of a receive or a probe on a team.
#[inline]
pub(crate) fn pattern(team: &Team, source: Option<usize>, tag: Option<i32>) -> Result<Pattern> {
    let source = source.map(|source| team.job_rank(source)).transpose()?;
    Ok(Pattern::new(team.context(), source, tag))
}

/// A send in progress.
pub(crate) struct Sending {
    team: Team,
    to: u32,
    sending: two_sided::Sending,
    /// Whether the outcome has been returned to a caller.
    known: Cell<bool>,
}

impl Sending {
    /// Starts a send; `None` if it is complete already.
    ///
    /// # Safety
    /// The data stays valid and is not written until the send has ended, is cancelled or is dropped.
    #[inline]
    pub(crate) unsafe fn start(team: &Team, data: &[u8], to: usize, tag: i32, mode: Mode) -> Result<Option<Self>> {
        // SAFETY: by the caller's contract.
        unsafe { Self::start_from(team, Source::of(data), to, tag, mode) }
    }

    /// Starts a send of memory in any layout.
    ///
    /// # Safety
    /// The contract of [`start`](Self::start).
    #[inline]
    pub(crate) unsafe fn start_from(
        team: &Team,
        source: Source,
        to: usize,
        tag: i32,
        mode: Mode,
    ) -> Result<Option<Self>> {
        let to = team.job_rank(to)?;
        // SAFETY: by the caller's contract.
        let sending = unsafe { team.job().start_message(to, team.context(), tag, source, mode) }?;
        Ok(match sending {
            two_sided::Sending::Done => None,
            sending => Some(Self { team: team.clone(), to, sending, known: Cell::new(false) }),
        })
    }

    pub(crate) fn team(&self) -> &Team {
        &self.team
    }

    /// The outcome of the send, or `None` while it is in progress.
    pub(crate) fn outcome(&self) -> Result<Option<()>> {
        let outcome = self.sending.outcome();
        self.known.set(!matches!(outcome, Ok(None)));
        outcome
    }

    pub(crate) fn is_done(&self) -> bool {
        self.sending.is_done()
    }

    /// Whether the operation has ended, making progress once.
    pub(crate) fn test(&self) -> Result<bool> {
        Ok(self.sending.is_done() || self.team.job().progress().map(|_| self.sending.is_done())?)
    }
}

impl Pending for Sending {
    fn is_active(&self) -> bool {
        !self.known.get()
    }

    fn wait(&self) -> Result<()> {
        let account = Some(Account::team(self.team.context()));
        let awaited = || Awaited { account, operation: SEND, call: 0, from: Some(self.to) };
        self.team.job().wait(awaited, || self.outcome())
    }

    fn cancel(&self) {
        self.team.job().forget_send(&self.sending);
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// The description of a wait for a message that matches a pattern.
pub(crate) fn probing(pattern: &Pattern) -> Awaited {
    let account = Some(Account::team(pattern.context()));
    Awaited { account, operation: PROBE, call: 0, from: pattern.source() }
}

/// A receive in progress.
pub(crate) struct Receiving {
    team: Team,
    receive: Rc<Receive>,
    /// Whether the outcome has been returned to a caller.
    known: Cell<bool>,
}

impl Receiving {
    /// Starts a receive.
    ///
    /// # Safety
    /// The buffer stays valid and is not accessed otherwise until the receive has ended, is cancelled or is dropped.
    #[inline]
    pub(crate) unsafe fn start(team: &Team, (into, len): (*mut u8, usize), pattern: Pattern) -> Result<Self> {
        // SAFETY: by the caller's contract.
        unsafe { Self::start_into(team, Sink::memory(into, len), pattern) }
    }

    /// Starts a receive into memory in any layout.
    ///
    /// # Safety
    /// The contract of [`start`](Self::start).
    #[inline]
    pub(crate) unsafe fn start_into(team: &Team, sink: Sink, pattern: Pattern) -> Result<Self> {
        let receive = Receive::new();
        // SAFETY: by the caller's contract.
        unsafe { team.job().start_receive(&receive, pattern, sink) }?;
        Ok(Self { team: team.clone(), receive, known: Cell::new(false) })
    }

    /// Starts to receive a message that a matched probe has returned.
    ///
    /// # Safety
    /// The contract of [`start`](Self::start).
    pub(crate) unsafe fn start_taken(
        team: &Team,
        (into, len): (*mut u8, usize),
        taken: Option<Matched>,
    ) -> Result<Self> {
        let already_received =
            || Error::new(ErrorKind::BadArgument, RECEIVE).cause("the message has already been received");
        let receive = Receive::new();
        // SAFETY: by the caller's contract.
        unsafe { team.job().receive_message(&receive, taken.ok_or_else(already_received)?, Sink::memory(into, len)) }?;
        Ok(Self { team: team.clone(), receive, known: Cell::new(false) })
    }

    /// The outcome of the receive, or `None` while it is in progress. The outcome is returned once.
    pub(crate) fn outcome(&self) -> Result<Option<Received>> {
        let outcome = self.receive.outcome();
        self.known.set(!matches!(outcome, Ok(None)));
        Ok(outcome?.map(Received))
    }

    pub(crate) fn is_done(&self) -> bool {
        self.receive.is_done()
    }

    /// Whether the operation has ended, making progress once.
    pub(crate) fn test(&self) -> Result<bool> {
        Ok(self.receive.is_done() || self.team.job().progress().map(|_| self.receive.is_done())?)
    }

    /// Waits until the receive has ended.
    pub(crate) fn finish(&self) -> Result<Received> {
        self.team.job().wait(|| self.receive.awaits(), || self.outcome())
    }

    /// Waits until the receive has ended; fails if the message is not `len` bytes long.
    pub(crate) fn wait_for_all(&self, len: u64) -> Result<()> {
        let received = self.finish()?;
        let status = received.checked::<u8>(&self.team)?;
        if received.0.len as u64 == len {
            return Ok(());
        }
        Err(refused(&self.team, &status, format!("but the receive is for exactly {len} bytes")))
    }

    /// Cancels the receive if it has not matched a message; returns whether it did.
    pub(crate) fn take_back(&self) -> bool {
        let taken = self.team.job().cancel_receive(&self.receive);
        self.known.set(self.known.get() || taken);
        taken
    }

    pub(crate) fn team(&self) -> &Team {
        &self.team
    }
}

impl Pending for Receiving {
    fn is_active(&self) -> bool {
        !self.known.get()
    }

    fn wait(&self) -> Result<()> {
        self.finish()?.checked::<u8>(&self.team).map(|_| ())
    }

    fn cancel(&self) {
        self.team.job().forget_receive(&self.receive);
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// The outcome of a receive: status and lengths.
pub(crate) struct Received(two_sided::Status);

impl Received {
    /// The status; an error if the message is longer than the receive, or not a whole number of elements.
    #[inline]
    pub(crate) fn checked<T: Pod>(&self, team: &Team) -> Result<Status> {
        let status = Status::of(team, &self.0)?;
        if self.0.kept < self.0.len {
            return Err(refused(team, &status, format!("but the receive buffer has {} bytes", self.0.kept)));
        }
        status.whole::<T>(team)
    }
}

/// Sends, and waits until the data may be reused.
#[inline]
pub(crate) fn send(team: &Team, data: &[u8], to: usize, tag: i32, mode: Mode) -> Result<()> {
    // SAFETY: the data is borrowed for longer than the send lives.
    let sending = unsafe { Sending::start(team, data, to, tag, mode) }?;
    sending.map_or(Ok(()), |sending| sending.wait())
}

/// Receives.
#[inline]
pub(crate) fn receive(team: &Team, into: &mut [u8], pattern: Pattern) -> Result<Received> {
    // SAFETY: the buffer is borrowed for longer than the receive lives.
    unsafe { Receiving::start(team, (into.as_mut_ptr(), into.len()), pattern) }?.finish()
}

/// Receives a message that a matched probe has returned.
pub(crate) fn receive_taken(team: &Team, into: &mut [u8], taken: Option<Matched>) -> Result<Received> {
    // SAFETY: the buffer is borrowed for longer than the receive lives.
    unsafe { Receiving::start_taken(team, (into.as_mut_ptr(), into.len()), taken) }?.finish()
}

/// Receives and discards a message, so that its send completes.
pub(crate) fn discard(team: &Team, taken: Matched) {
    // SAFETY: the sink has no memory. An error is returned by the next call.
    let _ = unsafe { team.job().receive_message(&Receive::new(), taken, Sink::discard()) };
}
