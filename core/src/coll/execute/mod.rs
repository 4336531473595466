#![allow(unsafe_code)]
//! Executes schedules: blocking calls, nonblocking calls, and persistent calls.
//!
//! Several calls may be in progress on one team and on several, and each makes progress in every wait of the rank. All
//! ranks of a team start the same calls in the same order; persistent calls are made in the same order and started in
//! any order.
//!
//! **Refusals.** A call whose arguments its own rank refuses counts as not made: it has no number and sends nothing, so
//! that a retry is the call for which the others wait. If that rank makes another call on the team instead, that call
//! gets the number, and the ranks get a `Mismatch`.
//!
//! **Failures.** A call fails at a rank that detects that a peer is lost, a message has an unexpected length, the ranks
//! call different operations, memory cannot be allocated, or the reduction has failed. The rank announces this to the
//! other ranks of the team, whose call then fails too, with the same kind of error and the rank to blame; other calls
//! on the team are not affected. If a message shows a disagreement after the call has ended at this rank, the ranks
//! that still wait in the call get an error; this rank logs it. A rank that has waited for five times
//! `FARSIDE_PEER_CHECK_MS` asks the senders of the missing messages, with a message of up to 124 bytes each, and
//! doubles the interval before each further question. So a disagreement that no other message shows becomes a
//! `Mismatch` too, also between ranks in a call and ranks in a [barrier by signals](crate::Team::barrier). A rank that
//! has reached the end of the job is detected in the same way. The wait for a rank that has not made the call yet, or
//! has dropped its team, continues, since no message can show either.
//!
//! **Short data.** A blocking call by an algorithm of one round with up to 1,080 bytes per rank, or 4,152 if ranks share
//! processors, sends no message if the ranks share memory and the team has a signal array: its data is passed in the
//! cache lines of that array. The first such call after four collectives of the team makes the array. A rank waits for
//! the ranks whose data it reads, and may be up to 15 such calls ahead of the others. All ranks must make the call
//! in the same way: a rank that starts it without waiting gets a `Mismatch`.
//!
//! **Loans.** If ranks of a node lend each other memory, a rank accesses buffers of others only during its own call,
//! and never those of a call that has failed.
//!
//! **Drops.** A call that is dropped before it is complete is cancelled: its memory is not accessed afterwards, and it
//! fails at the other ranks with an error that names this rank. The drop does not wait.

mod arguments;
mod calls;
mod checks;
mod ends;
mod memory;
mod one_round;
mod plan;
mod recent;
mod refusals;
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
use recent::{Recent, Taken};
use run::Run;
use trial::Timed;
use tuner::{Decision, Tried};

/// The time by which a rank is late in a call after a skew.
const LATE: Duration = Duration::from_micros(2);

/// The calls of a team that are stored for reuse.
pub(crate) type Kept = Recent<Key, Rc<Run>, 32>;

/// A collective call that is ready to run: checked, with its schedule, on memory that may change from run to run. It
/// runs once, or several times if it is persistent; the team stores a completed call for the next call with the same
/// key.
pub struct Prepared {
    team: Team,
    run: Rc<Run>,
    /// The slot of the call among those that the team stores.
    place: Option<Taken>,
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

    /// The blocking call that is stored under a [key](Arguments::key) of the caller, on buffers at these addresses;
    /// `None` as an address stands for a buffer that has no data. Returns `None` if no such call is stored, or if a
    /// buffer with data has no address or overlaps the other one.
    #[inline]
    #[must_use]
    pub fn recall(team: &Team, key: &Key, addresses: [Option<*mut u8>; 2]) -> Option<Self> {
        let (place, mut run) = team.kept().take(key, |run| run.is_current(true))?;
        let has_moved = Rc::get_mut(&mut run).is_some_and(|idle| idle.move_to(addresses));
        let known = Self { team: team.clone(), run, place: Some(place), persistent: false };
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
        // SAFETY: by the caller's contract.
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
        // SAFETY: by the caller's contract.
        unsafe { self.run.start() }
    }

