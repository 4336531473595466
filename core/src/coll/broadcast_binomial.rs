//! Broadcast over a binomial tree: ⌈log2 P⌉ rounds; the root sends ⌈log2 P⌉ messages, others fewer.

use super::{Call, log2_up};
use crate::error::{Error, ErrorKind, Result};
use crate::team::Team;

/// Gives every rank the root's `data`. Collective; `data` is read at `root` only. Any length.
///
/// # Errors
/// `NoSuchRank`, `PeerLost`.
pub fn broadcast(team: &Team, root: usize, data: &[u8]) -> Result<Vec<u8>> {
    let p = team.size();
    if root >= p {
        return Err(Error::new(ErrorKind::NoSuchRank, "broadcast").peer(root as u32));
    }
    let call = Call::new(team, "broadcast");
    let relative = (team.rank() + p - root) % p;
    // The parent is found by clearing the highest bit; children get a bit above it.
    let first = if relative == 0 { 0 } else { relative.ilog2() as usize + 1 };
    let data = if relative == 0 {
        data.to_vec()
    } else {
        let parent = relative - (1 << (first - 1));
        call.receive((parent + root) % p, first - 1)?
    };
    for round in first..log2_up(p) {
        let child = relative + (1 << round);
        if child < p {
            call.send((child + root) % p, round, &data)?;
        }
    }
    Ok(data)
}
