//! Simulations described as text, and programs that run as a simulation.

use std::str::FromStr;
use std::time::Duration;

use super::simulate::Simulation;
use crate::device::Placement;
use crate::device::sim::{Flap, Interface, Network, Nodes, Switch};
use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;
use crate::mistyped;
use crate::say::say;
use crate::settings::{DeviceChoice, Settings};

/// The options of a simulation as text, and their values.
const OPTIONS: &str = "ranks=N, topology=(as `Topology`), and in nanoseconds latency, overhead, send-overhead, \
    receive-overhead, gap, gap-per-byte, overhead-per-byte, gap-per-block, hop, jitter, lag, retry, receive-retry; \
    loss=PROBABILITY, receives=N, slow=RANK:FACTOR, dies=RANK:TIME, down=RANK:FROM:UNTIL, \
    refuses=RANK:REGISTRATIONS, stack=BYTES, nodes=NODESxRANKS:LATENCY:OVERHEAD (within a node); placed=at-completion or at-read; reorders, no-atomics, switch, incoherent-atomics, minimal, tuned";

/// Maximum total number of ranks of all nodes.
const MAX_RANKS: u32 = 1 << 24;

/// Sets one option; `None` if its name is unknown or its value invalid.
fn set(mut simulation: Simulation, network: &mut Network, item: &str) -> Option<Simulation> {
    let (name, value) = item.split_once('=').unwrap_or((item, ""));
    let time = || value.parse::<f64>().ok().filter(|time| time.is_finite() && *time >= 0.0);
    let mut parts = value.split(':');
    let mut part = || parts.next();
    let interface = &mut network.interface;
    match name {
        "ranks" => simulation = simulation.ranks(value.parse().ok()?),
        "topology" => network.topology = value.parse().ok()?,
        "latency" => interface.latency = time()?,
        "overhead" => (interface.send_overhead, interface.receive_overhead) = (time()?, time()?),
        "send-overhead" => interface.send_overhead = time()?,
        "receive-overhead" => interface.receive_overhead = time()?,
        "gap" => interface.gap = time()?,
        "gap-per-byte" => interface.gap_per_byte = time()?,
        "overhead-per-byte" => interface.overhead_per_byte = time()?,
        "gap-per-block" => interface.gap_per_block = time()?,
        "hop" => network.hop = time()?,
        "jitter" => network.jitter = time()?,
        "retry" => network.retry = time()?,
        "receives" => network.receives = value.parse().ok()?,
        "receive-retry" => network.receive_retry = time()?,
        "loss" => network.loss = time()?,
        "slow" => simulation = simulation.slow(part()?.parse().ok()?, part()?.parse().ok()?),
        "dies" => {
            let (rank, time): (_, f64) = (part()?.parse().ok()?, part()?.parse().ok()?);
            simulation = simulation.dies(rank, Duration::try_from_secs_f64(time * 1e-9).ok()?);
        }
        "down" => {
            let mut number = || part()?.parse::<f64>().ok();
            let (rank, from, until) = (number()? as usize, number()?, number()?);
            network.down.push(Flap { rank, from, until });
        }
        "nodes" => {
            let (nodes, each) = part()?.split_once('x')?;
            let (nodes, each): (u32, u32) = (nodes.parse().ok()?, each.parse().ok()?);
            let (latency, overhead): (f64, f64) = (part()?.parse().ok()?, part()?.parse().ok()?);
            nodes.checked_mul(each).filter(|ranks| *ranks <= MAX_RANKS)?;
            network.nodes = Some(Nodes::consecutive(nodes, each, Interface::log_p(latency, overhead, overhead)));
        }
        "refuses" => simulation = simulation.refuses_memory(part()?.parse().ok()?, part()?.parse().ok()?),
        "stack" => simulation = simulation.stack(value.parse().ok()?),
        "lag" => network.lag = time()?,
        "placed" => {
            network.placement = match value {
                "at-completion" => Placement::AtCompletion,
                "at-read" => Placement::AtRead,
                _ => return None,
            }
        }
        "no-atomics" if value.is_empty() => network.atomics = false,
        "reorders" if value.is_empty() => network.reorders = true,
        "switch" if value.is_empty() => network.switch = Some(Switch::default()),
        "incoherent-atomics" if value.is_empty() => simulation = simulation.incoherent_atomics(),
        "minimal" if value.is_empty() => simulation = simulation.minimal(),
        "tuned" if value.is_empty() => simulation = simulation.tuned(),
        _ => return None,
    }
    Some(simulation)
}

