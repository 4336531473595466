//! The agent: a thread that handles arriving data while its rank computes. It is started with the first connection that
//! this rank makes, with the first region that peers may access at any time, or when the rank first sleeps on another
//! device. Without such a region it only accepts connections, except while a connection is being made or its send
//! buffer is full.
//!
//! The agent leaves the sockets to a rank that polls, which it sees by the number of its polls, or that sleeps on them.
//! While the rank polls, the agent checks it every [`CHECK_INTERVAL`]; a rank that wakes up rings the agent's doorbell
//! if the agent sleeps for longer.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::engine::Engine;
use crate::device::Waker;
use crate::device::wait::{WakeFd, sleep};
use crate::error::{Error, Result};
use crate::stats::Stats;

/// Interval at which the agent checks whether the rank computes.
const CHECK_INTERVAL: Duration = Duration::from_micros(500);
/// Maximum sleep of the agent.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// The state that the rank and its agent share.
pub(super) struct Shared {
    engine: Mutex<Engine>,
    pub(super) epoll: Arc<OwnedFd>,
    doors: Arc<OwnedFd>,
    pub(super) rank_wake: WakeFd,
    agent_wake: WakeFd,
    /// Number of polls of the rank.
    pub(super) polls: AtomicU64,
    /// Whether the rank sleeps, or is about to.
    parked: AtomicBool,
    /// Whether the agent sleeps until its doorbell is rung: by a rank that wakes up, or by one that has work for it.
    deep: AtomicBool,
    idle: AtomicBool,
    /// Whether peers may access memory of this rank while it computes.
    serves: AtomicBool,
    stops: AtomicBool,
    /// The waker that is called at the next event, if the rank sleeps on another device.
    elsewhere: Mutex<Option<Waker>>,
    pub(super) agent_stats: Stats,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(engine: Engine) -> std::io::Result<Self> {
        Ok(Self {
            epoll: Arc::clone(&engine.epoll),
            doors: Arc::clone(&engine.doors),
            engine: Mutex::new(engine),
            rank_wake: WakeFd::new()?,
            agent_wake: WakeFd::new()?,
            polls: AtomicU64::new(0),
            parked: AtomicBool::new(false),
            deep: AtomicBool::new(false),
            idle: AtomicBool::new(false),
            serves: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            elsewhere: Mutex::new(None),
            agent_stats: Stats::default(),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the agent serve from now on.
    pub(super) fn serve(&self) {
        self.serves.store(true, Ordering::SeqCst);
        self.agent_wake.wake();
    }

    /// Rings the doorbell of an agent that has nothing to do. The caller holds the lock, and has work for the agent.
    pub(super) fn ring(&self) {
        if self.idle.swap(false, Ordering::SeqCst) {
            self.agent_wake.wake();
        }
    }

    fn elsewhere(&self) -> MutexGuard<'_, Option<Waker>> {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a poll of the rank.
    pub(super) fn count_poll(&self) {
        // Relaxed, both: only the rank writes it; an agent that reads an old value at worst serves concurrently with
        // the rank.
        self.polls.store(self.polls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Announces that the rank is about to sleep, and calls `ready`. The agent locks the engine for its work and then
    /// reads the announcement: either it wakes the rank, or `ready`, which locks the engine too, sees the result of its
    /// work. Sleeps by calling `wait` unless `ready` returns true; returns the result of `ready`.
    pub(super) fn sleep(&self, ready: impl FnOnce() -> bool, wait: impl FnOnce()) -> bool {
        self.parked.store(true, Ordering::SeqCst);
        // The agent leaves the sockets to a rank that sleeps on them.
        *self.elsewhere() = None;
        let ready = ready();
        if !ready {
            wait();
            self.rank_wake.clear();
        }
        self.parked.store(false, Ordering::SeqCst);
        if self.deep.swap(false, Ordering::SeqCst) {
            self.agent_wake.wake();
        }
        ready
    }

    /// Makes the agent call `waker` at the next event. An agent without an event since the last call still waits on the
    /// sockets.
    pub(super) fn sleep_elsewhere(&self, waker: &Waker) {
        let before = self.elsewhere().replace(Arc::clone(waker));
        if before.is_none() {
            self.agent_wake.wake();
        }
    }

    /// Wakes the rank, however it sleeps.
    fn wake_rank(&self) {
        if self.parked.load(Ordering::SeqCst) {
            self.rank_wake.wake();
        }
        let waker = self.elsewhere().take();
        if let Some(waker) = waker {
            waker();
        }
    }
}

/// The thread of the agent; dropping this ends the thread.
pub(super) struct Agent {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    pub(super) fn start(shared: &Arc<Shared>, me: u32) -> Result<Self> {
        let served = Arc::clone(shared);
        let thread = std::thread::Builder::new().name(format!("farside-tcp-{me}"));
        let thread = thread.spawn(move || run(&served)).map_err(|e| Error::system("start the agent thread", e))?;
        Ok(Self { shared: Arc::clone(shared), thread: Some(thread) })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::SeqCst);
        self.shared.agent_wake.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been reported.
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared) {
    let ring = [shared.agent_wake.as_fd()];
    let both = [shared.agent_wake.as_fd(), shared.epoll.as_fd()];
    let doors = [shared.agent_wake.as_fd(), shared.doors.as_fd()];
    let mut naps = 0u32;
    // Relaxed: an outdated value only delays the agent.
    let mut polls = shared.polls.load(Ordering::Relaxed);
    while !shared.stops.load(Ordering::SeqCst) {
        let is_away = shared.elsewhere().is_some();
        if !is_away && !shared.serves.load(Ordering::SeqCst) {
            let is_idle = {
                let engine = shared.lock();
                let is_idle = !engine.is_pending();
                shared.idle.store(is_idle, Ordering::SeqCst);
                is_idle
            };
            if is_idle {
                sleep(&doors, MAX_SLEEP * 60);
                shared.agent_wake.clear();
                let mut engine = shared.lock();
                (0..engine.listeners.len()).for_each(|listener| engine.accept(listener));
                continue;
            }
        }
        // Relaxed: as above.
        let now = shared.polls.load(Ordering::Relaxed);
        let is_parked = shared.parked.load(Ordering::SeqCst);
        if !is_away && (is_parked || now != polls) {
            polls = now;
            naps = if is_parked { naps + 1 } else { 0 };
            let is_deep = naps > 2;
            shared.deep.store(is_deep, Ordering::SeqCst);
            // The rank reads `deep` after it has announced that it is awake: it rings, or its announcement is seen
            // here.
            let sleeps_on = !is_deep || shared.parked.load(Ordering::SeqCst);
            if sleeps_on {
                sleep(&ring, if is_deep { MAX_SLEEP } else { CHECK_INTERVAL });
            }
            shared.agent_wake.clear();
            continue;
        }
        naps = 0;
        let limit = if shared.lock().timer.is_some() { CHECK_INTERVAL * 20 } else { MAX_SLEEP };
        sleep(&both, limit);
        shared.agent_wake.clear();
        // Relaxed: as above.
        if shared.polls.load(Ordering::Relaxed) != polls && !is_away {
            continue;
        }
        let any = shared.lock().turn(&shared.agent_stats);
        // An agent that has slept for long also wakes a rank that sleeps on another device, so that the rank checks its
        // peers.
        if any || is_away {
            shared.wake_rank();
        }
    }
}
