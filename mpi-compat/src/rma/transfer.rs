#![allow(unsafe_code)]
//! Put and get (MPI-5.0 sections 12.3.1 and 12.3.2).

use std::ffi::{c_int, c_void};

use super::access::{Local, ORIGIN, Remote};
use crate::arguments::is_constant;
use crate::fail::Result;
use crate::handle::{Type, Win};
use crate::runtime::Call;

/// The direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Put,
    Get,
}

impl Remote {
    #[inline]
    pub fn transfer(&self, local: &Local, direction: Direction) -> Result {
        let Self { win, target, offset, elements } = self;
        let (target, offset) = (*target, *offset);
        if let (Some(here), Some(there)) = (local.elements.plain()?, elements.plain()?) {
            self.fits(here, there)?;
            // No bytes are in every range.
            let offset = if there == 0 { 0 } else { offset };
            // SAFETY: the program leaves the buffer alone until the operation is complete.
            return Ok(unsafe {
                match direction {
                    Direction::Put => win.raw().put(local.base, here, target, offset),
                    Direction::Get => win.raw().get(local.base, here, target, offset),
                }
            }?);
        }
        let (origin, at) = (local.elements.map()?, elements.map()?);
        self.fits(origin.size() as usize, at.size() as usize)?;
        // SAFETY: as above.
        Ok(unsafe {
            match direction {
                Direction::Put => win.raw().put_typed(local.base, &origin, target, offset, &at),
                Direction::Get => win.raw().get_typed(local.base, &origin, target, offset, &at),
            }
        }?)
    }
}

/// The local side, the place at the target, and what is there: arguments as the standard has them.
type Arguments = ((*const c_void, i64, Type), (c_int, i64), (i64, Type));

/// Transfers bytes of predefined types to or from memory that is mapped and ready, which is a copy: whether that is so. The lock
/// is held, and nothing that it reads is kept. Compiled for each direction, so that all of it becomes part of its caller.
#[inline(always)]
fn transfer_now<const PUT: bool>(call: &Call<'_>, (local, at, target): Arguments, win: Win) -> bool {
    let ((base, n, datatype), (rank, displacement)) = (local, at);
    let Some(len) = call.plain.size(n, datatype) else { return false };
    let same = (n, datatype) == target;
    if is_constant(base) || !same && call.plain.size(target.0, target.1) != Some(len) {
        return false;
    }
    let done = call.wins.peek(win, |win| {
        let Some((raw, target, offset)) = win.place(rank, displacement) else { return false };
        // SAFETY: the program leaves the buffer alone until the operation is complete.
        unsafe {
            if PUT {
                raw.put_now(base.cast(), len, target, offset)
            } else {
                raw.get_now(base.cast_mut().cast(), len, target, offset)
            }
        }
    });
    done == Some(true)
}

#[inline(always)]
fn transfer<const PUT: bool>(call: &Call<'_>, arguments: Arguments, win: Win) -> Result {
    if transfer_now::<PUT>(call, arguments, win) {
        return Ok(());
    }
    transfer_checked(call, arguments, win, if PUT { Direction::Put } else { Direction::Get })
}

#[inline(never)]
fn transfer_checked(call: &Call<'_>, (local, at, target): Arguments, win: Win, direction: Direction) -> Result {
    let remote = Remote::new(call, win, at, target)?;
    let local = Local::new(call, &ORIGIN, local)?;
    remote.map_or(Ok(()), |remote| remote.transfer(&local, direction))
}

#[inline(always)]
pub fn put(
    call: &Call<'_>,
    origin_addr: *const c_void,
    origin_count: i64,
    origin_datatype: Type,
    target_rank: c_int,
    target_disp: i64,
    target_count: i64,
    target_datatype: Type,
    win: Win,
) -> Result {
    let (origin, at) = ((origin_addr, origin_count, origin_datatype), (target_rank, target_disp));
    transfer::<true>(call, (origin, at, (target_count, target_datatype)), win)
}

#[inline(always)]
pub fn get(
    call: &Call<'_>,
    origin_addr: *mut c_void,
    origin_count: i64,
    origin_datatype: Type,
    target_rank: c_int,
    target_disp: i64,
    target_count: i64,
    target_datatype: Type,
    win: Win,
) -> Result {
    let (origin, at) = ((origin_addr.cast_const(), origin_count, origin_datatype), (target_rank, target_disp));
    transfer::<false>(call, (origin, at, (target_count, target_datatype)), win)
}
