#![allow(unsafe_code)]
//! Put and get (MPI-5.0 sections 12.3.1 and 12.3.2).

use super::access::{Local, Remote};
use crate::entry::Usual;
use crate::fail::Result;
use crate::objects::PlainTypes;
use crate::operands::{Buffer, Place};

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
        if let (Some(local_len), Some(remote_len)) = (local.elements.plain()?, elements.plain()?) {
            self.fits(local_len, remote_len)?;
            // An empty transfer is valid at any offset.
            let offset = if remote_len == 0 { 0 } else { offset };
            // SAFETY: the program does not access the buffer until the operation is complete.
            return Ok(unsafe {
                match direction {
                    Direction::Put => win.raw().put(local.base, local_len, target, offset),
                    Direction::Get => win.raw().get(local.base, local_len, target, offset),
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

/// The number of bytes of a put or a get of contiguous predefined types with a valid address.
#[inline(always)]
pub fn usual_len(plain: &PlainTypes, origin: Buffer, at: Place) -> Option<usize> {
    let len = plain.size(origin.n, origin.datatype).filter(|_| !origin.address.is_constant())?;
    let is_same = (origin.n, origin.datatype) == (at.n, at.datatype) || plain.size(at.n, at.datatype) == Some(len);
    is_same.then_some(len)
}

/// Puts or gets; contiguous predefined types are copied immediately if the target is ready and its memory mapped.
/// Compiled for each direction, so that the fast path is inlined into its caller.
#[inline(always)]
fn transfer<const PUT: bool>(call: Usual<'_>, origin: Buffer, at: Place) -> Result<bool> {
    if call.is_fast_path()
        && let Some(len) = usual_len(&call.plain, origin, at)
        // SAFETY: the window is borrowed for a copy, which does not wait and calls no function of the program.
        && let Some(win) = unsafe { call.wins.borrow_object(at.win) }
        && let Some((raw, target, offset)) = win.place(at.rank, at.displacement)
    {
        let base = origin.address.at();
        // SAFETY: the program does not access the buffer until the operation is complete.
        if unsafe { if PUT { raw.try_put(base, len, target, offset) } else { raw.try_get(base, len, target, offset) } }
        {
            return Ok(true);
        }
    }
    let direction = if PUT { Direction::Put } else { Direction::Get };
    call.slow_path(|call| {
        let remote = Remote::new(call, at)?;
        let local = Local::new(call, origin)?;
        remote.map_or(Ok(()), |remote| remote.transfer(&local, direction))
    })
}

#[inline(always)]
pub fn put(call: Usual<'_>, origin: Buffer, at: Place) -> Result<bool> {
    transfer::<true>(call, origin, at)
}

#[inline(always)]
pub fn get(call: Usual<'_>, origin: Buffer, at: Place) -> Result<bool> {
    transfer::<false>(call, origin, at)
}
