//! A job as one rank sees it: start-up, rank and size, the device, waiting, orderly end.
//!
//! A rank is one thread: `Job` is neither `Send` nor `Sync`. Ranks may be processes ([`Job::init`]) or threads
//! of one process ([`Job::threads`]), with the same code below.

mod requests;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::am::{self, ActiveMessages};
use crate::bootstrap::{Bootstrap, detect, threads};
use crate::coll::{self, Mailbox};
use crate::device::open::open;
use crate::device::{Device, Event, Leave, fault};
use crate::entered::Entered;
use crate::error::{Error, ErrorKind, Result};
use crate::order::StoreOrder;
use crate::processors::Sharing;
use crate::progress::Progress;
use crate::service::steps::Steps;
use crate::settings::Settings;
use crate::signal::{self, Pace};
use crate::stats::Snapshot;
use crate::team::Team;
use crate::tracked::Tracked;

pub use requests::{CancelOnDrop, Track};

/// A job, as one of its ranks. Clones are the same rank.
#[derive(Clone, Debug)]
pub struct Job(Rc<Inner>);

/// How a rank that is a thread starts.
type Start<'a> = dyn Fn(Box<dyn Bootstrap>) -> Result<Job> + Sync + 'a;

struct Inner {
    rank: u32,
    size: u32,
    settings: Settings,
    device: Box<dyn Device>,
    bootstrap: RefCell<Box<dyn Bootstrap>>,
    progress: Progress,
    order: StoreOrder,
    am: ActiveMessages,
    mailbox: Rc<Mailbox>,
    tracked: RefCell<Tracked>,
    next_context: Cell<u32>,
    world: RefCell<Option<Team>>,
    running_later: Cell<bool>,
    acknowledging: Cell<bool>,
    left: Cell<bool>,
    /// Of every wait, while the job ends.
    deadline: Cell<Option<Instant>>,
    ended: Cell<bool>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("rank", &self.rank).field("size", &self.size).finish_non_exhaustive()
    }
}

impl Job {
    /// Starts this process as a rank, as the launcher says; without a launcher as rank 0 of 1. Collective.
    ///
    /// # Errors
    /// `Launcher` when started by one that cannot be used, `Setting`, `SharedMemoryFull`, `PeerLost`,
    /// `Unsupported` when the ranks are on several nodes and there is no device between them.
    pub fn init() -> Result<Self> {
        let settings = Settings::from_env()?;
        let bootstrap = detect::connect(Duration::from_secs(u64::from(settings.timeout_s)))?;
        if let Some(level) = settings.log {
            #[cfg(feature = "log")]
            crate::log::show(level, bootstrap.rank());
            #[cfg(not(feature = "log"))]
            return Err(Error::new(ErrorKind::Unsupported, "read the settings")
                .cause(format!("FARSIDE_LOG={level}, and this program was built without the feature `log`"))
                .remedy("build farside-core with it, or install a tracing subscriber"));
        }
        Self::start(bootstrap, settings)
    }

    /// Starts a rank on a given bootstrap. Collective.
    ///
    /// # Errors
    /// As [`init`](Self::init).
    pub fn start(mut bootstrap: Box<dyn Bootstrap>, settings: Settings) -> Result<Self> {
        Sharing::publish(&mut *bootstrap)?;
        let device = open(&mut *bootstrap, &settings)?;
        Self::with_device(bootstrap, settings, device)
    }

    /// Starts a rank on a device that connects it with all ranks of the bootstrap. Collective.
    ///
    /// # Errors
    /// `Setting`, `PeerLost`, `Launcher`.
    pub fn start_on(mut bootstrap: Box<dyn Bootstrap>, settings: Settings, device: Box<dyn Device>) -> Result<Self> {
        Sharing::publish(&mut *bootstrap)?;
        bootstrap.fence()?;
        Self::with_device(bootstrap, settings, device)
    }

