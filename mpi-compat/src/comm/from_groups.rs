//! Communicators made from groups alone (MPI-5.0 sections 7.4.2 and 7.6.2), such as the first communicator of a
//! session.
//!
//! The members have no communicator yet, so they agree by messages in a dedicated context, matched by the string tag:
//! the first member of a group, or the leader of each of two groups, sends the contexts (and the other group) to the
//! other members of its group, and leaders exchange their groups. The message carries a hash of the tag and groups,
//! which the receiver compares. Calls of one process with the same tag are not concurrent, so a message with a
//! different hash is an error.

use std::ffi::c_int;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use farside_core::Job;

use super::constructors::{agree_in_group, new_contexts, put};
use super::messages::{receive, send_beside};
use crate::arguments::{Out, Text};
use crate::constants::*;
use crate::errhandler::{ErrhandlerObject, Target};
use crate::errors::errhandler_for;
use crate::fail::{Result, fail};
use crate::handle::{Comm, Errhandler, Group, Info};
use crate::objects::{CommObject, GroupObject, Members};
use crate::runtime::Call;

/// The context of these messages; those of `MPI_COMM_WORLD` and `MPI_COMM_SELF` are lower.
const AGREEMENT: u32 = 4;

/// An agreement between the ranks that pass the same string tag and the same groups.
struct Agreement<'c> {
    call: &'c Call<'c>,
    job: Job,
    tag: i32,
    hash: u64,
}

impl<'c> Agreement<'c> {
    fn new(call: &'c Call<'c>, stringtag: Text, ranks: &[u32]) -> Result<Self> {
        let text = stringtag.read()?;
        if text.len() >= MPI_MAX_STRINGTAG_LEN {
            return Err(fail(
                MPI_ERR_ARG,
                format!("has {} bytes, but at most {} are allowed", text.len(), MPI_MAX_STRINGTAG_LEN - 1),
            )
            .named(stringtag.name()));
        }
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let tag = hasher.finish() as i32 & i32::MAX;
        ranks.hash(&mut hasher);
        Ok(Self { call, job: call.job()?, tag, hash: hasher.finish() })
    }

    fn words(&self) -> [u32; 2] {
        [self.hash as u32, (self.hash >> 32) as u32]
    }

    fn send_beside<R>(&self, to: u32, words: &[u32], other: impl FnOnce() -> Result<R>) -> Result<R> {
        send_beside(self.call, AGREEMENT, to, self.tag, &[&self.words(), words].concat(), other)
    }

    /// Receives at least `least` words from `from`.
    fn receive(&self, from: u32, least: usize) -> Result<Vec<u32>> {
        let mut words = receive(self.call, None, AGREEMENT, from, self.tag)?;
        if words.len() < 2 || words[..2] != self.words() {
            let text = format!("differs from the group that rank {from} of the job passes with the same stringtag");
            return Err(fail(MPI_ERR_GROUP, text).named("group"));
        }
        words.drain(..2);
        if words.len() < least {
            return Err(fail(MPI_ERR_OTHER, format!("the call has failed at rank {from} of the job")));
        }
        Ok(words)
    }

    /// Sends the words that `agreed` returns at the leader to the other members of a group; no words if it fails.
    fn distribute(
        &self,
        group: &GroupObject,
        leader: u32,
        least: usize,
        agreed: impl FnOnce() -> Result<Vec<u32>>,
    ) -> Result<Vec<u32>> {
        if self.job.rank_number() != leader {
            return self.receive(leader, least);
        }
        let agreed = agreed();
        let words = agreed.as_ref().map_or(&[][..], |words| words);
        for member in group.members.iter().filter(|member| **member != leader) {
            self.send_beside(*member, words, || Ok(()))?;
        }
        agreed
    }
}

/// The group from which a communicator is made; this rank must be a member.
fn own_group(call: &Call<'_>, group: Group, name: &'static str) -> Result<Rc<GroupObject>> {
    let object = call.groups.get(group)?;
    match object.rank_of(call.job()?.rank_number()) {
        Some(_) => Ok(object),
        None => Err(fail(MPI_ERR_GROUP, "does not contain this process").named(name)),
    }
}

