//! Collectives as schedules: pure functions and data, without a device, a clock or a job. An algorithm is a function
//! that returns a [schedule]; each has its own file under its published name, and [`table`] lists them. [`selection`]
//! chooses among them by rules, by a [`model`] of the network, or by a table of conditions.
//!
//! `farside-core` executes the schedules, and re-exports these modules in `farside_core::coll`.
//!
//! ```
//! use farside_schedule::operation::{Call, Operation};
//! use farside_schedule::schedule::check::check_algorithm;
//! use farside_schedule::table;
//!
//! let ring = table::named(Operation::Allgather, "ring").unwrap();
//! let cost = check_algorithm(ring, |rank| Call::new(Operation::Allgather, rank, 5), &[]).unwrap();
//! assert_eq!(cost.rounds, 4);
//! ```

pub mod allgather;
pub mod allreduce;
mod alltoall;
pub mod barrier;
pub mod broadcast;
pub mod butterfly;
mod direct;
mod gather;
pub mod model;
mod neighbor;
pub mod operation;
mod reduce;
pub mod reduce_scatter;
mod scan;
mod scatter;
pub mod schedule;
pub mod selection;
pub mod table;
pub mod tree;
pub mod two_level;

/// ⌈log2 P⌉.
#[must_use]
pub fn log2_up(p: usize) -> usize {
    p.next_power_of_two().trailing_zeros() as usize
}

/// Compiles and runs the README's program.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
