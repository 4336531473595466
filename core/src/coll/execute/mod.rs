#![allow(unsafe_code)]
//! Executes schedules: blocking calls, nonblocking calls, and persistent calls.
//!
//! Several calls may be in progress on one team and on several, and each makes progress in every wait of the rank. All
//! ranks of a team start the same calls in the same order; persistent calls are made in the same order and started in
//! any order.
//!
//! **Refusals.** A call that its own rank refuses for its arguments has not been made: it has no number and sends nothing,
//! so that a retry is the call for which the others wait. If that rank makes another call on the team instead, this one
//! takes the number, and the ranks get a `Mismatch`.
//!
//! **Failures.** A call fails at a rank that finds that a peer is lost, that a message has an unexpected length, that
//! the ranks call different operations, that it lacks memory, or that the reduction cannot be done. The rank announces this to the other
//! ranks of the team, whose call then fails too, with the same kind of error and the rank to blame; other calls on the
//! team are not affected. A message that shows a disagreement only when the call is over here is an error at the ranks
//! that still wait in that call; here it is logged. A rank that has waited for five times `FARSIDE_PEER_CHECK_MS`, and
//! again after twice that time and so on, asks the senders of the messages that it misses, with a message of up to 124
//! bytes each. So a disagreement that no other message shows becomes a `Mismatch` too, also between ranks in a call and
//! ranks in a [barrier by signals](crate::Team::barrier). A rank that has come to the end of the job is found likewise.
//! A rank that has not made the call yet, or has dropped its team, is waited for, since no message can show it.
//!
//! **Short data.** A blocking call by an algorithm of one round of up to 568 bytes a rank, or 4 KiB where ranks share
//! processors, sends no message if the ranks share memory and the team has a signal array, which the first such call
//! makes after four collectives: its data goes through the lines of that array. A rank waits for the ranks whose data it
//! reads, and may be up to three such calls ahead of the others. All ranks must make the call in the same way: a rank that
//! starts it without waiting gets a `Mismatch`.
//!
//! **Loans.** Where ranks of a node lend each other memory, a rank accesses buffers of others during its own call only,
//! and those of a call that has failed not at all.
//!
//! **Ends.** A call that is dropped before it is complete is cancelled: its memory is not touched after that, and it
//! fails at the other ranks with an error that names this one. The drop does not wait.

mod arguments;
mod calls;
mod checks;
mod ends;
mod memory;
mod one_round;
mod plan;
mod recent;
mod run;
mod trial;
mod tuner;

use std::rc::Rc;
use std::time::Duration;

use farside_schedule::barrier::dissemination;

pub use arguments::{Arguments, Key, ReduceFn, Reduction, Shape};
pub use memory::Memory;

pub(crate) use calls::{Calls, TeamCalls, register};

use crate::bill::Awaited;
use crate::coll;
use crate::coll::operation::Operation;
use crate::coll::selection::Choice;
use crate::coll::team::Team;
use crate::error::{Error, ErrorKind, Result};
use calls::Announce;
use plan::Plan;
use recent::Recent;
use run::Run;
use trial::Timed;
use tuner::{Decision, Tried};

/// The time by which a rank is late in a call after a skew.
const LATE: Duration = Duration::from_micros(2);

/// The calls of a team that are kept to be made again.
pub(crate) type Kept = Recent<Key, Rc<Run>, 32>;

/// A collective call that is ready to run: checked, with its schedule, on memory that may change from run to run. It is made
/// once, or several times if it is persistent; a call that is complete is kept by its team for the next one like it.
pub struct Prepared {
    team: Team,
    run: Rc<Run>,
    /// Key of the call among those that the team keeps, and the index of its place; `None` if it is not to be kept.
    home: Option<(Key, Option<usize>)>,
    persistent: bool,
}

/// How a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallMode {
    /// By [`run`](Prepared::run).
    Blocking,
    /// By [`start`](Prepared::start), once.
    Started,
    /// By [`start`](Prepared::start), any number of times.
    Persistent,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("operation", &self.run.name()).finish_non_exhaustive()
    }
}

