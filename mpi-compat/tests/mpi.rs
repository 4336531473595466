//! Tests of the MPI library: its tables, C programs, its installation, other launchers, Python.

mod install;
mod launchers;
mod programs;
mod python;
#[path = "../build/table.rs"]
mod table;
mod tables;
