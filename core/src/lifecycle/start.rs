//! How a rank starts: as a process, as a thread, or on a device of the caller.

use std::any::Any;
use std::sync::{Mutex, PoisonError};

use crate::am::ActiveMessages;
use crate::bill::trace::Trace;
use crate::bootstrap::{Bootstrap, SIMULATION, detect, threads};
use crate::cache;
use crate::calibration;
use crate::callback::message_of;
use crate::coll::execute::{self, Calls};
use crate::coll::selection::Rules;
use crate::device::{Device, Leave, PeerCheck, fault};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;
use crate::lifecycle::end::check_files;
use crate::mistyped;
use crate::processors::Sharing;
use crate::service::{self, open::open};
use crate::settings::Settings;
use crate::tuning;
use crate::two_sided::{self, Room, TwoSided};

/// Number of ranks on this rank's node; all ranks if the device does not know the nodes.
fn ranks_here(device: &dyn Device, rank: u32, size: u32) -> u64 {
    let capabilities = device.capabilities();
    let nodes = &capabilities.nodes;
    match (capabilities.node.len(), nodes.get(rank as usize)) {
        (0, None) => size.into(),
        (0, Some(own)) => nodes.iter().filter(|node| *node == own).count() as u64,
        (ranks, _) => ranks as u64,
    }
}

/// Starts a rank that is a thread.
type Start<'a> = dyn Fn(Box<dyn Bootstrap>) -> Result<Job> + Sync + 'a;

