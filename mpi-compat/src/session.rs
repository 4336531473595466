//! Sessions (MPI-5.0 section 11.3): MPI without `MPI_Init`. A session is a handle of the job. The first session starts
//! the job, which lives until the process ends. Communicators are made from groups of its process sets; both, and
//! objects derived from them, refer to the session.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::rc::Rc;

use crate::arguments::{Out, Text, TextOut};
use crate::constants::*;
use crate::environment::start_job;
use crate::errhandler::Target;
use crate::errors::errhandler_for;
use crate::fail::{Result, fail};
use crate::group::{SETS, process_set};
use crate::handle::{Errhandler, Group, Info, Session};
use crate::lock::LOCK;
use crate::objects::{Attached, GroupObject, InfoObject, SessionObject};
use crate::rma::KINDS;
use crate::runtime::{Call, Phase, Runtime};

pub use crate::buffer::{session_attach_buffer, session_detach_buffer, session_flush_buffer, session_iflush_buffer};
pub use crate::comm::{comm_create_from_group, intercomm_create_from_groups};

const LEVELS: [&[u8]; 4] =
    [b"MPI_THREAD_SINGLE", b"MPI_THREAD_FUNNELED", b"MPI_THREAD_SERIALIZED", b"MPI_THREAD_MULTIPLE"];

/// The hints in effect.
fn hints(call: &Call<'_>, info: Info) -> Result<Rc<InfoObject>> {
    let used = InfoObject::of(&[("thread_level", "MPI_THREAD_MULTIPLE"), ("mpi_memory_alloc_kinds", KINDS)]);
    if info == MPI_INFO_NULL {
        return Ok(used);
    }
    if let Some(level) = call.infos.get(info)?.get(b"thread_level").filter(|level| LEVELS.contains(&&level[..])) {
        used.set(b"thread_level".to_vec(), level);
    }
    Ok(used)
}

pub fn session_init(call: &Call<'_>, info: Info, errhandler: Errhandler, session: Out<Session>) -> Result {
    let handler = errhandler_for(call, Target::Session, errhandler)?;
    let info = hints(call, info)?;
    start_job(call)?;
    if info.get(b"thread_level").as_deref() == Some(LEVELS[3]) {
        LOCK.allow_threads();
    }
    leave_at_exit(call);
    let object = SessionObject { errhandler: handler.into(), buffer: Attached::default(), info };
    call.sessions_open.set(call.sessions_open.get() + 1);
    call.set_active();
    session.set(call.sessions.insert(Rc::new(object)));
    Ok(())
}

pub fn session_finalize(call: &Call<'_>, session: Out<Session>) -> Result {
    let object = call.sessions.get(session.get())?;
    crate::buffer::end(call, &object.buffer)?;
    if call.sessions_open.get() == 1 && call.phase.get() != Phase::Running {
        crate::buffer::drain(call)?;
        crate::request::drain(call, &call.job()?)?;
    }
    call.sessions.release(session.get())?;
    session.set(MPI_SESSION_NULL);
    call.sessions_open.set(call.sessions_open.get() - 1);
    call.set_active();
    Ok(())
}

/// Makes this process leave the job when it exits, unless MPI is still in use then. `MPI_Finalize` need not be called,
/// and another session may follow, so the job cannot be left earlier.
fn leave_at_exit(call: &Call<'_>) {
    extern "C" fn leave() {
        Runtime::with(|runtime| {
            // A child created by fork has no job.
            if let Some(job) = runtime.job().ok().filter(|_| !runtime.active.get()) {
                // There is no caller to which to report an error, and the launcher sees this process end.
                let _ = job.leave();
            }
        });
    }
    if !call.leaves_at_exit.replace(true) {
        // SAFETY: glibc calls the function before it unloads the library, if that happens first.
        unsafe { libc::atexit(leave) };
    }
}

pub fn session_get_info(call: &Call<'_>, session: Session, info_used: Out<Info>) -> Result {
    info_used.set(call.infos.insert(call.sessions.get(session)?.info.copy()));
    Ok(())
}

/// The members of a process set.
fn set(call: &Call<'_>, name: Text) -> Result<Vec<u32>> {
    let text = name.read()?;
    let no_such_set = || {
        let text = format!("is {:?}, but the process sets are {}", String::from_utf8_lossy(&text), SETS.join(" and "));
        fail(MPI_ERR_ARG, text).named(name.name())
    };
    process_set(&call.job()?, &text).ok_or_else(no_such_set)
}

fn checked(call: &Call<'_>, session: Session, info: Info) -> Result {
    call.sessions.get(session)?;
    if info == MPI_INFO_NULL { Ok(()) } else { call.infos.get(info).map(|_| ()) }
}

pub fn session_get_num_psets(call: &Call<'_>, session: Session, info: Info, npset_names: Out<c_int>) -> Result {
    checked(call, session, info)?;
    npset_names.set(SETS.len() as c_int);
    Ok(())
}

pub fn session_get_nth_pset(
    call: &Call<'_>,
    session: Session,
    info: Info,
    n: c_int,
    pset_len: Out<c_int>,
    pset_name: TextOut,
) -> Result {
    checked(call, session, info)?;
    let name = usize::try_from(n).ok().and_then(|n| SETS.get(n));
    let out_of_range = || fail(MPI_ERR_ARG, format!("is {n}, but there are {} process sets", SETS.len())).named("n");
    let name = name.ok_or_else(out_of_range)?;
    let room = pset_len.get();
    let room = usize::try_from(room).map_err(|_| fail(MPI_ERR_ARG, format!("is {room}")).named("pset_len"))?;
    pset_name.write(name.as_bytes(), room)?;
    pset_len.set(name.len() as c_int + 1);
    Ok(())
}

pub fn session_get_pset_info(call: &Call<'_>, session: Session, pset_name: Text, info: Out<Info>) -> Result {
    call.sessions.get(session)?;
    let size = set(call, pset_name)?.len();
    info.set(call.infos.insert(InfoObject::of(&[("mpi_size", &size.to_string())])));
    Ok(())
}

pub fn group_from_session_pset(call: &Call<'_>, session: Session, pset_name: Text, newgroup: Out<Group>) -> Result {
    let object = call.sessions.get(session)?;
    newgroup.set(call.groups.insert(GroupObject::of(set(call, pset_name)?, Some(&object))));
    Ok(())
}
