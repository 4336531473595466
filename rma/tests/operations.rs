//! Windows: every operation under every synchronization, its cost, errors, and whether the checks notice damage.

mod bill;
mod callers;
#[path = "windows/checks/mod.rs"]
mod checks;
mod datatypes;
mod dynamic_window;
mod faults;
mod growth;
mod nodes;
mod notice;
mod op;
mod packets;
mod reductions;
mod safe_misuse;
mod sgrs;
mod soak;
mod trace;
mod windows;
