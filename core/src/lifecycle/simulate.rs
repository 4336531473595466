#![allow(unsafe_code)]
//! Simulations: their description, the start of their ranks, and their outcome.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use super::stacks::{self, Watched};
use super::start::{first_error, panicked, run_rank};
use crate::bootstrap::{Bootstrap, Directory, SIMULATION};
use crate::coll::selection::Rules;
use crate::device::sim::network::{Network, picoseconds};
use crate::device::sim::world::{Fiber, World};
use crate::device::sim::{Sim, Trace};
use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;
use crate::settings::Settings;
use crate::tuning;

/// A simulation: ranks on a simulated network. [`run`](Self::run) returns its outcome.
///
/// ```
/// use farside_core::Job;
/// use farside_core::sim::{Network, Simulation, Topology};
///
/// let network = Network { topology: "torus:4x4x4".parse::<Topology>()?, hop: 30.0, ..Network::default() };
/// let simulation = Simulation::new(64).seed(7).network(network);
/// let barrier = |job: &Job| job.world()?.barrier();
/// let run = simulation.run(barrier)?;
/// assert_eq!(run.results.len(), 64);
/// // The same seed is the same run, event by event.
/// assert_eq!(simulation.run(barrier)?.digest, run.digest);
/// # Ok::<(), farside_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Simulation {
    ranks: usize,
    seed: u64,
    network: Network,
    settings: Option<Settings>,
    stack: usize,
    minimal: bool,
    tuned: bool,
    slow: Vec<(usize, f64)>,
    dies: Vec<(usize, Duration)>,
    refused: Vec<(usize, usize)>,
    incoherent: bool,
    trace: Option<Trace>,
}

/// The outcome of a simulation.
#[derive(Clone, Debug)]
pub struct Simulated<R> {
    /// The results of the ranks, by rank. A rank that died has none.
    pub results: Vec<R>,
    /// Virtual time at the end of the last rank.
    pub time: Duration,
    /// Number of messages, including answers but not acknowledgements.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// Number of times that a message found no [posted receive](Network::receives).
    pub refused: u64,
    /// Number of events of messages, ranks and timers.
    pub events: u64,
    /// A digest of all events in their order: equal for equal runs.
    pub digest: u64,
}

impl Simulation {
    /// `ranks` ranks on the [default network](Network), with seed 0 and the default settings.
    #[must_use]
    pub fn new(ranks: usize) -> Self {
        Self {
            ranks,
            seed: 0,
            network: Network::default(),
            settings: None,
            stack: 1 << 20,
            minimal: false,
            tuned: false,
            slow: Vec::new(),
            dies: Vec::new(),
            refused: Vec::new(),
            incoherent: false,
            trace: None,
        }
    }

    /// Sets the number of ranks.
    pub(super) fn ranks(mut self, ranks: usize) -> Self {
        self.ranks = ranks;
        self
    }

