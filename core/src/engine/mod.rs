//! The engine of a rank: its device, its work requests in progress, and the one place where it waits. A
//! [`Job`](crate::Job) derefs to it. In each turn of progress it polls the device, hands the packets to the layer
//! above (`MessageLayer`), and lets that layer advance messages and collectives.

mod abort;
mod bodies;
mod futures;
mod inside;
mod requests;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use crate::bill::trace::Trace;
use crate::bill::{Account, Awaited, Bill, Watch};
use crate::bootstrap::Bootstrap;
use crate::callback::Callback;
use crate::device::{CutOffs, Device, Event, MessageCutOffs, PeerCheck, Unread};
use crate::error::Result;
use crate::order::StoreOrder;
use crate::progress::{self, MaySleep, Pace, Progress};
use crate::say::say;
use crate::settings::Settings;
use crate::stats::{Snapshot, Stats};
use crate::tracked::{Track, Tracked};

pub use abort::end_again;
use bodies::OpenBodies;
use futures::WaitingFutures;
pub use inside::Inside;
pub use requests::CancelOnDrop;

/// The layer above the engine in a turn of progress: messages and collectives.
pub(crate) trait MessageLayer {
    /// The time of the device's clock.
    fn now(&self) -> Instant;
    /// Delivers a packet to its handler, which may not communicate.
    fn deliver(&self, source: u32, packet: &[u8]) -> Result<()>;
    /// Delivers a packet that the sender may still be able to write.
    fn deliver_in_place(&self, source: u32, packet: &Unread<'_>) -> Result<()>;
    /// Called after each poll of the device: advances whatever can continue, and runs deferred completions if fewer than
    /// `later` are running. Returns whether anything happened.
    fn advance(&self, later: u32) -> Result<bool>;
    /// Whether messages wait for queue space of the device, which no event announces.
    fn is_blocked(&self) -> bool;
    /// Called in a wait with the number of peer checks so far. Fails if the awaited condition can no longer be
    /// fulfilled.
    fn wait_on(&self, checks: u32, awaited: &dyn Fn() -> Awaited) -> Result<()>;
    /// Cancels the messages that `track` counts: their local memory is no longer accessed.
    fn cancel(&self, track: &Rc<Track>);
}

/// The reason for a wait: the name of an operation, or a function that describes the wait at any time.
pub trait WaitReason {
    /// The description.
    fn awaited(&self) -> Awaited;

    /// Whether an event announces the condition. If not, it is polled again after 50 microseconds of sleep.
    fn is_notified(&self) -> bool {
        true
    }
}

impl WaitReason for &'static str {
    fn awaited(&self) -> Awaited {
        Awaited::unknown(self)
    }
}

impl<F: Fn() -> Awaited> WaitReason for F {
    fn awaited(&self) -> Awaited {
        self()
    }
}

/// The reason for a wait on a condition of whose change peers do not notify this rank.
#[derive(Debug)]
pub struct Unnotified<F>(pub F);

impl<F: Fn() -> Awaited> WaitReason for Unnotified<F> {
    fn awaited(&self) -> Awaited {
        self.0()
    }

    fn is_notified(&self) -> bool {
        false
    }
}

