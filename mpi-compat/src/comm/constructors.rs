//! New communicators made from existing ones (MPI-5.0 sections 7.4.2 and 7.6.2).
//!
//! The ranks agree on a communicator by one allgather over the old one: rank 0 contributes the contexts, and every rank
//! the color and key of its new communicator. If only a group creates it, its first member sends the contexts to the
//! others.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::c_int;
use std::rc::Rc;

use farside_core::coll::execute::{calls_made, has_refused_group_call, note_refused_group_call};
use farside_core::job::Job;
use farside_rma::Team;

use super::messages::{receive, send, send_beside};
use crate::arguments::Out;
use crate::collective::Form;
use crate::collective::control::ControlExchange;
use crate::collective::plan::Caller;
use crate::constants::*;
use crate::fail::{Result, fail};
use crate::group::process_set;
use crate::handle::{Comm, Group, Info, Request};
use crate::objects::{Attributes, CommObject, GroupObject, InfoObject, Members};
use crate::runtime::Call;

/// Two contexts for a new communicator: for the program's messages and collectives, and for this library's messages.
pub fn new_contexts(job: &Job) -> Result<[u32; 2]> {
    Ok([job.new_context()?, job.new_context()?])
}

/// Rank 0's contexts, as the words that it contributes to the exchange. If it has no context left, the call fails at
/// all ranks.
pub fn offer_contexts(caller: &Caller<'_>) -> Result<[u32; 2]> {
    let team = &caller.comm.team;
    if team.rank() > 0 {
        return Ok([0; 2]);
    }
    new_contexts(team.job()).map_err(|failed| caller.fail_everywhere(failed))
}

/// Splits a communicator: ranks that pass the same color form a group, ordered by key and then by their old ranks.
/// `None` for a rank without a color; on an intercommunicator also for a rank whose color no rank of the other group
/// has. Collective.
pub fn split(caller: &Caller<'_>, color: Option<u32>, key: i32) -> Result<Option<CommObject>> {
    let old = &caller.comm;
    let [context, inner] = offer_contexts(caller)?;
    let words = ControlExchange::gather(
        caller.call,
        &old.team,
        &[context, inner, color.is_some().into(), color.unwrap_or(0), key.cast_unsigned()],
    )?;
    let contexts = [words.of(0)[0], words.of(0)[1]];
    let Some(color) = color else { return Ok(None) };
    let chosen = |group: &GroupObject, first: usize| {
        let mut members = Vec::new();
        for (at, job_rank) in group.members.iter().enumerate() {
            let own_words = words.of(first + at);
            if own_words[2] == 1 && own_words[3] == color {
                members.push((own_words[4].cast_signed(), at, *job_rank));
            }
        }
        members.sort_unstable();
        GroupObject::new(members.into_iter().map(|(_, _, member)| member).collect::<Vec<_>>())
    };
    let remote = old.remote.as_ref().map(|remote| chosen(remote, old.team_rank(0)));
    if remote.as_ref().is_some_and(|remote| remote.members.is_empty()) {
        return Ok(None);
    }
    let local = chosen(&old.group, old.team.rank() - old.rank);
    let members = Members { local, remote, local_first: old.is_local_first() };
    CommObject::of(old, members, contexts).map(Some)
}

/// Returns the handle of the new communicator to the program.
pub fn put(call: &Call<'_>, new: Option<CommObject>, newcomm: Out<Comm>) {
    newcomm.set(new.map_or(MPI_COMM_NULL, |new| call.comms.insert(Rc::new(new))));
}

pub fn comm_split(call: &Call<'_>, comm: Comm, color: c_int, key: c_int, newcomm: Out<Comm>) -> Result {
    let caller = Caller::new(call, comm)?;
    let color = match color {
        MPI_UNDEFINED => None,
        0.. => Some(color.cast_unsigned()),
        _ => {
            return Err(
                fail(MPI_ERR_ARG, format!("is {color}, but must be MPI_UNDEFINED or nonnegative")).named("color")
            );
        }
    };
    put(call, split(&caller, color, key)?, newcomm);
    Ok(())
}

