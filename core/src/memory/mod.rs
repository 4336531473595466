//! Memory that others reach: segments shared by the ranks of a node, raw copies, the table of exposed regions; and what a
//! card needs to reach memory of the user: registrations that are kept, grouped, and watched.

pub mod copy;
pub mod group;
pub mod keys;
pub mod registrations;
pub mod segment;
pub mod watch;
