//! Programs on simulated networks: random ones, costs of many ranks, times that papers give, choices of algorithms.

#[path = "windows/checks/mod.rs"]
mod checks;
mod headlines;
mod lock_epochs;
mod scale;
mod seeds;
mod selection;
