//! The `farside` command: starts and ends programs, and says what is there.
//!
//! `farside run` is two processes. The **guard** is the one that the user sees: it takes the signals. The **worker**
//! is its child and the parent of the ranks: it forwards their output, serves PMI-1 and ends them. Each of the two
//! cleans up when the other is killed, so that no rank and no descendant of a rank outlives the job
//! (`guard.rs` says what remains possible).

mod ending;
mod forward;
mod guard;
pub mod info;
mod limits;
mod pmi;
mod server;
mod spawn;
mod supervise;
mod sweep;
mod watched;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// An RDMA-first one-sided communication runtime.
#[derive(Debug, Parser)]
#[command(name = "farside", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start N ranks of a program, and end them all when one fails.
    Run(RunOptions),
    /// Say what this machine offers: devices, limits, settings, launcher.
    Info {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Where ranks may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Bind {
    /// Wherever the launcher may.
    #[default]
    None,
    /// Each on one processor, in turn.
    Core,
}

/// What `farside run` is told.
#[derive(Clone, Debug, clap::Args)]
pub struct RunOptions {
    /// Number of ranks.
    #[arg(short = 'n', long = "ranks", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub ranks: u32,
    /// Put the rank in front of every line of output, as in `[3] text`.
    #[arg(long)]
    pub prefix: bool,
    /// End the job after so many seconds, with exit code 124.
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub timeout: Option<u64>,
    /// Bind ranks to the processors that this command may use: `core` gives each rank the next one by number, and
    /// starts again after the last; `none` leaves them all to each.
    #[arg(long, value_enum, default_value_t = Bind::None)]
    pub bind: Bind,
    /// Set an environment variable for the ranks; may be repeated.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub variables: Vec<(String, String)>,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

fn parse_variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("it must be NAME=VALUE".into()),
    }
}

/// The whole command; call it first thing in `main`, while the process has one thread.
#[must_use]
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(options) => guard::guarded(|link| supervise::run(&options, link)),
        Command::Info { json } => info::print(json).map(|()| 0),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            eprintln!("farside: {e}");
            ExitCode::FAILURE
        }
    }
}
