//! `sync-overhead` measures the cost of synchronization, compared with the limits of the machine and, with `--peers`,
//! with MPI libraries.
//!
//! With `FARSIDE_DEVICE=verbs` everything is measured over RDMA devices: the limits are perftest's, the peers Debian's
//! MPICH and Open MPI over UCX, and single operations are timed one by one, as perftest does.

use clap::{Args, value_parser};
use farside_core::error::{Error, ErrorKind, Result};

use crate::limits;
use crate::options::{Libraries, Options, even, over_verbs};
use crate::plan::{Plan, sorted};
use crate::record::{Suite, Window};
use crate::session::Task;
use crate::targets::{of_rounds, targets, verbs_targets};

/// Measures epochs, operations, messages, barriers and the ghost-area exchange, and reports them side by side.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    libraries: Libraries,
    /// Job sizes (ranks) to measure, each even.
    #[arg(long, value_delimiter = ',', default_value = "2,4,8", value_parser = even)]
    ranks: Vec<u32>,
    /// Suites to measure, of epoch,op,am,barrier,ghost.
    #[arg(long, value_delimiter = ',')]
    suites: Vec<Suite>,
    /// Bytes of puts and gets.
    #[arg(long, value_delimiter = ',', value_parser = value_parser!(u64).range(1..=1 << 28))]
    sizes: Vec<u64>,
    /// Integers to each neighbour in the ghost-area exchange.
    #[arg(long, value_delimiter = ',', value_parser = value_parser!(u64).range(1..=131_072))]
    counts: Vec<u64>,
    /// Kinds of window, of allocated,user.
    #[arg(long, value_delimiter = ',')]
    windows: Vec<Window>,
    /// Do not measure the limits of the machine.
    #[arg(long)]
    no_limits: bool,
}

/// Replaces the planned values by the given values, if any, all of which must be in `allowed`.
fn choose<T: Ord + ToString>(planned: &mut Vec<T>, given: Vec<T>, is_allowed: impl Fn(&T) -> bool) -> Result<()> {
    if let Some(other) = given.iter().find(|one| !is_allowed(one)) {
        let error = Error::new(ErrorKind::BadArgument, "plan the measurements");
        return Err(error.cause(format!("this benchmark does not measure {}", other.to_string())));
    }
    if !given.is_empty() {
        *planned = sorted(given);
    }
    Ok(())
}

impl Arguments {
    pub(crate) fn run(self) -> Result<bool> {
        let mut all = Plan::new(self.options.quick);
        let (suites, windows) = (all.suites.clone(), all.windows.clone());
        choose(&mut all.suites, self.suites, |suite| suites.contains(suite))?;
        choose(&mut all.windows, self.windows, |window| windows.contains(window))?;
        choose(&mut all.sizes, self.sizes, |_| true)?;
        choose(&mut all.counts, self.counts, |_| true)?;
        // All libraries measure one suite before the next one starts, so that compared values are measured close
        // together.
        let part = |ranks, suite: &Suite| Plan { suites: vec![*suite], ranks, ..all.clone() };
        let parts =
            sorted(self.ranks).into_iter().flat_map(|ranks| all.suites.iter().map(move |suite| part(ranks, suite)));
        let sizes = if over_verbs() { all.sizes.clone() } else { all.copy_sizes() };
        let task = Task {
            title: "Farside: cost of synchronization".to_owned(),
            plans: parts.collect(),
            libraries: self.libraries.list(),
            limits: (!self.no_limits).then_some((limits::measure_here, sizes)),
            ..Task::default()
        };
        let targets = if over_verbs() { verbs_targets } else { targets };
        task.run("sync-overhead", &self.options, |rounds| of_rounds(rounds, targets))
    }
}