/// The key of the resource type of a split, and its value for the memory that the ranks of a node share.
const TYPE: &[u8] = b"mpi_hw_resource_type";
const SHARED: &[u8] = b"mpi_shared_memory";

/// The ranks of the job that share the resource of a guided split with this rank; `None` if there is no such resource.
/// If `sets` is true, process sets may guide the split in addition to the hardware.
fn guided_group<'a>(call: &Call<'_>, team: &'a Team, info: Info, sets: bool) -> Result<Option<Cow<'a, [u32]>>> {
    if info == MPI_INFO_NULL {
        return Ok(None);
    }
    let info = call.infos.get(info)?;
    if let Some(name) = info.get(b"mpi_pset_name").filter(|_| sets) {
        return Ok(process_set(team.job(), &name).map(Cow::Owned));
    }
    let shared = info.get(TYPE).as_deref() == Some(SHARED);
    Ok(shared.then(|| on_node(team)))
}

/// The members of a team that share memory with this rank, including this rank.
fn on_node(team: &Team) -> Cow<'_, [u32]> {
    let device = team.job().device();
    let on_this_node = |member: &u32| *member == team.job().rank_number() || device.shares_memory(*member);
    if team.members().iter().all(on_this_node) {
        return Cow::Borrowed(team.members());
    }
    Cow::Owned(team.members().iter().copied().filter(on_this_node).collect())
}

pub fn comm_split_type(
    call: &Call<'_>,
    comm: Comm,
    split_type: c_int,
    key: c_int,
    info: Info,
    newcomm: Out<Comm>,
) -> Result {
    let caller = Caller::new(call, comm)?;
    let team = &caller.comm.team;
    let mut named = None;
    let together = match split_type {
        MPI_COMM_TYPE_SHARED => Some(on_node(team)),
        // The result must be a proper subset of the communicator.
        MPI_COMM_TYPE_HW_UNGUIDED => {
            named = if info == MPI_INFO_NULL { None } else { Some(call.infos.get(info)?) };
            Some(on_node(team)).filter(|members| members.len() < team.size())
        }
        MPI_COMM_TYPE_HW_GUIDED => guided_group(call, team, info, false)?,
        MPI_COMM_TYPE_RESOURCE_GUIDED => guided_group(call, team, info, true)?,
        MPI_UNDEFINED => None,
        _ => return Err(fail(MPI_ERR_ARG, format!("is {split_type}, not a split type")).named("split_type")),
    };
    let color = together.and_then(|members| members.first().copied());
    let new = split(&caller, color, key)?;
    // An unguided split reports the resource type that it has used.
    if let Some(info) = named.filter(|_| new.is_some()) {
        info.set(TYPE.to_vec(), SHARED.to_vec());
    }
    put(call, new, newcomm);
    Ok(())
}

/// The error text for processes that pass groups with different members, or with the members in different orders.
const DIFFERS: &str = "differs between processes, which must all pass the same members in the same order";

