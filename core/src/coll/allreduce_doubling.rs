//! Allreduce by recursive doubling, for short vectors: with P = 2^n + r, the first 2r ranks fold in pairs, the
//! 2^n that remain exchange in n rounds, and the r that folded get the result. Both sides of an exchange
//! combine in the same order (lower rank first), so every rank gets bitwise the same result, in canonical order.

use super::Call;
use crate::error::Result;
use crate::team::Team;

/// Messages that one rank sends at most.
#[must_use]
pub fn messages(p: usize) -> usize {
    p.max(1).ilog2() as usize + usize::from(!p.is_power_of_two())
}

/// Rounds.
#[must_use]
pub fn rounds(p: usize) -> usize {
    p.max(1).ilog2() as usize + 2 * usize::from(!p.is_power_of_two())
}

/// Combines the data of all ranks: `combine(low, high)` leaves the result of "low then high" in `low`.
/// All give the same length.
///
/// # Errors
/// `PeerLost`; `Mismatch` for another length.
pub fn allreduce(team: &Team, mine: &[u8], combine: &mut dyn FnMut(&mut [u8], &[u8])) -> Result<Vec<u8>> {
    let (p, me) = (team.size(), team.rank());
    let call = Call::new(team, "allreduce");
    let n = p.ilog2() as usize;
    let extra = p - (1 << n);
    let receive = |from: usize, round: usize| {
        let data = call.receive(from, round)?;
        if data.len() == mine.len() {
            Ok(data)
        } else {
            Err(call.mismatch(from, format!("{} bytes, {} here", data.len(), mine.len())))
        }
    };
    let mut acc = mine.to_vec();
    // Ranks below 2 * extra fold in pairs: the odd one goes on for both.
    if me < 2 * extra && me.is_multiple_of(2) {
        call.send(me + 1, 0, &acc)?;
        return receive(me + 1, n + 1);
    }
    if me < 2 * extra {
        let mut low = receive(me - 1, 0)?;
        combine(&mut low, &acc);
        acc = low;
    }
    let virtual_rank = if me < 2 * extra { me / 2 } else { me - extra };
    let real = |v: usize| if v < extra { 2 * v + 1 } else { v + extra };
    for round in 0..n {
        let other = virtual_rank ^ (1 << round);
        call.send(real(other), round + 1, &acc)?;
        let mut theirs = receive(real(other), round + 1)?;
        if virtual_rank < other {
            combine(&mut acc, &theirs);
        } else {
            combine(&mut theirs, &acc);
            acc = theirs;
        }
    }
    if me < 2 * extra {
        call.send(me - 1, n + 1, &acc)?;
    }
    Ok(acc)
}
