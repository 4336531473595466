//! Agreement of all ranks on whether a collective call can be made, so that an error at one rank makes it fail at all
//! ranks.

use farside_core::{Error, ErrorKind, Result, Team, coll};

/// Exchanges bytes between all ranks; fails at every rank if some rank is not `ready` for the call. One allgather.
pub(crate) fn agree(team: &Team, operation: &'static str, ready: bool, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
    let all = coll::allgather(team, &[&[u8::from(ready)], bytes].concat())?;
    match all.iter().position(|one| one.first() != Some(&1)) {
        None => Ok(all.into_iter().map(|mut one| one.split_off(1)).collect()),
        Some(rank) => Err(Error::new(ErrorKind::Aborted, operation)
            .rank(team.job().rank())
            .peer(team.members()[rank])
            .cause("the call has failed at the peer rank")
            .remedy("see the error of the peer rank")),
    }
}

/// Returns this rank's outcome if all ranks have succeeded; otherwise this rank's error, or `Aborted` for an error of
/// another rank. One allgather.
pub(super) fn agree_on_outcome<R>(team: &Team, operation: &'static str, own: Result<R>) -> Result<R> {
    let all = agree(team, operation, own.is_ok(), &[]);
    let own = own?;
    all.map(|_| own)
}
