#![allow(unsafe_code)]
//! Sends and receives in progress, which are given up when they are dropped: so a buffer is touched for no longer than the one
//! who keeps them says.

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

pub(super) const SEND: &str = "send a message";
pub(super) const RECEIVE: &str = "receive a message";
pub(super) const PROBE: &str = "probe for a message";

/// What a receive or probe of a team asks for.
#[inline]
pub(super) fn pattern(team: &Team, source: Option<usize>, tag: Option<i32>) -> Result<Pattern> {
    let source = source.map(|source| team.job_rank(source)).transpose()?;
    Ok(Pattern::new(team.context(), source, tag))
}

/// A send in progress.
pub(super) struct Sending {
    team: Team,
    to: u32,
    sending: two_sided::Sending,
    /// Somebody knows how it has ended.
    known: Cell<bool>,
}

impl Sending {
    /// Starts a send; `None` if it is complete.
    ///
    /// # Safety
    /// The data stays valid, and nobody writes to it, until the send has ended or is cancelled or dropped.
    #[inline]
    pub(super) unsafe fn start(team: &Team, data: &[u8], to: usize, tag: i32, mode: Mode) -> Result<Option<Self>> {
        let to = team.job_rank(to)?;
        // SAFETY: the caller's promise.
        let sending = unsafe { team.job().start_message(to, team.context(), tag, Source::of(data), mode) }?;
        Ok(match sending {
            two_sided::Sending::Done => None,
            sending => Some(Self { team: team.clone(), to, sending, known: Cell::new(false) }),
        })
    }

    /// How it has ended, if it has.
    pub(super) fn outcome(&self) -> Result<Option<()>> {
        let outcome = self.sending.outcome();
        self.known.set(!matches!(outcome, Ok(None)));
        outcome
    }

    /// Whether it has ended, making progress once.
    pub(super) fn test(&self) -> Result<bool> {
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
        self.team.job().wait_for(awaited, || self.outcome())
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

/// A wait for a message that fits a pattern.
pub(super) fn probing(pattern: &Pattern) -> Awaited {
    let account = Some(Account::team(pattern.context()));
    Awaited { account, operation: PROBE, call: 0, from: pattern.source() }
}

/// A receive in progress.
pub(super) struct Receiving {
    team: Team,
    receive: Rc<Receive>,
    /// Somebody knows how it has ended.
    known: Cell<bool>,
}

impl Receiving {
    /// Starts a receive.
    ///
    /// # Safety
    /// The buffer stays valid, and is touched by nobody else, until the receive has ended or is cancelled or dropped.
    #[inline]
    pub(super) unsafe fn start(team: &Team, (into, len): (*mut u8, usize), pattern: Pattern) -> Result<Self> {
        let receive = Receive::new();
        // SAFETY: the caller's promise.
        unsafe { team.job().start_receive(&receive, pattern, Sink::memory(into, len)) }?;
        Ok(Self { team: team.clone(), receive, known: Cell::new(false) })
    }

    /// Starts to receive a message that was taken.
    ///
    /// # Safety
    /// As [`start`](Self::start).
    pub(super) unsafe fn start_taken(
        team: &Team,
        (into, len): (*mut u8, usize),
        taken: Option<Matched>,
    ) -> Result<Self> {
        let gone = || Error::new(ErrorKind::BadArgument, RECEIVE).cause("it was received before");
        let receive = Receive::new();
        // SAFETY: the caller's promise.
        unsafe { team.job().receive_message(&receive, taken.ok_or_else(gone)?, Sink::memory(into, len)) }?;
        Ok(Self { team: team.clone(), receive, known: Cell::new(false) })
    }

    /// How it has ended, if it has, once.
    pub(super) fn outcome(&self) -> Result<Option<Received>> {
        let outcome = self.receive.outcome();
        self.known.set(!matches!(outcome, Ok(None)));
        Ok(outcome?.map(Received))
    }

    /// Whether it has ended, making progress once.
    pub(super) fn test(&self) -> Result<bool> {
        Ok(self.receive.is_done() || self.team.job().progress().map(|_| self.receive.is_done())?)
    }

    /// Waits for its end.
    pub(super) fn finish(&self) -> Result<Received> {
        self.team.job().wait_for(|| self.receive.awaits(), || self.outcome())
    }

    /// Takes it back, if its message has not come.
    pub(super) fn take_back(&self) -> bool {
        let taken = self.team.job().cancel_receive(&self.receive);
        self.known.set(self.known.get() || taken);
        taken
    }

    pub(super) fn team(&self) -> &Team {
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

/// What has come for a receive.
pub(super) struct Received(two_sided::Status);

impl Received {
    /// Its status, unless the message is longer than the receive, or no whole number of elements.
    #[inline]
    pub(super) fn checked<T: Pod>(&self, team: &Team) -> Result<Status> {
        let status = Status::of(team, &self.0)?;
        if self.0.kept < self.0.len {
            return Err(refused(team, &status, format!("and the receive has room for {}", self.0.kept)));
        }
        status.whole::<T>(team)
    }
}

/// Sends, and waits until the data is free.
#[inline]
pub(super) fn send(team: &Team, data: &[u8], to: usize, tag: i32, mode: Mode) -> Result<()> {
    // SAFETY: the data is borrowed for longer than the send lives.
    let sending = unsafe { Sending::start(team, data, to, tag, mode) }?;
    sending.map_or(Ok(()), |sending| sending.wait())
}

/// Receives.
#[inline]
pub(super) fn receive(team: &Team, into: &mut [u8], pattern: Pattern) -> Result<Received> {
    // SAFETY: the buffer is borrowed for longer than the receive lives.
    unsafe { Receiving::start(team, (into.as_mut_ptr(), into.len()), pattern) }?.finish()
}

/// Receives a message that was taken.
pub(super) fn receive_taken(team: &Team, into: &mut [u8], taken: Option<Matched>) -> Result<Received> {
    // SAFETY: the buffer is borrowed for longer than the receive lives.
    unsafe { Receiving::start_taken(team, (into.as_mut_ptr(), into.len()), taken) }?.finish()
}

/// Lets the sender of a message go on, whose data nobody wants.
pub(super) fn discard(team: &Team, taken: Matched) {
    // SAFETY: there is no memory. An error is found by the next call.
    let _ = unsafe { team.job().receive_message(&Receive::new(), taken, Sink::discard()) };
}
