//! Collectives over threads as ranks: results against exact values, message counts against the table.

mod algorithms;
mod bytes;
mod direct;
mod killed;
mod misuse;
mod model;
mod nodes;
mod refused;
mod short;
mod started;
mod teams;
mod wrong_algorithms;

use farside_core::{Job, Result};
use farside_harness::quick;

/// Whether the environment selects a network: the verbs device, alone or between nodes, or tcp or ofi.
fn verbs() -> bool {
    std::env::var("FARSIDE_DEVICE").is_ok_and(|device| matches!(&*device, "verbs" | "route" | "tcp" | "ofi"))
}

/// Numbers of ranks for tests of ranks that disagree, or fail: a power of two, and others.
fn some_sizes() -> impl Iterator<Item = u32> {
    [2, 3, 5].into_iter().take(if verbs() { 2 } else { 3 })
}

fn every_size(f: impl Fn(&Job) -> Result<()> + Sync) {
    // A quick run uses up to five ranks: a power of two and others. Over verbs, it uses numbers that differ in the path
    // of messages.
    let sizes = match (verbs(), quick()) {
        (true, _) => 2..=4,
        (false, true) => 1..=5,
        (false, false) => 1..=9,
    };
    for p in sizes {
        Job::threads(p as usize, &f).unwrap_or_else(|e| panic!("{p} ranks: {e}"));
    }
}
