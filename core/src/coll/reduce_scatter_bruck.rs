//! Reduce-scatter of equal blocks, for commutative operators: Bruck's allgather run backwards. With block d of
//! a rank being its contribution to the rank d further on, the blocks of distance 2^r and more are sent 2^r
//! further in round r, from the highest r down, and added to what is there. ⌈log2 P⌉ messages a rank for every
//! P, P - 1 blocks in all.

use super::{Call, log2_up};
use crate::error::{Error, ErrorKind, Result};
use crate::team::Team;

/// Combines block `i` of all ranks into rank `i`'s result. `mine` holds P blocks of equal length, by rank;
/// `combine(into, from)` is commutative and associative.
///
/// # Errors
/// `BadArgument` for a length that is no multiple of P; `PeerLost`; `Mismatch`.
pub fn reduce_scatter(team: &Team, mine: &[u8], combine: &mut dyn FnMut(&mut [u8], &[u8])) -> Result<Vec<u8>> {
    let (p, me) = (team.size(), team.rank());
    if !mine.len().is_multiple_of(p) {
        return Err(
            Error::new(ErrorKind::BadArgument, "reduce_scatter").cause(format!("{} bytes for {p} ranks", mine.len()))
        );
    }
    let call = Call::new(team, "reduce_scatter");
    let block = mine.len() / p;
    // Block d is the contribution to rank me + d.
    let mut acc = mine.to_vec();
    acc.rotate_left(me * block);
    for round in (0..log2_up(p)).rev() {
        let distance = 1 << round;
        let end = (2 * distance).min(p);
        call.send((me + distance) % p, round, &acc[distance * block..end * block])?;
        let from = (me + p - distance) % p;
        let theirs = call.receive(from, round)?;
        if theirs.len() != (end - distance) * block {
            return Err(
                call.mismatch(from, format!("{} bytes of blocks, {} expected", theirs.len(), (end - distance) * block))
            );
        }
        combine(&mut acc[..theirs.len()], &theirs);
    }
    acc.truncate(block);
    Ok(acc)
}