/// Agrees on contexts for a communicator that only a group creates. Its members send their words `own_words` to the
/// leader, the member with the lowest rank in the job, which replies with the contexts; with an empty message if the
/// words differ; or with the rank of a member at which the call has failed. Two messages for each other member.
pub fn agree_in_group(
    call: &Call<'_>,
    (comm, context): (Option<&CommObject>, u32),
    group: &GroupObject,
    tag: i32,
    own_words: &[u32],
) -> Result<[u32; 2]> {
    let job = call.job()?;
    let leader = group.members.iter().copied().min().unwrap_or(0);
    if job.rank_number() != leader {
        let own_words = [&[comm.map_or(0, |comm| calls_made(&comm.team))], own_words].concat();
        let words = send_beside(call, context, leader, tag, &own_words, || receive(call, comm, context, leader, tag))?;
        return match words[..] {
            [context, inner] => Ok([context, inner]),
            [member] => Err(fail(MPI_ERR_OTHER, format!("the call has failed at rank {member} of the job"))),
            _ => Err(fail(MPI_ERR_GROUP, DIFFERS).named("group")),
        };
    }
    // The error, and the reply to the waiting members.
    let (mut waiting, mut failed) = (Vec::new(), None);
    for member in group.members.iter().copied().filter(|member| *member != leader) {
        match receive_words(call, (comm, context), member, tag) {
            Ok(words) => {
                waiting.push(member);
                if words != own_words {
                    let text = format!("{DIFFERS}: rank {member} of the job passes another group");
                    failed.get_or_insert((fail(MPI_ERR_GROUP, text).named("group"), vec![]));
                }
            }
            Err(e) => _ = failed.get_or_insert((e, vec![member])),
        }
    }
    let agreed = failed.map_or_else(|| new_contexts(&job).map_err(|e| (e, vec![leader])), Err);
    let words = match &agreed {
        Ok(contexts) => &contexts[..],
        Err((_, words)) => words,
    };
    for member in waiting {
        send(call, context, member, tag, words)?;
    }
    agreed.map_err(|(e, _)| e)
}

/// Receives the words of a member, in a call that this rank has not rejected.
fn receive_words(
    call: &Call<'_>,
    (comm, context): (Option<&CommObject>, u32),
    member: u32,
    tag: i32,
) -> Result<Vec<u32>> {
    loop {
        let mut words = receive(call, comm, context, member, tag)?;
        let made = if words.is_empty() { 0 } else { words.remove(0) };
        if !comm.is_some_and(|comm| has_refused_group_call(&comm.team, made)) {
            return Ok(words);
        }
    }
}

/// Functions that only the members of a group, or the leaders of two groups, call on a communicator, with the index of
/// the communicator argument.
const GROUP_CALLS: [(&str, &str); 2] = [("MPI_Comm_create_group", "comm"), ("MPI_Intercomm_create", "peer_comm")];

/// Records that a group's call has failed at this rank, so that the other members do not wait for its message forever.
#[cold]
pub fn record_failed_group_call(call: &Call<'_>, handles: &[(&'static str, usize)]) {
    let argument = GROUP_CALLS.iter().find(|(function, _)| *function == call.name).map(|(_, argument)| argument);
    let handle = handles.iter().find(|(name, _)| Some(name) == argument);
    if let Some(comm) = handle.and_then(|(_, handle)| call.comms.get(Comm(*handle)).ok()) {
        note_refused_group_call(&comm.team);
    }
}

/// The rank of this process in a group, after checking that all members of the group are in the communicator.
fn group_and_rank(caller: &Caller<'_>, group: Group) -> Result<(Rc<GroupObject>, Option<usize>)> {
    let object = caller.call.groups.get(group)?;
    if let Some(other) = object.members.iter().find(|member| caller.comm.group.rank_of(**member).is_none()) {
        let text = format!("contains rank {other} of MPI_COMM_WORLD, which is not in the communicator");
        return Err(fail(MPI_ERR_GROUP, text).value(group.0));
    }
    let place = object.rank_of(caller.comm.team.job().rank_number());
    Ok((object, place))
}

pub fn comm_create(call: &Call<'_>, comm: Comm, group: Group, newcomm: Out<Comm>) -> Result {
    let caller = Caller::new(call, comm)?;
    let (group, place) = group_and_rank(&caller, group)?;
    // Different groups have no member in common; those of the two sides of an intercommunicator belong together.
    let color = if caller.is_inter() { Some(0) } else { group.members.first().copied() };
    let made = split(&caller, place.and(color), place.unwrap_or(0) as i32)?;
    if made.as_ref().is_some_and(|made| made.group.members != group.members) {
        return Err(fail(MPI_ERR_GROUP, DIFFERS).named("group"));
    }
    put(call, made, newcomm);
    Ok(())
}

