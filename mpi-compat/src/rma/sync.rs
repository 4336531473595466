#![allow(unsafe_code)]
//! Synchronization: fence, post-start-complete-wait, locks and flushes (MPI-5.0 section 12.5).

use std::ffi::c_int;
use std::rc::Rc;

use farside_rma::raw::RawWindow;
use farside_rma::{Assert, LockKind};

use crate::arguments::Out;
use crate::constants::*;
use crate::entry::Usual;
use crate::fail::{Result, fail};
use crate::handle::{Group, Win};
use crate::objects::WinObject;
use crate::runtime::Call;

const ASSERTS: [(c_int, Assert); 5] = [
    (MPI_MODE_NOCHECK, Assert::NOCHECK),
    (MPI_MODE_NOPRECEDE, Assert::NOPRECEDE),
    (MPI_MODE_NOPUT, Assert::NOPUT),
    (MPI_MODE_NOSTORE, Assert::NOSTORE),
    (MPI_MODE_NOSUCCEED, Assert::NOSUCCEED),
];

/// Converts the asserts of a call that allows those in `allowed`.
#[inline]
fn asserts(given: c_int, allowed: c_int) -> Result<Assert> {
    if given & !allowed != 0 {
        return Err(fail(MPI_ERR_ASSERT, format!("is {given:#x}, but the call allows only the bits {allowed:#x}"))
            .named("assert"));
    }
    let mut asserts = Assert::empty();
    if given != 0 {
        asserts.extend(ASSERTS.iter().filter(|(bit, _)| given & bit != 0).map(|(_, assert)| *assert));
    }
    Ok(asserts)
}

pub fn win_fence(call: &Call<'_>, assert: c_int, win: Win) -> Result {
    let object = call.wins.get(win)?;
    let all = MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED;
    Ok(object.raw().fence(asserts(assert, all)?)?)
}

/// The window ranks of a group's members.
fn ranks(call: &Call<'_>, object: &WinObject, group: Group) -> Result<Vec<usize>> {
    let members = Rc::clone(&call.groups.get(group)?.members);
    let rank = |member: &u32| {
        let none = || {
            fail(MPI_ERR_GROUP, format!("contains rank {member} of MPI_COMM_WORLD, which is not in the window's group"))
        };
        object.group.rank_of(*member).ok_or_else(|| none().value(group.0))
    };
    members.iter().map(rank).collect()
}

pub fn win_post(call: &Call<'_>, group: Group, assert: c_int, win: Win) -> Result {
    let object = call.wins.get(win)?;
    let asserts = asserts(assert, MPI_MODE_NOCHECK | MPI_MODE_NOSTORE | MPI_MODE_NOPUT)?;
    if object.raw().has_locked_itself() {
        return Err(fail(MPI_ERR_RMA_SYNC, "is locked at this rank, so it cannot be exposed").named("win"));
    }
    Ok(object.raw().post(&ranks(call, &object, group)?, asserts)?)
}

pub fn win_start(call: &Call<'_>, group: Group, assert: c_int, win: Win) -> Result {
    let object = call.wins.get(win)?;
    let asserts = asserts(assert, MPI_MODE_NOCHECK)?;
    Ok(object.raw().start(&ranks(call, &object, group)?, asserts)?)
}

pub fn win_complete(call: &Call<'_>, win: Win) -> Result {
    Ok(call.wins.get(win)?.raw().complete()?)
}

pub fn win_wait(call: &Call<'_>, win: Win) -> Result {
    Ok(call.wins.get(win)?.raw().wait()?)
}

pub fn win_test(call: &Call<'_>, win: Win, flag: Out<c_int>) -> Result {
    flag.set(call.wins.get(win)?.raw().test()?.into());
    Ok(())
}

/// Checks that a window may be locked; `own` says that the lock includes this rank's memory.
fn lockable(object: &WinObject, own: bool) -> Result {
    if own && object.raw().is_posted() {
        return Err(
            fail(MPI_ERR_RMA_SYNC, "is exposed at this rank by MPI_Win_post, so it cannot be locked").named("win")
        );
    }
    Ok(())
}

