//! Communicators (MPI-5.0 chapter 7).

mod constructors;
mod from_groups;
mod inter;
mod messages;

use std::ffi::c_int;
use std::rc::Rc;

use farside_core::Job;
use farside_core::bill::Account;
use farside_rma::Team;

use crate::arguments::{Out, Text, TextOut};
use crate::collective::plan::Caller;
use crate::constants::*;
use crate::errors;
use crate::fail::{Result, fail};
use crate::group::handle_of;
use crate::handle::{Comm, Group, Handle, Info};
use crate::objects::{CommObject, GroupObject, Members};
use crate::runtime::{Call, Runtime};

pub use constructors::*;
pub use from_groups::*;
pub use inter::*;

/// Creates `MPI_COMM_WORLD` and `MPI_COMM_SELF` of a job.
pub fn predefined(runtime: &Runtime, job: &Job) -> Result {
    let fix = |handle, team: Team, contexts, name: &str| -> Result {
        let local = GroupObject::new(team.members().to_vec());
        let members = Members { local, remote: None, local_first: true };
        let object = CommObject::new(team, members, contexts, errors::fatal(runtime))?;
        *object.name.borrow_mut() = name.into();
        runtime.comms.set_predefined(handle, Some(Rc::new(object)));
        Ok(())
    };
    if let Some(bill) = job.bill() {
        bill.name(Account::team(0), "MPI_COMM_WORLD");
        bill.name(Account::team(2), "MPI_COMM_SELF");
    }
    fix(MPI_COMM_WORLD, job.world()?, [0, 1], "MPI_COMM_WORLD")?;
    fix(MPI_COMM_SELF, Team::of(job, &[job.rank_number()], 2)?, [2, 3], "MPI_COMM_SELF")
}

pub fn comm_size(call: &Call<'_>, comm: Comm, size: Out<c_int>) -> Result {
    size.set(call.comms.get(comm)?.group.members.len() as c_int);
    Ok(())
}

pub fn comm_rank(call: &Call<'_>, comm: Comm, rank: Out<c_int>) -> Result {
    rank.set(call.comms.get(comm)?.rank as c_int);
    Ok(())
}

pub fn comm_group(call: &Call<'_>, comm: Comm, group: Out<Group>) -> Result {
    let object = call.comms.get(comm)?;
    group.set(handle_of(call, Rc::clone(&object.group.members), &object.group));
    Ok(())
}

fn remote(call: &Call<'_>, comm: Comm) -> Result<Rc<GroupObject>> {
    let intra =
        || fail(MPI_ERR_COMM, "is an intracommunicator, but the call requires an intercommunicator").value(comm.0);
    call.comms.get(comm)?.remote.clone().ok_or_else(intra)
}

pub fn comm_remote_size(call: &Call<'_>, comm: Comm, size: Out<c_int>) -> Result {
    size.set(remote(call, comm)?.members.len() as c_int);
    Ok(())
}

pub fn comm_remote_group(call: &Call<'_>, comm: Comm, group: Out<Group>) -> Result {
    let remote = remote(call, comm)?;
    group.set(handle_of(call, Rc::clone(&remote.members), &remote));
    Ok(())
}

pub fn comm_test_inter(call: &Call<'_>, comm: Comm, flag: Out<c_int>) -> Result {
    flag.set(call.comms.get(comm)?.remote.is_some().into());
    Ok(())
}

pub fn comm_compare(call: &Call<'_>, comm1: Comm, comm2: Comm, result: Out<c_int>) -> Result {
    let (first, second) = (call.comms.get(comm1)?, call.comms.get(comm2)?);
    let groups = match (&first.remote, &second.remote) {
        (None, None) => first.group.compare(&second.group),
        (Some(far), Some(other)) => less_similar(first.group.compare(&second.group), far.compare(other)),
        _ => MPI_UNEQUAL,
    };
    result.set(match groups {
        _ if Rc::ptr_eq(&first, &second) => MPI_IDENT,
        MPI_IDENT => MPI_CONGRUENT,
        other => other,
    });
    Ok(())
}

fn less_similar(a: c_int, b: c_int) -> c_int {
    let order = [MPI_IDENT, MPI_SIMILAR, MPI_UNEQUAL];
    let place = |result| order.iter().position(|known| *known == result);
    if place(a) > place(b) { a } else { b }
}

pub fn comm_set_name(call: &Call<'_>, comm: Comm, comm_name: Text) -> Result {
    let object = call.comms.get(comm)?;
    let name = comm_name.object_name()?;
    if let Some(bill) = object.team.job().bill() {
        bill.name(Account::team(object.context), &String::from_utf8_lossy(&name));
    }
    *object.name.borrow_mut() = name;
    Ok(())
}

pub fn comm_get_name(call: &Call<'_>, comm: Comm, comm_name: TextOut, resultlen: Out<c_int>) -> Result {
    // The null handle has a name too.
    let name = match comm.0 {
        Comm::NULL => Comm::NULL_NAME.into(),
        _ => call.comms.get(comm)?.name.borrow().clone(),
    };
    resultlen.set(comm_name.write(&name, MPI_MAX_OBJECT_NAME)? as c_int);
    Ok(())
}

pub fn comm_get_parent(_: &Call<'_>, parent: Out<Comm>) -> Result {
    // No process is spawned, so none has a parent.
    parent.set(MPI_COMM_NULL);
    Ok(())
}

pub fn comm_set_info(call: &Call<'_>, comm: Comm, info: Info) -> Result {
    let object = call.comms.get(comm)?;
    call.infos.get(info)?;
    // No hint changes the behaviour of a communicator, and unknown hints are ignored.
    drop(object);
    Ok(())
}

pub fn comm_get_info(call: &Call<'_>, comm: Comm, info_used: Out<Info>) -> Result {
    let used = call.comms.get(comm)?.info.borrow().copy();
    info_used.set(call.infos.insert(used));
    Ok(())
}

pub fn comm_free(call: &Call<'_>, comm: Out<Comm>) -> Result {
    let handle = comm.get();
    let object = call.comms.get(handle)?;
    if [MPI_COMM_WORLD, MPI_COMM_SELF].contains(&handle) {
        return Err(fail(MPI_ERR_COMM, "is predefined, and cannot be freed").value(handle.0).named("comm"));
    }
    object.attributes.clear(handle.0)?;
    call.comms.release(handle)?;
    comm.set(MPI_COMM_NULL);
    Ok(())
}

/// A barrier, after which the members' completed communication on the communicator has ended.
pub fn comm_disconnect(call: &Call<'_>, comm: Out<Comm>) -> Result {
    let caller = Caller::new(call, comm.get()).map_err(|failed| failed.named("comm"))?;
    caller.barrier()?.make(call)?;
    comm_free(call, comm)
}
