//! All-to-all exchanges: every rank sends every rank a different block.

mod bruck;
mod direct;
pub(super) mod linear;
mod pairwise_exchange;

use super::operation::{Algorithm, Call};
use super::schedule::{Builder, Slice};

/// All alltoall algorithms.
pub(crate) const ALGORITHMS: &[&Algorithm] =
    &[&linear::ALGORITHM, &pairwise_exchange::ALGORITHM, &bruck::ALGORITHM, &direct::ALGORITHM];

/// A schedule with the copy of the block for the rank itself.
fn begun(call: &Call<'_>) -> Builder {
    let mut s = call.builder(0);
    s.copy(&[Slice::input(call.rank, 1)], &[Slice::output(call.rank, 1)]);
    s
}

/// Sends rank `to` its block and receives that of rank `source`. A block that is known to be empty has no message; the
/// other side knows its size too.
fn exchange(s: &mut Builder, call: &Call<'_>, to: u32, source: u32) {
    if call.has_elements(call.size + source) {
        s.receive(source, 0, &[Slice::output(source, 1)]);
    }
    if call.has_elements(to) {
        s.send(to, 0, &[Slice::input(to, 1)]);
    }
}
