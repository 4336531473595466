//! What moves a rank: its device, the work requests in progress, and the one place where it waits. The layers above, which
//! deliver messages and let collectives go on, take part in its turns of progress as a [`MessageLayer`].

mod requests;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ptr::NonNull;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use crate::bill::{Account, Awaited, Bill, Watch};
use crate::bootstrap::Bootstrap;
use crate::device::{Device, MessageCutOffs, PeerCheck};
use crate::error::{Error, ErrorKind, Result};
use crate::order::StoreOrder;
use crate::progress::{self, Pace, Progress};
use crate::say::say;
use crate::settings::Settings;
use crate::stats::{Snapshot, Stats};
use crate::tracked::{Track, Tracked};

pub use requests::CancelOnDrop;

/// What a rank does above its device in turns of progress.
pub(crate) trait MessageLayer {
    /// Delivers what the device has, and lets go on what can; runs deferred completions if fewer than `later` are running.
    /// Returns whether there was any.
    fn turn(&self, later: u32) -> Result<bool>;
    /// Whether something waits for room at the device, of which no event tells.
    fn is_blocked(&self) -> bool;
    /// This rank waits, and has checked its peers this often. Fails if what it waits for cannot come.
    fn wait_on(&self, checks: u32, awaited: &dyn Fn() -> Awaited) -> Result<()>;
    /// Forgets the messages that `track` counts: their local memory is not touched any more.
    fn cancel(&self, track: &Rc<Track>);
}

/// The device of a rank, its waits and its work requests. Part of a [`Job`](crate::Job), which derefs to it.
pub struct Engine {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) settings: Settings,
    pub(crate) device: Box<dyn Device>,
    /// Of the settings and the device.
    message_cut_offs: MessageCutOffs,
    max_packet: usize,
    pub(crate) bootstrap: RefCell<Box<dyn Bootstrap>>,
    progress: Progress,
    /// Whether ranks of this node share processors: the same at all of them.
    oversubscribed_node: bool,
    watch: Option<Watch>,
    order: StoreOrder,
    tracked: RefCell<Tracked>,
    pub(crate) left: Cell<bool>,
    /// Of every wait, while the job ends.
    pub(crate) deadline: Cell<Option<Instant>>,
    pub(crate) ended: Cell<bool>,
    /// What waits do between two turns.
    wait_hook: Cell<Option<fn()>>,
    /// The number of checks of the peers after which this rank last looked whether the launcher asks something.
    answered: Cell<u32>,
    /// The job that this is part of.
    pub(crate) above: Weak<dyn MessageLayer>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("rank", &self.rank).field("size", &self.size).finish_non_exhaustive()
    }
}

/// Deferred completions that run at a time, each in a wait of the one before: a bound on the stack.
const DEEPEST: u32 = 8;

impl Engine {
    /// The engine of a rank on a device that is open; `oversubscribed` says whether ranks share its own processors, and those
    /// of its node. What is `above` it is called in its turns.
    pub(crate) fn new(
        bootstrap: Box<dyn Bootstrap>,
        settings: Settings,
        device: Box<dyn Device>,
        [oversubscribed, oversubscribed_node]: [bool; 2],
        above: Weak<dyn MessageLayer>,
    ) -> Self {
        let capabilities = device.capabilities();
        Self {
            rank: bootstrap.rank(),
            size: bootstrap.size(),
            message_cut_offs: capabilities.messages.adjusted(&settings.transfer),
            max_packet: capabilities.max_packet,
            progress: Progress::new(&settings, oversubscribed, capabilities.mapped),
            watch: Watch::new(settings.bill.is_some(), settings.stall, device.now()),
            bootstrap: RefCell::new(bootstrap),
            settings,
            device,
            oversubscribed_node,
            order: StoreOrder::default(),
            tracked: RefCell::default(),
            left: Cell::new(false),
            deadline: Cell::new(None),
            ended: Cell::new(false),
            wait_hook: Cell::new(None),
            answered: Cell::new(0),
            above,
        }
    }

    /// This rank, from 0.
    #[must_use]
    #[inline]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of ranks.
    #[must_use]
    #[inline]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The device.
    #[must_use]
    #[inline]
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Whether ranks of this node share processors: the same at all of them.
    pub(crate) fn is_on_oversubscribed_node(&self) -> bool {
        self.oversubscribed_node
    }

    /// The cut-offs of messages: what the settings say, or else the device.
    #[inline]
    pub(crate) fn message_cut_offs(&self) -> MessageCutOffs {
        self.message_cut_offs
    }

    /// The longest packet of the device in bytes.
    #[inline]
    pub(crate) fn max_packet(&self) -> usize {
        self.max_packet
    }

