//! The framework of Farside's benchmarks: the plan of the measurements, the records, the peers and the limits that are
//! measured in the same run, and the reports.
//!
//! A benchmark is a [`session::Task`]: plans of measurements, and targets. [`session::Task::run`]
//! 1. measures the floors of the machine ([`limits`]);
//! 2. starts ranks that measure Farside ([`worker`], [`measure`]), a [`record::Record`] per [`record::Key`] of a plan;
//! 3. starts the peers, which measure the same ([`launch`]);
//! 4. collects all in [`results::Results`], prints its [`table::Table`] and writes it as JSON and as HTML.
//!
//! [`coll`] measures each collective by every algorithm, [`two_sided`] messages and the layers below them.
//! [`messages`], [`packets`], [`growth`], [`waiting`], [`schemes`] and [`pgas`] have programs of their own.

use std::env;
use std::process::ExitCode;

use clap::Parser;
use farside_core::error::Result;
use farside_core::settings::Settings;

pub mod by_hand;
pub mod coll;
pub mod cores;
pub mod growth;
pub mod launch;
pub mod limits;
pub mod lines;
pub mod machine;
pub mod measure;
pub mod messages;
pub mod pack;
pub mod packets;
pub mod pages;
pub mod pgas;
pub mod plan;
mod plot;
pub mod progress;
pub mod record;
pub mod report;
pub mod results;
pub mod schemes;
pub mod session;
pub mod shapes;
pub mod table;
pub mod targets;
pub mod two_sided;
pub mod usage;
pub mod waiting;
pub mod worker;

/// The settings of the environment, but for those given.
///
/// # Errors
/// A value that a setting does not take.
pub fn settings_with(given: &[(&str, &str)]) -> Result<Settings> {
    let find = |name: &str| given.iter().find(|(given, _)| *given == name).map(|(_, value)| (*value).to_owned());
    Settings::from_lookup(|name| find(name).or_else(|| env::var(name).ok()))
}

/// The main function of this crate's programs: with `--worker` one rank, which `farside run` starts; else `run` with
/// the arguments. The exit status is 0 if `run` returns true.
pub fn program<A: Parser>(run: impl FnOnce(A) -> Result<bool>) -> ExitCode {
    let is_worker = env::args().nth(1).is_some_and(|first| first == "--worker");
    let done = if is_worker { worker::work(&worker::Worker::parse_from(env::args().skip(1))) } else { run(A::parse()) };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{}: {error}", env::args().next().unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}
