#![allow(unsafe_code)]
//! Exchange of registrations among the ranks of a team.

use std::rc::Rc;

use super::bytes::agree;
use super::{Gathered, PeerTable, allgather_short};
use crate::bootstrap::{Directory, Exchange, Published};
use crate::coll::team::Team;
use crate::device::{Registration, RemoteRegion};
use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;
use crate::memory::keys::AccumulateFn;
use crate::wire::{Reader, Writer};

/// Exchanges regions: every rank of the team learns the key of every other rank's registration and imports it. If one
/// rank fails, all fail and release their registrations. Takes two allgathers, or one if a rank had no registration.
///
/// # Safety
/// `own` is a registration of the device of the team's job. If the exchange fails, its memory is no longer used.
///
/// # Errors
/// The error of the first rank that failed, with that rank as the peer. Its kind is the same at every rank, so that all
/// can choose the same fallback. Errors of an allgather.
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
            // The memory is released even if a peer is lost, since the caller has no handle to release it.
            for r in remotes {
                // SAFETY: the region was not given to the caller.
                unsafe { device.forget(r.handle) };
            }
            // SAFETY: by the contract the memory is no longer used.
            unsafe { release(team, handle) };
            Err(e)
        }
    }
}

/// Releases the registration of a rank that has failed.
///
/// # Safety
/// The memory is no longer used.
unsafe fn release(team: &Team, handle: Option<u64>) {
    if let Some(Err(kept)) = handle.map(|h| {
        // SAFETY: by the caller's contract.
        unsafe { team.job().device().release(h) }
    }) {
        tracing::warn!("a region was not released: {kept}");
    }
}

/// [`exchange_regions`], and returns a table of the results of `make` for each region, by team rank. In a team of more
/// than 256 ranks of one process (a simulation), a peer's region is imported when its entry is first used, so that a
/// rank needs memory only for the peers with which it communicates; an allreduce then takes the place of the
/// allgathers. If the peer has released its memory by then, its entry is an empty region with handle 0.
///
/// # Safety
/// The contract of [`exchange_regions`].
///
/// # Errors
/// Those of [`exchange_regions`]; `Mismatch`, unless `len` is `None`, if a region has another length.
pub unsafe fn exchange_into<T>(
    team: &Team,
    own: Result<Registration>,
    accumulate: Option<AccumulateFn>,
    len: Option<usize>,
    make: impl Fn(usize, RemoteRegion) -> T + 'static,
) -> Result<(Registration, PeerTable<T>)> {
    let job = team.job();
    let Some((directory, exchange)) = team.directory() else {
        // SAFETY: the same contract.
        let (own, regions) = unsafe { exchange_regions(team, own, accumulate) }?;
        if let Some((r, len)) = len.and_then(|len| Some((*regions.iter().find(|r| r.len != len)?, len))) {
            // SAFETY: the regions were not given to the caller, whose memory is no longer used.
            unsafe {
                regions.iter().for_each(|r| job.device().forget(r.handle));
                release(team, Some(own.handle));
            }
            let e = Error::new(ErrorKind::Mismatch, OP).peer(r.peer);
            return Err(e.cause(format!("the peer's region has {} bytes, but {len} are expected", r.len)));
        }
        let all = regions.into_iter().enumerate().map(|(rank, region)| make(rank, region)).collect();
        return Ok((own, PeerTable::of_all(all)));
    };
    let handle = own.as_ref().ok().map(|r| r.handle);
    let (own, published) = publish(team, own, len.is_some(), &directory, exchange).inspect_err(|_| {
        // SAFETY: by the contract the memory is no longer used.
        unsafe { release(team, handle) };
    })?;
    let members = Rc::clone(&team.membership().ranks);
    let keys = Keys { job: job.clone(), members, directory, exchange, accumulate, _published: published };
    Ok((own, PeerTable::made_later(team.size(), move |rank| make(rank, keys.import(rank)))))
}

/// Publishes the key of this rank's registration, and reports whether all ranks have done so. Takes one allreduce.
fn publish(
    team: &Team,
    own: Result<Registration>,
    same_len: bool,
    directory: &Directory,
    exchange: Exchange,
) -> Result<(Registration, Published)> {
    const NONE: u64 = u64::MAX;
    let (me, job) = (team.rank(), team.job());
    job.running(OP)?;
    let published = match &own {
        Ok(own) => Some(directory.publish(exchange, job.rank_number(), &key_message(own))),
        Err(e) => {
            // The message stays in the directory, since other ranks read it after this one has returned.
            directory.put(exchange, job.rank_number(), &failure_message(e));
            None
        }
    };
    // The first rank that has failed, and the minimum and maximum lengths.
    let len = own.as_ref().map_or(0, |own| own.len as u64);
    let failed = if own.is_ok() { NONE } else { me as u64 };
    let words = |bytes: &[u8]| -> [u64; 3] {
        std::array::from_fn(|i| bytes[8 * i..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word)))
    };
    let bytes = |words: [u64; 3]| words.map(u64::to_le_bytes).concat();
    let all = agree(team, OP, &bytes([failed, len, len]), &mut |one, other| {
        let ([f, least, most], [g, low, high]) = (words(one), words(other));
        one.copy_from_slice(&bytes([f.min(g), least.min(low), most.max(high)]));
    })?;
    let [failed, least, most] = words(&all);
    if failed != NONE {
        let peer = team.job_rank(failed as usize)?;
        let e = failure_of(peer, &directory.get(exchange, peer).unwrap_or_default());
        return Err(own.err().filter(|_| failed == me as u64).unwrap_or(e));
    }
    let own = own?;
    if same_len && least != most {
        return Err(Error::new(ErrorKind::Mismatch, OP)
            .cause(format!("regions have {least} to {most} bytes, but equal lengths are expected")));
    }
    job.device().sealed(own.handle);
    let published = published.ok_or_else(|| Error::new(ErrorKind::Protocol, OP))?;
    Ok((own, published))
}

