//! Jobs of processes: the examples, killed ranks, ranks on several hosts.

mod examples;
mod heat_png;
mod hosts;
mod killed;
mod namespaces;
