//! Allgather by Bruck's algorithm: in round r, rank p sends all it has to p - 2^r and gets as much from
//! p + 2^r, modulo P. ⌈log2 P⌉ rounds for every P; every rank's block is sent P - 1 times in all.

use super::{Call, log2_up};
use crate::error::Result;
use crate::team::Team;
use crate::wire::{Reader, Writer};

/// Gives every rank the data of all, by team rank. Lengths may differ.
///
/// # Errors
/// `PeerLost`; `Mismatch` if a peer sent something else.
pub fn allgather(team: &Team, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
    let (p, me) = (team.size(), team.rank());
    let call = Call::new(team, "allgather");
    // Block i is that of rank me + i.
    let mut blocks = vec![mine.to_vec()];
    for round in 0..log2_up(p) {
        let distance = 1 << round;
        let count = distance.min(p - distance);
        let message = blocks[..count].iter().fold(Writer::new(), |w, b| w.bytes(b)).done();
        call.send((me + p - distance) % p, round, &message)?;
        let from = (me + distance) % p;
        let message = call.receive(from, round)?;
        let mut r = Reader::new(&message);
        for _ in 0..count {
            let block = r.bytes().ok_or_else(|| call.mismatch(from, "fewer blocks than expected"))?;
            blocks.push(block.to_vec());
        }
    }
    blocks.rotate_right(me);
    Ok(blocks)
}
