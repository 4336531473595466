//! Messages of collectives, matched by the context of the team, the number of the call on it, source and tag.
//!
//! A message for a call that this rank has not started is stored, or held at its sender if it is long. A message that
//! no step of its call expects shows that the ranks disagree. The header has 16 bytes, so that 8 bytes of data fit with
//! it into a short packet: context, number of the call, tag, and a check value of the properties on which the ranks
//! agree ([`Check`]).

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::plan::{Check, OVER, Plan, QUESTION};
use super::run::Run;
use super::run::question::Question;
use super::tuner::{Tuner, Tuning};
use crate::am::{self, ActiveMessages, Delivery, HandlerId, Message, Messenger, Unexpected};
use crate::bill::Awaited;
use crate::coll::selection::Rules;
use crate::error::{Error, ErrorKind, Result};
use crate::job::{Job, ProgressHook};
use crate::stats::Kind;
use crate::wire::{Reader, Writer};

pub(super) const HANDLER: HandlerId = HandlerId(u16::MAX);
/// Tag of the announcement that a call has failed.
const FAILED: u32 = u32::MAX;
/// Maximum number of bytes of the reason in an announcement.
const REASON: usize = 100;

/// The header of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) context: u32,
    pub(super) sequence: u32,
    pub(super) tag: u32,
    pub(super) check: Check,
}

impl Header {
    #[inline(always)]
    pub(super) fn write(self) -> [u8; 16] {
        let low = u64::from(self.context) | u64::from(self.sequence) << 32;
        let high = u64::from(self.tag) | u64::from(self.check.0) << 32;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&low.to_le_bytes());
        bytes[8..].copy_from_slice(&high.to_le_bytes());
        bytes
    }

    #[inline(always)]
    fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (b, rest) = bytes.split_first_chunk::<16>()?;
        let word = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        Some((Self { context: word(0), sequence: word(4), tag: word(8), check: Check(word(12)) }, rest))
    }
}

/// A message for a call that this rank has not started.
pub(super) struct EarlyMessage {
    pub(super) source: u32,
    pub(super) tag: u32,
    pub(super) check: Check,
    pub(super) body: Unexpected,
}

/// Ranks to which a failure is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Announce {
    /// No rank, since the others have already announced the failure.
    Nobody,
    Others,
}

/// Another rank's announcement that a call has failed, with the reason.
#[derive(Clone, Debug)]
pub(super) struct Announcement {
    source: u32,
    kind: ErrorKind,
    blamed: u32,
    reason: String,
}

impl Announcement {
    pub(super) fn error(&self, operation: &'static str) -> Error {
        let e = Error::new(self.kind, operation).peer(self.blamed);
        e.cause(format!("reported by rank {}: {}", self.source, self.reason))
    }
}

/// The calls on one team.
#[derive(Default)]
pub(crate) struct TeamCalls {
    context: u32,
    /// The team's choices of algorithms.
    pub(super) tuner: Tuner,
    /// Number of the last call that was started.
    started: Cell<u32>,
    /// Calls in progress, and persistent calls.
    active: RefCell<SmallVec<[Rc<Run>; 4]>>,
    /// Number and plan of the last call that has ended.
    last: RefCell<Option<(u32, Rc<Plan>)>>,
    early: RefCell<FxHashMap<u32, Vec<EarlyMessage>>>,
    /// Failures announced by other ranks of calls that this rank has not started.
    announced: RefCell<Vec<(u32, Announcement)>>,
    /// Numbers of calls that have failed at this rank.
    failed: RefCell<Vec<u32>>,
    /// Number of the last barrier by signals, which is not counted with the calls by messages, and whether this rank is
    /// in it.
    barriers: Cell<u64>,
    in_barrier: Cell<bool>,
    /// Whether it is known that another rank will not enter that barrier.
    barrier_fails: Cell<bool>,
    /// The team's ranks, once this rank has made the team.
    pub(super) members: OnceCell<Rc<[u32]>>,
    pub(super) refusals: Refusals,
}

impl TeamCalls {
    #[inline]
    pub(crate) fn context(&self) -> u32 {
        self.context
    }

    /// The number of the next call.
    #[inline]
    pub(super) fn next(&self) -> u32 {
        self.started.set(self.started.get().wrapping_add(1));
        self.started.get()
    }

    /// Number of calls so far, the same at all ranks.
    pub(crate) fn made(&self) -> u32 {
        self.started.get()
    }

