//! The `farside` command, which is also `mpiexec`: starts and ends programs, and describes the machine.
//!
//! `farside run` is two processes. The **guard** is the process that the user started: it takes the signals. The
//! **worker** is its child and the parent of the ranks: it forwards their output, serves PMI-1 and ends them. Each of
//! the two cleans up when the other is killed, so that no rank and no descendant of a rank outlives the job (`guard.rs`
//! names the one exception).

mod collectives;
mod descendants;
mod ending;
mod guard;
mod hosts;
mod info;
mod limits;
mod nodes;
mod numa;
mod options;
mod output;
mod pmi;
mod routes;
mod server;
mod signals;
mod simulate;
mod spawn;
mod table;
mod tune;
mod waits;
mod worker;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use farside_core::Result;

use crate::options::{Front, Request};

/// An RDMA-first one-sided communication runtime.
#[derive(Debug, Parser)]
#[command(name = "farside", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start N ranks of a program, and end them all when one fails: `farside run --help`.
    #[command(disable_help_flag = true)]
    Run {
        /// Options, the program and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Run a Rust program that starts by `Job::run` as all ranks of a simulation, in one process.
    Sim(simulate::Options),
    /// Describe this machine: devices, limits, settings, launcher; or the algorithms of collectives.
    Info {
        /// Print JSON.
        #[arg(long, conflicts_with = "coll")]
        json: bool,
        #[command(flatten)]
        question: collectives::Question,
    },
    /// Measure the network between ranks, fit the models LogGP, pLogP and LoP, and store them for later jobs.
    Tune {
        #[command(flatten)]
        options: tune::Options,
    },
    /// Compute the fastest routes through a network of several devices, from its description.
    Routes(routes::Options),
}

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_default();
    let is_mpiexec = Path::new(&name).file_name().is_some_and(|name| name == "mpiexec" || name == "mpirun");
    let result = if is_mpiexec {
        return run(Front::Mpiexec, words);
    } else {
        match Cli::parse().command {
            // The command line is read again, since clap drops a `--`.
            Command::Run { .. } => return run(Front::Run, words.skip(1)),
            Command::Sim(options) => simulate::exec(&options),
            Command::Info { question, .. } if question.coll.is_some() => info::collectives(&question),
            Command::Info { json, .. } => info::print(json),
            Command::Tune { options } => tune::run(&options),
            Command::Routes(options) => routes::run(&options),
        }
    };
    ended(Front::Run, result.map(|()| 0))
}

/// Starts the job that a command line requests. The exit code is 2 if the command line is wrong.
fn run(front: Front, words: impl Iterator<Item = OsString>) -> ExitCode {
    signals::reset();
    match options::parse(front, words) {
        Ok(Request::Print(text)) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Ok(Request::Launch(launch)) => match launch.guard {
            None => ended(front, guard::run(front, &launch)),
            Some(guard) if launch.is_foreign() => ended(front, nodes::run(&launch, guard)),
            Some(guard) => ended(front, worker::run(&launch, guard)),
        },
        Err(what) => {
            eprintln!("{}: {what}", front.name());
            ExitCode::from(2)
        }
    }
}

fn ended(front: Front, result: Result<u8>) -> ExitCode {
    result.map(ExitCode::from).unwrap_or_else(|e| {
        eprintln!("{}: {e}", front.name());
        ExitCode::FAILURE
    })
}
