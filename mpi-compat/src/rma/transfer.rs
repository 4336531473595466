#![allow(unsafe_code)]
//! Put and get (MPI-5.0 sections 12.3.1 and 12.3.2).

use std::ffi::{c_int, c_void};

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

#[inline]
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
    let remote = Remote::new(call, win, (target_rank, target_disp), (target_count, target_datatype))?;
    let local = Local::new(call, &ORIGIN, (origin_addr, origin_count, origin_datatype))?;
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