/// Opens an access epoch to a rank. `MPI_PROC_NULL`, which the standard allows only in operations, is accepted and
/// ignored, as in the calls below that name a rank.
#[inline(always)]
pub fn win_lock(call: Usual<'_>, lock_type: c_int, rank: c_int, assert: c_int, win: Win) -> Result<bool> {
    let kind = match lock_type {
        MPI_LOCK_EXCLUSIVE => Some(LockKind::Exclusive),
        MPI_LOCK_SHARED => Some(LockKind::Shared),
        _ => None,
    };
    if call.is_fast_path()
        && assert == 0
        && let Some(kind) = kind
        // SAFETY: the window is borrowed for a claim, which does not wait and calls no function of the program.
        && let Some(object) = unsafe { call.wins.borrow_object(win) }
        && !object.raw().is_posted()
        && object.raw().try_lock(kind, rank as usize)
    {
        return Ok(true);
    }
    call.slow_path(|call| {
        let object = call.wins.get(win)?;
        let kind = kind.ok_or_else(|| {
            fail(MPI_ERR_LOCKTYPE, format!("is {lock_type}, but must be MPI_LOCK_SHARED or MPI_LOCK_EXCLUSIVE"))
                .named("lock_type")
        })?;
        let asserts = asserts(assert, MPI_MODE_NOCHECK)?;
        let Some(target) = object.target(rank, "rank")? else { return Ok(()) };
        lockable(&object, target == object.raw().team().rank())?;
        object.raw().lock(kind, target, asserts)?;
        hold_if_loaded(&object, target)
    })
}

/// Waits until a requested lock is held if the program can load and store the target's memory, since the program may
/// access the memory once the call has returned.
#[inline]
fn hold_if_loaded(object: &WinObject, target: usize) -> Result {
    let raw = object.raw();
    if target == raw.team().rank() || raw.mapped_base(target)?.is_some() {
        raw.hold(target)?;
    }
    Ok(())
}

pub fn win_lock_all(call: &Call<'_>, assert: c_int, win: Win) -> Result {
    let object = call.wins.get(win)?;
    let asserts = asserts(assert, MPI_MODE_NOCHECK)?;
    lockable(&object, true)?;
    object.raw().lock_all(asserts)?;
    (0..object.units.len()).try_for_each(|target| hold_if_loaded(&object, target))
}

#[inline(always)]
pub fn win_unlock(call: Usual<'_>, rank: c_int, win: Win) -> Result<bool> {
    if call.is_fast_path()
        // SAFETY: as in `win_lock`.
        && let Some(object) = unsafe { call.wins.borrow_object(win) }
        && object.raw().try_unlock(rank as usize)
    {
        return Ok(true);
    }
    call.slow_path(|call| of_rank(call, rank, win, RawWindow::unlock))
}

pub fn win_unlock_all(call: &Call<'_>, win: Win) -> Result {
    Ok(call.wins.get(win)?.raw().unlock_all()?)
}

/// Takes a reference to a window, and calls a function on it that may wait, for a rank.
fn of_rank(call: &Call<'_>, rank: c_int, win: Win, f: fn(&RawWindow, usize) -> farside_rma::Result<()>) -> Result {
    let object = call.wins.get(win)?;
    object.target(rank, "rank")?.map_or(Ok(()), |target| Ok(f(object.raw(), target)?))
}

#[inline(always)]
pub fn win_flush(call: Usual<'_>, rank: c_int, win: Win) -> Result<bool> {
    if call.is_fast_path()
        // SAFETY: as in `win_lock`, for a flush that does not wait.
        && let Some(object) = unsafe { call.wins.borrow_object(win) }
        && object.raw().flush_if_idle(rank as usize)
    {
        return Ok(true);
    }
    call.slow_path(|call| of_rank(call, rank, win, RawWindow::flush))
}

pub fn win_flush_all(call: &Call<'_>, win: Win) -> Result {
    Ok(call.wins.get(win)?.raw().flush_all()?)
}

pub fn win_flush_local(call: &Call<'_>, rank: c_int, win: Win) -> Result {
    of_rank(call, rank, win, RawWindow::flush_local)
}

pub fn win_flush_local_all(call: &Call<'_>, win: Win) -> Result {
    Ok(call.wins.get(win)?.raw().flush_local_all()?)
}

pub fn win_sync(call: &Call<'_>, win: Win) -> Result {
    Ok(call.wins.get(win)?.raw().sync()?)
}
