//! Every algorithm is correct for every number of ranks, without a device: its schedules are run symbolically.
//!
//! `FARSIDE_TEST_ALGORITHM=operation/name` tests one algorithm, `FARSIDE_TEST_RANKS=n` at most n ranks,
//! `FARSIDE_TEST_ROOTS=all` every root with all parameters also for more than 20 ranks, `FARSIDE_TEST_WHOLE=1` all
//! numbers of ranks up to 128, and some to 257.

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

fn is_whole() -> bool {
    std::env::var_os("FARSIDE_TEST_WHOLE").is_some()
}

/// Job sizes from 2 to 100: all up to 24, then some, including those near powers of two. In a whole run all up to 128.
fn counts() -> impl Iterator<Item = u32> + Clone {
    let whole = is_whole();
    let more = [31, 32, 33, 40, 48, 63, 64, 65, 100];
    (2..=128).filter(move |p| whole || *p <= 24 || more.contains(p))
}
