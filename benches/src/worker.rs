//! One rank of a benchmark.

use std::io::stdout;
use std::time::Duration;

use clap::Parser;
use farside_core::Job;
use farside_core::error::{ErrorKind, Result};

use crate::cores;
use crate::measure::{self, Budget, Method};
use crate::plan::Plan;
use crate::record::Suite;
use crate::waiting;

/// The work of a rank: the arguments of [`Plan::arguments`], and those of some programs only.
#[derive(Parser)]
pub struct Worker {
    #[command(flatten)]
    plan: Plan,
    /// Count packets instead of taking times.
    #[arg(long)]
    packets: bool,
    /// Algorithms of collectives, in place of all.
    #[arg(long, value_delimiter = ';')]
    algorithms: Vec<String>,
    /// Wait for rank 0, which sleeps for this time.
    #[arg(long)]
    sleep_ms: Option<u64>,
}

/// Whether the ranks reach each other by RDMA devices alone.
#[must_use]
pub fn over_verbs() -> bool {
    std::env::var("FARSIDE_DEVICE").is_ok_and(|device| device == "verbs")
}

/// Whether the ranks reach each other by TCP alone.
#[must_use]
pub fn over_tcp() -> bool {
    std::env::var("FARSIDE_DEVICE").is_ok_and(|device| device == "tcp")
}

/// Does the work of one rank.
///
/// # Errors
/// The errors of the calls.
pub fn work(worker: &Worker) -> Result<bool> {
    let job = Job::init()?;
    if let Some(ms) = worker.sleep_ms {
        waiting::report(&job, Duration::from_millis(ms))?;
        return job.finalize().map(|()| true);
    }
    let plan = &worker.plan;
    let method = match worker.packets {
        true => Method::Packets,
        false if over_verbs() => Method::Single,
        false => Method::Blocks,
    };
    let mut budget = Budget::of(plan.quick, method);
    if matches!(plan.suites[..], [Suite::Put | Suite::Coll]) {
        budget = Budget::of(plan.quick, Method::Blocks).in_short_blocks();
    }
    if method != Method::Packets {
        // Bound after the start, which counts the cores: one core for each rank, in turn if there are more ranks.
        cores::bind_to_nth(job.rank() % cores::allowed().len())?;
    }
    let measured = measure::run(&job, plan, &worker.algorithms, budget, &mut stdout());
    if let Some(error) = measured.as_ref().err().filter(|error| error.kind() == ErrorKind::Protocol) {
        job.abort(3, &error.to_string());
    }
    measured?;
    job.finalize().map(|()| true)
}
