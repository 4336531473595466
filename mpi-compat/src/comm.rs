//! Communicators (MPI-5.0 chapter 7).

use std::cell::RefCell;
use std::ffi::c_int;
use std::rc::Rc;

use farside_rma::Team;

use crate::arguments::{Out, Text, TextOut};
use crate::attributes::Attributes;
use crate::buffer::Attached;
use crate::constants::*;
use crate::errors::{self, Handler};
use crate::fail::{Result, fail};
use crate::group::{GroupObject, handle_of};
use crate::handle::{Comm, Group, Info};
use crate::info::InfoObject;
use crate::runtime::{Call, Runtime};

/// A communicator.
pub struct CommObject {
    pub group: Rc<GroupObject>,
    /// Of intercommunicators.
    pub remote: Option<Rc<GroupObject>>,
    /// This rank in `group`.
    pub rank: usize,
    /// The numbers that keep its messages apart from those of others: point-to-point, and one more for collectives.
    pub context: u32,
    /// Its ranks below MPI, for collectives and windows.
    #[allow(dead_code)] // by collectives
    pub team: Option<Team>,
    pub name: RefCell<Vec<u8>>,
    pub attributes: Attributes,
    pub errhandler: Handler,
    pub info: RefCell<Rc<InfoObject>>,
    /// Of buffered sends.
    pub buffer: Attached,
}

impl CommObject {
    /// The ranks that messages go to and come from, as ranks of the job: of intercommunicators the remote group.
    pub fn peers(&self) -> &GroupObject {
        self.remote.as_ref().unwrap_or(&self.group)
    }

    fn new(group: Rc<GroupObject>, rank: usize, context: u32, name: &str, errhandler: Handler) -> Rc<Self> {
        Rc::new(Self {
            group,
            remote: None,
            rank,
            context,
            team: None,
            name: RefCell::new(name.into()),
            attributes: Attributes::default(),
            errhandler,
            info: RefCell::default(),
            buffer: Attached::default(),
        })
    }
}

/// Makes `MPI_COMM_WORLD` and `MPI_COMM_SELF` of a job. Collective.
pub fn predefined(runtime: &Runtime, job: &farside_core::Job) -> Result {
    let world = job.world()?;
    let everyone = GroupObject::new((0..job.size()).collect::<Vec<_>>());
    let mut object = CommObject::new(everyone, job.rank() as usize, 0, "MPI_COMM_WORLD", errors::fatal(runtime));
    if let Some(object) = Rc::get_mut(&mut object) {
        object.team = Some(world);
    }
    runtime.comms.fix(MPI_COMM_WORLD, Some(object));
    let alone = GroupObject::new([job.rank()]);
    runtime.comms.fix(MPI_COMM_SELF, Some(CommObject::new(alone, 0, 2, "MPI_COMM_SELF", errors::fatal(runtime))));
    Ok(())
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
    group.set(handle_of(call, Rc::clone(&object.group.members)));
    Ok(())
}

fn remote(call: &Call<'_>, comm: Comm) -> Result<Rc<GroupObject>> {
    let intra = || fail(MPI_ERR_COMM, "is an intracommunicator").value(comm.0);
    call.comms.get(comm)?.remote.clone().ok_or_else(intra)
}

pub fn comm_remote_size(call: &Call<'_>, comm: Comm, size: Out<c_int>) -> Result {
    size.set(remote(call, comm)?.members.len() as c_int);
    Ok(())
}

pub fn comm_remote_group(call: &Call<'_>, comm: Comm, group: Out<Group>) -> Result {
    group.set(handle_of(call, Rc::clone(&remote(call, comm)?.members)));
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
        (Some(far), Some(other)) => worse(first.group.compare(&second.group), far.compare(other)),
        _ => MPI_UNEQUAL,
    };
    result.set(match groups {
        _ if Rc::ptr_eq(&first, &second) => MPI_IDENT,
        MPI_IDENT => MPI_CONGRUENT,
        other => other,
    });
    Ok(())
}

fn worse(a: c_int, b: c_int) -> c_int {
    let order = [MPI_IDENT, MPI_SIMILAR, MPI_UNEQUAL];
    let place = |result| order.iter().position(|known| *known == result);
    if place(a) > place(b) { a } else { b }
}

/// A name as it is kept: no longer than what programs have room for.
pub fn name_of(text: Text) -> Result<Vec<u8>> {
    let mut name = text.read()?;
    name.truncate(MPI_MAX_OBJECT_NAME - 1);
    Ok(name)
}

pub fn comm_set_name(call: &Call<'_>, comm: Comm, comm_name: Text) -> Result {
    let object = call.comms.get(comm)?;
    *object.name.borrow_mut() = name_of(comm_name)?;
    Ok(())
}

pub fn comm_get_name(call: &Call<'_>, comm: Comm, comm_name: TextOut, resultlen: Out<c_int>) -> Result {
    let object = call.comms.get(comm)?;
    let len = comm_name.write(&object.name.borrow(), MPI_MAX_OBJECT_NAME)?;
    resultlen.set(len as c_int);
    Ok(())
}

pub fn comm_set_info(call: &Call<'_>, comm: Comm, info: Info) -> Result {
    let object = call.comms.get(comm)?;
    call.infos.get(info)?;
    // There are no hints that change how a communicator works, and those that are unknown are ignored.
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
