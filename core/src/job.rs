//! A job as one rank sees it: start-up, rank and size, the device, waiting, orderly end.
//!
//! A rank is one thread: `Job` is neither `Send` nor `Sync`. Ranks may be processes ([`Job::init`]) or threads
//! of one process ([`Job::threads`]), with the same code below.

mod requests;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::am::state::ActiveMessages;
use crate::bill::{Account, Awaited, Bill, Watch};
use crate::bootstrap::Bootstrap;
use crate::device::{Device, Event, MessageCutOffs};
use crate::error::{Error, ErrorKind, Result};
use crate::order::StoreOrder;
use crate::progress::{self, Pace, Progress};
use crate::say::say;
use crate::settings::Settings;
use crate::stats::{Snapshot, Stats};
use crate::tracked::Tracked;
use crate::two_sided::state::TwoSided;

pub use crate::tracked::Track;
pub use requests::CancelOnDrop;

/// A job, as one of its ranks. Clones are the same rank.
#[derive(Clone, Debug)]
pub struct Job(pub(crate) Rc<Inner>);

/// What goes on in turns of progress when messages have come: the collectives.
pub(crate) trait Continued: Any {
    /// Whether nothing can go on.
    fn is_idle(&self) -> bool;
    /// Lets all go on that can; whether any did.
    fn advance(&self, job: &Job) -> bool;
    /// This rank waits, and has checked the peers so many times. Fails if what it waits for cannot come.
    fn wait_on(&self, job: &Job, checks: u32, awaited: &dyn Fn() -> Awaited) -> Result<()>;
}

pub(crate) struct Inner {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) settings: Settings,
    /// Dropped before the messages, into whose sinks it may be reading.
    pub(crate) device: Box<dyn Device>,
    /// Of the settings and the device.
    pub(crate) message_cut_offs: MessageCutOffs,
    pub(crate) max_packet: usize,
    pub(crate) bootstrap: RefCell<Box<dyn Bootstrap>>,
    pub(crate) progress: Progress,
    /// Whether ranks of this node share processors: the same at all of them.
    pub(crate) crowded_node: bool,
    pub(crate) watch: Option<Watch>,
    pub(crate) order: StoreOrder,
    pub(crate) am: ActiveMessages<Job>,
    pub(crate) calls: Box<dyn Continued>,
    pub(crate) two_sided: Rc<TwoSided>,
    pub(crate) tracked: RefCell<Tracked>,
    /// Contexts that this rank has given.
    pub(crate) contexts: Cell<u32>,
    /// The team of all ranks, kept until the end of the job. A team holds its job, so its type stands in a file that
    /// depends on this one.
    pub(crate) world: RefCell<Option<Box<dyn Any>>>,
    /// Deferred completions that run, each in a wait of the one before.
    pub(crate) running_later: Cell<u32>,
    pub(crate) left: Cell<bool>,
    /// Of every wait, while the job ends.
    pub(crate) deadline: Cell<Option<Instant>>,
    pub(crate) ended: Cell<bool>,
    /// What waits do between two turns.
    pub(crate) pause: Cell<Option<fn()>>,
    /// The number of checks of the peers after which this rank last looked whether the launcher asks something.
    pub(crate) answered: Cell<u32>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("rank", &self.rank).field("size", &self.size).finish_non_exhaustive()
    }
}

/// Deferred completions that run at a time, each in a wait of the one before: a bound on the stack.
const DEEPEST: u32 = 8;

/// A deferred completion that runs, until it is left: by a panic too.
struct Running<'a>(&'a Cell<u32>);

