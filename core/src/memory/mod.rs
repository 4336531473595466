//! Memory that others reach: segments shared by the ranks of a node, raw copies, the table of exposed regions.

pub mod copy;
pub mod keys;
pub mod segment;
pub mod words;
