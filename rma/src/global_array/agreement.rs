//! Agreement of all ranks on whether a collective call can be made, so that an error at one rank ends it at all ranks.

use farside_core::{Error, ErrorKind, Result, Team, coll};

/// Gives the bytes of all ranks to every rank, or an error to every rank if some rank is not ready for the call. One
/// allgather.
pub(super) fn agree(team: &Team, operation: &'static str, ready: bool, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
    let all = coll::allgather(team, &[&[u8::from(ready)], bytes].concat())?;
    match all.iter().position(|one| one.first() != Some(&1)) {
        None => Ok(all.into_iter().map(|mut one| one.split_off(1)).collect()),
        Some(rank) => Err(Error::new(ErrorKind::Aborted, operation)
            .rank(team.job().rank())
            .peer(team.members()[rank])
            .cause("that rank cannot make the call now")
            .remedy("see its own error")),
    }
}

/// This rank's outcome if all ranks have one; otherwise this rank's error, or `Aborted` for an error of another rank.
/// One allgather.
pub(super) fn agreed<R>(team: &Team, operation: &'static str, own: Result<R>) -> Result<R> {
    let all = agree(team, operation, own.is_ok(), &[]);
    let own = own?;
    all.map(|_| own)
}
