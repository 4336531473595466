//! The two sides of an operation on a window: local elements, and elements at a target.

use std::ptr::NonNull;
use std::rc::Rc;

use crate::constants::*;
use crate::fail::{Result, fail};
use crate::message::Elements;
use crate::objects::WinObject;
use crate::operands::{Address, Buffer, Place};
use crate::runtime::Call;

/// Elements in this rank's memory.
pub struct Local {
    pub elements: Elements,
    pub base: *mut u8,
}

impl Local {
    #[inline]
    pub fn new(call: &Call<'_>, buffer: Buffer) -> Result<Self> {
        let elements = buffer.elements(call)?;
        let layout = &elements.object.layout;
        if elements.n == 0 || layout.size() == 0 {
            return Ok(Self { elements, base: NonNull::dangling().as_ptr() });
        }
        buffer.address.check(layout.size(), layout.true_lb())?;
        Ok(Self { elements, base: buffer.address.at() })
    }
}

/// Elements in a target's memory.
pub struct Remote {
    pub win: Rc<WinObject>,
    pub target: usize,
    pub offset: usize,
    pub elements: Elements,
}

impl Remote {
    /// The elements that arguments describe; `None` for `MPI_PROC_NULL`.
    #[inline]
    pub fn new(call: &Call<'_>, place: Place) -> Result<Option<Self>> {
        let win = call.wins.get(place.win)?;
        let Some(target) = win.target(place.rank, "target_rank")? else { return Ok(None) };
        let offset = win.offset(target, place.displacement)?;
        let names = &["win", "target_count"];
        let remote = Buffer { address: Address::new(std::ptr::null(), names), n: place.n, datatype: place.datatype };
        Ok(Some(Self { target, offset, elements: remote.elements(call)?, win }))
    }

    /// Checks that both sides have the same number of bytes.
    #[inline]
    pub fn fits(&self, local: usize, remote: usize) -> Result {
        if local == remote {
            return Ok(());
        }
        let text = format!("describes {remote} bytes at the target, but the origin has {local} bytes");
        Err(fail(MPI_ERR_ARG, text).named("target_count"))
    }
}