/// Publishes the processor of this rank and the reports that it makes; rank 0 checks that it can write them.
pub(super) fn publish(bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<()> {
    if bootstrap.rank() == 0 {
        check_files(settings)?;
    }
    Sharing::publish(bootstrap, settings.reports())
}

/// Reads the settings, and connects this process with its launcher.
pub(super) fn connect() -> Result<(Box<dyn Bootstrap>, Settings)> {
    let mut settings = Settings::from_env()?;
    let bootstrap = detect::connect(settings.timeout())?;
    if bootstrap.rank() == 0 {
        mistyped::warn();
    }
    if let Some(level) = settings.log {
        #[cfg(feature = "log")]
        crate::log::show(level, bootstrap.rank());
        #[cfg(not(feature = "log"))]
        return Err(Error::new(ErrorKind::Unsupported, "read the settings")
            .cause(format!("FARSIDE_LOG={level}, but this program was built without the feature `log`"))
            .remedy("build farside-core with the feature `log`, or install a tracing subscriber"));
    }
    cache::check(&mut settings, bootstrap.rank());
    Ok((bootstrap, settings))
}

impl Job {
    /// Starts this process as a rank of the launcher's job; without a launcher as rank 0 of 1. Collective.
    ///
    /// ```
    /// use farside_core::Job;
    ///
    /// fn main() -> farside_core::Result<()> {
    ///     let job = Job::init()?;
    ///     job.world()?.barrier()?;
    ///     println!("rank {} of {}", job.rank(), job.size());
    ///     job.finalize()
    /// }
    /// ```
    ///
    /// # Errors
    /// `Launcher` when the launcher cannot be used, `Setting`, `SharedMemoryFull`, `PeerLost`, `Unsupported` when the
    /// ranks are on several nodes and no device connects them.
    pub fn init() -> Result<Self> {
        let (mut bootstrap, settings) = connect()?;
        let file = tuning::publish(&mut *bootstrap, &settings)?;
        let job = Self::start(bootstrap, settings)?;
        calibration::agree(&job, file)?;
        tuning::begin(&job)?;
        Ok(job)
    }

    /// Starts a rank on a given bootstrap. Collective.
    ///
    /// # Errors
    /// Those of [`init`](Self::init).
    pub fn start(mut bootstrap: Box<dyn Bootstrap>, settings: Settings) -> Result<Self> {
        let user = tuning::user_rules(&settings)?;
        publish(&mut *bootstrap, &settings)?;
        let device = open(&mut *bootstrap, &settings)?;
        let sharing = Sharing::collect(&mut *bootstrap)?;
        Self::with_device(bootstrap, settings, user, device, sharing)
    }

    /// Starts a rank on a device that connects it with all ranks of the bootstrap. Collective.
    ///
    /// # Errors
    /// `Setting`, `PeerLost`, `Launcher`.
    pub(crate) fn start_on(
        mut bootstrap: Box<dyn Bootstrap>,
        settings: Settings,
        device: Box<dyn Device>,
    ) -> Result<Self> {
        let user = tuning::user_rules(&settings)?;
        publish(&mut *bootstrap, &settings)?;
        bootstrap.fence()?;
        let sharing = Sharing::collect(&mut *bootstrap)?;
        Self::with_device(bootstrap, settings, user, device, sharing)
    }

    /// Like [`start_on`](Self::start_on), for jobs in which each rank has its own processor.
    pub(crate) fn start_alone(
        mut bootstrap: Box<dyn Bootstrap>,
        settings: Settings,
        device: Box<dyn Device>,
    ) -> Result<Self> {
        let user = tuning::user_rules(&settings)?;
        if bootstrap.rank() == 0 {
            check_files(&settings)?;
        }
        bootstrap.fence()?;
        Self::with_device(bootstrap, settings, user, device, (Sharing { ranks: 1, processors: 1 }, false))
    }

    /// Starts a rank on an open device, whose ranks have exchanged all values through the bootstrap.
    pub(super) fn on_open(
        bootstrap: Box<dyn Bootstrap>,
        settings: Settings,
        device: Box<dyn Device>,
        sharing: (Sharing, bool),
    ) -> Result<Self> {
        Self::with_device(bootstrap, settings, Rules::default(), device, sharing)
    }

    /// Starts a rank on an open device, after a fence.
    fn with_device(
        bootstrap: Box<dyn Bootstrap>,
        settings: Settings,
        user: Rules,
        device: Box<dyn Device>,
        (sharing, oversubscribed_node): (Sharing, bool),
    ) -> Result<Self> {
        let (rank, size) = (bootstrap.rank(), bootstrap.size());
        let device = service::with_updates(service::with_order(device, rank));
        let device = fault::wrap(device, &settings.test_fault, rank, two_sided::tag_at)?;
        let calls = Calls::new(user);
        let am = ActiveMessages::default();
        execute::register(&am, &calls)?;
        let is_simulated = bootstrap.kind() == SIMULATION;
        let trace = settings.trace.is_some().then(|| Trace::new(size, device.now(), is_simulated));
        let room = if is_simulated { Room::Fixed } else { Room::Machine { ranks: ranks_here(&*device, rank, size) } };
        let two_sided = TwoSided::register(&am, (rank, size), room, trace.clone())?;
        let oversubscribed = [sharing.is_oversubscribed(), oversubscribed_node];
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
        let engine = |above| Engine::new(bootstrap, settings, device, oversubscribed, trace, above);
        Ok(Self::new(engine, am, two_sided, Box::new(calls)))
    }

    /// Runs `f` as `n` ranks, each a thread of this process, and returns their results, by rank. A rank that fails or
    /// panics ends; the others get `PeerLost` when they communicate with it.
    ///
    /// ```
    /// use farside_core::{ErrorKind, Job};
    ///
    /// let ranks = Job::threads(2, |job| Ok(job.rank()))?;
    /// assert_eq!(ranks, [0, 1]);
    /// // The error of one rank is that of the call.
    /// let failed = Job::threads(2, |job| job.world()?.job_rank(if job.rank() == 1 { 7 } else { 0 }));
    /// assert_eq!(failed.unwrap_err().kind(), ErrorKind::NoSuchRank);
    /// # Ok::<(), farside_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of the lowest rank that failed with an error other than `PeerLost`; if none did, the lowest rank's
    /// `PeerLost`.
    pub fn threads<R: Send>(n: usize, f: impl Fn(&Job) -> Result<R> + Sync) -> Result<Vec<R>> {
        Self::threads_with(n, &Settings::from_env()?, f)
    }

    /// Runs `f` as `n` ranks that are threads ([`threads`](Self::threads)), with given settings.
    ///
    /// ```
    /// use farside_core::Job;
    /// use farside_core::settings::Settings;
    ///
    /// let settings = Settings::from_lookup(|name| (name == "FARSIDE_WAIT").then(|| "park".to_owned()))?;
    /// Job::threads_with(2, &settings, |job| job.world()?.barrier())?;
    /// # Ok::<(), farside_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of the lowest rank that failed with an error other than `PeerLost`; if none did, the lowest rank's
    /// `PeerLost`.
    pub fn threads_with<R: Send>(
        n: usize,
        settings: &Settings,
        f: impl Fn(&Job) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        Self::threads_by(n, &|bootstrap| Job::start(bootstrap, settings.clone()), f)
    }

    /// Runs `f` as `n` ranks that are threads ([`threads`](Self::threads)), each on the device that `device` returns
    /// for its number. It is for devices that connect threads.
    ///
    /// # Errors
    /// The error of the lowest rank that failed with an error other than `PeerLost`; if none did, the lowest rank's
    /// `PeerLost`.
    pub fn threads_on<R: Send>(
        n: usize,
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

    fn threads_by<R: Send>(n: usize, start: &Start<'_>, f: impl Fn(&Job) -> Result<R> + Sync) -> Result<Vec<R>> {
        let results: Vec<Mutex<Option<R>>> = (0..n).map(|_| Mutex::new(None)).collect();
        Self::run_threads(n, start, &|job| {
            let result = f(job)?;
            *results[job.rank()].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            Ok(())
        })?;
        let result = |slot: Mutex<Option<R>>| slot.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(results.into_iter().filter_map(result).collect())
    }

    /// [`threads_with`](Self::threads_with) without the result type, so that it is compiled once.
    fn run_threads(n: usize, start: &Start<'_>, f: &(dyn Fn(&Job) -> Result<()> + Sync)) -> Result<()> {
        let results: Vec<Result<()>> = std::thread::scope(|scope| {
            let ranks: Vec<_> = threads::threads(n)
                .into_iter()
                .map(|bootstrap| scope.spawn(move || run_rank(Box::new(bootstrap), start, f)))
                .collect();
            let joined = |(rank, t): (usize, std::thread::ScopedJoinHandle<'_, Result<()>>)| {
                t.join().unwrap_or_else(|panic| Err(panicked(rank, panic)))
            };
            ranks.into_iter().enumerate().map(joined).collect()
        });
        first_error(results)
    }
}

/// Runs `f` as a rank of one thread among several ranks.
pub(crate) fn run_rank(
    bootstrap: Box<dyn Bootstrap>,
    start: &dyn Fn(Box<dyn Bootstrap>) -> Result<Job>,
    f: &dyn Fn(&Job) -> Result<()>,
) -> Result<()> {
    let job = start(bootstrap)?;
    let rank = RunningRank(&job);
    // A rank that detects the loss of this rank reports the loss that caused it, even one that another rank reported.
    f(&job).inspect_err(|e| {
        if e.kind() == ErrorKind::PeerLost {
            let _ = job.device().check_peers(PeerCheck::Met(e));
        }
    })?;
    job.finalize()?;
    drop(rank);
    Ok(())
}

/// The error of a rank that panicked.
pub(crate) fn panicked(rank: usize, panic: Box<dyn Any + Send>) -> Error {
    Error::new(ErrorKind::Aborted, "run a rank's closure")
        .rank(rank)
        .cause(format!("the rank's closure panicked: {}", message_of(panic)))
}

/// The first error that is not the loss of a peer; if there is none, the first error.
pub(crate) fn first_error(results: Vec<Result<()>>) -> Result<()> {
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

/// A rank that is a thread. On drop, the other ranks are informed of its end, unless it has left in order.
struct RunningRank<'a>(&'a Job);

impl Drop for RunningRank<'_> {
    fn drop(&mut self) {
        // This also runs after an orderly end that failed half-way; it has no effect on a rank that has left.
        let _ = self.0.device().leave(Leave::Lost);
        *self.0.stored_world().borrow_mut() = None;
    }
}