impl FromStr for Simulation {
    type Err = Error;

    /// Parses a comma-separated list of options, as in `FARSIDE_SIM`:
    /// `ranks=64,topology=torus:4x4x4,latency=700,reorders`. Whether ranks and times are valid is checked when the
    /// simulation runs.
    fn from_str(text: &str) -> Result<Self> {
        let (mut simulation, mut network) = (Self::new(2), Network::default());
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            simulation = set(simulation, &mut network, item).ok_or_else(|| {
                let e = Error::new(ErrorKind::Setting, "read FARSIDE_SIM")
                    .cause(format!("{item:?} in {text:?} is not an option, or has a value that is not allowed"));
                e.remedy(format!("use a comma-separated list of: {OPTIONS}"))
            })?;
        }
        Ok(simulation.network(network))
    }
}

impl Job {
    /// Runs `f` as this process's rank of the launcher's job, and ends the rank in order. With `FARSIDE_DEVICE=sim`
    /// there is no launcher: `f` runs as all ranks of the simulation that `FARSIDE_SIM` and `FARSIDE_SEED` describe,
    /// and at the end one line about the simulation is written to stderr. Ranks share the statics of the process.
    ///
    /// ```
    /// use farside_core::Job;
    ///
    /// fn main() -> farside_core::Result<()> {
    ///     Job::run(|job| {
    ///         job.world()?.barrier()?;
    ///         println!("rank {} of {}", job.rank(), job.size());
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of [`init`](Self::init), `f` and [`finalize`](Self::finalize), or of [`Simulation::run`].
    pub fn run(f: impl Fn(&Self) -> Result<()>) -> Result<()> {
        let settings = Settings::from_env()?;
        if settings.device != DeviceChoice::Sim {
            let job = Self::init()?;
            f(&job)?;
            return job.finalize();
        }
        mistyped::warn();
        let simulation: Simulation = settings.simulation.parse()?;
        let seed = settings.seed;
        let run = simulation.seed(seed).settings(settings).run(f)?;
        let (ranks, time) = (run.results.len(), run.time);
        let (messages, bytes, digest) = (run.messages, run.bytes, run.digest);
        say(format_args!(
            "simulated {ranks} ranks, seed {seed}: {time:?}, {messages} messages of {bytes} bytes, digest {digest:016x}"
        ));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulation_is_read_or_refused() {
        let text = "ranks=8, topology=torus:2x2x2,latency=500,overhead=50,gap=10,gap-per-byte=0.5,hop=20,jitter=5,\
                    reorders,loss=0.01,retry=1000,slow=1:2,dies=3:1e6,down=2:0:50,refuses=0:3,stack=65536,nodes=4x2:250:25,\
                    minimal,placed=at-read,lag=7,no-atomics";
        let simulation: Simulation = text.parse().unwrap();
        let shown = format!("{simulation:?}");
        for part in [
            "ranks: 8",
            "Torus([2, 2, 2])",
            "latency: 500.0",
            "receive_overhead: 50.0",
            "reorders: true",
            "1ms",
            "of: [0, 0, 1",
            "latency: 250.0",
            "placement: AtRead",
            "lag: 7.0",
            "atomics: false",
        ] {
            assert!(shown.contains(part), "{shown} should contain {part}");
        }
        for wrong in [
            "nodes=4",
            "nodes=70000x70000:1:1",
            "ranks",
            "ranks=x",
            "latency=-1",
            "latency=inf",
            "slow=1",
            "reorders=maybe",
            "placed=never",
            "speed=3",
            "dies=1:-1",
        ] {
            let e = wrong.parse::<Simulation>().unwrap_err();
            assert!(e.kind() == ErrorKind::Setting && e.to_string().contains("ranks=N"), "{wrong}: {e}");
        }
    }
}
