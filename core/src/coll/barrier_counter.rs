//! Counter barrier (central barrier): every rank adds one to a word of team rank 0 and waits until the word has the
//! sum. If ranks share cores, each round of another algorithm would wait until a core is free; with a counter a rank
//! arrives in one time slice and leaves in its next one, in which it can enter the next barrier. If every rank has a
//! core, the sequential additions would take longer than the rounds.

use crate::error::Result;
use crate::signal::SignalArray;

/// Runs the next barrier of a signal array that [is oversubscribed](SignalArray::is_oversubscribed). Returns the
/// bitwise OR of all ranks' marks.
///
/// # Errors
/// `PeerLost`.
pub(crate) fn run(signals: &SignalArray, name: &'static str, mark: u16) -> Result<u16> {
    signals.arrive(name, mark)
}
