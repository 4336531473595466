//! Farside's benchmarks, each a subcommand of one program, with the machine's limits and the peers measured in the same
//! run.
//!
//! A benchmark is a [`session::Task`]: plans of measurements, and the libraries. [`session::Task::measure`]
//! 1. measures the limits of the machine ([`limits`]);
//! 2. starts ranks that measure Farside ([`worker`], [`measure`]), a [`record::Record`] per [`record::Key`] of a plan;
//! 3. starts the peers, which measure the same ([`launch`]);
//! 4. collects all in [`results::Results`], which are printed as a [`table::Table`] and written as JSON and as HTML.
//!
//! [`coll`] measures each collective by every algorithm, [`two_sided`] messages and the layers below them. [`messages`],
//! [`packets`] and [`growth`] count; [`waiting`], [`schemes`], [`rendezvous`], [`switches`] and [`pgas`] have their own
//! measurements. [`papers`] makes a page of the experiments of the papers, some of them on simulated networks.

use std::env;
use std::process::ExitCode;

use clap::Parser;
use farside_core::error::Result;
use farside_core::settings::Settings;

mod by_hand;
mod coll;
mod cores;
mod datatype;
mod growth;
mod launch;
mod limits;
mod lines;
mod loops;
mod machine;
mod measure;
mod messages;
mod options;
mod pack;
mod packets;
mod pages;
mod papers;
mod pgas;
mod plan;
mod record;
mod rendezvous;
mod report;
mod results;
mod schemes;
mod session;
mod shapes;
mod switches;
mod sync_overhead;
mod table;
mod targets;
mod threads;
mod two_sided;
mod usage;
mod waiting;
mod worker;

/// Farside's benchmarks, each compared with a limit of the machine or a peer in the same run.
#[derive(Parser)]
#[command(name = "farside-bench")]
enum Command {
    SyncOverhead(sync_overhead::Arguments),
    Datatype(datatype::Arguments),
    TwoSided(two_sided::Arguments),
    Coll(coll::command::Arguments),
    Loops(loops::Arguments),
    Threads(threads::Arguments),
    Messages(messages::Arguments),
    Packets(packets::Arguments),
    Growth(growth::Arguments),
    CpuTime(waiting::Arguments),
    Schemes(schemes::Arguments),
    Rendezvous(rendezvous::Arguments),
    Switches(switches::Arguments),
    Pgas(pgas::command::Arguments),
    Papers(papers::Arguments),
    #[command(hide = true)]
    Worker(worker::Worker),
}

impl Command {
    /// Returns whether everything was measured and every count is as expected.
    fn run(self) -> Result<bool> {
        match self {
            Self::SyncOverhead(arguments) => arguments.run(),
            Self::Datatype(arguments) => arguments.run(),
            Self::TwoSided(arguments) => arguments.run(),
            Self::Coll(arguments) => arguments.run(),
            Self::Loops(arguments) => arguments.run(),
            Self::Threads(arguments) => arguments.run(),
            Self::Messages(arguments) => arguments.run(),
            Self::Packets(arguments) => arguments.run(),
            Self::Growth(arguments) => arguments.run(),
            Self::CpuTime(arguments) => arguments.run(),
            Self::Schemes(arguments) => arguments.run(),
            Self::Rendezvous(arguments) => arguments.run(),
            Self::Switches(arguments) => arguments.run(),
            Self::Pgas(arguments) => arguments.run(),
            Self::Papers(arguments) => arguments.run(),
            Self::Worker(worker) => worker.run(),
        }
    }
}

/// The settings of the environment, overridden by the given ones.
fn settings_with(given: &[(&str, &str)]) -> Result<Settings> {
    let find = |name: &str| given.iter().find(|(given, _)| *given == name).map(|(_, value)| (*value).to_owned());
    Settings::from_lookup(|name| find(name).or_else(|| env::var(name).ok()))
}

fn main() -> ExitCode {
    match Command::parse().run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("farside-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
