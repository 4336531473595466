//! Dissemination barrier (Hensgen, Finkel, Manber): in round r, rank p signals p + 2^r and awaits p - 2^r,
//! modulo P. ⌈log2 P⌉ rounds, one signal a round, no data. Cells carry the number of the barrier, so nothing
//! is reset; the peers of different rounds are different ranks, so one cell for each peer is enough. Where both
//! peers of a round are the same rank (two ranks, and the last round of a power of two), the two meet over one line.
//! Where ranks share cores [`barrier_counter`] is used instead.

use super::barrier_counter;
use crate::error::Result;
use crate::signal::{self, Pace, SignalArray};
use crate::team::Team;

/// The cell of the board that it uses.
pub const CELL: usize = 0;

/// Barrier `number` (1, 2, ...) of `team` over its board.
///
/// # Errors
/// `PeerLost`.
pub fn run(team: &Team, board: &SignalArray, number: u64) -> Result<()> {
    rounds(team, board, CELL, number, 0, "barrier", Pace::EXCHANGE).map(|_| ())
}

/// The rounds, over any cell: also the last step of a fence. Gives the marks of all ranks, joined by bits.
///
/// # Errors
/// `PeerLost`.
#[inline]
pub fn rounds(
    team: &Team,
    board: &SignalArray,
    cell: usize,
    number: u64,
    mut mark: u16,
    name: &'static str,
    pace: Pace,
) -> Result<u16> {
    if board.is_crowded() {
        return barrier_counter::run(board, name, mark);
    }
    let (p, me) = (team.size(), team.rank());
    let mut distance = 1;
    while distance < p {
        // Without a division.
        let (to, from) = (wrapped(me + distance, p), wrapped(me + p - distance, p));
        if to == from {
            mark |= board.meet(name, to, cell, number, mark)?;
        } else {
            board.set(to, cell, signal::marked(number, mark))?;
            board.wait(name, from, cell, number, pace)?;
            mark |= board.mark(from, cell, number);
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
