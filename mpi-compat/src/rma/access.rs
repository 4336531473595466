//! The arguments of communication calls: local buffers, and places at a target.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::rc::Rc;

use farside_datatype::TypeMap;

use crate::arguments::{check_buffer, count};
use crate::constants::*;
use crate::datatype::committed;
use crate::fail::{Result, fail};
use crate::handle::{Type, Win};
use crate::objects::{TypeObject, WinObject};
use crate::runtime::Call;

/// The names of the arguments of one side, for errors.
pub struct Names {
    pub buffer: &'static str,
    pub count: &'static str,
}

pub const ORIGIN: Names = Names { buffer: "origin_addr", count: "origin_count" };
pub const RESULT: Names = Names { buffer: "result_addr", count: "result_count" };
const TARGET: Names = Names { buffer: "win", count: "target_count" };

/// So many elements of a type.
pub struct Elements {
    pub object: Rc<TypeObject>,
    pub n: u64,
    names: &'static Names,
}

impl Elements {
    #[inline]
    pub fn new(call: &Call<'_>, names: &'static Names, n: i64, datatype: Type) -> Result<Self> {
        Ok(Self { n: count(n, names.count)?, object: committed(call, datatype)?, names })
    }

    /// Their bytes, if these are one behind the other from the address on.
    #[inline]
    pub fn plain(&self) -> Result<Option<usize>> {
        let Some(size) = self.object.plain else { return Ok(None) };
        let len = size.checked_mul(self.n).filter(|len| *len <= isize::MAX as u64);
        let many = || fail(MPI_ERR_COUNT, format!("is {}: too many bytes", self.n)).named(self.names.count);
        Ok(Some(len.ok_or_else(many)? as usize))
    }

    pub fn map(&self) -> Result<TypeMap> {
        Ok(self.object.layout.message(self.n)?)
    }
}

/// Elements in memory of this rank.
pub struct Local {
    pub elements: Elements,
    pub base: *mut u8,
}

impl Local {
    #[inline]
    pub fn new(
        call: &Call<'_>,
        names: &'static Names,
        (buffer, n, datatype): (*const c_void, i64, Type),
    ) -> Result<Self> {
        let elements = Elements::new(call, names, n, datatype)?;
        let mut base = buffer.cast_mut().cast::<u8>();
        let none = elements.n == 0 || elements.object.layout.size() == 0;
        if none {
            base = NonNull::dangling().as_ptr();
        } else {
            check_buffer(buffer, elements.object.layout.true_lb() != 0, names.buffer)?;
        }
        Ok(Self { elements, base })
    }
}

/// Elements of a target's memory.
pub struct Remote {
    pub win: Rc<WinObject>,
    pub target: usize,
    pub offset: usize,
    pub elements: Elements,
}

impl Remote {
    /// `None` for `MPI_PROC_NULL`.
    #[inline]
    pub fn new(
        call: &Call<'_>,
        win: Win,
        (rank, displacement): (c_int, i64),
        (n, datatype): (i64, Type),
    ) -> Result<Option<Self>> {
        let win = call.wins.get(win)?;
        let Some(target) = win.target(rank, "target_rank")? else { return Ok(None) };
        let offset = win.offset(target, displacement)?;
        Ok(Some(Self { target, offset, elements: Elements::new(call, &TARGET, n, datatype)?, win }))
    }

    /// Checks that a local side has as many bytes.
    #[inline]
    pub fn fits(&self, local: usize, remote: usize) -> Result {
        if local == remote {
            return Ok(());
        }
        let text = format!("says {remote} bytes at the target, and there are {local} here");
        Err(fail(MPI_ERR_ARG, text).named("target_count"))
    }
}
