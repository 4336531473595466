//! Distributed collections: results equal those of a serial model over several devices; messages are counted; errors.

mod map;
mod order;
mod queue;
mod values;

use farside_rma::aggregate::Options;
use farside_rma::prelude::*;

use crate::checks::config::{Config, table, within};

/// Little memory and every number of hops; and what a program gets that gives no options.
const OPTIONS: [Options; 4] = [
    Options { bytes: 2 << 10, hops: Some(1) },
    Options { bytes: 4 << 10, hops: Some(2) },
    Options { bytes: 6 << 10, hops: Some(3) },
    Options { bytes: 1 << 20, hops: None },
];

/// Runs `f` with the given numbers of ranks over shared memory, the reference device and a simulated network, or over the
/// network of the environment.
fn everywhere(ranks: &[u32], f: impl Fn(&Team) -> Result<()> + Sync + Send + Copy + 'static) {
    let names = ["mapped", "loopback", "simulated", "network"];
    for config in table().iter().filter(|config| names.contains(&config.name)) {
        ranks.iter().for_each(|n| run(config, *n, f));
    }
}

fn run(config: &Config, n: u32, f: impl Fn(&Team) -> Result<()> + Sync + Send + Copy + 'static) {
    let config = *config;
    let what = format!("{} with {n} ranks", config.name);
    let result = within(60, &what, move || config.run(n, f).map(drop));
    result.unwrap_or_else(|e| panic!("{what}: {e}"));
}

/// The kind of an error, and the rank that it blames.
fn blamed<R>(result: Result<R>) -> Option<(ErrorKind, Option<usize>)> {
    result.err().map(|e| (e.kind(), e.blamed()))
}