    /// A rank whose device is open, after a fence.
    fn with_device(mut bootstrap: Box<dyn Bootstrap>, settings: Settings, device: Box<dyn Device>) -> Result<Self> {
        let (rank, size) = (bootstrap.rank(), bootstrap.size());
        let sharing = Sharing::collect(&mut *bootstrap)?;
        let device = if device.capabilities().accumulate { device } else { Box::new(Steps::over(device, rank)) };
        let device = fault::wrap(device, &settings.fault)?;
        let mailbox = Rc::new(Mailbox::default());
        let am = ActiveMessages::default();
        coll::register(&am, &mailbox)?;
        let progress = Progress::new(&settings, sharing.is_crowded(), device.capabilities().mapped);
        let Sharing { ranks, processors } = sharing;
        tracing::debug!(
            rank,
            size,
            by = bootstrap.kind(),
            device = device.capabilities().name,
            ranks,
            processors,
            "started"
        );
        Ok(Self(Rc::new(Inner {
            rank,
            size,
            settings,
            device,
            bootstrap: RefCell::new(bootstrap),
            progress,
            order: StoreOrder::default(),
            am,
            mailbox,
            tracked: RefCell::default(),
            next_context: Cell::new(1),
            world: RefCell::new(None),
            running_later: Cell::new(false),
            acknowledging: Cell::new(false),
            left: Cell::new(false),
            deadline: Cell::new(None),
            ended: Cell::new(false),
        })))
    }

    /// Runs `f` as `n` ranks, each a thread of this process, and returns what they return, by rank. A rank
    /// that fails or panics ends; the others get `PeerLost` when they need it.
    ///
    /// # Errors
    /// The error of the lowest rank that failed by itself, rather than for want of another.
    pub fn threads<R: Send>(n: u32, f: impl Fn(&Job) -> Result<R> + Sync) -> Result<Vec<R>> {
        Self::threads_with(n, &Settings::from_env()?, f)
    }

    /// As [`threads`](Self::threads), with given settings.
    ///
    /// # Errors
    /// As [`threads`](Self::threads).
    pub fn threads_with<R: Send>(n: u32, settings: &Settings, f: impl Fn(&Job) -> Result<R> + Sync) -> Result<Vec<R>> {
        Self::threads_by(n, &|bootstrap| Job::start(bootstrap, settings.clone()), f)
    }

    /// As [`threads_with`](Self::threads_with), each rank on the device that `device` makes of its number: for devices that
    /// connect threads.
    ///
    /// # Errors
    /// As [`threads`](Self::threads).
    pub fn threads_on<R: Send>(
        n: u32,
        settings: &Settings,
        device: impl Fn(u32) -> Result<Box<dyn Device>> + Sync,
        f: impl Fn(&Job) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let start = |bootstrap: Box<dyn Bootstrap>| {
            let device = device(bootstrap.rank())?;
            Job::start_on(bootstrap, settings.clone(), device)
        };
        Self::threads_by(n, &start, f)
    }

    fn threads_by<R: Send>(n: u32, start: &Start<'_>, f: impl Fn(&Job) -> Result<R> + Sync) -> Result<Vec<R>> {
        let results: Vec<Mutex<Option<R>>> = (0..n).map(|_| Mutex::new(None)).collect();
        Self::run_threads(n, start, &|job| {
            let result = f(job)?;
            *results[job.rank() as usize].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            Ok(())
        })?;
        let result = |slot: Mutex<Option<R>>| slot.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(results.into_iter().filter_map(result).collect())
    }

    /// [`threads_with`](Self::threads_with) for any result, compiled once.
    fn run_threads(n: u32, start: &Start<'_>, f: &(dyn Fn(&Job) -> Result<()> + Sync)) -> Result<()> {
        let results: Vec<Result<()>> = std::thread::scope(|scope| {
            let ranks: Vec<_> = threads::threads(n)
                .into_iter()
                .map(|bootstrap| {
                    scope.spawn(move || {
                        let job = start(Box::new(bootstrap))?;
                        let rank = RunningRank(&job);
                        f(&job)?;
                        job.finalize()?;
                        drop(rank);
                        Ok(())
                    })
                })
                .collect();
            ranks
                .into_iter()
                .enumerate()
                .map(|(rank, t)| {
                    t.join().unwrap_or_else(|panic| {
                        let text = panic.downcast_ref::<String>().cloned();
                        let text =
                            text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default();
                        Err(Error::new(ErrorKind::Aborted, "run a rank")
                            .rank(rank as u32)
                            .cause(format!("it panicked: {text}")))
                    })
                })
                .collect()
        });
        let mut lost = None;
        for r in results {
            match r {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::PeerLost => lost = lost.or(Some(e)),
                Err(e) => return Err(e),
            }
        }
        lost.map_or(Ok(()), Err)
    }