impl Prepared {
    /// Prepares a call. Sends nothing. All ranks prepare their persistent calls in the same order, which may then be started in
    /// any order.
    ///
    /// # Errors
    /// `NoSuchRank`, `BadArgument`, `Unsupported` if no algorithm fits: the call has not been made. `BadArgument` for an
    /// algorithm whose schedule is not one of the call, and `Limit`, which the other ranks get too. `Freed`.
    #[inline]
    pub fn new(team: &Team, arguments: &Arguments<'_>, mode: CallMode) -> Result<Self> {
        team.job().running(arguments.operation.name())?;
        arguments.check_lengths(team.membership())?;
        let is_piece = |memory: &Memory| matches!(memory, Memory::None | Memory::Contiguous(_));
        let key = match arguments.key {
            _ if mode == CallMode::Persistent => None,
            Some((key, _)) if is_piece(&arguments.input) && is_piece(&arguments.output) => Some(key),
            _ => Key::of(arguments),
        };
        match Self::known(team, arguments, mode, key) {
            Some(known) => Ok(known),
            None => Self::selected(team, arguments, mode, key),
        }
    }

    /// The blocking call that is kept by a [key](Arguments::key) of the caller, on buffers at these addresses; `None` for an
    /// address that no data can have. `None` if no such call is kept, or a buffer has no address or overlaps the other one.
    #[inline]
    #[must_use]
    pub fn recall(team: &Team, key: &Key, addresses: [Option<*mut u8>; 2]) -> Option<Self> {
        let (place, mut run) = team.kept().take(key, |run| run.is_current(true))?;
        let has_moved = Rc::get_mut(&mut run).is_some_and(|idle| idle.move_to(addresses));
        let known = Self { team: team.clone(), run, home: Some((*key, Some(place))), persistent: false };
        has_moved.then_some(known)
    }

    /// Prepares a call and starts it. Collective.
    ///
    /// # Safety
    /// The contract of [`start`](Self::start).
    ///
    /// # Errors
    /// Those of [`new`](Self::new) and [`start`](Self::start).
    pub unsafe fn started(team: &Team, arguments: &Arguments<'_>) -> Result<Self> {
        let started = Self::new(team, arguments, CallMode::Started)?;
        // SAFETY: the caller's promise.
        unsafe { started.start() }?;
        Ok(started)
    }

