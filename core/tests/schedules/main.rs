//! Every algorithm is right for every number of ranks, without a device: its schedules are run symbolically.
//!
//! `FARSIDE_TEST_ALGORITHM=operation/name` checks one, `FARSIDE_TEST_RANKS=n` up to so many ranks,
//! `FARSIDE_TEST_ROOTS=all` every root with all parameters also of more than 20 ranks.

mod algorithms;
mod barriers;
mod cost;
mod exchanges;
mod exports;
mod mistakes;
mod mutants;
mod predictions;
mod reductions;
mod scans;
mod selection;
mod trees;
