//! Barrier by a counter (a central barrier): every rank adds one to a word of team rank 0 and waits for the sum. Where
//! ranks share cores, each round of another algorithm would wait for the turns of a core; here a rank comes in one turn
//! and leaves in the next, in which it can come again. With a core for every rank the additions, one after the
//! other, would take longer than the rounds.

use crate::error::Result;
use crate::signal::SignalArray;

/// Its name in the table.
pub const NAME: &str = "counter";

/// Signals of one rank.
#[must_use]
pub fn messages(p: usize) -> usize {
    usize::from(p > 2)
}

/// The next barrier of a signal array that [is oversubscribed](SignalArray::is_oversubscribed); gives the marks of all ranks, joined by
/// bits.
///
/// # Errors
/// `PeerLost`.
pub fn run(signals: &SignalArray, name: &'static str, mark: u16) -> Result<u16> {
    signals.arrive(name, mark)
}