    /// Whether this rank has not started the call.
    fn is_ahead(&self, sequence: u32) -> bool {
        sequence.wrapping_sub(self.started.get()).cast_signed() > 0
    }

    #[inline]
    pub(super) fn add(&self, run: &Rc<Run>) {
        self.active.borrow_mut().push(Rc::clone(run));
    }

    #[inline]
    pub(super) fn remove(&self, run: &Run) {
        let mut active = self.active.borrow_mut();
        if let Some(at) = active.iter().position(|r| std::ptr::eq(&raw const **r, run)) {
            let removed = active.swap_remove(at);
            drop(active);
            self.ended(run);
            drop(removed);
        }
    }

    /// Records the run as the last call that has ended.
    #[inline]
    pub(super) fn ended(&self, run: &Run) {
        match &mut *self.last.borrow_mut() {
            Some((sequence, plan)) if Rc::ptr_eq(plan, run.plan()) => *sequence = run.sequence(),
            last => *last = Some((run.sequence(), Rc::clone(run.plan()))),
        }
    }

    /// Runs `barrier` as the next barrier by signals, with its number.
    #[inline]
    pub(crate) fn in_barrier<R>(&self, barrier: impl FnOnce(u64) -> R) -> R {
        self.barriers.set(self.barriers.get() + 1);
        self.in_barrier.set(true);
        self.barrier_fails.set(false);
        let done = barrier(self.barriers.get());
        self.in_barrier.set(false);
        done
    }

    /// Number of the last barrier by signals.
    pub(super) fn barriers(&self) -> u32 {
        self.barriers.get() as u32
    }