    /// Starts the call, without waiting. Collective.
    ///
    /// # Safety
    /// Until the call is complete, has failed, or was dropped or cancelled: the memory of input and output is valid for
    /// the sizes of the shape, the output is not accessed otherwise, the input is not written, and the context of the
    /// reduction is valid.
    ///
    /// # Errors
    /// `BadArgument` if the call is in progress; `Aborted` if it has failed; `Freed`. Later errors are reported by
    /// [`wait`](Self::wait) and [`test`](Self::test).
    pub unsafe fn start(&self) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.run.start() }
    }

    /// [`new`](Self::new) without a kept run.
    fn selected(team: &Team, arguments: &Arguments<'_>, mode: CallMode, key: Option<Key>) -> Result<Self> {
        arguments.check(team.membership())?;
        let (is_persistent, blocks) = (mode == CallMode::Persistent, mode == CallMode::Blocking);
        let decision = match arguments.algorithm {
            None => team.calls().tuner.decide(team.job(), team.membership(), arguments, blocks),
            Some(_) => None,
        };
        let Some(Decision { choice, tried }) = decision else {
            return Self::made(team, arguments, key, None, is_persistent);
        };
        // A trial may have begun.
        if let Some(known) = Self::known(team, arguments, mode, key) {
            return Ok(known);
        }
        let by_choice = Arguments { algorithm: Some((choice.algorithm, &choice.parameters)), ..arguments.clone() };
        Self::made(team, &by_choice, key, tried.clone(), is_persistent).or_else(|e| match tried {
            // It counts for the other ranks.
            Some(tried) if blocks => counted(team, &tried, || Err(e.again())).and(Err(e)),
            _ => Err(e),
        })
    }

    /// The call by a run that is kept.
    #[inline]
    fn known(team: &Team, arguments: &Arguments<'_>, mode: CallMode, key: Option<Key>) -> Option<Self> {
        let (key, blocks) = (key?, mode == CallMode::Blocking);
        let fits = |run: &Rc<Run>| run.is_current(blocks) && run.neighbors() == arguments.neighbors;
        let (place, mut run) = team.kept().take(&key, fits)?;
        Rc::get_mut(&mut run)?.set(arguments);
        Some(Self { team: team.clone(), run, home: Some((key, Some(place))), persistent: false })
    }

    /// The call by a new run, whose arguments have been checked.
    fn made(
        team: &Team,
        arguments: &Arguments<'_>,
        key: Option<Key>,
        tried: Option<Tried>,
        persistent: bool,
    ) -> Result<Self> {
        let members = team.membership();
        let plan = Plan::new(team.job(), members, arguments).map_err(|e| match e.kind() {
            ErrorKind::Unsupported => e,
            // The algorithm is wrong, so that no retry is the call of the others.
            _ => fail_everywhere(team, e),
        })?;
        let run = Run::new(team.job(), team.calls(), Rc::new(plan), tried, persistent);
        let mut run = run.map_err(|e| fail_everywhere(team, e))?;
        run.set(arguments);
        let run = Rc::new(run);
        if persistent {
            run.enlist();
        }
        Ok(Self { team: team.clone(), run, home: key.map(|key| (key, None)), persistent })
    }

    /// Makes a blocking call and waits for it by `wait`. The first argument of `wait` says what the call waits for, the second
    /// whether it is complete here. `wait` must make progress until then, by [`Engine::wait`](crate::engine::Engine::wait) or
    /// one turn at a time.
    ///
    /// # Safety
    /// The contract of [`start`](Self::start), during the call.
    ///
    /// # Errors
    /// Those of [`start`](Self::start) and [`wait`](Self::wait), and the error of `wait`, which fails the call.
    #[inline]
    pub unsafe fn run(&self, wait: impl FnOnce(&dyn Fn() -> Awaited, &dyn Fn() -> bool) -> Result<()>) -> Result<()> {
        // SAFETY: the caller's promise.
        let run = || unsafe { self.run_uncounted(wait) };
        match self.run.tried() {
            None => run(),
            Some(tried) => counted(&self.team, tried, run),
        }
    }

    /// [`run`](Self::run) without its part in a trial.
    ///
    /// # Safety
    /// The contract of [`run`](Self::run).
    #[inline]
    unsafe fn run_uncounted(
        &self,
        wait: impl FnOnce(&dyn Fn() -> Awaited, &dyn Fn() -> bool) -> Result<()>,
    ) -> Result<()> {
        let signals = if self.run.is_short() { self.team.signals_for_short()? } else { None };
        let waited = match signals {
            // SAFETY: the caller's promise; the call is over when this returns.
            Some(signals) => unsafe { self.run.make_short(signals, wait) },
            None => {
                // SAFETY: the caller's promise; the call is complete or cancelled when this returns.
                unsafe { self.run.start() }?;
                if self.is_active() { wait(&|| self.awaits(), &|| !self.is_active()) } else { Ok(()) }
            }
        };
        self.or_fail(waited)?;
        self.run.outcome().map(|_| ())
    }

    /// Whether the call is complete, after one turn of progress if it was not. A call that was never started is
    /// complete.
    ///
    /// # Errors
    /// The errors of [`wait`](Self::wait).
    pub fn test(&self) -> Result<bool> {
        if self.run.outcome()? {
            return Ok(true);
        }
        self.or_fail(self.team.job().progress_of(self.run.name()).map(|_| ()))?;
        self.run.outcome()
    }

    /// Waits until the call is complete here: the output is written, and the input may be changed. Waits for a needed
    /// rank that has not made the call yet as long as that rank is alive.
    ///
    /// # Errors
    /// `PeerLost`, `Mismatch`, `Aborted`, at every rank that still waits; each names the rank to blame.
    #[inline]
    pub fn wait(&self) -> Result<()> {
        if self.run.outcome()? {
            return Ok(());
        }
        let job = self.team.job();
        self.or_fail(job.wait(|| self.awaits(), || Ok(self.run.outcome()?.then_some(()))))
    }

    /// Fails the call if its wait has failed.
    fn or_fail(&self, waited: Result<()>) -> Result<()> {
        if let Err(e) = &waited {
            self.run.fail(e.again(), Announce::Others);
        }
        waited
    }

    /// The operation and the ranks that the call waits for now.
    #[must_use]
    pub fn awaits(&self) -> Awaited {
        self.run.awaits()
    }

    /// Whether the call is in progress.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.run.is_active()
    }

    /// The team.
    #[inline]
    #[must_use]
    pub fn team(&self) -> &Team {
        &self.team
    }

    /// Name of the operation.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.run.name()
    }

    /// Ends the call at once if it is in progress: its memory is not touched any more, and the call fails at the other
    /// ranks.
    pub fn cancel(&self) {
        if !self.is_active() {
            return;
        }
        let rank = self.team.job().rank();
        let e = Error::new(ErrorKind::Aborted, self.run.name()).rank(rank).peer(rank);
        self.run.fail(e.cause("the call was dropped before it was complete"), Announce::Others);
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.cancel();
        match self.home {
            Some((key, place)) if self.run.is_reusable() && (place.is_some() || self.run.is_light()) => {
                if !key.is_of_caller() {
                    self.run.forget_owner();
                }
                self.team.kept().put(place, key, Rc::clone(&self.run));
            }
            None if self.persistent => self.run.retire(),
            _ => {}
        }
    }
}

