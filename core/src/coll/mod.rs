//! Collectives. An algorithm is a pure function that returns a [schedule], and [`table`] lists all algorithms; these
//! modules are those of the crate `farside-schedule`. [`execute`] runs schedules. The barrier of a team uses only
//! signal cells ([`barrier_dissemination`], in two levels if the team has several nodes), or the in-switch barrier of
//! the network.
//!
//! All ranks of a team call the same collectives in the same order.

pub(crate) mod barrier_counter;
pub mod barrier_dissemination;
pub(crate) mod barrier_switch;
mod bytes;
pub mod execute;
mod regions;
pub(crate) mod team;

pub use crate::peers::PeerTable;
pub use bytes::{Gathered, allgather, allgather_short, allreduce, broadcast, gather, reduce_scatter};
#[doc(inline)]
pub use farside_schedule::{
    allgather, allreduce, broadcast, butterfly, log2_up, operation, reduce_scatter, schedule, selection, table,
};
pub(crate) use farside_schedule::{tree, two_level};
pub use regions::{Announced, announce, exchange_into, exchange_regions};