    /// Whether no message and no announcement has arrived for a call that has not started.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.early.borrow().is_empty() && self.announced.borrow().is_empty()
    }

    /// Removes and returns the messages that have arrived for a call.
    #[inline]
    pub(super) fn take_early(&self, sequence: u32) -> Vec<EarlyMessage> {
        let mut early = self.early.borrow_mut();
        if early.is_empty() { Vec::new() } else { early.remove(&sequence).unwrap_or_default() }
    }

    pub(super) fn keep(&self, sequence: u32, message: EarlyMessage) {
        self.early.borrow_mut().entry(sequence).or_default().push(message);
    }

    /// Removes and returns the failure that another rank has announced of a call.
    #[inline]
    pub(super) fn announced(&self, sequence: u32) -> Option<Announcement> {
        let mut announced = self.announced.borrow_mut();
        let at = announced.iter().position(|(of, _)| *of == sequence)?;
        Some(announced.swap_remove(at).1)
    }

    /// Marks a call as failed at this rank: further messages for it are dropped.
    pub(super) fn fail(&self, job: &Job, sequence: u32) {
        self.failed.borrow_mut().push(sequence);
        // The announcement of a rank that has failed in the same call.
        drop(self.announced(sequence));
        self.abandon_early(job, sequence);
    }

    /// Abandons the messages that have arrived for a call.
    pub(super) fn abandon_early(&self, job: &Job, sequence: u32) {
        self.take_early(sequence).into_iter().for_each(|m| m.body.abandon(job));
    }

    /// Announces to the other ranks of a team that a call has failed. Does not wait; lost ranks are skipped.
    pub(super) fn announce(&self, job: &Messenger, sequence: u32, error: &Error, to: Announce) {
        if to == Announce::Nobody {
            return;
        }
        let kind = ErrorKind::ALL.iter().position(|k| *k == error.kind()).unwrap_or(0);
        let reason = error.reason();
        let end = (0..=reason.len().min(REASON)).rev().find(|end| reason.is_char_boundary(*end)).unwrap_or(0);
        let head = Header { context: self.context, sequence, tag: FAILED, check: Check(kind as u32) }.write();
        // If this rank detected the error in a barrier, the barrier fails at the other ranks that wait in it.
        let barrier = if self.barrier_fails.get() && self.in_barrier.get() { self.barriers() } else { 0 };
        let blamed = error.blamed_number().unwrap_or(job.rank_number());
        let header = Writer::new().u32(blamed).u32(barrier).bytes(&reason.as_bytes()[..end]).done();
        let header = [&head[..], &header].concat();
        let members = self.members.get().into_iter().flat_map(|members| members.iter().copied());
        members.filter(|m| *m != job.rank_number()).for_each(|to| notify(job, to, &header));
    }

    /// Handles a message for a call that is not in progress.
    fn arrive_early(self: &Rc<Self>, calls: &Calls, header: Header, m: Message<'_>) -> Delivery {
        if self.is_ahead(header.sequence) {
            let (body, delivery) = Unexpected::of(m, true);
            let message = EarlyMessage { source: m.source, tag: header.tag, check: header.check, body };
            self.keep(header.sequence, message);
            return delivery;
        }
        if !self.failed.borrow().contains(&header.sequence) {
            let e = Error::new(ErrorKind::Mismatch, "collective").peer(m.source);
            let e = e.cause("the peer sent an unexpected message of an earlier collective call");
            self.disagrees(calls, header.sequence, e);
        }
        Delivery::Done
    }

    /// Handles a disagreement in a call that has ended at this rank, or has not started: the ranks that wait in it get
    /// the error, and later calls are not affected.
    fn disagrees(self: &Rc<Self>, calls: &Calls, sequence: u32, error: Error) {
        tracing::warn!("team {}: {error}", self.context);
        self.failed.borrow_mut().push(sequence);
        calls.disagreements.borrow_mut().push(Disagreement { team: Rc::clone(self), sequence, error });
        calls.busy.set(true);
    }

    /// Rank `source` waits in a call that has not started here, and this rank waits in a barrier that `source` has not
    /// entered: neither can complete, so both fail.
    #[cold]
    fn crosses_barrier(self: &Rc<Self>, calls: &Calls, header: Header, source: u32) {
        let e = Error::new(ErrorKind::Mismatch, "barrier").peer(source);
        let e = e.cause(format!("the peer called {} while this rank called barrier", header.check.name()));
        self.fail_barrier(calls, e.again());
        self.disagrees(calls, header.sequence, e);
    }

    /// Fails the barrier in which this rank waits, since it cannot complete.
    fn fail_barrier(&self, calls: &Calls, error: Error) {
        self.barrier_fails.set(true);
        calls.barrier_errors.borrow_mut().push(error);
        calls.busy.set(true);
    }

    /// Handles a question of rank `source` about a message of a call, or its answer that the call has ended there.
    #[cold]
    fn asked_or_answered(self: &Rc<Self>, calls: &Calls, header: Header, source: u32, question: Question) {
        let run = self.active(header.sequence);
        let over = match &run {
            Some(run) if header.tag == OVER => {
                run.over(source, &question);
                false
            }
            Some(run) => run.asked(source, header.check, &question),
            None if header.tag != QUESTION => false,
            None if !self.is_ahead(header.sequence) => true,
            None => {
                if self.in_barrier.get()
                    && !self.barrier_fails.get()
                    && question.barriers.wrapping_sub(self.barriers()).cast_signed() < 0
                {
                    self.crosses_barrier(calls, header, source);
                }
                false
            }
        };
        if over {
            let last = self.last.borrow();
            let last = last.as_ref().filter(|(sequence, _)| *sequence == header.sequence);
            let properties = run.as_ref().map(|run| run.plan()).or(last.map(|(_, plan)| plan));
            let properties = properties.map_or_else(String::new, |plan| plan.properties());
            calls.answer(source, question.with(properties).write(Header { tag: OVER, ..header }));
        }
    }

    fn take_announcement(&self, calls: &Calls, header: Header, source: u32, rest: &[u8]) {
        let mut r = Reader::new(rest);
        let kind = ErrorKind::ALL.get(header.check.0 as usize).copied().unwrap_or(ErrorKind::Protocol);
        let (blamed, barrier) = (r.u32().unwrap_or(source), r.u32().unwrap_or(0));
        let reason = r.bytes().map(String::from_utf8_lossy).unwrap_or_default().into_owned();
        let announcement = Announcement { source, kind, blamed, reason };
        if self.in_barrier.get() && !self.barrier_fails.get() && barrier == self.barriers() {
            self.fail_barrier(calls, announcement.error("barrier"));
        }
        match self.active(header.sequence) {
            Some(run) => run.failed_elsewhere(&announcement),
            None if self.is_ahead(header.sequence) => {
                self.announced.borrow_mut().push((header.sequence, announcement));
            }
            // The call has completed here without an error.
            None => tracing::warn!("team {}: {}", self.context, announcement.error("collective")),
        }
    }

    #[inline]
    fn active(&self, sequence: u32) -> Option<Rc<Run>> {
        self.active.borrow().iter().find(|run| run.sequence() == sequence).cloned()
    }
}

/// A disagreement in a call that is not in progress at this rank, to be announced to the other ranks.
struct Disagreement {
    team: Rc<TeamCalls>,
    sequence: u32,
    error: Error,
}

