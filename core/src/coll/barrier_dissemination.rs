//! Dissemination barrier (Hensgen, Finkel, Manber): in round r, rank p signals p + 2^r and awaits p - 2^r, modulo P. It
//! takes ⌈log2 P⌉ rounds with one signal per round and no data. Cells hold the number of the barrier, so nothing is
//! reset; the peers of different rounds are different ranks, so one cell for each peer is enough. If both peers of a
//! round are the same rank (two ranks, or the last round of a power of two), the two exchange signals in one cache
//! line. If ranks share cores, a counter to which each rank sends one signal is used instead.

use super::barrier_counter;
use crate::coll::team::Team;
use crate::error::Result;
use crate::signal::{self, Pace, SignalArray};

/// Cell of the signal array for barriers.
pub(crate) const CELL: usize = 0;
/// Cell of the signal array for [`end_barrier`].
const END_CELL: usize = 1;

/// Runs barrier `number` (1, 2, ...) of `team` over its signal array. Returns the bitwise OR of all ranks' marks.
///
/// # Errors
/// `PeerLost`.
pub(crate) fn run(team: &Team, signals: &SignalArray, number: u64, mark: u16) -> Result<u16> {
    rounds(team, signals, CELL, number, mark, "barrier", Pace::EXCHANGE)
}

/// Runs the rounds over any cell; a fence uses them as its last step. Returns the bitwise OR of all ranks' marks.
///
/// # Errors
/// `PeerLost`.
#[inline]
pub fn rounds(
    team: &Team,
    signals: &SignalArray,
    cell: usize,
    number: u64,
    mark: u16,
    name: &'static str,
    pace: Pace,
) -> Result<u16> {
    if signals.is_oversubscribed() {
        return barrier_counter::run(signals, name, mark);
    }
    disseminate(all(team), signals, cell, number, mark, name, pace)
}

/// All ranks of a team, as the arguments of [`disseminate`].
#[inline]
fn all(team: &Team) -> (usize, usize, impl Fn(usize) -> usize) {
    (team.size(), team.rank(), |number| number)
}

/// Runs barrier `number` of `team` at the end of the job. It has its own cell, even if ranks share cores, so that its
/// signals are not taken for those of another barrier.
///
/// # Errors
/// `PeerLost`.
pub(crate) fn end_barrier(team: &Team, signals: &SignalArray, number: u64) -> Result<()> {
    disseminate(all(team), signals, END_CELL, number, 0, "finalize", Pace::EXCHANGE).map(|_| ())
}

/// Runs the rounds among some ranks of a team: their number, this rank's number among them, and the rank of each. Returns the
/// bitwise OR of their marks.
///
/// # Errors
/// `PeerLost`.
#[inline]
pub(super) fn disseminate(
    (p, me, rank): (usize, usize, impl Fn(usize) -> usize),
    signals: &SignalArray,
    cell: usize,
    number: u64,
    mut mark: u16,
    name: &'static str,
    pace: Pace,
) -> Result<u16> {
    let mut distance = 1;
    while distance < p {
        // `wrapped` reduces modulo P without a division.
        let (to, from) = (rank(wrapped(me + distance, p)), rank(wrapped(me + p - distance, p)));
        if to == from {
            mark |= signals.exchange(name, to, cell, number, mark)?;
        } else {
            signals.set(to, cell, signal::marked(number, mark))?;
            signals.wait(name, from, cell, number, pace)?;
            mark |= signals.mark(from, cell, number);
        }
        distance *= 2;
    }
    Ok(mark)
}

/// `rank`, below 2 p, modulo p.
#[inline]
fn wrapped(rank: usize, p: usize) -> usize {
    if rank < p { rank } else { rank - p }
}