/// The device of a rank, its waits and its work requests. Part of a [`Job`](crate::Job), which derefs to it.
///
/// Its waits make progress, so that messages of other ranks are handled meanwhile:
///
/// ```
/// use std::time::Duration;
///
/// use farside_core::{ErrorKind, Job};
///
/// Job::threads(1, |job| {
///     let mut turns = 0;
///     job.wait("five turns", || {
///         turns += 1;
///         Ok((turns > 5).then_some(()))
///     })?;
///     // A wait with a limit.
///     let never = job.within(Duration::from_millis(1), || job.wait("what never comes", || Ok(None::<()>)));
///     assert_eq!(never.unwrap_err().kind(), ErrorKind::Timeout);
///     Ok(())
/// })?;
/// # Ok::<(), farside_core::Error>(())
/// ```
pub struct Engine {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) settings: Settings,
    pub(crate) device: Box<dyn Device>,
    /// The device's cut-offs, or those that were fitted on this machine, adjusted by the settings.
    pub(crate) message_cut_offs: Cell<MessageCutOffs>,
    /// The same for transfers between two layouts, for windows that are made from now on.
    pub(crate) cut_offs: Cell<CutOffs>,
    max_packet: usize,
    max_lent_packet: usize,
    pub(crate) bootstrap: RefCell<Box<dyn Bootstrap>>,
    progress: Progress,
    futures: WaitingFutures,
    /// Whether ranks of this node share processors; the same at all of them.
    oversubscribed_node: bool,
    watch: Option<Watch>,
    order: StoreOrder,
    tracked: RefCell<Tracked>,
    pub(crate) left: Cell<bool>,
    /// Deadline of the waits of the running thread inside [`within`](Self::within).
    deadline: Cell<Option<Instant>>,
    ended: Cell<bool>,
    /// The callback that runs, if it is one that may not communicate.
    inside: Cell<Option<Callback>>,
    /// The code with which this rank is ending the process, if it is.
    ending: Cell<Option<i32>>,
    /// The bodies in which this rank is.
    bodies: OpenBodies,
    /// Checked between two turns of every wait and before every sleep, and called between two turns.
    wait_hook: Cell<Option<WaitHook>>,
    /// The number of peer checks at which this rank last asked whether the launcher has a question.
    answered: Cell<u32>,
    /// The job that contains this engine.
    pub(crate) above: Weak<dyn MessageLayer>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("rank", &self.rank).field("size", &self.size).finish_non_exhaustive()
    }
}

/// Restores a deadline when this is dropped, even when a panic unwinds.
struct RestoredDeadline<'a>(&'a Cell<Option<Instant>>, Option<Instant>);

impl Drop for RestoredDeadline<'_> {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

/// Maximum number of nested deferred completions, each run from a wait of the previous one; this bounds the stack.
const MAX_DEPTH: u32 = 8;

impl Engine {
    /// The engine of a rank on an open device. `oversubscribed`: whether ranks share this rank's processors, and
    /// whether ranks of its node share processors. `above` is called in each turn of progress.
    pub(crate) fn new(
        bootstrap: Box<dyn Bootstrap>,
        settings: Settings,
        device: Box<dyn Device>,
        [oversubscribed, oversubscribed_node]: [bool; 2],
        trace: Option<Rc<Trace>>,
        above: Weak<dyn MessageLayer>,
    ) -> Self {
        let capabilities = device.capabilities();
        if let Some(trace) = &trace {
            let above = above.clone();
            trace.set_clock(Box::new(move || above.upgrade().map_or_else(Instant::now, |above| above.now())));
        }
        let watch = Watch::new(settings.bill.is_some(), trace, settings.stall, device.now());
        let order = StoreOrder::default();
        if watch.is_some() {
            order.note_bill();
        }
        Self {
            rank: bootstrap.rank(),
            size: bootstrap.size(),
            message_cut_offs: Cell::new(capabilities.messages.adjusted(&settings.transfer)),
            cut_offs: Cell::new(capabilities.cut_offs.adjusted(&settings.transfer)),
            max_packet: capabilities.max_packet,
            max_lent_packet: capabilities.max_lent_packet,
            progress: Progress::new(&settings, oversubscribed, capabilities.mapped),
            futures: WaitingFutures::default(),
            watch,
            bootstrap: RefCell::new(bootstrap),
            settings,
            device,
            oversubscribed_node,
            order,
            tracked: RefCell::default(),
            left: Cell::new(false),
            deadline: Cell::new(None),
            ended: Cell::new(false),
            inside: Cell::new(None),
            ending: Cell::new(None),
            bodies: OpenBodies::default(),
            wait_hook: Cell::new(None),
            answered: Cell::new(0),
            above,
        }
    }

    /// This rank, from 0.
    #[must_use]
    #[inline]
    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// This rank, as in messages.
    #[must_use]
    #[inline]
    pub fn rank_number(&self) -> u32 {
        self.rank
    }

