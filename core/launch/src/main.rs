//! The `farside` command: starts and ends programs, and says what a machine offers.
//!
//! `farside run` is two processes. The **guard** is the one that the user started: it takes the signals. The **worker**
//! is its child and the parent of the ranks: it forwards their output, serves PMI-1 and ends them. Each of the two
//! cleans up when the other is killed, so that no rank and no descendant of a rank outlives the job (`guard.rs` says
//! what remains possible).

mod collectives;
mod descendants;
mod ending;
mod guard;
mod info;
mod limits;
mod output;
mod pmi;
mod server;
mod signals;
mod spawn;
mod worker;

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
    /// Say what this machine offers: devices, limits, settings, launcher; or what is known of collectives.
    Info {
        /// As JSON.
        #[arg(long, conflicts_with = "coll")]
        json: bool,
        #[command(flatten)]
        question: collectives::Question,
    },
}

/// Where ranks may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Bind {
    /// Wherever the launcher may.
    #[default]
    None,
    /// Each on one processor, in turn.
    Core,
}

/// The options of `farside run`.
#[derive(Clone, Debug, clap::Args)]
struct RunOptions {
    /// The process number of the guard: this process is its worker.
    #[arg(long, hide = true)]
    guard: Option<i32>,
    /// Number of ranks.
    #[arg(short = 'n', long = "ranks", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    ranks: u32,
    /// Put the rank in front of every line of output, as in `[3] text`.
    #[arg(long)]
    prefix: bool,
    /// End the job after so many seconds, with exit code 124.
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    timeout: Option<u64>,
    /// Bind ranks to the processors that this command may use: `core` gives each rank the next one by number, and
    /// starts again after the last; `none` leaves them all to each.
    #[arg(long, value_enum, default_value_t = Bind::None)]
    bind: Bind,
    /// Set an environment variable for the ranks; may be repeated.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = parse_variable)]
    variables: Vec<(String, String)>,
    /// The program and its arguments, all that follow, also those that look like options of this command.
    #[arg(trailing_var_arg = true, required = true, value_names = ["PROGRAM", "ARGUMENTS"])]
    program: Vec<OsString>,
}

fn parse_variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("it must be NAME=VALUE".into()),
    }
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(options) => match options.guard {
            None => guard::run(&options),
            Some(guard) => worker::run(&options, guard),
        },
        Command::Info { question, .. } if question.coll.is_some() => collectives::print(&question).map(|()| 0),
        Command::Info { json, .. } => info::print(json).map(|()| 0),
    };
    result.map(ExitCode::from).unwrap_or_else(|e| {
        eprintln!("farside: {e}");
        ExitCode::FAILURE
    })
}