fn from_group(
    call: &Call<'_>,
    group: Group,
    stringtag: Text,
    info: Info,
    handler: Rc<ErrhandlerObject>,
) -> Result<CommObject> {
    let group = own_group(call, group, "group")?;
    if info != MPI_INFO_NULL {
        call.infos.get(info)?;
    }
    let agreement = Agreement::new(call, stringtag, &group.members)?;
    let own_words = [&agreement.words()[..], &group.members].concat();
    let contexts = agree_in_group(call, (None, AGREEMENT), &group, agreement.tag, &own_words)?;
    let members = Members { local: group, remote: None, local_first: true };
    CommObject::on(&agreement.job, members, contexts, handler.into())
}

pub fn comm_create_from_group(
    call: &Call<'_>,
    group: Group,
    stringtag: Text,
    info: Info,
    errhandler: Errhandler,
    newcomm: Out<Comm>,
) -> Result {
    let handler = errhandler_for(call, Target::Comm, errhandler)?;
    if group == MPI_GROUP_EMPTY {
        newcomm.set(MPI_COMM_NULL);
        return Ok(());
    }
    put(call, Some(from_group(call, group, stringtag, info, handler)?), newcomm);
    Ok(())
}

/// The leader of a group, as a rank of the job.
fn leader_of(group: &GroupObject, leader: c_int, name: &'static str) -> Result<u32> {
    let found = usize::try_from(leader).ok().and_then(|leader| group.members.get(leader).copied());
    let not_a_member = || fail(MPI_ERR_RANK, format!("is {leader}, but the group has {} members", group.members.len()));
    found.ok_or_else(|| not_a_member().named(name))
}

/// The exchange between the leaders of two groups: which group comes first, the contexts, and the members of the other
/// group.
fn exchange(
    call: &Call<'_>,
    local: &GroupObject,
    (remote, leader): (Group, c_int),
    stringtag: Text,
) -> Result<Vec<u32>> {
    let remote = call.groups.get(remote)?;
    let (me, other) = (call.job()?.rank_number(), leader_of(&remote, leader, "remote_leader")?);
    if let Some(both) = remote.members.iter().find(|member| local.rank_of(**member).is_some()) {
        return Err(fail(MPI_ERR_GROUP, format!("contains rank {both} of the job, which is also in local_group"))
            .named("remote_group"));
    }
    let pair = Agreement::new(call, stringtag, &[me.min(other), me.max(other)])?;
    let contexts = new_contexts(&pair.job)?;
    // Both leaders send first, and neither waits for its send before it receives.
    let theirs = pair.send_beside(other, &contexts, || pair.receive(other, 2))?;
    // The leader with the lower rank in the job provides the contexts.
    let chosen = if me < other { &contexts[..] } else { &theirs[..2] };
    Ok([&[u32::from(me < other)], chosen, &remote.members].concat())
}

pub fn intercomm_create_from_groups(
    call: &Call<'_>,
    local_group: Group,
    local_leader: c_int,
    remote_group: Group,
    remote_leader: c_int,
    stringtag: Text,
    info: Info,
    errhandler: Errhandler,
    newintercomm: Out<Comm>,
) -> Result {
    let handler = errhandler_for(call, Target::Comm, errhandler)?;
    let local = own_group(call, local_group, "local_group")?;
    if info != MPI_INFO_NULL {
        call.infos.get(info)?;
    }
    let leader = leader_of(&local, local_leader, "local_leader")?;
    let agreement = Agreement::new(call, stringtag, &local.members)?;
    let exchanged = || exchange(call, &local, (remote_group, remote_leader), stringtag);
    let words = agreement.distribute(&local, leader, 4, exchanged)?;
    let remote = GroupObject::of(words[3..].to_vec(), local.session.as_ref());
    let members = Members { local, remote: Some(remote), local_first: words[0] == 1 };
    let new = CommObject::on(&agreement.job, members, [words[1], words[2]], handler.into())?;
    put(call, Some(new), newintercomm);
    Ok(())
}