    /// Sets the seed, which decides the order of simultaneous events, and all random delays.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the network.
    #[must_use]
    pub fn network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    /// Sets the settings. Those of the device and of the way of waiting have no effect: ranks sleep until the next
    /// event.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = Some(settings);
        self
    }

    /// Sets the size in bytes of a rank's stack: 1 MiB by default, at least 64 KiB. Pages that a rank does not access
    /// take no memory. A rank that overflows its stack ends the process by SIGSEGV, after a line on stderr that names
    /// it.
    #[must_use]
    pub fn stack(mut self, bytes: usize) -> Self {
        self.stack = bytes;
        self
    }

    /// Removes all optional features of the device: accumulates, and operations of more than one block.
    #[must_use]
    pub fn minimal(mut self) -> Self {
        self.minimal = true;
        self
    }

    /// Measures a model of the network before the ranks begin, selects collectives by it, and lets blocking calls
    /// confirm the choices by measurement, as the ranks of [`Job::init`] do. No files are written.
    #[must_use]
    pub fn tuned(mut self) -> Self {
        self.tuned = true;
        self
    }

    /// Makes the processor of a rank slower by a factor.
    #[must_use]
    pub fn slow(mut self, rank: usize, factor: f64) -> Self {
        self.slow.push((rank, factor));
        self
    }

    /// Ends a rank out of order: at its first call of the device at this virtual time or later. Its error is not
    /// reported.
    #[must_use]
    pub fn dies(mut self, rank: usize, at: Duration) -> Self {
        self.dies.push((rank, at));
        self
    }

    /// Makes one registration of memory fail at a rank, after `registrations` that succeed.
    #[must_use]
    pub fn refuses_memory(mut self, rank: usize, registrations: usize) -> Self {
        self.refused.push((rank, registrations));
        self
    }

    /// Makes atomics on 8-byte words atomic only with respect to those of the same interface, as an HCA may do: the
    /// interface holds back words that other ranks change for up to 2 us. Meanwhile the rank's processor reads their
    /// previous values, and its stores to them are lost. The interface writes the words back before a later message or
    /// answer reaches the rank, and before the rank's own atomics.
    #[must_use]
    pub fn incoherent_atomics(mut self) -> Self {
        self.incoherent = true;
        self
    }

    /// Records the last messages in `trace`.
    #[must_use]
    pub fn trace(mut self, trace: &Trace) -> Self {
        self.trace = Some(trace.clone());
        self
    }

    /// Runs `f` as the ranks of the simulation, all of them on this thread.
    ///
    /// # Errors
    /// Those of [`Job::threads`]; `BadArgument` for a network that does not fit; `Timeout` if nothing happens for 100 s
    /// of virtual time, which means a deadlock. Each error names the seed. A rank that waits for a change of its own
    /// memory without a call of the runtime blocks all other ranks, and hangs.
    pub fn run<R>(&self, f: impl Fn(&Job) -> Result<R>) -> Result<Simulated<R>> {
        let results: RefCell<Vec<Option<R>>> = RefCell::new((0..self.ranks).map(|_| None).collect());
        let world = self.run_ranks(&|job| {
            let result = f(job)?;
            results.borrow_mut()[job.rank()] = Some(result);
            Ok(())
        })?;
        let counters = world.counters.get();
        let last = (0..self.ranks as u32).map(|rank| world.clock(rank)).max().unwrap_or(0);
        Ok(Simulated {
            results: results.into_inner().into_iter().flatten().collect(),
            time: Duration::from_nanos(last / 1000),
            messages: counters.messages,
            bytes: counters.bytes,
            refused: world.receives.refusals(),
            events: counters.events,
            digest: counters.digest,
        })
    }

    /// [`run`](Self::run) without the result type.
    fn run_ranks(&self, f: &dyn Fn(&Job) -> Result<()>) -> Result<Rc<World>> {
        let bad = |cause: String| Error::new(ErrorKind::BadArgument, "simulate").cause(cause);
        let ranks = u32::try_from(self.ranks).map_err(|_| bad(format!("{} ranks", self.ranks)))?;
        self.network.check(ranks)?;
        let settings = match &self.settings {
            Some(settings) => settings.clone(),
            None => Settings::from_lookup(|_| None)?,
        };
        let settings = settings.parking();
        let world = Rc::new(World::new(ranks, self.seed, self.network.clone()));
        world.incoherent.set(self.incoherent);
        world.trace.replace(self.trace.clone());
        let rank = |rank: usize| {
            world
                .ranks
                .get(rank)
                .ok_or_else(|| bad(format!("rank {rank} is out of range: the simulation has {ranks} ranks")))
        };
        for (slow, factor) in &self.slow {
            if !(factor.is_finite() && *factor > 0.0) {
                return Err(bad(format!("the slowdown factor {factor} of rank {slow} must be finite and above 0")));
            }
            rank(*slow)?.slowness.set(*factor);
        }
        for (dies, at) in &self.dies {
            rank(*dies)?.dies.set(Some(picoseconds(at.as_nanos() as f64)));
        }
        self.refused.iter().try_for_each(|(refused, _)| rank(*refused).map(drop))?;
        let outcomes: RefCell<Vec<Result<()>>> = RefCell::new((0..ranks).map(|_| Ok(())).collect());
        let guards = RefCell::new(Vec::with_capacity(self.ranks));
        let fibers = (0..ranks).map(|me| {
            let stack = stacks::stack(me, self.stack)?;
            guards.borrow_mut().push(stacks::guard(&stack));
            let (world, settings, outcomes) = (&world, &settings, &outcomes);
            let refused = self.refused.iter().find(|(rank, _)| *rank == me as usize).map(|(_, after)| *after);
            let body = move |yielder: &corosensei::Yielder<(), ()>, ()| {
                world.begin(me, yielder);
                let start = |bootstrap: Box<dyn Bootstrap>| {
                    let device = Sim::new(world, me, self.minimal, refused);
                    let job = Job::start_alone(bootstrap, settings.clone(), Box::new(device))?;
                    if self.tuned {
                        let model = tuning::measured(&job)?.map(|models| models.p_log_p().clone());
                        job.calls().tuning.begin(Rules::default(), model);
                    }
                    Ok(job)
                };
                let bootstrap = Box::new(SimBootstrap { me, world: Rc::clone(world), finalized: false });
                let outcome = catch_unwind(AssertUnwindSafe(|| run_rank(bootstrap, &start, f)));
                let outcome = outcome.unwrap_or_else(|panic| Err(panicked(me as usize, panic)));
                outcomes.borrow_mut()[me as usize] = outcome;
            };
            // SAFETY: the coroutines end or are dropped before this function returns.
            Ok(Some(unsafe { Fiber::with_stack_unchecked(stack, body) }))
        });
        let fibers = fibers.collect::<Result<Vec<_>>>()?;
        let watched = Watched::new(self.seed, self.stack, guards.into_inner());
        let _watched = watched.inspect_err(|e| tracing::warn!("stack overflows will not be reported: {e}"));
        world.run(fibers);
        let mut outcomes = outcomes.into_inner();
        for (dead, _) in self.dies.iter().filter(|(dead, _)| world.ranks[*dead].died.get()) {
            outcomes[*dead] = Ok(());
        }
        let seed = self.seed;
        first_error(outcomes).map_err(|e| e.because(&format!("seed {seed} of a simulation of {ranks} ranks")))?;
        Ok(world)
    }
}

