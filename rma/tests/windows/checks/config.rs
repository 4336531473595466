//! The configurations of the device over which all checks run.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use farside_rma::core::device::Device;
use farside_rma::core::device::loopback::{Hub, Loopback};
use farside_rma::core::settings::Settings;
use farside_rma::core::sim::{Network, Simulation};
use farside_rma::{Job, Result, Team};

/// The source of the memory of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Allocated by the runtime.
    Allocated,
    /// User vectors that do not end at page boundaries.
    Vector,
}

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    pub name: &'static str,
    pub memory: Memory,
    pub settings: &'static [(&'static str, &'static str)],
    /// A device that connects only threads, if the settings do not determine the device.
    pub device: Option<fn(&Arc<Hub>, u32) -> Loopback>,
    /// The seed of a simulated network with delays, losses and reordering, if the configuration runs on one.
    pub seed: Option<u64>,
}

const fn loopback(name: &'static str, memory: Memory, device: fn(&Arc<Hub>, u32) -> Loopback) -> Config {
    Config { device: Some(device), ..row(name, memory, &[]) }
}

const fn row(name: &'static str, memory: Memory, settings: &'static [(&'static str, &'static str)]) -> Config {
    Config { name, memory, settings, device: None, seed: None }
}

const fn simulated(name: &'static str, memory: Memory, seed: u64) -> Config {
    Config { seed: Some(seed), ..row(name, memory, &[]) }
}

pub(crate) const MAPPED: Config = row("mapped", Memory::Allocated, &[]);
pub(crate) const POSTED: Config = row("posted", Memory::Allocated, &[("FARSIDE_TEST_FAULT", "unmapped")]);
pub(crate) const REMAP: Config = row("remap", Memory::Vector, &[("FARSIDE_SHM_USER_MEMORY", "remap")]);
pub(crate) const AUTO: Config = row("auto", Memory::Vector, &[("FARSIDE_SHM_USER_MEMORY", "auto")]);
pub(crate) const VM: Config = row("vm", Memory::Vector, &[("FARSIDE_SHM_USER_MEMORY", "vm")]);
pub(crate) const RING: Config = row("ring", Memory::Vector, &[("FARSIDE_SHM_USER_MEMORY", "ring")]);

/// Over a network no memory is mapped, and user memory needs no further configurations.
const VERBS: &[Config] = &[
    row("network", Memory::Allocated, &[]),
    row("network, vector", Memory::Vector, &[]),
    row("network, park", Memory::Allocated, &[("FARSIDE_WAIT", "park")]),
];

/// Whether the environment selects a network (verbs, tcp, ofi), over which all configurations then run.
pub(crate) fn verbs() -> bool {
    static VERBS: LazyLock<bool> = LazyLock::new(|| {
        std::env::var("FARSIDE_DEVICE").is_ok_and(|d| matches!(&*d, "verbs" | "route" | "tcp" | "ofi"))
    });
    *VERBS
}

/// Whether updates are packets, which the target's processor serves while its rank is in the runtime: the device is ofi.
pub(crate) fn served() -> bool {
    std::env::var("FARSIDE_DEVICE").is_ok_and(|d| d == "ofi")
}

/// Whether ranks are spread over nodes, so that some share memory and others do not.
fn nodes() -> bool {
    std::env::var("FARSIDE_DEVICE").is_ok_and(|d| d == "route")
}

/// Whether this is a quick run, with fewer combinations.
pub(crate) fn quick() -> bool {
    static QUICK: LazyLock<bool> = LazyLock::new(|| std::env::var_os("FARSIDE_TEST_QUICK").is_some());
    *QUICK
}

/// Settings of the device that always come from the environment.
fn of_the_machine(name: &str) -> Option<String> {
    let device = matches!(name, "FARSIDE_DEVICE" | "FARSIDE_DEVICES" | "FARSIDE_TEST_NODES")
        || name.starts_with("FARSIDE_VERBS_")
        || name.starts_with("FARSIDE_TCP_")
        || name.starts_with("FARSIDE_OFI_");
    device.then(|| std::env::var(name).ok()).flatten()
}

/// The given configurations, or their counterparts over verbs; in a quick run over verbs only the first of them.
pub(crate) fn these(configs: &[Config]) -> Vec<Config> {
    if !verbs() {
        return configs.to_vec();
    }
    let most = if quick() { 1 } else { 2 };
    VERBS[..2].iter().filter(|v| configs.iter().any(|c| c.memory == v.memory)).take(most).copied().collect()
}

/// All configurations.
pub(crate) fn table() -> &'static [Config] {
    if verbs() { VERBS } else { TABLE }
}

