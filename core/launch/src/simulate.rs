//! `farside sim`: a program as all ranks of a simulation.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;
use farside_core::sim::Simulation;
use farside_core::{Error, ErrorKind, Result};

/// The options of `farside sim`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Number of ranks.
    #[arg(short = 'n', long = "ranks", value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
    /// The seed, which decides the order of events that may happen in several orders.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Links between the ranks: crossbar, fat-tree:DOWNxDOWN../UPxUP.., dragonfly:GROUPSxROUTERSxRANKS or torus:XxYxZ.
    #[arg(long, default_value = "crossbar")]
    topology: String,
    /// Other options, with commas between them. In nanoseconds: latency=, overhead=, send-overhead=, receive-overhead=,
    /// gap=, gap-per-byte=, overhead-per-byte=, gap-per-block=, hop=, jitter=, lag=, retry=, receive-retry=.
    /// loss=PROBABILITY, receives=N, slow=RANK:FACTOR, dies=RANK:TIME, down=RANK:FROM:UNTIL,
    /// refuses=RANK:REGISTRATIONS, stack=BYTES. reorders: writes may pass each other; placed=at-completion: writes are
    /// placed up to the lag later, in any order, and signals may pass them; placed=at-read: they are complete before they
    /// are placed; no-atomics: interfaces without atomics; switch: a barrier in the switch;
    /// incoherent-atomics: atomics that are not coherent with the processor; minimal: a device without optional
    /// features; tuned: collectives selected by model and measurement.
    #[arg(long, value_name = "NAME=VALUE,...", default_value = "")]
    network: String,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl Options {
    /// The value of `FARSIDE_SIM`.
    fn description(&self) -> String {
        let Self { ranks, topology, network, .. } = self;
        let comma = if network.is_empty() { "" } else { "," };
        format!("ranks={ranks},topology={topology}{comma}{network}")
    }
}

/// Becomes the program.
///
/// # Errors
/// `Setting` for a network that cannot be read; `System` if the program cannot be started.
pub(crate) fn exec(options: &Options) -> Result<()> {
    let description = options.description();
    description.parse::<Simulation>()?;
    let Some((program, arguments)) = options.words.split_first() else { return Ok(()) };
    let mut command = Command::new(program);
    command.args(arguments).env("FARSIDE_DEVICE", "sim").env("FARSIDE_SIM", description);
    command.env("FARSIDE_SEED", options.seed.to_string());
    let failed = command.exec();
    Err(Error::new(ErrorKind::System, "start a program").cause(format!("{}: {failed}", program.display())))
}