    /// [`new`](Self::new) for a call that has no stored run.
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
        // `decide` may have begun a trial, so the stored calls are searched again.
        if let Some(known) = Self::known(team, arguments, mode, key) {
            return Ok(known);
        }
        let by_choice = Arguments { algorithm: Some((choice.algorithm, &choice.parameters)), ..arguments.clone() };
        Self::made(team, &by_choice, key, tried.clone(), is_persistent).or_else(|e| match tried {
            // The failed call is counted, since the other ranks count theirs.
            Some(tried) if blocks => counted(team, &tried, || Err(e.again())).and(Err(e)),
            _ => Err(e),
        })
    }

    /// The call on a stored run.
    #[inline]
    fn known(team: &Team, arguments: &Arguments<'_>, mode: CallMode, key: Option<Key>) -> Option<Self> {
        let (key, blocks) = (key?, mode == CallMode::Blocking);
        let fits = |run: &Rc<Run>| run.is_current(blocks) && run.neighbors() == arguments.neighbors;
        let (place, mut run) = team.kept().take(&key, fits)?;
        Rc::get_mut(&mut run)?.set(arguments);
        Some(Self { team: team.clone(), run, place: Some(place), persistent: false })
    }

    /// The call on a new run, whose arguments have been checked.
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
            // The algorithm is faulty, so a retry would fail too, and the other ranks must not wait for it.
            _ => fail_everywhere(team, e),
        })?;
        let run = Run::new(team.job(), team.calls(), Rc::new(plan), (key, tried), persistent);
        let mut run = run.map_err(|e| fail_everywhere(team, e))?;
        run.set(arguments);
        let run = Rc::new(run);
        if persistent {
            run.enlist();
        }
        Ok(Self { team: team.clone(), run, place: None, persistent })
    }

    /// Makes a blocking call and waits for it by `wait`. The first argument of `wait` returns what the call waits for,
    /// the second whether it is complete at this rank. `wait` must make progress until then, by
    /// [`Engine::wait`](crate::engine::Engine::wait) or one turn at a time.
    ///
    /// # Safety
    /// The contract of [`start`](Self::start), during the call.
    ///
    /// # Errors
    /// Those of [`start`](Self::start) and [`wait`](Self::wait), and the error of `wait`, which fails the call.
    #[inline]
    pub unsafe fn run(&self, wait: impl FnOnce(&dyn Fn() -> Awaited, &dyn Fn() -> bool) -> Result<()>) -> Result<()> {
        // SAFETY: by the caller's contract.
        let run = || unsafe { self.run_uncounted(wait) };
        match self.run.tried() {
            None => run(),
            Some(tried) => counted(&self.team, tried, run),
        }
    }

    /// [`run`](Self::run) without counting the call in a trial.
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
            // SAFETY: by the caller's contract; the call has ended when this returns.
            Some(signals) => unsafe { self.run.make_short(signals, wait) },
            None => {
                // SAFETY: by the caller's contract; the call is complete or cancelled when this returns.
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

    /// Waits until the call is complete at this rank: the output is written, and the input may be changed. The wait for
    /// a rank that has not made the call yet lasts as long as that rank is alive.
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

    /// The operation, and the ranks for which the call waits at present.
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

    /// Ends the call at once if it is in progress: its memory is no longer accessed, and the call fails at the other
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
        match self.run.key() {
            Some(key) if self.run.is_reusable() && (self.place.is_some() || self.run.is_light()) => {
                if !key.is_of_caller() {
                    self.run.forget_owner();
                }
                self.team.kept().put(self.place, key, Rc::clone(&self.run));
            }
            None if self.persistent => self.run.retire(),
            _ => {}
        }
    }
}

/// Makes a call and waits until it is complete at this rank.
///
/// # Safety
/// The contract of [`Prepared::run`].
///
/// # Errors
/// Those of [`Prepared::new`] and [`Prepared::run`].
#[inline]
pub unsafe fn run(team: &Team, arguments: &Arguments<'_>) -> Result<()> {
    let call = Prepared::new(team, arguments, CallMode::Blocking)?;
    // SAFETY: by the same contract.
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
        Timed::AfterSkew(number) => synchronize(team).inspect(|()| {
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

/// A barrier of the team, by the same algorithm whichever choice is measured.
fn synchronize(team: &Team) -> Result<()> {
    let algorithm = &dissemination::ALGORITHM;
    // One round uses short data, if the ranks share memory.
    let parameters = if team.is_on_one_node() { vec![15] } else { Vec::new() };
    barrier_by(team, &Choice { algorithm, parameters: algorithm.within_limits(&parameters) })
}

/// The element-wise maximum of all ranks' numbers. Collective.
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

/// A barrier of the team by messages. [`Team::barrier`] is faster if ranks share memory.
///
/// # Errors
/// Those of [`run`].
pub(crate) fn barrier(team: &Team) -> Result<()> {
    // SAFETY: the call has no memory.
    unsafe { run(team, &Arguments::new(Operation::Barrier)) }
}

/// A barrier of the team by messages, by an algorithm that can make it.
///
/// # Errors
/// Those of [`run`].
pub(crate) fn barrier_by(team: &Team, choice: &Choice) -> Result<()> {
    let algorithm = Some((choice.algorithm, &choice.parameters[..]));
    // SAFETY: the call has no memory.
    unsafe { run(team, &Arguments { algorithm, ..Arguments::new(Operation::Barrier) }) }
}

/// Fails a collective call at this and all other ranks, because this rank cannot make it, for example for lack of
/// memory. A call that is refused for its arguments needs only an error at this rank. Returns the error.
#[cold]
pub fn fail_everywhere(team: &Team, error: Error) -> Error {
    let calls = team.calls();
    let sequence = calls.next();
    calls.fail(team.job(), sequence);
    calls.announce(team.job(), sequence, &error, Announce::Others);
    error
}

/// Records that this rank has refused a call of a subgroup of the team for its arguments. If it makes a collective call
/// of the team afterwards, it reports the refusal in its next long wait, by a message to each other rank.
#[cold]
pub fn note_refused_group_call(team: &Team) {
    team.job().calls().note_refusal(team.calls());
}

/// Checks whether a message of rank `from` of the job may still arrive in `operation`, a call of a subgroup of the
/// team.
///
/// # Errors
/// `Mismatch` if that rank has refused such a call and then made a collective call of the team that this rank has not
/// made.
pub fn check_group_call(team: &Team, operation: &'static str, from: u32) -> Result<()> {
    team.calls().check_group_call(team.job(), operation, from)
}

/// Number of collective calls of the team that this rank has made, modulo 2^32. Messages of a call of a subgroup
/// contain it, for [`has_refused_group_call`].
#[must_use]
pub fn calls_made(team: &Team) -> u32 {
    team.calls().all_made()
}

/// Whether a message from a rank that had made `made` calls belongs to a call of a subgroup that this rank has refused
/// and not repeated.
#[must_use]
pub fn has_refused_group_call(team: &Team, made: u32) -> bool {
    team.calls().has_refused(made)
}