/// All configurations without verbs.
pub(crate) const TABLE: &[Config] = &[
    MAPPED,
    POSTED,
    REMAP,
    AUTO,
    VM,
    RING,
    row("ring, unmapped", Memory::Vector, &[("FARSIDE_SHM_USER_MEMORY", "ring"), ("FARSIDE_TEST_FAULT", "unmapped")]),
    row("mapped, park", Memory::Allocated, &[("FARSIDE_WAIT", "park")]),
    row("posted, park", Memory::Allocated, &[("FARSIDE_TEST_FAULT", "unmapped"), ("FARSIDE_WAIT", "park")]),
    row("ring, park", Memory::Vector, &[("FARSIDE_SHM_USER_MEMORY", "ring"), ("FARSIDE_WAIT", "park")]),
    loopback("loopback", Memory::Allocated, Loopback::new),
    loopback("loopback, minimal", Memory::Vector, Loopback::minimal),
    simulated("simulated", Memory::Allocated, 1),
    simulated("simulated, vector, minimal", Memory::Vector, 2),
];

impl Config {
    /// The settings, overridden by `more`.
    pub(crate) fn settings(&self, more: &[(&str, &str)]) -> Settings {
        Settings::from_lookup(|name| {
            let all = more.iter().chain(self.settings.iter());
            all.clone().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()).or_else(|| of_the_machine(name))
        })
        .unwrap()
    }

    /// Runs `f` as `n` ranks.
    ///
    /// # Errors
    /// Any error or panic of `f`.
    pub(crate) fn run<R: Send>(&self, n: u32, f: impl Fn(&Team) -> Result<R> + Sync) -> Result<Vec<R>> {
        let (settings, hub) = (self.settings(&[]), Hub::new(n));
        if let Some(seed) = self.seed {
            let network = Network { jitter: 5000.0, reorders: true, loss: 0.02, retry: 4000.0, ..Network::default() };
            let simulation = Simulation::new(n as usize).seed(seed).network(network).settings(settings);
            let simulation = if self.memory == Memory::Vector { simulation.minimal() } else { simulation };
            return simulation.run(|job| f(&job.world()?)).map(|run| run.results);
        }
        let Some(device) = self.device else { return Job::threads_with(n as usize, &settings, |job| f(&job.world()?)) };
        let device = |rank| Ok(Box::new(device(&hub, rank)) as Box<dyn Device>);
        Job::threads_on(n as usize, &settings, device, |job| f(&job.world()?))
    }
}

/// The numbers of ranks with which checks run: all, or fewer in a quick run and on slow devices.
pub(crate) fn ranks() -> &'static [u32] {
    match (verbs(), quick()) {
        (true, _) => &[2, 3, 4],
        (false, true) => &[2, 5],
        (false, false) => &[1, 2, 3, 4, 5, 8],
    }
}

/// Runs `f` over all configurations and numbers of ranks.
pub(crate) fn everywhere(f: impl Fn(&Team, &Config) -> Result<()> + Sync + Send + Copy + 'static) {
    everywhere_with(ranks(), f);
}

/// Runs `f` over all configurations with the given numbers of ranks.
pub(crate) fn everywhere_with(ranks: &[u32], f: impl Fn(&Team, &Config) -> Result<()> + Sync + Send + Copy + 'static) {
    everywhere_of(ranks, Arc::new(f));
}

type Check = dyn Fn(&Team, &Config) -> Result<()> + Sync + Send;

/// [`everywhere_with`], compiled once.
fn everywhere_of(ranks: &[u32], f: Arc<Check>) {
    let (configs, quick) = (table(), verbs() && quick());
    // In a quick run over verbs each configuration has another number of ranks, up to four. Between nodes only jobs
    // with ranks that share memory are of interest: two ranks are two nodes, and use verbs alone.
    let pairs: Vec<(&Config, u32)> = if quick && nodes() {
        let most = *ranks.iter().max().unwrap_or(&4);
        vec![(&configs[0], 3.min(most)), (&configs[1], 4.min(most))]
    } else if quick {
        (0..configs.len().max(ranks.len()))
            .map(|i| (&configs[i % configs.len()], ranks[i % ranks.len()].min(4)))
            .collect()
    } else {
        configs.iter().flat_map(|c| ranks.iter().map(move |n| (c, *n))).collect()
    };
    for (config, n) in pairs {
        let f = f.clone();
        let result = within(60, &format!("{} with {n} ranks", config.name), move || {
            config.run(n, |team| f(team, config)).map(|_| ())
        });
        if let Err(e) = result {
            panic!("{}, {n} ranks: {e}", config.name);
        }
    }
}

/// Returns the result of `f`, or panics if it takes more than `seconds`.
pub(crate) fn within<R: Send + 'static>(seconds: u64, what: &str, f: impl FnOnce() -> R + Send + 'static) -> R {
    // An emulated machine is slower.
    let seconds = if verbs() { 10 * seconds } else { seconds };
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _ = sender.send(f());
    });
    match receiver.recv_timeout(Duration::from_secs(seconds)) {
        Ok(r) => {
            let _ = thread.join();
            r
        }
        Err(RecvTimeoutError::Timeout) => panic!("{what}: not finished after {seconds} s"),
        Err(RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().err().unwrap_or(Box::new("lost")))
        }
    }
}
