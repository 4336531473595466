//! `sync-overhead`: the cost of synchronization, beside the limits of the machine and, with `--peers`, MPI libraries.
//!
//! With `FARSIDE_DEVICE=verbs` everything is measured over RDMA devices: the limits are perftest's, the peers Debian's
//! MPICH and Open MPI over UCX, and single operations are timed one by one, as perftest does.

use std::process::ExitCode;

use clap::{Parser, value_parser};
use farside_benches::plan::{Plan, sorted};
use farside_benches::program;
use farside_benches::record::{Suite, Window};
use farside_benches::session::{Options, Task};
use farside_benches::targets::{of_rounds, targets, verbs_targets};
use farside_benches::worker::over_verbs;
use farside_core::error::{Error, ErrorKind, Result};

/// Measures epochs, operations, messages, barriers and the ghost-area exchange, and reports them side by side.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Numbers of ranks, each even.
    #[arg(long, value_delimiter = ',', default_value = "2,4,8", value_parser = value_parser!(u32).range(2..=1024))]
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
    /// Leave the limits of the machine out.
    #[arg(long)]
    no_limits: bool,
}

fn run(arguments: Arguments) -> Result<bool> {
    let refuse = |cause: String| Err(Error::new(ErrorKind::BadArgument, "plan the measurements").cause(cause));
    if let Some(odd) = arguments.ranks.iter().find(|ranks| *ranks % 2 == 1) {
        return refuse(format!("{odd} ranks: the number must be even"));
    }
    let mut all = Plan::new(arguments.options.quick, &sorted(arguments.ranks));
    if let Some(suite) = arguments.suites.iter().find(|suite| !all.suites.contains(suite)) {
        return refuse(format!("{suite} is no suite of this program"));
    }
    if let Some(window) = arguments.windows.iter().find(|window| !all.windows.contains(window)) {
        return refuse(format!("{window} is no kind of window of this program"));
    }
    all.suites.retain(|suite| arguments.suites.is_empty() || arguments.suites.contains(suite));
    all.windows.retain(|window| arguments.windows.is_empty() || arguments.windows.contains(window));
    for (planned, given) in [(&mut all.sizes, arguments.sizes), (&mut all.counts, arguments.counts)] {
        if !given.is_empty() {
            *planned = sorted(given);
        }
    }
    // All libraries measure one suite before the next, so that compared values are measured close together.
    let part = |ranks: &u32, suite: &Suite| Plan { suites: vec![*suite], ranks: vec![*ranks], ..all.clone() };
    let plans = all.ranks.iter().flat_map(|ranks| all.suites.iter().map(move |suite| part(ranks, suite))).collect();
    let limits = (!arguments.no_limits).then(|| if over_verbs() { all.sizes.clone() } else { all.copy_sizes() });
    let targets = |rounds: &[_]| of_rounds(rounds, if over_verbs() { verbs_targets } else { targets });
    let title = "Farside: cost of synchronization";
    Task { name: "sync-overhead", title, plans, limits, targets }.run(&arguments.options)
}

fn main() -> ExitCode {
    program(run)
}