impl<'a> Running<'a> {
    /// `None` if `most` are running.
    fn new(running: &'a Cell<u32>, most: u32) -> Option<Self> {
        let room = running.get() < most;
        room.then(|| running.set(running.get() + 1)).map(|()| Self(running))
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Job {
    /// This rank, from 0.
    #[must_use]
    #[inline]
    pub fn rank(&self) -> u32 {
        self.0.rank
    }

    /// The number of ranks.
    #[must_use]
    #[inline]
    pub fn size(&self) -> u32 {
        self.0.size
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// The device.
    #[must_use]
    #[inline]
    pub fn device(&self) -> &dyn Device {
        &*self.0.device
    }

    /// Whether ranks of this node share processors: the same at all of them.
    pub(crate) fn is_on_crowded_node(&self) -> bool {
        self.0.crowded_node
    }

    /// The cut-offs of messages: what the settings say, or else the device.
    #[inline]
    pub(crate) fn message_cut_offs(&self) -> MessageCutOffs {
        self.0.message_cut_offs
    }

    /// The longest packet of the device in bytes.
    #[inline]
    pub(crate) fn max_packet(&self) -> usize {
        self.0.max_packet
    }

    /// Checks that all other ranks are alive.
    ///
    /// # Errors
    /// `PeerLost`, naming one that is not.
    pub fn check_peers(&self) -> Result<()> {
        self.0.device.check_peers(None)
    }

    /// The store order of this rank.
    #[must_use]
    #[inline]
    pub fn store_order(&self) -> &StoreOrder {
        &self.0.order
    }

    /// The active messages.
    #[must_use]
    #[inline]
    pub fn active_messages(&self) -> &ActiveMessages<Job> {
        &self.0.am
    }

    /// The counters of this rank.
    #[must_use]
    pub fn stats(&self) -> Snapshot {
        self.stats_by_device().iter().fold(Snapshot::default(), |all, (_, one)| all.merged(one))
    }

    /// The same by device: more than one where ranks of one node share memory and others are reached by an HCA.
    #[must_use]
    pub fn stats_by_device(&self) -> Vec<(&'static str, Snapshot)> {
        let mut all = self.0.device.counters();
        if let (Some(bill), Some((_, first))) = (self.bill(), all.first_mut()) {
            *first = first.merged(&bill.uncounted());
        }
        all
    }

    /// The synchronization bill, if one is kept.
    #[must_use]
    #[inline]
    pub fn bill(&self) -> Option<&Bill> {
        self.0.watch.as_ref().map(Watch::bill)
    }

    /// The counters of operations that are copies: of the device, or of an account of the bill. They stay in place as long as
    /// the job.
    #[must_use]
    pub fn stats_of(&self, account: Option<Account>) -> NonNull<Stats> {
        let kept = self.bill().zip(account).and_then(|(bill, account)| NonNull::new(bill.direct(account).cast_mut()));
        kept.unwrap_or_else(|| NonNull::from(self.device().stats()))
    }

    /// The two-sided messages.
    #[must_use]
    #[inline]
    pub fn two_sided(&self) -> &TwoSided {
        &self.0.two_sided
    }

    /// The collectives, whose type stands in a file that depends on this one.
    #[inline]
    pub(crate) fn continued(&self) -> &dyn Any {
        &*self.0.calls
    }

    /// Contexts below this one are not given by [`new_context`](Self::new_context): 0 is that of the team of all ranks, the
    /// others are free for teams whose context all members know without asking.
    pub const FIXED_CONTEXTS: u32 = 16;

    /// A context for a new team that no rank of the job has been given before. Sends nothing: each rank has numbers of its own,
    /// 2^32 / P of them.
    ///
    /// # Errors
    /// `Limit` when this rank has given all of its numbers.
    pub fn new_context(&self) -> Result<u32> {
        let (given, size) = (self.0.contexts.get(), self.0.size);
        let number = || given.checked_add(Self::FIXED_CONTEXTS)?.checked_mul(size)?.checked_add(self.0.rank);
        let number = number().ok_or_else(|| {
            let e = Error::new(ErrorKind::Limit, "make a context").rank(self.0.rank);
            e.cause(format!("this rank has given {given}")).remedy("let another member of the team give the context")
        })?;
        self.0.contexts.set(given + 1);
        Ok(number)
    }

    /// How often to check for something that is about to come before waiting for it: 0 where ranks outnumber cores.
    #[must_use]
    #[inline]
    pub fn spins(&self) -> u32 {
        self.0.progress.spins()
    }

    /// Delivers what has come and finishes what is done; returns whether anything was. Of some calls in a row that find nothing
    /// one checks the peers, as a wait does.
    ///
    /// # Errors
    /// `Protocol`, `PeerLost`, or what a completion handler fails with.
    #[inline]
    pub fn progress(&self) -> Result<bool> {
        self.progress_of("progress")
    }

    /// The same for a caller that tests: with more ranks than cores it yields now and then, so that a program that tests again
    /// and again does not keep the core that another rank needs.
    ///
    /// # Errors
    /// As [`progress`](Self::progress).
    #[inline]
    pub fn progress_of_test(&self) -> Result<bool> {
        let any = self.progress()?;
        if !any {
            self.0.progress.give_way_at_times();
        }
        Ok(any)
    }

    /// The same in `operation`, which an error of the check names.
    #[inline]
    pub(crate) fn progress_of(&self, operation: &'static str) -> Result<bool> {
        let any = self.turn(1)?;
        if !any && self.0.progress.is_due() {
            self.0.progress.look_around(operation, self.device(), None)?;
            self.0.calls.wait_on(self, self.0.progress.checks(), &|| Awaited::unknown(operation))?;
        }
        Ok(any)
    }

    /// Makes progress; runs deferred completions if fewer than `later` are running.
    #[inline]
    fn turn(&self, later: u32) -> Result<bool> {
        let inner = &*self.0;
        let mut failed = None;
        let any = inner.device.poll(&mut |event| {
            let r = match event {
                Event::Packet { source, bytes } => inner.am.dispatch(self, source, bytes),
                Event::LongPacket { source, packet } => inner.am.dispatch_long(self, source, packet),
                Event::Completed { id, result } => {
                    self.completed(id, result);
                    Ok(())
                }
            };
            if let Err(e) = r {
                failed.get_or_insert(e);
            }
        })?;
        if let Some(e) = failed {
            return Err(e);
        }
        let idle = inner.am.is_quiet() && inner.calls.is_idle() && !inner.two_sided.owes_credit();
        if idle { Ok(any) } else { Ok(self.carry_out(later)? || any) }
    }

    /// Sends what is queued, lets collectives go on, and runs what was put off; whether there was any.
    #[inline(never)]
    fn carry_out(&self, later: u32) -> Result<bool> {
        let am = &self.0.am;
        let calls = &self.0.calls;
        self.give_credit()?;
        let mut any = am.carry_on(self)? | (!calls.is_idle() && calls.advance(self));
        while am.has_deferred()
            && let Some(_running) = Running::new(&self.0.running_later, later)
        {
            let Some(f) = am.next_deferred() else { break };
            any = true;
            f(self)?;
            am.carry_on(self)?;
        }
        Ok(any)
    }

    /// Waits until `ready` gives a value, making progress meanwhile.
    ///
    /// # Errors
    /// `PeerLost` within the time of `FARSIDE_PEER_CHECK_MS`, naming the rank that is gone; what `ready` or a
    /// handler fails with.
    pub fn wait<R>(&self, operation: &'static str, ready: impl FnMut() -> Result<Option<R>>) -> Result<R> {
        self.wait_for(|| Awaited::unknown(operation), ready)
    }

    /// As [`wait`](Self::wait); `awaited` says what for, at any time.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for<R>(
        &self,
        awaited: impl Fn() -> Awaited,
        mut ready: impl FnMut() -> Result<Option<R>>,
    ) -> Result<R> {
        // What is ready, or nearly, costs no entry and no exit.
        for _ in 0..=self.0.progress.spins() / 4 {
            if let Some(r) = ready()? {
                return Ok(r);
            }
            if !self.turn(DEEPEST)? {
                progress::pace(Pace::NEXT);
            }
        }
        self.wait_with(awaited().operation, None, &awaited, ready, false)
    }

    /// Looks for a moment whether `ready`, without progress.
    #[inline]
    pub(crate) fn look_for(&self, pace: Pace, ready: impl Fn() -> bool) -> bool {
        // Where the cell is not mapped only a poll sees the signal.
        let looks = if self.0.device.capabilities().mapped { self.0.progress.spins() / 4 } else { 0 };
        for _ in 0..looks {
            progress::pace(pace);
            if ready() {
                return true;
            }
            progress::pace(Pace::AGAIN);
        }
        false
    }

    /// Waits until `ready`, a look at a word that one peer sets, making progress meanwhile. Looks are spaced: one that
    /// comes just before the peer's store makes that store wait for the line to come back.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    #[inline]
    pub fn wait_signal(&self, awaited: impl Fn() -> Awaited, pace: Pace, ready: impl Fn() -> bool) -> Result<()> {
        if self.look_for(pace, &ready) {
            return Ok(());
        }
        self.wait_with(awaited().operation, None, &awaited, || Ok(ready().then_some(())), false)
    }

    /// As [`wait`](Self::wait), with a time limit.
    ///
    /// # Errors
    /// As [`wait`](Self::wait), and `Timeout`.
    pub fn wait_until<R>(
        &self,
        operation: &'static str,
        deadline: Option<Instant>,
        ready: impl FnMut() -> Result<Option<R>>,
    ) -> Result<R> {
        self.wait_with(operation, deadline, &|| Awaited::unknown(operation), ready, false)
    }

    /// As [`wait`](Self::wait), for what nobody notifies this rank of: it looks again after 50 microseconds of sleep.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_unnotified<R>(
        &self,
        awaited: impl Fn() -> Awaited,
        ready: impl FnMut() -> Result<Option<R>>,
    ) -> Result<R> {
        self.wait_with(awaited().operation, None, &awaited, ready, true)
    }

    fn wait_with<R>(
        &self,
        operation: &'static str,
        deadline: Option<Instant>,
        awaited: &dyn Fn() -> Awaited,
        ready: impl FnMut() -> Result<Option<R>>,
        unnotified: bool,
    ) -> Result<R> {
        self.running(operation)?;
        let deadline = deadline.or(self.0.deadline.get());
        let blocked = || unnotified || self.0.am.is_blocked();
        let wait = |look: &dyn Fn()| {
            let turn = || {
                if let Some(pause) = self.0.pause.get() {
                    pause();
                }
                let checks = self.0.progress.checks();
                self.0.calls.wait_on(self, checks, awaited)?;
                if self.0.answered.replace(checks) != checks {
                    self.answer_launcher(awaited);
                }
                let any = self.turn(DEEPEST);
                look();
                any
            };
            self.0.progress.wait(operation, self.device(), deadline, ready, turn, blocked)
        };
        match &self.0.watch {
            None => wait(&|| ()),
            Some(watch) => {
                watch.over(awaited, &|| self.0.device.now(), &|awaited, time| self.say_stall(awaited, time), wait)
            }
        }
    }

    /// Says what this rank waits for, and for how long it has.
    #[cold]
    fn say_stall(&self, awaited: Awaited, time: Duration) {
        let [operation, from] = self.described(awaited);
        say(format_args!("rank {}: {operation} has waited for {:.1} s for {from}", self.rank(), time.as_secs_f64()));
    }

    /// Tells the launcher what this rank waits for, if it asks.
    #[cold]
    fn answer_launcher(&self, awaited: &dyn Fn() -> Awaited) {
        // The bootstrap is in use where the rank ends.
        if let Ok(mut bootstrap) = self.0.bootstrap.try_borrow_mut() {
            bootstrap.answer(&|| {
                let [operation, from] = self.described(awaited());
                format!("{operation} waits for {from}")
            });
        }
    }

    /// The operation that waits, and for whom.
    fn described(&self, awaited: Awaited) -> [String; 2] {
        let Awaited { account, operation, from, .. } = awaited;
        let of = account.map_or(String::new(), |account| format!(" of {}", self.account_name(account)));
        [format!("{operation}{of}"), from.map_or("another rank".to_owned(), |rank| format!("rank {rank}"))]
    }

    fn account_name(&self, account: Account) -> String {
        let named = self.bill().and_then(|bill| bill.named(account));
        named.map_or_else(|| account.to_string(), |name| format!("{account} {name:?}"))
    }

    /// Has `pause` called between two turns of every wait of this job from now on. Other threads of the rank may use the job
    /// meanwhile, one at a time, if the program keeps them apart by a lock that `pause` lets them have.
    pub fn pause_by(&self, pause: fn()) {
        self.0.pause.set(Some(pause));
    }

    /// Fails once the job has ended: then no rank answers any more.
    ///
    /// # Errors
    /// `Freed`.
    #[inline]
    pub(crate) fn running(&self, operation: &'static str) -> Result<()> {
        if self.0.ended.get() { Err(self.ended(operation)) } else { Ok(()) }
    }

    #[cold]
    fn ended(&self, operation: &'static str) -> Error {
        let e = Error::new(ErrorKind::Freed, operation).rank(self.0.rank);
        e.cause("the job has been finalized").remedy("finalize the job when everything else is done")
    }

    /// Ends the whole job with `code`, telling the launcher why.
    pub fn abort(&self, code: i32, reason: &str) -> ! {
        // Nothing that runs at the exit of the process may take this for an orderly end.
        self.0.left.set(true);
        self.0.bootstrap.borrow_mut().abort(code, reason);
        std::process::exit(code)
    }
}
