#![allow(unsafe_code)]
//! Exchange of registrations among the ranks of a team.

use super::{Gathered, allgather_short};
use crate::coll::team::Team;
use crate::device::{Registration, RemoteRegion};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::keys::AccumulateFn;
use crate::wire::{Reader, Writer};

/// Exchanges regions: every rank of the team learns the key of every other rank's registration and imports it. If one
/// rank fails, all fail and release their registrations. Two allgathers, or one if a rank had no registration.
///
/// # Safety
/// `own` is a registration of the device of the team's job. If the exchange fails, its memory is not used any more.
///
/// # Errors
/// The error of the first rank that failed, which it names. It has the same kind at every rank, so that all can choose
/// the same fallback. Errors of an allgather.
pub unsafe fn exchange_regions(
    team: &Team,
    own: Result<Registration>,
    accumulate: Option<AccumulateFn>,
) -> Result<(Registration, Vec<RemoteRegion>)> {
    let device = team.job().device();
    let handle = own.as_ref().ok().map(|r| r.handle);
    let mut remotes = Vec::new();
    match exchange_and_import(team, own, accumulate, &mut remotes) {
        Ok(own) => Ok((own, remotes)),
        Err(e) => {
            // Also if a peer is lost: the caller has no handle with which it could release its memory.
            for r in remotes {
                // SAFETY: the region was not given to the caller.
                unsafe { device.forget(r.handle) };
            }
            if let Some(Err(kept)) = handle.map(|h| {
                // SAFETY: by the contract the memory is not used any more.
                unsafe { device.release(h) }
            }) {
                tracing::warn!("memory was not released: {kept}");
            }
            Err(e)
        }
    }
}

const OP: &str = "exchange regions";

fn exchange_and_import(
    team: &Team,
    own: Result<Registration>,
    accumulate: Option<AccumulateFn>,
    remotes: &mut Vec<RemoteRegion>,
) -> Result<Registration> {
    team.job().running(OP)?;
    let device = team.job().device();
    let message = match &own {
        Ok(r) => Writer::new().u8(1).bytes(&r.key).done(),
        Err(e) => failure_message(e),
    };
    // Keys of a network have fewer bytes than these, and so have those of shared memory and networks together.
    let joined = !team.is_on_one_node() && !device.capabilities().node.is_empty();
    let others = allgather_short(team, OP, &message, if joined { 248 } else { 56 })?;
    if let Some(e) = first_failure(team, &others) {
        return Err(own.err().filter(|_| e.blamed() == Some(team.job().rank())).unwrap_or(e));
    }
    let own = own?;
    remotes.reserve_exact(team.size());
    let mut failure = None;
    for (rank, bytes) in others.iter().enumerate() {
        let peer = team.job_rank(rank)?;
        let imported = match Reader::new(bytes.get(1..).unwrap_or_default()).bytes() {
            Some(key) => device.import(peer, key, accumulate),
            None => Err(Error::new(ErrorKind::Protocol, OP).peer(peer)),
        };
        match imported {
            Ok(remote) => remotes.push(remote),
            Err(e) => {
                failure = Some(e);
                break;
            }
        }
    }
    drop(others);
    // Every rank learns whether all ranks have imported all regions; from then on the regions' names are not needed.
    let verdict = failure.as_ref().map_or_else(|| vec![1], failure_message);
    let verdicts = allgather_short(team, OP, &verdict, 8)?;
    device.sealed(own.handle);
    match first_failure(team, &verdicts) {
        None => Ok(own),
        Some(e) => Err(failure.filter(|_| e.blamed() == Some(team.job().rank())).unwrap_or(e)),
    }
}

/// The message of a rank that has failed.
fn failure_message(e: &Error) -> Vec<u8> {
    let kind = ErrorKind::ALL.iter().position(|kind| *kind == e.kind()).unwrap_or(usize::MAX);
    Writer::new().u8(0).u32(kind as u32).bytes(e.to_string().as_bytes()).done()
}

/// The error of the first rank whose message reports a failure.
fn first_failure(team: &Team, said: &Gathered) -> Option<Error> {
    let (rank, message) = said.iter().enumerate().find(|(_, message)| message.first() != Some(&1))?;
    let mut r = Reader::new(message.get(1..).unwrap_or_default());
    let (kind, text) = (r.u32().and_then(|kind| ErrorKind::ALL.get(kind as usize)), r.bytes().unwrap_or_default());
    let e = Error::new(kind.copied().unwrap_or(ErrorKind::Protocol), OP).peer(team.members()[rank]);
    Some(e.cause(String::from_utf8_lossy(text)))
}