/// The ranks that have reached the end of the job.
#[derive(Default)]
pub(super) struct Ends {
    /// Whether this rank has reached the end of the job, after which it makes no more calls.
    pub(super) own: Cell<bool>,
    /// Other ranks that have reached the end, with the number of the check of the peers in which this rank learned it.
    pub(super) others: RefCell<FxHashMap<u32, u32>>,
    /// The wait of this rank, the number of checks of the peers until it asks, and that between its questions.
    pub(super) asks: Cell<Option<(Awaited, u32, u32)>>,
}

/// Refused calls of subgroups of a team.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Number of collective calls that this rank had made when it last refused one.
    pub(super) own: Cell<Option<u32>>,
    /// Number of collective calls of ranks that have refused one and then made another call.
    pub(super) others: RefCell<FxHashMap<u32, u32>>,
}

/// The collectives of a job.
#[derive(Default)]
pub(crate) struct Calls {
    /// Rules and models of the selection.
    pub(crate) tuning: Tuning,
    teams: RefCell<FxHashMap<u32, Rc<TeamCalls>>>,
    /// Runs that can advance.
    ready: RefCell<Vec<Rc<Run>>>,
    /// Runs with messages that are being sent.
    sending: RefCell<Vec<Rc<Run>>>,
    /// Disagreements that the next turn of progress announces.
    disagreements: RefCell<Vec<Disagreement>>,
    /// Errors of barriers in which this rank waits.
    barrier_errors: RefCell<Vec<Error>>,
    /// Number of checks of the peers in waits that the runs have seen.
    checks: Cell<u32>,
    /// Answers to questions, with the ranks that are to get them.
    answers: RefCell<Vec<(u32, Vec<u8>)>>,
    /// Ranks that have reached the end of the job.
    pub(super) ends: Ends,
    /// Teams on which this rank has refused a call of a subgroup and not yet reported it.
    pub(super) unreported: RefCell<Vec<Rc<TeamCalls>>>,
    busy: Cell<bool>,
}

/// Sends a message without data to rank `to`. Does not wait; a message to a lost rank is dropped.
pub(super) fn notify(job: &Messenger, to: u32, header: &[u8]) {
    if let Err(e) = am::notify(job, to, HANDLER, header) {
        tracing::debug!("the failure of a call could not be announced to rank {to}: {e}");
    }
}

/// Sends a question or an answer to rank `to`, as [`notify`] does.
pub(super) fn ask(job: &Messenger, to: u32, message: &[u8]) {
    job.device().own_stats().add(Kind::Question, message.len());
    notify(job, to, message);
}

impl Calls {
    pub(crate) fn new(user: Rules) -> Rc<Self> {
        Rc::new(Self { tuning: Tuning::new(user), ..Self::default() })
    }

    /// The team's calls, for a team that this rank makes; `None` if another team has the context.
    pub(crate) fn of_team(&self, context: u32, members: &Rc<[u32]>) -> Option<Rc<TeamCalls>> {
        let calls = self.team(context);
        calls.members.set(Rc::clone(members)).is_ok().then_some(calls)
    }

    /// The calls on the team with a context.
    fn team(&self, context: u32) -> Rc<TeamCalls> {
        let new = || Rc::new(TeamCalls { context, ..TeamCalls::default() });
        Rc::clone(self.teams.borrow_mut().entry(context).or_insert_with(new))
    }

    /// The calls on the team with a context, if this rank has made the team or received a message for it.
    pub(super) fn team_of(&self, context: u32) -> Option<Rc<TeamCalls>> {
        self.teams.borrow().get(&context).cloned()
    }

    /// Removes a team, and abandons the messages that have arrived for it, so that their senders are released.
    pub(crate) fn forget(&self, job: &Job, calls: &Rc<TeamCalls>) {
        let early: Vec<u32> = calls.early.borrow().keys().copied().collect();
        early.into_iter().for_each(|sequence| calls.abandon_early(job, sequence));
        let mut teams = self.teams.borrow_mut();
        if teams.get(&calls.context).is_some_and(|known| Rc::ptr_eq(known, calls)) {
            let forgotten = teams.remove(&calls.context);
            if teams.len() < teams.capacity() / 4 {
                let room = 2 * teams.len();
                teams.shrink_to(room);
            }
            drop(teams);
            drop(forgotten);
        }
    }