/// Makes a call and waits until it is complete here.
///
/// # Safety
/// The contract of [`Prepared::run`].
///
/// # Errors
/// Those of [`Prepared::new`] and [`Prepared::run`].
#[inline]
pub unsafe fn run(team: &Team, arguments: &Arguments<'_>) -> Result<()> {
    let call = Prepared::new(team, arguments, CallMode::Blocking)?;
    // SAFETY: the same promise.
    unsafe { call.run(|awaited, ready| team.job().wait(awaited, || Ok(ready().then_some(())))) }
}

/// Makes a blocking call of a class, and counts it.
#[inline]
fn counted(team: &Team, tried: &Tried, make: impl FnOnce() -> Result<()>) -> Result<()> {
    if tried.is_timed() { timed(team, tried, make) } else { make() }
}

/// Makes a call of a trial.
#[cold]
fn timed(team: &Team, tried: &Tried, make: impl FnOnce() -> Result<()>) -> Result<()> {
    let (job, timed) = (team.job(), tried.timed());
    let mut begin = job.device().now();
    let met = match timed {
        Timed::AfterSkew(number) => meet(team).inspect(|()| {
            begin = job.device().now() + LATE;
            if number as usize % team.size() == team.rank() {
                job.device().compute(LATE);
            }
        }),
        Timed::InRow | Timed::Not => Ok(()),
    };
    let made = met.and_then(|()| make());
    let time = if made.is_ok() { job.device().now().saturating_duration_since(begin) } else { Duration::MAX };
    let Some(own) = tried.add(job, time) else { return made };
    match longest(team, &own) {
        Ok(longest) => {
            if tried.agree(&job.calls().tuning, &longest) {
                team.kept().retain(|run| run.is_current(true) || run.is_current(false));
            }
            made
        }
        Err(e) => made.and(Err(e)),
    }
}

/// A barrier of the team, by the same algorithm whatever is measured.
fn meet(team: &Team) -> Result<()> {
    let algorithm = &dissemination::ALGORITHM;
    // One round is made through short data, if the ranks share memory.
    let parameters = if team.is_on_one_node() { vec![15] } else { Vec::new() };
    barrier_by(team, &Choice { algorithm, parameters: algorithm.within_limits(&parameters) })
}

/// The greatest of all ranks' numbers, each with those of the same place. Collective.
fn longest(team: &Team, own: &[u64]) -> Result<Vec<u64>> {
    let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let mut greatest = |into: &mut [u8], from: &[u8]| {
        for (into, from) in into.chunks_exact_mut(8).zip(from.chunks_exact(8)) {
            into.copy_from_slice(&number(into).max(number(from)).to_le_bytes());
        }
    };
    let bytes: Vec<u8> = own.iter().flat_map(|number| number.to_le_bytes()).collect();
    Ok(coll::allreduce(team, &bytes, &mut greatest)?.chunks_exact(8).map(number).collect())
}

/// A barrier of the team by messages. [`Team::barrier`] is faster where ranks share memory.
///
/// # Errors
/// Those of [`run`].
pub(crate) fn barrier(team: &Team) -> Result<()> {
    // SAFETY: there is no memory.
    unsafe { run(team, &Arguments::new(Operation::Barrier)) }
}

/// A barrier of the team by messages, by an algorithm that can make it.
///
/// # Errors
/// Those of [`run`].
pub(crate) fn barrier_by(team: &Team, choice: &Choice) -> Result<()> {
    let algorithm = Some((choice.algorithm, &choice.parameters[..]));
    // SAFETY: there is no memory.
    unsafe { run(team, &Arguments { algorithm, ..Arguments::new(Operation::Barrier) }) }
}

/// Makes a call only to fail it, at the other ranks too: this rank cannot make it, for lack of memory, for example. A call
/// that is refused for its arguments needs no more than its error. Returns the error.
#[cold]
pub fn fail_everywhere(team: &Team, error: Error) -> Error {
    let calls = team.calls();
    let sequence = calls.next();
    calls.fail(team.job(), sequence);
    calls.announce(team.job(), sequence, &error, Announce::Others);
    error
}
