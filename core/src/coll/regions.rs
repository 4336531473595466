#![allow(unsafe_code)]
//! How the ranks of a team make memory known to each other.

use super::allgather;
use crate::coll::team::Team;
use crate::device::{Registration, RemoteRegion};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::keys::AccumulateFn;
use crate::wire::{Reader, Writer};

/// Exchanges regions: every rank of the team learns the key of every other's registration and imports it.
/// If one rank has failed, all fail, and what was registered is released. Two allgathers.
///
/// # Safety
/// `own` is of the device of the team's job, and where the exchange fails its memory is not used any more.
///
/// # Errors
/// This rank's own failure, or one that names the rank that failed.
pub unsafe fn exchange_regions(
    team: &Team,
    own: Result<Registration>,
    accumulate: Option<AccumulateFn>,
) -> Result<(Registration, Vec<RemoteRegion>)> {
    let device = team.job().device();
    let handle = own.as_ref().ok().map(|r| r.handle);
    let mut remotes = Vec::with_capacity(team.size());
    match exchange_and_import(team, own, accumulate, &mut remotes) {
        Ok(own) => Ok((own, remotes)),
        Err(e) => {
            // Also when a peer is lost: the caller has nothing by which it could release its memory.
            for r in remotes {
                // SAFETY: nobody has seen the region.
                unsafe { device.forget(r.handle) };
            }
            if let Some(Err(kept)) = handle.map(|h| {
                // SAFETY: by the contract nobody uses it.
                unsafe { device.release(h) }
            }) {
                tracing::warn!("memory was not released: {kept}");
            }
            Err(e)
        }
    }
}

fn exchange_and_import(
    team: &Team,
    own: Result<Registration>,
    accumulate: Option<AccumulateFn>,
    remotes: &mut Vec<RemoteRegion>,
) -> Result<Registration> {
    const OP: &str = "exchange regions";
    team.job().running(OP)?;
    let device = team.job().device();
    let message = match &own {
        Ok(r) => Writer::new().u8(1).bytes(&r.key).done(),
        Err(e) => Writer::new().u8(0).bytes(e.to_string().as_bytes()).done(),
    };
    let others = allgather(team, &message)?;
    let mut failure = None;
    for (rank, bytes) in others.iter().enumerate() {
        let peer = team.job_rank(rank)?;
        let mut r = Reader::new(bytes);
        let imported = match (r.u8(), r.bytes()) {
            (Some(1), Some(key)) if failure.is_none() && own.is_ok() => device.import(peer, key, accumulate),
            (Some(1), Some(_)) => continue,
            (Some(0), Some(text)) => {
                Err(Error::new(ErrorKind::Aborted, OP).peer(peer).cause(String::from_utf8_lossy(text)))
            }
            _ => Err(Error::new(ErrorKind::Protocol, OP).peer(peer)),
        };
        match imported {
            Ok(remote) => remotes.push(remote),
            Err(e) => {
                failure.get_or_insert(e);
            }
        }
    }
    // Everyone learns whether everyone has imported everything; from then on the names are not needed.
    let verdict = failure.as_ref().map_or(Vec::new(), |e| e.to_string().into_bytes());
    let verdicts = allgather(team, &verdict)?;
    let own = own?;
    if failure.is_none() {
        failure = verdicts.iter().position(|v| !v.is_empty()).map(|rank| {
            let text = String::from_utf8_lossy(&verdicts[rank]).into_owned();
            Error::new(ErrorKind::Aborted, OP).peer(team.members()[rank]).cause(text)
        });
    }
    device.sealed(own.handle);
    failure.map_or(Ok(own), Err)
}
