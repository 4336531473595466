#![allow(unsafe_code)]
//! The state machine that executes a schedule: each step starts as soon as the steps that it waits for are complete.

mod loans;
pub(super) mod question;
mod receive;
mod short;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use super::arguments::{Arguments, Key, Reduction};
use super::calls::{Announce, Announcement, Calls, HANDLER, Header, TeamCalls};
use super::memory::{Buffers, Memory, SCRATCH, Scratch, zip};
use super::plan::{self, Plan};
use super::tuner::Tried;
use crate::am::{self, Counters, Source, Token, Unexpected};
use crate::bill::{Account, Awaited};
use crate::callback::Callback;
use crate::coll::operation::Neighbors;
use crate::coll::schedule::{Action, Side};
use crate::device::Block;
use crate::entered::Entered;
use crate::error::{Error, ErrorKind, Result};
use crate::job::{Job, Track};
use crate::stats::Kind;
use loans::Loans;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Active,
    Done,
    Failed,
}

/// State of a message that a run expects.
enum Slot {
    /// The message has not arrived, and its step has not started.
    Empty,
    /// The step has started and waits for the message.
    Posted,
    /// The message has arrived before its step.
    Early(Unexpected),
    /// The data is being received into its destination: the output, scratch, or a buffer for an operand.
    Filling(Token, Scratch),
    Done,
}

/// One execution of a plan, or several in turn.
pub(crate) struct Run {
    job: Job,
    calls: Rc<Calls>,
    team: Rc<TeamCalls>,
    plan: Rc<Plan>,
    persistent: bool,
    /// The key under which the team stores the call; `None` if it is not to be stored.
    key: Option<Key>,
    /// The class of the call; `None` if the class has only one choice.
    tried: Option<Tried>,
    memory: [Memory; 3],
    _scratch: Scratch,
    /// Offsets of input and output from the caller's addresses of them.
    distances: [isize; 2],
    reduction: Option<Reduction>,
    owner: Cell<Option<Rc<dyn Any>>>,
    sequence: Cell<u32>,
    /// Number of starts, if the call is persistent.
    round: Cell<u32>,
    /// Whether the call in progress passes short data in the signal array, without messages.
    short: Cell<bool>,
    /// Bit sets of the team ranks whose short data is missing, and of those that have answered that the call has ended
    /// there.
    missing: Cell<u64>,
    over: Cell<u64>,
    /// Room for the words of the short data of other ranks.
    words: Box<[Cell<u64>]>,
    /// A rank whose call differs from this one; it is asked for the properties of its call.
    compared: Cell<Option<u32>>,
    /// Number of checks of the peers until the run asks for missing messages, and between questions.
    patience: Cell<(u32, u32)>,
    state: Cell<State>,
    /// The error with which the run has failed, until it is fetched.
    error: RefCell<Option<Error>>,
    /// An error that is to fail the run, and the ranks to which it is announced.
    fault: RefCell<Option<(Error, Announce)>>,
    /// Steps that are not complete.
    open: Cell<usize>,
    /// For each step: the number of steps that it still waits for.
    waiting: Vec<Cell<u32>>,
    ready: RefCell<VecDeque<u32>>,
    slots: RefCell<Vec<Slot>>,
    sends: RefCell<Vec<(u32, Rc<Track>)>>,
    spare: RefCell<Option<Rc<Track>>>,
    operands: RefCell<Vec<Scratch>>,
    loans: Loans,
    advancing: Cell<bool>,
    queued: Cell<bool>,
    listed: Cell<bool>,
}

