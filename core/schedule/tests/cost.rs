//! The cost of an algorithm according to the checker.

use farside_schedule::operation::{Call, Operation};
use farside_schedule::schedule::check::{Cost, check_algorithm};
use farside_schedule::table;

/// The cost of an algorithm for a call like `of(rank)`, whose block sizes at each rank are `sizes`.
pub(crate) fn cost_of<'a>(name: &str, of: impl Fn(u32) -> Call<'a>, sizes: &[Vec<u64>]) -> Cost {
    let call = of(0);
    let a = table::named(call.operation, name).unwrap();
    assert!((a.applies)(&call), "{name} for P {}", call.size);
    check_algorithm(a, of, sizes).unwrap_or_else(|fault| panic!("{name}, P {}: {fault}", call.size))
}

/// The cost for `p` ranks, with one element in each block.
pub(crate) fn cost(operation: Operation, name: &str, parameters: &[u32], p: u32) -> Cost {
    cost_of(name, |rank| Call { parameters, elements: 1000, switch: true, ..Call::new(operation, rank, p) }, &[])
}

/// ⌊log_base n⌋.
pub(crate) fn log_floor(base: u32, n: u32) -> u32 {
    n.ilog(base)
}

/// ⌈log_base n⌉.
pub(crate) fn log_ceil(base: u32, n: u32) -> u32 {
    n.ilog(base) + u32::from(base.pow(n.ilog(base)) < n)
}