    /// The number of ranks.
    #[must_use]
    #[inline]
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// The number of ranks, as in messages.
    #[must_use]
    #[inline]
    pub fn size_number(&self) -> u32 {
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

    /// Whether ranks of this node share processors; the same at all of them.
    #[must_use]
    pub fn is_on_oversubscribed_node(&self) -> bool {
        self.oversubscribed_node
    }

    /// The cut-offs of messages: from the settings if given there, otherwise fitted on this machine or of the device.
    #[inline]
    pub(crate) fn message_cut_offs(&self) -> MessageCutOffs {
        self.message_cut_offs.get()
    }

    /// The cut-offs of transfers between two layouts: from the settings if given there, otherwise fitted on this
    /// machine or of the device.
    #[must_use]
    pub fn cut_offs(&self) -> CutOffs {
        self.cut_offs.get()
    }

    /// Maximum length of a packet of the device in bytes.
    #[inline]
    pub(crate) fn max_packet(&self) -> usize {
        self.max_packet
    }

    /// Maximum length in bytes of a packet to `target` that is sent from the caller's memory; 0 if the device copies
    /// packets, or if `target` can read that memory.
    pub(crate) fn max_lent_packet(&self, target: u32) -> usize {
        let most = self.max_lent_packet;
        if most > 0 && self.device.shares_memory(target) { 0 } else { most }
    }

    /// Checks that all other ranks are alive.
    ///
    /// # Errors
    /// `PeerLost`, naming a lost rank.
    pub fn check_peers(&self) -> Result<()> {
        self.device.check_peers(PeerCheck::Alive).map(|_| ())
    }

    /// Waits, through the launcher and without progress, until every rank of the job has called it: for measurements
    /// that begin at the same time. On a [simulated network](crate::sim) it takes no time, and all clocks are then that
    /// of the last rank.
    ///
    /// # Errors
    /// `PeerLost`, `Launcher`, `Timeout`, `Freed`, `InCallback`.
    pub fn align(&self) -> Result<()> {
        self.running("synchronize the ranks")?;
        self.bootstrap.borrow_mut().fence()
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

    /// The same counters by device: more than one if ranks of one node share memory and others are reached by an HCA.
    #[must_use]
    pub fn stats_by_device(&self) -> Vec<(&'static str, Snapshot)> {
        let mut all = self.device.counters();
        if let (Some(bill), Some((_, first))) = (self.bill(), all.first_mut()) {
            *first = first.merged(&bill.uncounted());
        }
        all
    }

    /// The synchronization bill, if one is recorded.
    #[must_use]
    #[inline]
    pub fn bill(&self) -> Option<&Bill> {
        self.watch.as_ref().map(Watch::bill)
    }

    /// The counters of operations that are copies: those of the device, or of an account of the bill. They stay at the
    /// same address as long as the job.
    #[must_use]
    pub fn stats_of(&self, account: Option<Account>) -> NonNull<Stats> {
        let kept = self.bill().zip(account).and_then(|(bill, account)| NonNull::new(bill.direct(account).cast_mut()));
        kept.unwrap_or_else(|| NonNull::from(self.device().own_stats()))
    }

    /// Number of polls of a condition that is about to become true before waiting for it; 0 if ranks outnumber cores.
    #[must_use]
    #[inline]
    pub fn spins(&self) -> u32 {
        self.progress.spins()
    }

    /// Delivers arrivals and completes finished operations; returns whether there were any. Of several consecutive
    /// calls that find nothing, one checks the peers, as a wait does.
    ///
    /// # Errors
    /// `Protocol`, `PeerLost`, `InCallback`, or the error of a completion handler.
    #[inline]
    pub fn progress(&self) -> Result<bool> {
        self.progress_of("progress")
    }

    /// Same as [`progress`](Self::progress), for a caller that tests: with more ranks than cores it yields now and
    /// then, so that a program that tests in a loop does not keep the core from another rank.
    ///
    /// # Errors
    /// Those of [`progress`](Self::progress).
    #[inline]
    pub fn progress_of_test(&self) -> Result<bool> {
        let any = self.progress()?;
        if !any {
            self.progress.yield_occasionally();
        }
        Ok(any)
    }

    /// Same as [`progress`](Self::progress), in `operation`, which an error of the check names.
    #[inline]
    pub(crate) fn progress_of(&self, operation: &'static str) -> Result<bool> {
        self.outside(operation)?;
        let any = self.turn(1)?;
        if any {
            self.futures.note_progress();
        } else if self.progress.is_due() {
            self.progress.check_peers(operation, self.device(), None)?;
            self.checked(&|| Awaited::unknown(operation))?;
        }
        Ok(any)
    }

    fn above(&self) -> Option<Rc<dyn MessageLayer>> {
        self.above.upgrade()
    }

    /// Polls the device, and lets the layer above advance, with at most `later` deferred completions running.
    #[inline]
    fn turn(&self, later: u32) -> Result<bool> {
        let Some(above) = self.above() else { return Ok(false) };
        let (mut failed, mut panicked) = (None, None);
        // A panic of a handler is resumed after the poll: the device delivers its other events first.
        let any = self.device.poll(&mut |event| {
            let delivered = match event {
                Event::Packet { source, bytes } => self.in_handler(|| above.deliver(source, bytes)),
                Event::LongPacket { source, packet } => self.in_handler(|| above.deliver_in_place(source, &packet)),
                Event::Completed { id, result } => return self.completed(id, result),
            };
            match delivered {
                Ok(Ok(())) => {}
                Ok(Err(e)) => _ = failed.get_or_insert(e),
                Err(panic) => _ = panicked.get_or_insert(panic),
            }
        });
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
        let any = any?;
        if let Some(e) = failed {
            return Err(e);
        }
        Ok(above.advance(later)? || any)
    }

    /// Delivers a packet, and catches a panic of its handler.
    #[inline(always)]
    fn in_handler(&self, deliver: impl FnOnce() -> Result<()>) -> std::thread::Result<Result<()>> {
        let _inside = self.inside(Callback::Handler);
        catch_unwind(AssertUnwindSafe(deliver))
    }

    /// Called once for each check of the peers: fails if a body in which this rank is has failed at another rank, and
    /// passes the number of checks to the layer above.
    fn checked(&self, awaited: &dyn Fn() -> Awaited) -> Result<()> {
        self.bodies.check_in_wait()?;
        self.above().map_or(Ok(()), |above| above.wait_on(self.progress.checks(), awaited))
    }

    /// Waits until `ready` returns a value, making progress meanwhile.
    ///
    /// # Errors
    /// `PeerLost` within the time of `FARSIDE_PEER_CHECK_MS`, naming the lost rank; an error of `ready` or a handler;
    /// `Timeout` inside [`within`](Self::within); `InCallback`.
    pub fn wait<R>(&self, reason: impl WaitReason, mut ready: impl FnMut() -> Result<Option<R>>) -> Result<R> {
        if self.order.refuses() {
            self.outside(reason.awaited().operation)?;
        }
        // A condition that is already true, or about to be, does not cost the setup of a wait.
        for _ in 0..=self.progress.spins() / 4 {
            if let Some(r) = ready()? {
                return Ok(r);
            }
            if !self.turn(MAX_DEPTH)? {
                progress::pace(Pace::NEXT);
            }
        }
        let awaited: &dyn Fn() -> Awaited = &|| reason.awaited();
        let operation = awaited().operation;
        self.running(operation)?;
        let wanted = || self.wait_hook.get().filter(|hook| (hook.is_wanted)());
        let may_sleep = || {
            let blocked = || !reason.is_notified() || self.above().is_some_and(|above| above.is_blocked());
            match wanted() {
                Some(_) => MaySleep::No,
                None if blocked() => MaySleep::Briefly,
                None => MaySleep::UntilEvent,
            }
        };
        let wait = |look: &dyn Fn()| {
            let turn = || {
                if let Some(hook) = wanted() {
                    self.with_deadline(None, hook.pause);
                }
                let checks = self.progress.checks();
                if self.answered.replace(checks) != checks {
                    self.checked(awaited)?;
                    self.answer_launcher(awaited);
                }
                let any = self.turn(MAX_DEPTH);
                look();
                any
            };
            self.progress.wait(operation, self.device(), self.deadline.get(), ready, turn, may_sleep)
        };
        let waited = match &self.watch {
            None => wait(&|| ()),
            Some(watch) => {
                watch.over(awaited, &|| self.device.now(), &|awaited, time| self.report_stall(awaited, time), wait)
            }
        };
        self.futures.disturbed();
        waited
    }

    /// Runs `f`, whose waits fail with `Timeout` once `limit`, or the limit of an enclosing call, has passed. Other
    /// threads that run in the wait hook and deferred completions have no limit. A limit that exceeds the clock's range
    /// is ignored.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn within<R>(&self, limit: Duration, f: impl FnOnce() -> Result<R>) -> Result<R> {
        let deadlines = [self.deadline.get(), self.device.now().checked_add(limit)];
        self.with_deadline(deadlines.into_iter().flatten().min(), f)
    }

    /// Runs a deferred completion without the time limit of the wait that it interrupts. While the job ends, the limit
    /// applies to it too, since the rank must end.
    pub(crate) fn outside_limit<R>(&self, f: impl FnOnce() -> R) -> R {
        self.with_deadline(self.deadline.get().filter(|_| self.left.get()), f)
    }

    /// Runs `f` with this deadline for its waits.
    fn with_deadline<R>(&self, deadline: Option<Instant>, f: impl FnOnce() -> R) -> R {
        let _before = RestoredDeadline(&self.deadline, self.deadline.replace(deadline));
        f()
    }

    /// Polls `ready` for a moment, without progress.
    #[inline]
    pub(crate) fn spin_for(&self, pace: Pace, ready: impl Fn() -> bool) -> bool {
        for _ in 0..self.progress.spins() / 4 {
            progress::pace(pace);
            if ready() {
                return true;
            }
            progress::pace(Pace::AGAIN);
        }
        false
    }

    /// Waits until `ready`, a poll of a word that one peer sets, making progress meanwhile. If the word is `mapped` at
    /// the peer, the peer sets it by a store, and the first polls are made without progress. They are spaced: a poll
    /// just before the store delays it by a transfer of the cache line. Only progress sees a word that a device sets.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    #[inline]
    pub fn wait_signal(
        &self,
        reason: impl WaitReason,
        pace: Pace,
        mapped: bool,
        ready: impl Fn() -> bool,
    ) -> Result<()> {
        if mapped && !self.order.refuses() && self.spin_for(pace, &ready) {
            return Ok(());
        }
        self.wait(reason, || Ok(ready().then_some(())))
    }

    /// Reports the operation and the rank for which this rank waits, and for how long it has waited.
    #[cold]
    fn report_stall(&self, awaited: Awaited, time: Duration) {
        let [operation, from] = self.described(awaited);
        say(format_args!("rank {}: {operation} has waited for {:.1} s for {from}", self.rank(), time.as_secs_f64()));
    }

    /// Answers the launcher, if it has asked for what this rank waits.
    #[cold]
    fn answer_launcher(&self, awaited: &dyn Fn() -> Awaited) {
        // While the rank ends, the bootstrap is borrowed, and the launcher gets no answer.
        if let Ok(mut bootstrap) = self.bootstrap.try_borrow_mut() {
            bootstrap.answer(&|| {
                let [operation, from] = self.described(awaited());
                format!("{operation} waits for {from}")
            });
        }
    }

    /// Texts of the waiting operation and the awaited rank.
    fn described(&self, awaited: Awaited) -> [String; 2] {
        let Awaited { account, operation, from, .. } = awaited;
        let of = account.map_or(String::new(), |account| format!(" of {}", self.account_name(account)));
        [format!("{operation}{of}"), from.map_or("another rank".to_owned(), |rank| format!("rank {rank}"))]
    }

    fn account_name(&self, account: Account) -> String {
        let named = self.bill().and_then(|bill| bill.named(account));
        named.map_or_else(|| account.to_string(), |name| format!("{account} {name:?}"))
    }

    /// Calls the hook in every wait of this job from now on.
    pub fn set_wait_hook(&self, hook: WaitHook) {
        self.wait_hook.set(Some(hook));
    }
}

/// Interrupts the waits of a job whose rank has several threads. They use the job one at a time, serialized by a lock
/// of the program.
#[derive(Clone, Copy, Debug)]
pub struct WaitHook {
    /// Whether another thread wants the lock: the waiting thread then does not sleep. A thread that sets this calls the
    /// device's waker afterwards.
    pub is_wanted: fn() -> bool,
    /// Called between two turns while the lock is wanted: releases it, and takes it again.
    pub pause: fn(),
}
