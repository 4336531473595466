//! Programs on simulated networks: random programs, costs with many ranks, published times, algorithm selection.

mod aggregated;
#[path = "windows/checks/mod.rs"]
mod checks;
mod headlines;
mod lock_epochs;
mod scale;
mod seeds;
mod selection;
