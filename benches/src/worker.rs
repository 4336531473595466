//! One rank of a benchmark.

use std::io::stdout;
use std::time::Duration;

use clap::Args;
use farside_core::Job;
use farside_core::error::{ErrorKind, Result};

use crate::cores;
use crate::measure::{self, Budget, Method};
use crate::options::over_verbs;
use crate::plan::Plan;
use crate::record::Suite;
use crate::waiting;

/// One rank, started by `farside run`: takes the arguments of [`Plan::arguments`] and of `cpu-time`.
#[derive(Args)]
pub(crate) struct Worker {
    #[command(flatten)]
    plan: Plan,
    /// Measure the waits for rank 0, which sleeps for this time.
    #[arg(long)]
    sleep_ms: Option<u64>,
}

/// Ends a rank; after wrong data it aborts all ranks.
pub(crate) fn end(job: &Job, measured: Result<()>) -> Result<bool> {
    if let Some(error) = measured.as_ref().err().filter(|error| error.kind() == ErrorKind::Protocol) {
        job.abort(3, &error.to_string());
    }
    measured?;
    job.finalize().map(|()| true)
}

impl Worker {
    pub(crate) fn run(self) -> Result<bool> {
        let (job, plan) = (Job::init()?, &self.plan);
        if let Some(ms) = self.sleep_ms {
            waiting::report(&job, Duration::from_millis(ms))?;
            return job.finalize().map(|()| true);
        }
        let method = match plan.packets {
            true => Method::Packets,
            false if over_verbs() => Method::Single,
            false => Method::Blocks,
        };
        let mut budget = Budget::of(plan.quick, method);
        if matches!(plan.suites[..], [Suite::Put | Suite::Coll]) {
            budget = Budget::of(plan.quick, Method::Blocks).in_short_blocks();
        }
        if method != Method::Packets {
            // The rank is bound after the start of the job, which counts the cores: each rank has one core, and if
            // there are more ranks than cores, ranks share cores.
            cores::bind_to_nth(job.rank() % cores::allowed().len())?;
        }
        end(&job, measure::run(&job, plan, budget, &mut stdout()))
    }
}