impl Run {
    /// # Errors
    /// `Limit` if there is no memory for its scratch.
    pub(super) fn new(
        job: &Job,
        team: &Rc<TeamCalls>,
        plan: Rc<Plan>,
        (key, tried): (Option<Key>, Option<Tried>),
        persistent: bool,
    ) -> Result<Self> {
        let bytes = plan.starts[SCRATCH].last().copied().unwrap_or(0);
        let mut scratch = Scratch::new(bytes, plan.align).ok_or_else(|| {
            Error::new(ErrorKind::Limit, plan.operation.name()).cause(format!("cannot allocate {bytes} bytes"))
        })?;
        let base = scratch.start_mut();
        Ok(Self {
            job: job.clone(),
            calls: Rc::clone(job.calls()),
            team: Rc::clone(team),
            persistent,
            key,
            tried,
            memory: [Memory::None, Memory::None, Memory::Contiguous(base)],
            _scratch: scratch,
            distances: [0; 2],
            reduction: None,
            owner: Cell::default(),
            sequence: Cell::new(0),
            round: Cell::new(0),
            short: Cell::new(false),
            missing: Cell::new(0),
            over: Cell::new(0),
            words: plan.short.iter().flat_map(|short| vec![Cell::new(0); short.words()]).collect(),
            compared: Cell::new(None),
            patience: Cell::default(),
            state: Cell::new(State::Idle),
            error: RefCell::new(None),
            fault: RefCell::new(None),
            open: Cell::new(0),
            waiting: plan.degrees.iter().map(|d| Cell::new(*d)).collect(),
            ready: RefCell::default(),
            slots: RefCell::new(plan.expected.iter().map(|_| Slot::Empty).collect()),
            sends: RefCell::default(),
            spare: RefCell::default(),
            operands: RefCell::default(),
            loans: Loans::default(),
            advancing: Cell::new(false),
            queued: Cell::new(false),
            listed: Cell::new(false),
            plan,
        })
    }

    /// Sets the buffers and the reduction.
    #[inline]
    pub(super) fn set(&mut self, arguments: &Arguments<'_>) {
        let Arguments { input, output, reduction, owner, key, .. } = arguments;
        let [i, o, _] = &mut self.memory;
        i.become_as(input);
        o.become_as(output);
        self.reduction = *reduction;
        if owner.is_some() || self.owner.get_mut().is_some() {
            self.owner = Cell::new(owner.clone());
        }
        if let Some((_, given)) = key {
            let distance = |i: usize| self.memory[i].piece().map_or(0, |at| at.addr().wrapping_sub(given[i].addr()));
            self.distances = [0, 1].map(|i| distance(i).cast_signed());
        }
    }

    /// Sets the buffers, each contiguous, from the caller's addresses of them. Returns whether each buffer that has
    /// data has an address, and the buffers do not overlap.
    #[inline]
    pub(super) fn move_to(&mut self, given: [Option<*mut u8>; 2]) -> bool {
        let mut ranges = [0..0, 0..0];
        for i in [0, 1] {
            let Memory::Contiguous(base) = &mut self.memory[i] else { continue };
            let len = self.plan.starts[i].last().copied().unwrap_or(0);
            if len > 0 && given[i].is_none() {
                return false;
            }
            *base = given[i].unwrap_or(*base).wrapping_offset(self.distances[i]);
            ranges[i] = base.addr()..base.addr().saturating_add(len);
        }
        let [input, output] = ranges;
        input.end <= output.start || output.end <= input.start || input.is_empty() || output.is_empty()
    }

    /// Drops the owner of the reduction's context, and so the context.
    #[inline]
    pub(super) fn forget_owner(&self) {
        self.owner.take();
    }

    /// Assigns the number of the call, by which all rounds of a persistent call are matched.
    pub(super) fn enlist(self: &Rc<Self>) {
        self.sequence.set(self.team.next());
        self.team.add(self);
    }

    #[inline]
    pub(super) fn sequence(&self) -> u32 {
        self.sequence.get()
    }