    /// Checks that all other ranks are alive.
    ///
    /// # Errors
    /// `PeerLost`, naming one that is not.
    pub fn check_peers(&self) -> Result<()> {
        self.device.check_peers(PeerCheck::Alive).map(|_| ())
    }

    /// The store order of this rank.
    #[must_use]
    #[inline]
    pub fn store_order(&self) -> &StoreOrder {
        &self.order
    }

    /// The counters of this rank.
    #[must_use]
    pub fn stats(&self) -> Snapshot {
        self.stats_by_device().iter().fold(Snapshot::default(), |all, (_, one)| all.merged(one))
    }

    /// The same by device: more than one where ranks of one node share memory and others are reached by an HCA.
    #[must_use]
    pub fn stats_by_device(&self) -> Vec<(&'static str, Snapshot)> {
        let mut all = self.device.counters();
        if let (Some(bill), Some((_, first))) = (self.bill(), all.first_mut()) {
            *first = first.merged(&bill.uncounted());
        }
        all
    }

    /// The synchronization bill, if one is kept.
    #[must_use]
    #[inline]
    pub fn bill(&self) -> Option<&Bill> {
        self.watch.as_ref().map(Watch::bill)
    }

    /// The counters of operations that are copies: of the device, or of an account of the bill. They stay in place as long as
    /// the job.
    #[must_use]
    pub fn stats_of(&self, account: Option<Account>) -> NonNull<Stats> {
        let kept = self.bill().zip(account).and_then(|(bill, account)| NonNull::new(bill.direct(account).cast_mut()));
        kept.unwrap_or_else(|| NonNull::from(self.device().own_stats()))
    }

    /// How often to check for something that is about to come before waiting for it: 0 where ranks outnumber cores.
    #[must_use]
    #[inline]
    pub fn spins(&self) -> u32 {
        self.progress.spins()
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
            self.progress.yield_occasionally();
        }
        Ok(any)
    }

    /// The same in `operation`, which an error of the check names.
    #[inline]
    pub(crate) fn progress_of(&self, operation: &'static str) -> Result<bool> {
        let any = self.turn(1)?;
        if !any && self.progress.is_due() {
            self.progress.look_around(operation, self.device(), None)?;
            self.checked(&|| Awaited::unknown(operation))?;
        }
        Ok(any)
    }

    fn above(&self) -> Option<Rc<dyn MessageLayer>> {
        self.above.upgrade()
    }

    /// Makes progress; runs deferred completions if fewer than `later` are running.
    #[inline]
    fn turn(&self, later: u32) -> Result<bool> {
        self.above().map_or(Ok(false), |above| above.turn(later))
    }

    /// Tells the layer above how often the peers have been checked.
    fn checked(&self, awaited: &dyn Fn() -> Awaited) -> Result<()> {
        self.above().map_or(Ok(()), |above| above.wait_on(self.progress.checks(), awaited))
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
        for _ in 0..=self.progress.spins() / 4 {
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
        let looks = if self.device.capabilities().mapped { self.progress.spins() / 4 } else { 0 };
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
        let deadline = deadline.or(self.deadline.get());
        let blocked = || unnotified || self.above().is_some_and(|above| above.is_blocked());
        let wait = |look: &dyn Fn()| {
            let turn = || {
                if let Some(pause) = self.wait_hook.get() {
                    pause();
                }
                let checks = self.progress.checks();
                if self.answered.replace(checks) != checks {
                    self.checked(awaited)?;
                    self.answer_launcher(awaited);
                }
                let any = self.turn(DEEPEST);
                look();
                any
            };
            self.progress.wait(operation, self.device(), deadline, ready, turn, blocked)
        };
        match &self.watch {
            None => wait(&|| ()),
            Some(watch) => {
                watch.over(awaited, &|| self.device.now(), &|awaited, time| self.say_stall(awaited, time), wait)
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
        if let Ok(mut bootstrap) = self.bootstrap.try_borrow_mut() {
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
    pub fn set_wait_hook(&self, pause: fn()) {
        self.wait_hook.set(Some(pause));
    }

    /// Fails once the job has ended: then no rank answers any more.
    ///
    /// # Errors
    /// `Freed`.
    #[inline]
    pub(crate) fn running(&self, operation: &'static str) -> Result<()> {
        if self.ended.get() { Err(self.ended(operation)) } else { Ok(()) }
    }

    #[cold]
    fn ended(&self, operation: &'static str) -> Error {
        let e = Error::new(ErrorKind::Freed, operation).rank(self.rank);
        e.cause("the job has been finalized").remedy("finalize the job when everything else is done")
    }

    /// Ends the whole job with `code`, telling the launcher why.
    pub fn abort(&self, code: i32, reason: &str) -> ! {
        // Nothing that runs at the exit of the process may take this for an orderly end.
        self.left.set(true);
        self.bootstrap.borrow_mut().abort(code, reason);
        std::process::exit(code)
    }
}
