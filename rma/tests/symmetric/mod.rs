//! Symmetric memory: every operation on every device, flags, atomics, contexts, exclusive access, errors, messages.

mod flags;
mod operations;
mod refused;
mod threads;

use crate::checks::config::{Config, Memory, quick, table, verbs, within};
use farside_rma::{Result, Team};

/// Runs `f` with the given numbers of ranks over every configuration with memory of the runtime.
fn everywhere(ranks: &[u32], f: impl Fn(&Team, &Config) -> Result<()> + Sync + Send + Copy + 'static) {
    // Skips simulations: a wait for a flag that is already set returns immediately, so no other rank would run.
    let configs = table().iter().filter(|c| c.seed.is_none());
    let allocated = configs.filter(|c| c.memory == Memory::Allocated || c.device.is_some());
    let most = if verbs() && quick() { 1 } else { 12 };
    for config in allocated.take(most) {
        for n in ranks.iter().copied() {
            let run = move || config.run(n, |team| f(team, config)).map(|_| ());
            let result = within(60, &format!("{} with {n} ranks", config.name), run);
            result.unwrap_or_else(|e| panic!("{}, {n} ranks: {e}", config.name));
        }
    }
}
