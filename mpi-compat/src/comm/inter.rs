//! Intercommunicators (MPI-5.0 section 7.6): two groups, each of whose ranks communicate with the ranks of the other
//! group.
//!
//! The team of an intercommunicator contains both groups, in the same order at all ranks. The two leaders exchange
//! their groups by one message each, and distribute them in their own group by two broadcasts.

use std::ffi::c_int;
use std::rc::Rc;

use super::constructors::{new_contexts, offer_contexts, put};
use super::messages::{receive, send_beside};
use crate::arguments::Out;
use crate::collective::control::ControlExchange;
use crate::collective::plan::Caller;
use crate::constants::*;
use crate::fail::{Result, fail};
use crate::handle::Comm;
use crate::objects::{CommObject, GroupObject, Members};
use crate::runtime::Call;

/// The peer communicator, and the rank of the other leader in the job.
fn other_leader(local: &Caller<'_>, peer: Comm, remote_leader: c_int) -> Result<(Rc<CommObject>, u32)> {
    let peers = local.call.comms.get(peer).map_err(|failed| failed.named("peer_comm"))?;
    let found = usize::try_from(remote_leader).ok().and_then(|rank| peers.peers.members.get(rank).copied());
    let other = found.ok_or_else(|| {
        let text = format!("is {remote_leader}, but peer_comm has {} ranks", peers.peers.members.len());
        fail(MPI_ERR_RANK, text).named("remote_leader")
    })?;
    if local.comm.group.members.contains(&other) {
        let text = format!("is {remote_leader}, a process that is also in local_comm");
        return Err(fail(MPI_ERR_RANK, text).named("remote_leader"));
    }
    Ok((peers, other))
}

/// The message from one leader to the other: contexts, and the members of its group.
fn exchange(call: &Call<'_>, local: &Caller<'_>, peers: &CommObject, other: u32, tag: c_int) -> Result<Vec<u32>> {
    let (job, mine) = (peers.team.job(), &local.comm.group.members);
    // Tags of communicators that groups create are nonnegative, so the complement of this tag matches none of them.
    let (inner, tag) = (peers.inner, !tag);
    let contexts = new_contexts(job)?;
    // Both leaders send first, and neither waits for its send before it receives.
    let offer = [&contexts[..], mine].concat();
    let theirs = send_beside(call, inner, other, tag, &offer, || receive(call, Some(peers), inner, other, tag))?;
    // The leader with the lower rank in the job provides the contexts.
    let first = job.rank_number() < other;
    let chosen = if first { &contexts[..] } else { &theirs[..theirs.len().min(2)] };
    Ok([&[u32::from(first)], chosen, &theirs[theirs.len().min(2)..]].concat())
}

pub fn intercomm_create(
    call: &Call<'_>,
    local_comm: Comm,
    local_leader: c_int,
    peer_comm: Comm,
    remote_leader: c_int,
    tag: c_int,
    newintercomm: Out<Comm>,
) -> Result {
    let caller = Caller::new(call, local_comm)?;
    let (local, size) = (&caller.comm, caller.local_size());
    if caller.is_inter() {
        return Err(fail(MPI_ERR_COMM, "is an intercommunicator, but the call requires an intracommunicator")
            .value(local_comm.0));
    }
    if tag < 0 {
        return Err(fail(MPI_ERR_TAG, format!("is {tag}, but cannot be negative")).named("tag"));
    }
    let leader = usize::try_from(local_leader).ok().filter(|leader| *leader < size).ok_or_else(|| {
        fail(MPI_ERR_RANK, format!("is {local_leader}, but local_comm has {size} ranks")).named("local_leader")
    })?;
    let mut words = Vec::new();
    if local.rank == leader {
        let (peers, other) = other_leader(&caller, peer_comm, remote_leader)?;
        let exchanged = exchange(call, &caller, &peers, other, tag);
        words = exchanged.map_err(|failed| caller.fail_everywhere(failed))?;
    }
    let length = ControlExchange::from(call, &local.team, leader, &[words.len() as u32])?;
    words.resize(length[0] as usize, 0);
    let words = ControlExchange::from(call, &local.team, leader, &words)?;
    let [first, context, inner, remote @ ..] = &words[..] else {
        return Err(fail(MPI_ERR_INTERN, "the message of the other leader contains no group"));
    };
    if let Some(rank) = remote.iter().find(|rank| local.group.members.contains(rank)) {
        return Err(fail(MPI_ERR_COMM, format!("both groups contain rank {rank} of MPI_COMM_WORLD")));
    }
    let remote = Some(GroupObject::new(remote.to_vec()));
    let members = Members { local: Rc::clone(&local.group), remote, local_first: *first == 1 };
    put(call, Some(CommObject::of(local, members, [*context, *inner])?), newintercomm);
    Ok(())
}

pub fn intercomm_merge(call: &Call<'_>, intercomm: Comm, high: c_int, newintracomm: Out<Comm>) -> Result {
    let caller = Caller::new(call, intercomm)?;
    let old = &caller.comm;
    let remote = old.remote.clone();
    let remote = remote.ok_or_else(|| {
        fail(MPI_ERR_COMM, "is an intracommunicator, but the call requires an intercommunicator").value(intercomm.0)
    })?;
    let contexts = offer_contexts(&caller)?;
    let words = ControlExchange::gather(call, &old.team, &[contexts[0], contexts[1], u32::from(high != 0)])?;
    let contexts = [words.of(0)[0], words.of(0)[1]];
    // The value of each group's first rank counts; if both are equal, the first group of the team is the low group.
    let local_first = old.is_local_first();
    let (other, local_at) = (old.team_rank(0), if local_first { 0 } else { remote.members.len() });
    let (mine, theirs) = (words.of(local_at)[2], words.of(other)[2]);
    let local_low = if mine == theirs { local_first } else { mine < theirs };
    let (low, upper) = if local_low { (&old.group, &remote) } else { (&remote, &old.group) };
    let local = GroupObject::new([&low.members[..], &upper.members[..]].concat());
    let members = Members { local, remote: None, local_first: true };
    put(call, Some(CommObject::of(old, members, contexts)?), newintracomm);
    Ok(())
}
