//! The MPI library: its tables, C programs on it, its installation, other launchers, Python.

mod install;
mod launchers;
mod programs;
mod python;
#[path = "../build/table.rs"]
mod table;
mod tables;