    pub(super) fn name(&self) -> &'static str {
        self.plan.name()
    }

    pub(super) fn is_active(&self) -> bool {
        self.state.get() == State::Active
    }

    /// Whether the run has completed without an error and has no sends in progress.
    pub(super) fn is_reusable(&self) -> bool {
        self.state.get() == State::Done && !self.persistent && !self.is_sending()
    }

    /// The key under which the team stores the call; `None` if it is not to be stored.
    #[inline]
    pub(super) fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// The class of the call; `None` if the class has only one choice.
    #[inline]
    pub(super) fn tried(&self) -> Option<&Tried> {
        self.tried.as_ref()
    }

    /// Whether the choice of this run is the choice of the next call of its class. `blocks`: that call is blocking.
    #[inline]
    pub(super) fn is_current(&self, blocks: bool) -> bool {
        self.tried.as_ref().is_none_or(|tried| tried.is_current(blocks))
    }

    /// The neighbours of the call.
    #[inline]
    pub(super) fn neighbors(&self) -> Neighbors<'_> {
        let [sources, destinations] = &self.plan.neighbors;
        Neighbors { sources, destinations }
    }

    /// Whether the run may be stored: it has few steps, little scratch and few blocks.
    pub(super) fn is_light(&self) -> bool {
        /// Maximum numbers of steps, of bytes of scratch and operands, and of blocks of its buffers.
        const STEPS: usize = 256;
        const BYTES: usize = 64 << 10;
        const BLOCKS: usize = 1024;
        let operands: usize = self.operands.borrow().iter().map(Scratch::bytes).sum();
        let scratch = self.plan.starts[SCRATCH].last().copied().unwrap_or(0) + operands;
        let blocks: usize = self.plan.starts.iter().map(Vec::len).sum();
        self.plan.degrees.len() <= STEPS && scratch <= BYTES && blocks <= BLOCKS
    }

    /// Describes a wait for rank `from` of the job.
    fn awaited(&self, from: Option<u32>) -> Awaited {
        /// Calls by messages are numbered separately from those of the signal array.
        const BY_MESSAGES: u64 = 1 << 32;
        let (account, call) = (Some(Account::team(self.team.context())), BY_MESSAGES | u64::from(self.sequence.get()));
        Awaited { account, operation: self.name(), call, from }
    }

    /// The wait of the run: for a missing message, preferably from a rank that has sent none yet, since other ranks may
    /// wait for that rank too; else for a send whose memory is still in use.
    pub(super) fn awaits(&self) -> Awaited {
        /// Maximum number of missing messages that are examined.
        const MAX_EXAMINED: usize = 64;
        let (slots, expected) = (self.slots.borrow(), &self.plan.expected);
        let is_missing = |slot: &Slot| matches!(slot, Slot::Posted | Slot::Filling(..));
        let missing = slots.iter().zip(expected).filter(|(slot, _)| is_missing(slot)).map(|(_, e)| e.source);
        let answered = |source: &u32| {
            let here = |slot: &Slot| matches!(slot, Slot::Done | Slot::Early(_));
            slots.iter().zip(expected).any(|(slot, e)| e.source == *source && here(slot))
        };
        let silent = missing.clone().take(MAX_EXAMINED).find(|source| !answered(source));
        let missing = silent.or_else(|| missing.clone().next());
        let sent_to = || {
            let step = self.sends.borrow().first()?.0;
            let peer = self.plan.schedule.step(step as usize).action.peer(self.plan.schedule.rank())?;
            Some(self.plan.peers[peer as usize])
        };
        self.awaited(missing.or_else(sent_to))
    }

    fn buffers(&self) -> Buffers<'_> {
        let [input, output, scratch] = &self.memory;
        Buffers { memory: [input, output, scratch], starts: &self.plan.starts, element: self.plan.element }
    }

    /// Starts the steps that wait for no others.
    ///
    /// # Safety
    /// Until the run is complete, has failed or was cancelled, the memory is valid, the output is not accessed
    /// otherwise, and the input is not written.
    ///
    /// # Errors
    /// `Freed`; `BadArgument` for a run that is in progress. Later errors are reported by [`outcome`](Self::outcome).
    pub(super) unsafe fn start(self: &Rc<Self>) -> Result<()> {
        self.begin()?;
        let plan = &*self.plan;
        self.open.set(plan.degrees.len());
        {
            let mut ready = self.ready.borrow_mut();
            ready.clear();
            for (step, (waiting, degree)) in self.waiting.iter().zip(&plan.degrees).enumerate() {
                waiting.set(*degree);
                if *degree == 0 {
                    ready.push_back(step as u32);
                }
            }
        }
        self.slots.borrow_mut().iter_mut().for_each(|slot| *slot = Slot::Empty);
        self.take_early();
        self.check_faults();
        self.advance();
        Ok(())
    }

    /// Registers the run as a call in progress.
    fn begin(self: &Rc<Self>) -> Result<()> {
        self.begin_unlisted()?;
        if !self.persistent {
            self.team.add(self);
        }
        Ok(())
    }

    /// Begins a call, without adding it to the calls in progress.
    #[inline]
    fn begin_unlisted(&self) -> Result<()> {
        self.job.running(self.name())?;
        if let Some(bill) = self.job.bill() {
            bill.called(Account::team(self.team.context()), self.name());
        }
        match self.state.get() {
            State::Active => {
                return Err(Error::new(ErrorKind::BadArgument, self.name())
                    .cause("the persistent collective is still in progress"));
            }
            State::Failed if self.persistent => {
                return Err(Error::new(ErrorKind::Aborted, self.name())
                    .cause("the persistent collective has failed in an earlier round"));
            }
            _ => {}
        }
        if !self.persistent {
            self.sequence.set(self.team.next());
        }
        self.state.set(State::Active);
        self.compared.set(None);
        self.over.set(0);
        self.round.set(self.round.get().wrapping_add(u32::from(self.persistent)));
        self.patience.set((plan::CHECKS_BEFORE_QUESTION, plan::CHECKS_BEFORE_QUESTION));
        Ok(())
    }

    /// Handles the failure that was announced before the call began.
    fn check_faults(self: &Rc<Self>) {
        if let Some(announced) = self.team.announced(self.sequence.get()) {
            self.failed_elsewhere(&announced);
        }
    }

    fn reduce(&self, from: &[Block], into: &[Block], side: Side) {
        let element = self.plan.element;
        let Some(reduction) = self.reduction else { return };
        let mut failed = None;
        let reduce = |from: *const u8, into: *mut u8, len: usize| {
            // SAFETY: both have `len` bytes; `into` belongs to the run, as in `sink`, and does not overlap the operand.
            let done = unsafe { (reduction.function)(reduction.context, from, into, len / element.max(1), side) };
            done.map_err(|e| failed = Some(e)).is_ok()
        };
        let _inside = self.job.inside(Callback::Operator);
        zip(from, into, element, reduce);
        if let Some(e) = failed {
            self.fault(self.operator_failed(e), Announce::Others);
        }
    }

    /// The error of a call whose operator has failed here.
    #[cold]
    fn operator_failed(&self, error: Error) -> Error {
        error.during(self.name()).rank(self.job.rank()).peer(self.job.rank())
    }

    #[inline]
    fn complete(&self, step: u32) {
        self.open.set(self.open.get() - 1);
        for follower in self.plan.followers(step) {
            let waiting = &self.waiting[*follower as usize];
            waiting.set(waiting.get() - 1);
            if waiting.get() == 0 {
                self.ready.borrow_mut().push_back(*follower);
            }
        }
    }

    /// Queues the run for the next turn of progress.
    #[inline]
    fn queue(self: &Rc<Self>) {
        if !self.queued.replace(true) {
            self.calls.queue(Rc::clone(self));
        }
    }

    pub(super) fn advance_queued(self: &Rc<Self>) {
        self.queued.set(false);
        self.advance();
    }

    /// Starts the steps that are ready.
    fn advance(self: &Rc<Self>) {
        let Some(_entered) = Entered::new(&self.advancing) else { return };
        while self.state.get() == State::Active {
            let fault = self.fault.borrow_mut().take();
            if let Some((e, to)) = fault {
                self.fail(e, to);
                return;
            }
            let next = self.ready.borrow_mut().pop_front();
            let Some(step) = next else { break };
            match self.execute(step) {
                Ok(true) => self.complete(step),
                Ok(false) => {}
                Err(e) => self.fault(e.during(self.name()), Announce::Others),
            }
        }
        if self.state.get() == State::Active && self.open.get() == 0 {
            if self.plan.lends {
                self.end_loans(true);
            }
            self.state.set(State::Done);
            if !self.persistent {
                self.team.remove(self);
            }
        }
        if self.is_sending() && !self.listed.replace(true) {
            self.calls.queue_sending(Rc::clone(self));
        }
    }

    /// Starts a step. Returns whether it is complete.
    fn execute(self: &Rc<Self>, step: u32) -> Result<bool> {
        let s = self.plan.schedule.step(step as usize);
        match s.action {
            Action::Send { to, tag } => self.send(step, to, tag, self.buffers().source(s.from)),
            Action::Signal { to, tag } => self.send(step, to, tag, Source::of(&[])),
            Action::Receive { .. }
            | Action::ReceiveReduce { .. }
            | Action::Await { .. }
            | Action::Borrow { .. }
            | Action::Reclaim { .. } => self.receive(step),
            Action::Reduce { side } => {
                let buffers = self.buffers();
                self.reduce(&buffers.each(s.from), &buffers.each(s.into), side);
                Ok(true)
            }
            Action::Lend { to, tag } => self.lend(step, to, tag, s.from, s.into),
            Action::Read { .. } | Action::ReadReduce { .. } | Action::Write { .. } => self.access(step),
            Action::Return { to, tag } => self.give_back(step, to, tag),
            // Only `Team::barrier` uses a switch group, and no plan has this step.
            Action::EnterSwitch => Err(Error::new(ErrorKind::Unsupported, self.name())),
            Action::Copy => {
                // SAFETY: as in `sink`.
                unsafe { self.buffers().copy(s.from, s.into) };
                Ok(true)
            }
        }
    }

    fn send(&self, step: u32, to: u32, tag: u32, source: Source) -> Result<bool> {
        let (context, sequence, check) = (self.team.context(), self.sequence.get(), self.plan.check);
        let header = Header { context, sequence, tag, check }.write();
        let to = self.plan.peers[to as usize];
        if let Some(bill) = self.job.bill() {
            bill.posted(Account::team(context), |stats| stats.add(Kind::Send, source.len()));
        }
        let track = self.spare.borrow_mut().take().unwrap_or_default();
        // SAFETY: the blocks are not written before the step is complete, and the run cancels open sends when it ends.
        let is_sent = unsafe {
            if to != self.job.rank_number() && am::is_read_if_mapped(&self.job, to, &source) {
                am::start_rendezvous(&self.job, to, HANDLER, &header, source, &track)?;
                false
            } else {
                am::start_send(&self.job, to, HANDLER, &header, source, Counters::default(), &track)?
            }
        };
        if is_sent {
            *self.spare.borrow_mut() = Some(track);
            return Ok(true);
        }
        self.sends.borrow_mut().push((step, track));
        Ok(false)
    }

    pub(super) fn is_sending(&self) -> bool {
        !self.sends.borrow().is_empty()
    }

    pub(super) fn not_in_list(&self) {
        self.listed.set(false);
    }

    /// Completes the sends whose memory is reusable. Returns whether there was any.
    pub(super) fn complete_sends(self: &Rc<Self>) -> bool {
        let mut ended: smallvec::SmallVec<[(u32, Rc<Track>); 4]> = smallvec::SmallVec::new();
        if self.plan.lends {
            self.advance_accesses();
        }
        self.sends.borrow_mut().retain(|(step, track)| {
            let open = track.open() > 0;
            if !open {
                ended.push((*step, Rc::clone(track)));
            }
            open
        });
        if ended.is_empty() || self.state.get() != State::Active {
            return false;
        }
        for (step, track) in ended {
            match track.check() {
                Ok(()) => self.complete(step),
                Err(e) => self.fault(e.during(self.name()), Announce::Others),
            }
            *self.spare.borrow_mut() = Some(track);
        }
        self.queue();
        true
    }

    /// Handles the announcement of another rank that the call has failed.
    pub(super) fn failed_elsewhere(self: &Rc<Self>, announcement: &Announcement) {
        if self.state.get() == State::Active || self.persistent {
            self.fault(announcement.error(self.name()), Announce::Nobody);
            self.queue();
        }
    }

    /// Records an error that fails the run; only the first one is kept.
    fn fault(&self, error: Error, to: Announce) {
        self.fault.borrow_mut().get_or_insert((error, to));
    }

    /// Ends the run with an error, after which its memory is not accessed. `to` selects the other ranks that get the
    /// error.
    pub(super) fn fail(&self, error: Error, to: Announce) {
        if self.state.get() != State::Active {
            return;
        }
        self.state.set(State::Failed);
        let sends = std::mem::take(&mut *self.sends.borrow_mut());
        sends.iter().for_each(|(_, track)| self.job.cancel(track));
        let slots: Vec<Slot> =
            self.slots.borrow_mut().iter_mut().map(|slot| std::mem::replace(slot, Slot::Done)).collect();
        for slot in slots {
            match slot {
                Slot::Filling(token, _operand) => _ = am::abandon(&self.job, token),
                Slot::Early(body) => body.abandon(&self.job),
                Slot::Empty | Slot::Posted | Slot::Done => {}
            }
        }
        self.ready.borrow_mut().clear();
        if self.plan.lends {
            self.end_loans(false);
        }
        let sequence = self.sequence.get();
        self.team.remove(self);
        self.team.fail(&self.job, sequence);
        self.team.announce(&self.job, sequence, &error, to);
        *self.error.borrow_mut() = Some(error);
    }

    /// Retires a persistent run: it has no more rounds.
    pub(super) fn retire(&self) {
        self.team.remove(self);
        self.team.abandon_early(&self.job, self.sequence.get());
    }

    /// Whether the run is complete.
    ///
    /// # Errors
    /// The error with which the run has failed.
    pub(super) fn outcome(&self) -> Result<bool> {
        match self.state.get() {
            State::Active => Ok(false),
            State::Idle | State::Done => Ok(true),
            State::Failed => Err(match &*self.error.borrow() {
                Some(e) => e.again(),
                None => Error::new(ErrorKind::Aborted, self.name()),
            }),
        }
    }
}
