//! Collectives over threads as ranks: values by absolute comparison, messages against the table.

mod algorithms;
mod bytes;
mod killed;
mod misuse;
mod model;
mod short;
mod started;
mod teams;

use farside_core::{Job, Result};

/// Whether tests are to be short.
fn quick() -> bool {
    std::env::var_os("FARSIDE_TEST_QUICK").is_some()
}

fn every_size(f: impl Fn(&Job) -> Result<()> + Sync) {
    // In a quick run up to five: a power of two and others.
    let most = if quick() { 5 } else { 9 };
    for p in 1..=most {
        Job::threads(p, &f).unwrap_or_else(|e| panic!("{p} ranks: {e}"));
    }
}
