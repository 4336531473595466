//! Collectives. An algorithm is a pure function that gives a [schedule]; each is one file under its published name, and
//! [`table`] lists them. [`execute`] runs them. The barrier of a team uses signal cells alone
//! ([`barrier_dissemination`], in two levels if it has several nodes), or a barrier in the switch of the network.
//!
//! All ranks of a team call the same collectives in the same order.

pub mod allgather;
pub mod allreduce;
pub(crate) mod alltoall;
pub(crate) mod barrier;
pub(crate) mod barrier_counter;
pub mod barrier_dissemination;
pub(crate) mod barrier_switch;
pub mod broadcast;
pub mod butterfly;
mod bytes;
mod direct;
pub mod execute;
pub(crate) mod gather;
pub(crate) mod neighbor;
pub mod operation;
pub(crate) mod reduce;
pub mod reduce_scatter;
mod regions;
pub(crate) mod scan;
pub(crate) mod scatter;
pub mod schedule;
pub mod selection;
pub mod table;
pub(crate) mod team;
pub(crate) mod tree;
pub(crate) mod two_level;

pub use crate::peers::PeerTable;
pub use bytes::{Gathered, allgather, allgather_short, allreduce, broadcast, gather, reduce_scatter};
pub use regions::{Announced, announce, exchange_into, exchange_regions};

/// ⌈log2 P⌉.
#[must_use]
pub fn log2_up(p: usize) -> usize {
    p.next_power_of_two().trailing_zeros() as usize
}