pub fn comm_create_group(call: &Call<'_>, comm: Comm, group: Group, tag: c_int, newcomm: Out<Comm>) -> Result {
    let caller = Caller::new(call, comm)?;
    if caller.is_inter() {
        return Err(
            fail(MPI_ERR_COMM, "is an intercommunicator, but the call requires an intracommunicator").value(comm.0)
        );
    }
    if tag < 0 {
        return Err(fail(MPI_ERR_TAG, format!("is {tag}, but cannot be negative")).named("tag"));
    }
    let (group, place) = group_and_rank(&caller, group)?;
    if place.is_none() {
        newcomm.set(MPI_COMM_NULL);
        return Ok(());
    }
    let own_words: Vec<u32> = group.members.to_vec();
    let contexts = agree_in_group(call, (Some(&caller.comm), caller.comm.inner), &group, tag, &own_words)?;
    let members = Members { local: group, remote: None, local_first: true };
    put(call, Some(CommObject::of(&caller.comm, members, contexts)?), newcomm);
    Ok(())
}

/// Duplicates a communicator. Collective. The new handle refers to the old communicator until the contexts are agreed
/// on.
fn duplicate(call: &Call<'_>, comm: Comm, info: Option<Info>, newcomm: Out<Comm>, form: Form) -> Result {
    let caller = Caller { mode: form.mode(call)?, ..Caller::new(call, comm)? };
    let old = Rc::clone(&caller.comm);
    let attributes = Attributes::default();
    let info = match info {
        None => old.info.borrow().copy(),
        Some(MPI_INFO_NULL) => Rc::<InfoObject>::default(),
        Some(info) => call.infos.get(info)?.copy(),
    };
    // An attribute callback has failed, so the error names no argument.
    old.attributes.copy_to(comm.0, &attributes).map_err(|failed| caller.fail_everywhere(failed))?;
    let contexts = offer_contexts(&caller)?;
    // The blocking and the nonblocking form, with and without info, share one implementation.
    let plan = || ControlExchange::plan(&old.team, "MPI_Comm_dup", &contexts, caller.mode);
    let (plan, words) = caller.prepared(plan)?;
    let handle = call.comms.insert(Rc::clone(&old));
    let make = move |call: &Call<'_>| {
        let contexts = [words.of(0)[0], words.of(0)[1]];
        let (local, remote) = (Rc::clone(&old.group), old.remote.clone());
        let members = Members { local, remote, local_first: old.is_local_first() };
        let mut new = CommObject::of(&old, members, contexts)?;
        new.topology = old.topology.clone();
        new.info = RefCell::new(info);
        new.attributes = attributes;
        call.comms.replace(handle, Rc::new(new));
        Ok(())
    };
    let made = form.make(&caller, plan, Some(Box::new(make)));
    if made.is_err() {
        call.comms.release(handle)?;
    } else {
        newcomm.set(handle);
    }
    made
}

pub fn comm_dup(call: &Call<'_>, comm: Comm, newcomm: Out<Comm>) -> Result {
    duplicate(call, comm, None, newcomm, Form::Blocking)
}

pub fn comm_dup_with_info(call: &Call<'_>, comm: Comm, info: Info, newcomm: Out<Comm>) -> Result {
    duplicate(call, comm, Some(info), newcomm, Form::Blocking)
}

pub fn comm_idup(call: &Call<'_>, comm: Comm, newcomm: Out<Comm>, request: Out<Request>) -> Result {
    duplicate(call, comm, None, newcomm, Form::Started(request))
}

pub fn comm_idup_with_info(
    call: &Call<'_>,
    comm: Comm,
    info: Info,
    newcomm: Out<Comm>,
    request: Out<Request>,
) -> Result {
    duplicate(call, comm, Some(info), newcomm, Form::Started(request))
}
