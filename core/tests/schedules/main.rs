//! Every algorithm is right for every number of ranks, without a device: its schedules are run symbolically.
//!
//! `FARSIDE_TEST_ALGORITHM=operation/name` tests one algorithm, `FARSIDE_TEST_RANKS=n` at most n ranks,
//! `FARSIDE_TEST_ROOTS=all` every root with all parameters also for more than 20 ranks, `FARSIDE_TEST_WHOLE=1` all numbers
//! of ranks up to 128.

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

/// Numbers of ranks from 2 to 128: all up to 40, then some, with those about powers of two.
fn counts() -> impl Iterator<Item = u32> + Clone {
    let whole = std::env::var_os("FARSIDE_TEST_WHOLE").is_some();
    let more = [47, 48, 49, 60, 63, 64, 65, 81, 96, 100, 127, 128];
    (2..=128).filter(move |p| whole || *p <= 40 || more.contains(p))
}