    #[cold]
    fn ask(&self) {
        let active = |team: &Rc<TeamCalls>| team.active.borrow().iter().cloned().collect::<SmallVec<[_; 4]>>();
        let runs: Vec<Rc<Run>> = self.teams.borrow().values().flat_map(active).collect();
        runs.iter().for_each(|run| run.ask());
    }

    /// Number of checks of the peers in waits.
    pub(super) fn checks(&self) -> u32 {
        self.checks.get()
    }

    /// The ranks of the team with this context.
    pub(super) fn members(&self, context: u32) -> Option<Rc<[u32]>> {
        self.teams.borrow().get(&context)?.members.get().cloned()
    }

    /// Queues an answer.
    pub(super) fn answer(&self, to: u32, answer: Vec<u8>) {
        self.answers.borrow_mut().push((to, answer));
        self.busy.set(true);
    }

    #[inline]
    pub(super) fn queue(&self, run: Rc<Run>) {
        self.ready.borrow_mut().push(run);
        self.busy.set(true);
    }

    pub(super) fn queue_sending(&self, run: Rc<Run>) {
        self.sending.borrow_mut().push(run);
        self.busy.set(true);
    }
}

impl ProgressHook for Rc<Calls> {
    #[inline(always)]
    fn is_idle(&self) -> bool {
        !self.busy.get()
    }

    #[inline]
    fn wait_on(&self, messenger: &Messenger, checks: u32, awaited: &dyn Fn() -> Awaited) -> Result<()> {
        if self.checks.replace(checks) == checks {
            return Ok(());
        }
        self.ask();
        self.report_refusals(messenger);
        self.ask_for_ends(messenger, &awaited())
    }

    fn advance(&self, messenger: &Messenger) -> bool {
        let mut any = false;
        for Disagreement { team, sequence, error } in std::mem::take(&mut *self.disagreements.borrow_mut()) {
            team.announce(messenger, sequence, &error, Announce::Others);
        }
        for error in std::mem::take(&mut *self.barrier_errors.borrow_mut()) {
            // The error fails the wait in the barrier.
            messenger.active_messages().defer(Box::new(move |_| Err(error)));
        }
        for (to, answer) in std::mem::take(&mut *self.answers.borrow_mut()) {
            ask(messenger, to, &answer);
        }
        if !self.sending.borrow().is_empty() {
            let sending = std::mem::take(&mut *self.sending.borrow_mut());
            for run in sending {
                any |= run.complete_sends();
                if run.is_sending() {
                    self.sending.borrow_mut().push(run);
                } else {
                    run.not_in_list();
                }
            }
        }
        loop {
            let next = self.ready.borrow_mut().pop();
            let Some(run) = next else { break };
            any = true;
            run.advance_queued();
        }
        self.busy.set(!self.sending.borrow().is_empty());
        any
    }
}

impl Job {
    /// The rules that collectives of this rank's teams have measured since its start.
    #[must_use]
    pub fn measured_rules(&self) -> Rules {
        self.calls().tuning.measured().0
    }

    /// The collectives in progress.
    #[inline]
    pub(crate) fn calls(&self) -> &Rc<Calls> {
        self.progress_hook().downcast_ref().unwrap_or_else(|| unreachable!("the collectives of a job are these"))
    }
}

/// Registers the handler of collective messages.
pub(crate) fn register(am: &ActiveMessages, calls: &Rc<Calls>) -> Result<()> {
    let calls = Rc::clone(calls);
    am.register_any(HANDLER, move |m| arrive(&calls, m))
}

fn arrive(calls: &Calls, m: Message<'_>) -> Delivery {
    let Some((header, rest)) = Header::read(m.header) else {
        tracing::warn!("a malformed collective message from rank {} was dropped", m.source);
        return Delivery::Done;
    };
    if header.tag == QUESTION || header.tag == OVER {
        // This rank cannot answer for a team that it has not made yet, or has dropped.
        let team = calls.team_of(header.context);
        if let (Some(team), Some(question)) = (team, Question::read(rest)) {
            team.asked_or_answered(calls, header, m.source, question);
        }
        return Delivery::Done;
    }
    if calls.take_end(header.tag, m.source) || calls.take_refusal(header, m.source) {
        return Delivery::Done;
    }
    let team = calls.team(header.context);
    if header.tag == FAILED {
        team.take_announcement(calls, header, m.source, rest);
        return Delivery::Done;
    }
    match team.active(header.sequence) {
        Some(run) if run.is_active() || run.expects(header, m.source) => run.arrive(header, m),
        _ => team.arrive_early(calls, header, m),
    }
}
