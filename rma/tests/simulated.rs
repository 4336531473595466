//! Programs on simulated networks: random ones, costs of many ranks, times that papers give, choices of algorithms.

#[path = "windows/checks/mod.rs"]
mod checks;
mod headlines;
mod scale;
mod seeds;
mod selection;
