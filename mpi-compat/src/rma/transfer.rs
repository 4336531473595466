#![allow(unsafe_code)]
//! Put and get (MPI-5.0 sections 12.3.1 and 12.3.2).

use std::ffi::{c_int, c_void};

use super::Memory;
use super::access::{Local, ORIGIN, Remote};
use crate::fail::Result;
use crate::handle::{Type, Win};
use crate::runtime::Call;

/// Which way a transfer goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Put,
    Get,
}

impl Remote {
    #[inline]
    pub fn transfer(&self, local: &Local, way: Way) -> Result {
        let Self { win, target, offset, elements } = self;
        let (target, offset) = (*target, *offset);
        let dynamic = win.dynamic();
        if let (None, Some(here), Some(there)) = (dynamic, local.elements.plain()?, elements.plain()?) {
            self.fits(here, there)?;
            // SAFETY: the program leaves the buffer alone until the operation is complete.
            return Ok(unsafe {
                match way {
                    Way::Put => win.raw().put(local.base, here, target, offset),
                    Way::Get => win.raw().get(local.base, here, target, offset),
                }
            }?);
        }
        let (origin, at) = (local.elements.map()?, elements.map()?);
        self.fits(origin.size() as usize, at.size() as usize)?;
        // SAFETY: as above.
        Ok(unsafe {
            match (dynamic, way) {
                (Some(dynamic), Way::Put) => dynamic.put_at((local.base, &origin), target, offset, &at),
                (Some(dynamic), Way::Get) => dynamic.get_at((local.base, &origin), target, offset, &at),
                (None, Way::Put) => win.raw().put_typed(local.base, &origin, target, offset, &at),
                (None, Way::Get) => win.raw().get_typed(local.base, &origin, target, offset, &at),
            }
        }?)
    }
}

/// Puts bytes of predefined types to memory that is mapped and ready, which is a copy: whether that is so. The lock is held, and
/// nothing of what is looked at is kept.
#[inline(always)]
fn put_now(
    call: &Call<'_>,
    (from, n, datatype): (*const c_void, i64, Type),
    (rank, displacement): (c_int, i64),
    (target_count, target_datatype): (i64, Type),
    win: Win,
) -> bool {
    let Some(len) = call.plain_sizes.of(n, datatype) else { return false };
    let same = (n, datatype) == (target_count, target_datatype);
    if from.is_null() || !same && call.plain_sizes.of(target_count, target_datatype) != Some(len) {
        return false;
    }
    let done = call.wins.peek(win, |win| {
        let (Memory::Own(raw), target) = (&win.memory, rank as usize) else { return false };
        let unit = win.units.get(target);
        let offset = unit.and_then(|unit| usize::try_from(displacement.checked_mul(*unit)?).ok());
        // SAFETY: the program leaves the buffer alone until the operation is complete.
        offset.is_some_and(|offset| unsafe { raw.put_now(from.cast(), len, target, offset) })
    });
    done == Some(true)
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
    if put_now(call, origin, at, (target_count, target_datatype), win) {
        return Ok(());
    }
    put_checked(call, origin, at, (target_count, target_datatype), win)
}

#[inline(never)]
fn put_checked(
    call: &Call<'_>,
    origin: (*const c_void, i64, Type),
    at: (c_int, i64),
    target: (i64, Type),
    win: Win,
) -> Result {
    let remote = Remote::new(call, win, at, target)?;
    let local = Local::new(call, &ORIGIN, origin)?;
    remote.map_or(Ok(()), |remote| remote.transfer(&local, Way::Put))
}

#[inline]
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
    let remote = Remote::new(call, win, (target_rank, target_disp), (target_count, target_datatype))?;
    let local = Local::new(call, &ORIGIN, (origin_addr, origin_count, origin_datatype))?;
    remote.map_or(Ok(()), |remote| remote.transfer(&local, Way::Get))
}
