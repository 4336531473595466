#![allow(unsafe_code)]
//! Put and get (MPI-5.0 sections 12.3.1 and 12.3.2).

use super::access::{Local, Remote};
use crate::fail::Result;
use crate::operands::{Buffer, Place};
use crate::runtime::{Call, Runtime};

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
            // An empty transfer is valid at any offset.
            let offset = if there == 0 { 0 } else { offset };
            // SAFETY: the program does not access the buffer until the operation is complete.
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

/// Copies bytes of predefined types to or from the target, if its memory is mapped and ready; returns whether it did.
/// The lock is held, and no reference is kept. Compiled for each direction, so that all of it is inlined into its
/// caller.
#[inline(always)]
fn try_transfer<const PUT: bool>(runtime: &Runtime, origin: Buffer, at: Place) -> Result<bool> {
    let Some(len) = runtime.plain.size(origin.n, origin.datatype) else { return Ok(false) };
    let same = (origin.n, origin.datatype) == (at.n, at.datatype);
    if origin.address.is_constant() || !same && runtime.plain.size(at.n, at.datatype) != Some(len) {
        return Ok(false);
    }
    // SAFETY: a transfer does not wait, and calls no function of the program.
    let place = unsafe { runtime.wins.look(at.win) }.and_then(|win| win.place(at.rank, at.displacement));
    let Some((raw, target, offset)) = place else { return Ok(false) };
    let base = origin.address.at();
    // SAFETY: the program does not access the buffer until the operation is complete.
    Ok(unsafe { if PUT { raw.try_put(base, len, target, offset) } else { raw.try_get(base, len, target, offset) } })
}

fn transfer(call: &Call<'_>, origin: Buffer, at: Place, direction: Direction) -> Result {
    let remote = Remote::new(call, at)?;
    let local = Local::new(call, origin)?;
    remote.map_or(Ok(()), |remote| remote.transfer(&local, direction))
}

#[inline(always)]
pub fn try_put(runtime: &Runtime, origin: Buffer, at: Place) -> Result<bool> {
    try_transfer::<true>(runtime, origin, at)
}

pub fn put(call: &Call<'_>, origin: Buffer, at: Place) -> Result {
    transfer(call, origin, at, Direction::Put)
}

#[inline(always)]
pub fn try_get(runtime: &Runtime, origin: Buffer, at: Place) -> Result<bool> {
    try_transfer::<false>(runtime, origin, at)
}

pub fn get(call: &Call<'_>, origin: Buffer, at: Place) -> Result {
    transfer(call, origin, at, Direction::Get)
}