/// The keys that the ranks of a team have published.
struct Keys {
    job: Job,
    members: Rc<[u32]>,
    directory: Directory,
    exchange: Exchange,
    accumulate: Option<AccumulateFn>,
    _published: Published,
}

impl Keys {
    /// Imports the region of a team rank.
    fn import(&self, rank: usize) -> RemoteRegion {
        let peer = self.members[rank];
        let message = self.directory.get(self.exchange, peer).unwrap_or_default();
        let key = Reader::new(message.get(1..).unwrap_or_default()).bytes();
        let imported = key.map(|key| self.job.device().import(peer, key, self.accumulate));
        imported.and_then(Result::ok).unwrap_or(RemoteRegion {
            peer,
            len: 0,
            handle: 0,
            mapped: None,
            lists: None,
            steps: false,
        })
    }
}

/// The announcements of the ranks of a team.
#[derive(Debug)]
pub struct Announced(Source);

#[derive(Debug)]
enum Source {
    All(Gathered),
    Directory { directory: Directory, exchange: Exchange, members: Rc<[u32]>, _published: Published },
}

impl Announced {
    /// Calls `read` with the announcement of a team rank, or with an empty slice if that rank no longer uses its own.
    pub fn read<R>(&self, rank: usize, read: impl FnOnce(&[u8]) -> R) -> R {
        match &self.0 {
            Source::All(all) => read(all.get(rank)),
            Source::Directory { directory, exchange, members, .. } => {
                let peer = members.get(rank);
                read(&peer.and_then(|peer| directory.get(*exchange, *peer)).unwrap_or_default())
            }
        }
    }
}

/// Announces `mine`, which has the same length and purpose at all ranks, to the ranks of the team; returns the result
/// of `merge` for all announcements, in rank order, and the announcements. Takes one allgather, or an allreduce if
/// peers read announcements on demand ([`exchange_into`]).
///
/// # Errors
/// `PeerLost`; `Mismatch` if a peer makes another collective call.
pub fn announce(
    team: &Team,
    purpose: &'static str,
    mine: &[u8],
    merge: &mut dyn FnMut(&mut [u8], &[u8]),
) -> Result<(Vec<u8>, Announced)> {
    if let Some((directory, exchange)) = team.directory() {
        let published = directory.publish(exchange, team.job().rank_number(), mine);
        let merged = agree(team, purpose, mine, merge)?;
        let members = Rc::clone(&team.membership().ranks);
        return Ok((merged, Announced(Source::Directory { directory, exchange, members, _published: published })));
    }
    let all = allgather_short(team, purpose, mine, mine.len())?;
    let mut merged = all.get(0).to_vec();
    all.iter().skip(1).for_each(|other| merge(&mut merged, other));
    Ok((merged, Announced(Source::All(all))))
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
    let message = own.as_ref().map_or_else(failure_message, key_message);
    // Keys of a network, and keys of shared memory and networks together, have fewer bytes than this.
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
    // By this exchange every rank knows that all ranks have imported all regions, so the regions' names are no longer
    // needed.
    let verdict = failure.as_ref().map_or_else(|| vec![1], failure_message);
    let verdicts = allgather_short(team, OP, &verdict, 8)?;
    device.sealed(own.handle);
    match first_failure(team, &verdicts) {
        None => Ok(own),
        Some(e) => Err(failure.filter(|_| e.blamed() == Some(team.job().rank())).unwrap_or(e)),
    }
}

/// The message of a rank with its key.
fn key_message(own: &Registration) -> Vec<u8> {
    Writer::new().u8(1).bytes(&own.key).done()
}

/// The message of a rank that has failed.
fn failure_message(e: &Error) -> Vec<u8> {
    let kind = ErrorKind::ALL.iter().position(|kind| *kind == e.kind()).unwrap_or(usize::MAX);
    Writer::new().u8(0).u32(kind as u32).bytes(e.to_string().as_bytes()).done()
}

/// The error of the first rank whose message reports a failure.
fn first_failure(team: &Team, said: &Gathered) -> Option<Error> {
    let (rank, message) = said.iter().enumerate().find(|(_, message)| message.first() != Some(&1))?;
    Some(failure_of(team.members()[rank], message))
}

/// The error that the message of rank `peer` reports.
fn failure_of(peer: u32, message: &[u8]) -> Error {
    let mut r = Reader::new(message.get(1..).unwrap_or_default());
    let (kind, text) = (r.u32().and_then(|kind| ErrorKind::ALL.get(kind as usize)), r.bytes().unwrap_or_default());
    let e = Error::new(kind.copied().unwrap_or(ErrorKind::Protocol), OP).peer(peer);
    e.cause(String::from_utf8_lossy(text))
}
