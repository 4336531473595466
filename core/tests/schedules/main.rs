//! Every algorithm is right for every number of ranks, without a device: its schedules are run symbolically.
//!
//! `FARSIDE_TEST_ALGORITHM=operation/name` tests one algorithm, `FARSIDE_TEST_RANKS=n` at most n ranks,
//! `FARSIDE_TEST_ROOTS=all` every root with all parameters also for more than 20 ranks.

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
mod two_level;