    /// This rank, from 0.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.0.rank
    }

    /// The number of ranks.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.0.size
    }

    /// What started this rank.
    #[must_use]
    pub fn started_by(&self) -> &'static str {
        self.0.bootstrap.borrow().kind()
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// The team of all ranks. The first call is collective.
    ///
    /// # Errors
    /// As [`Team::split`].
    pub fn world(&self) -> Result<Team> {
        if let Some(world) = &*self.0.world.borrow() {
            return Ok(world.clone());
        }
        let world = Team::world(self)?;
        // Kept until the end of the job: it holds the job in turn, and `end` takes it out again.
        *self.0.world.borrow_mut() = Some(world.clone());
        Ok(world)
    }

    /// The device.
    #[must_use]
    #[inline]
    pub fn device(&self) -> &dyn Device {
        &*self.0.device
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
    pub fn active_messages(&self) -> &ActiveMessages {
        &self.0.am
    }

    /// The counters of this rank.
    #[must_use]
    pub fn stats(&self) -> Snapshot {
        self.stats_by_device().iter().fold(Snapshot::default(), |all, (_, one)| all.merged(one))
    }

    /// The same by device: more than one where ranks of one node share memory and others are reached by a card.
    #[must_use]
    pub fn stats_by_device(&self) -> Vec<(&'static str, Snapshot)> {
        self.0.device.counters()
    }

    pub(crate) fn mailbox(&self) -> &Mailbox {
        &self.0.mailbox
    }

    /// The next team context that is free at this rank.
    pub(crate) fn next_context(&self) -> &Cell<u32> {
        &self.0.next_context
    }

    /// How often to look at something that is about to come before waiting for it: 0 where ranks outnumber cores.
    #[must_use]
    #[inline]
    pub fn burst(&self) -> u32 {
        self.0.progress.burst()
    }

    /// Delivers what has come and finishes what is done; returns whether anything was.
    ///
    /// # Errors
    /// `Protocol`, `PeerLost`, or what a completion handler fails with.
    pub fn progress(&self) -> Result<bool> {
        let inner = &*self.0;
        let mut failed = None;
        let any = inner.device.poll(&mut |event| {
            let r = match event {
                Event::Packet { source, bytes } => inner.am.dispatch(source, bytes),
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
        if inner.am.is_quiet() { Ok(any) } else { Ok(self.carry_out()? || any) }
    }

    /// Sends what acknowledgements are owed and runs what was put off; whether there was any.
    #[inline(never)]
    fn carry_out(&self) -> Result<bool> {
        let inner = &*self.0;
        let mut any = self.acknowledge()?;
        // Deferred completions may send and wait, and so come back here: one level is enough.
        if let Some(_entered) = Entered::new(&inner.running_later) {
            while let Some(f) = inner.am.next_deferred() {
                any = true;
                f(self)?;
                self.acknowledge()?;
            }
        }
        Ok(any)
    }

    /// Sends the acknowledgements that are owed. Sending may come back here for want of room: then the call
    /// further out goes on with the rest.
    fn acknowledge(&self) -> Result<bool> {
        let mut any = false;
        if !self.0.am.owes() {
            return Ok(false);
        }
        if let Some(_entered) = Entered::new(&self.0.acknowledging) {
            while let Some(owed) = self.0.am.next_owed() {
                any = true;
                am::acknowledge(self, owed)?;
            }
        }
        Ok(any)
    }

    /// Waits until `ready` gives a value, making progress meanwhile.
    ///
    /// # Errors
    /// `PeerLost` within the time of `FARSIDE_PEER_CHECK_MS`, naming the rank that is gone; what `ready` or a
    /// handler fails with.
    pub fn wait<R>(&self, operation: &'static str, mut ready: impl FnMut() -> Result<Option<R>>) -> Result<R> {
        // What is ready, or nearly, costs no entry and no exit.
        for _ in 0..=self.0.progress.burst() / 4 {
            if let Some(r) = ready()? {
                return Ok(r);
            }
            if !self.progress()? {
                signal::pace(Pace::NEXT);
            }
        }
        self.wait_until(operation, None, ready)
    }

    /// Waits until `ready`, a look at a word that one peer sets, making progress meanwhile. Looks are spaced: one that
    /// comes just before the peer's store makes that store wait for the line to come back.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    #[inline]
    pub fn wait_signal(&self, operation: &'static str, pace: Pace, ready: impl Fn() -> bool) -> Result<()> {
        // Where the cell is not mapped only a poll sees the signal.
        let looks = if self.0.device.capabilities().mapped { self.0.progress.burst() / 4 } else { 0 };
        for _ in 0..looks {
            signal::pace(pace);
            if ready() {
                return Ok(());
            }
        }
        self.wait_until(operation, None, || Ok(ready().then_some(())))
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
        self.running(operation)?;
        let deadline = deadline.or(self.0.deadline.get());
        self.0.progress.wait(operation, self.device(), deadline, ready, || self.progress())
    }

    /// Fails once the job has ended: then nobody answers any more.
    ///
    /// # Errors
    /// `Freed`.
    pub(crate) fn running(&self, operation: &'static str) -> Result<()> {
        if !self.0.ended.get() {
            return Ok(());
        }
        let e = Error::new(ErrorKind::Freed, operation).rank(self.0.rank);
        Err(e.cause("the job has been finalized").remedy("finalize the job when everything else is done"))
    }

    /// Ends this rank in order, after all others have come here too. Collective; windows are freed before, and what
    /// needs other ranks fails afterwards.
    ///
    /// # Errors
    /// `Timeout` if others do not come here within `FARSIDE_TIMEOUT_S`; `PeerLost`, `Launcher`.
    pub fn finalize(&self) -> Result<()> {
        if self.0.left.replace(true) {
            return Ok(());
        }
        let limit = Duration::from_secs(u64::from(self.0.settings.timeout_s));
        self.0.deadline.set(Some(self.0.device.now() + limit));
        let met = self.world().and_then(|world| world.barrier()).and_then(|()| self.part());
        // The team holds the job; without it the device goes with the last user of the job.
        *self.0.world.borrow_mut() = None;
        self.0.ended.set(true);
        if met.is_err() {
            let _ = self.0.device.leave(Leave::Lost);
            return met;
        }
        self.0.bootstrap.borrow_mut().finalize()
    }

    /// On a network: waits until all that this rank has sent has arrived, and then for the others, so that
    /// nobody goes who may still have to answer for a packet that was lost. On shared memory a rank may have come to
    /// the barrier and failed in it: it has not ended in order, and all hear of it.
    fn part(&self) -> Result<()> {
        let device = self.device();
        device.check_peers(None)?;
        self.wait_until("finalize", None, || Ok(device.leave(Leave::InOrder)?.then_some(())))?;
        if device.capabilities().mapped { Ok(()) } else { self.0.bootstrap.borrow_mut().fence() }
    }

    /// Ends the whole job with `code`, telling the launcher why.
    pub fn abort(&self, code: i32, reason: &str) -> ! {
        self.0.bootstrap.borrow_mut().abort(code, reason);
        std::process::exit(code)
    }
}

/// A rank that is a thread: when it ends in any way without leaving, the others learn of it.
struct RunningRank<'a>(&'a Job);

impl Drop for RunningRank<'_> {
    fn drop(&mut self) {
        // Also when the orderly end has failed half-way: a rank that has left stays so.
        let _ = self.0.0.device.leave(Leave::Lost);
        *self.0.0.world.borrow_mut() = None;
    }
}
