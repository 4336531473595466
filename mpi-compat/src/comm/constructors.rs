//! New communicators made from existing ones (MPI-5.0 sections 7.4.2 and 7.6.2).
//!
//! The ranks agree on a communicator by one allgather over the old one: rank 0 gives the contexts, and every rank gives
//! the color and key of its new communicator. If only a group makes it, its first member sends the contexts to the
//! others.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::c_int;
use std::rc::Rc;

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

/// The contexts of rank 0 of a team, as sent in the exchange with the others. If it has none left, the call fails at all
/// ranks.
pub fn offered(caller: &Caller<'_>) -> Result<[u32; 2]> {
    let team = &caller.comm.team;
    if team.rank() > 0 {
        return Ok([0; 2]);
    }
    new_contexts(team.job()).map_err(|failed| caller.fail_everywhere(failed))
}

/// Splits a communicator: ranks that give the same color are together, ordered by key and then by their old ranks.
/// `None` for a rank without a color; on an intercommunicator also for a rank whose color no rank of the other group
/// has. Collective.
pub fn split(caller: &Caller<'_>, color: Option<u32>, key: i32) -> Result<Option<CommObject>> {
    let old = &caller.comm;
    let [context, inner] = offered(caller)?;
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
            let said = words.of(first + at);
            if said[2] == 1 && said[3] == color {
                members.push((said[4].cast_signed(), at, *job_rank));
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

/// Gives the program the handle of the new communicator.
pub fn put(call: &Call<'_>, new: Option<CommObject>, newcomm: Out<Comm>) {
    newcomm.set(new.map_or(MPI_COMM_NULL, |new| call.comms.insert(Rc::new(new))));
}

pub fn comm_split(call: &Call<'_>, comm: Comm, color: c_int, key: c_int, newcomm: Out<Comm>) -> Result {
    let caller = Caller::new(call, comm)?;
    let color = match color {
        MPI_UNDEFINED => None,
        0.. => Some(color.cast_unsigned()),
        _ => return Err(fail(MPI_ERR_ARG, format!("is {color}, neither MPI_UNDEFINED nor at least 0")).named("color")),
    };
    put(call, split(&caller, color, key)?, newcomm);
    Ok(())
}

/// The key of the resource type of a split, and its value for the memory that the ranks of a node share.
const TYPE: &[u8] = b"mpi_hw_resource_type";
const SHARED: &[u8] = b"mpi_shared_memory";

/// The ranks of the job that share the resource of a guided split with this rank; `None` if there is no such resource.
/// If `sets` is true, process sets may guide the split too, not only the hardware.
fn guided<'a>(call: &Call<'_>, team: &'a Team, info: Info, sets: bool) -> Result<Option<Cow<'a, [u32]>>> {
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
        MPI_COMM_TYPE_HW_GUIDED => guided(call, team, info, false)?,
        MPI_COMM_TYPE_RESOURCE_GUIDED => guided(call, team, info, true)?,
        MPI_UNDEFINED => None,
        _ => return Err(fail(MPI_ERR_ARG, format!("is {split_type}, not a split type")).named("split_type")),
    };
    let color = together.and_then(|members| members.first().copied());
    let new = split(&caller, color, key)?;
    // An unguided split reports the resource by which it has split.
    if let Some(info) = named.filter(|_| new.is_some()) {
        info.set(TYPE.to_vec(), SHARED.to_vec());
    }
    put(call, new, newcomm);
    Ok(())
}

/// The error text for processes that pass groups with different members, or with the members in different orders.
const DIFFERS: &str = "is not the group that all members give, with the same members in the same order";

/// Contexts for a communicator that only a group makes. Its members send their words `said` to the member with the
/// lowest rank in the job, which sends the contexts to all, or nothing if the words differ. Two messages for each other
/// member.
pub fn agree_in_group(call: &Call<'_>, context: u32, group: &GroupObject, tag: i32, said: &[u32]) -> Result<[u32; 2]> {
    let differs = || fail(MPI_ERR_GROUP, DIFFERS).named("group");
    let job = call.job()?;
    let leader = group.members.iter().copied().min().unwrap_or(0);
    if job.rank_number() != leader {
        let words = send_beside(call, context, leader, tag, said, || receive(call, context, leader, tag))?;
        return words.try_into().map_err(|_| differs());
    }
    let others = || group.members.iter().copied().filter(|member| *member != leader);
    let mut other = None;
    for member in others() {
        if receive(call, context, member, tag)? != said {
            other = other.or(Some(member));
        }
    }
    let named = |member| fail(MPI_ERR_GROUP, format!("{DIFFERS}: see rank {member} of the job")).named("group");
    let contexts = other.map_or_else(|| new_contexts(&job), |member| Err(named(member)));
    for member in others() {
        send(call, context, member, tag, contexts.as_ref().map_or(&[], |contexts| contexts))?;
    }
    contexts
}

/// The rank of this process in a group, after checking that the group's members are of the communicator.
fn place_in(caller: &Caller<'_>, group: Group) -> Result<(Rc<GroupObject>, Option<usize>)> {
    let object = caller.call.groups.get(group)?;
    if let Some(other) = object.members.iter().find(|member| caller.comm.group.rank_of(**member).is_none()) {
        let text = format!("has rank {other} of MPI_COMM_WORLD, which is not in the communicator");
        return Err(fail(MPI_ERR_GROUP, text).value(group.0));
    }
    let place = object.rank_of(caller.comm.team.job().rank_number());
    Ok((object, place))
}

pub fn comm_create(call: &Call<'_>, comm: Comm, group: Group, newcomm: Out<Comm>) -> Result {
    let caller = Caller::new(call, comm)?;
    let (group, place) = place_in(&caller, group)?;
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
        return Err(fail(MPI_ERR_COMM, "is an intercommunicator").value(comm.0));
    }
    if tag < 0 {
        return Err(fail(MPI_ERR_TAG, format!("is {tag}")).named("tag"));
    }
    let (group, place) = place_in(&caller, group)?;
    if place.is_none() {
        newcomm.set(MPI_COMM_NULL);
        return Ok(());
    }
    let said: Vec<u32> = group.members.to_vec();
    let contexts = agree_in_group(call, caller.comm.inner, &group, tag, &said)?;
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
    // A function of the program has failed, so no argument is at fault.
    old.attributes.copy_to(comm.0, &attributes).map_err(|failed| caller.fail_everywhere(failed))?;
    let contexts = offered(&caller)?;
    // The blocking and the other form, with and without info, are one call.
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