/// The exchange of the ranks of a simulation. A fence takes no time: all clocks are then set to that of the last rank.
struct SimBootstrap {
    me: u32,
    world: Rc<World>,
    finalized: bool,
}

impl Bootstrap for SimBootstrap {
    fn kind(&self) -> &'static str {
        SIMULATION
    }

    fn rank(&self) -> u32 {
        self.me
    }

    fn size(&self) -> u32 {
        self.world.ranks.len() as u32
    }

    fn job_id(&self) -> &str {
        "simulation"
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        self.world.exchange().pending.insert(key.to_owned(), value.to_vec());
        Ok(())
    }

    fn fence(&mut self) -> Result<()> {
        self.world.fence(self.me)
    }

    fn get(&mut self, key: &str) -> Result<Vec<u8>> {
        let value = self.world.exchange().visible.get(key).cloned();
        value.ok_or_else(|| crate::bootstrap::no_such_key("bootstrap get", key))
    }

    fn directory(&self) -> Option<Directory> {
        Some(self.world.directory.clone())
    }

    fn finalize(&mut self) -> Result<()> {
        self.finalized = true;
        self.world.end_exchange(Some((self.me, "the peer has finalized and enters no further fence")));
        Ok(())
    }

    fn abort(&mut self, code: i32, reason: &str) {
        tracing::error!("rank {} aborts the job with code {code}: {reason}", self.me);
        self.world.lose(self.me);
    }
}

impl Drop for SimBootstrap {
    fn drop(&mut self) {
        if !self.finalized {
            self.world.end_exchange(Some((self.me, "the peer ended without finalizing")));
        }
    }
}
