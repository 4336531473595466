//! Windows.

use std::cell::RefCell;
use std::ffi::c_int;
use std::rc::Rc;
use std::sync::Arc;

use farside_rma::raw::dynamic::RawDynamicWindow;
use farside_rma::raw::{MappedWindow, RawWindow};

use super::{Attributes, GroupObject, InfoObject};
use crate::constants::*;
use crate::errhandler::{ErrhandlerOf, Handler, HasErrhandler};
use crate::fail::{Result, bad_rank, fail};
use crate::handle::Win;

/// A window.
pub struct WinObject {
    pub errhandler: Handler,
    pub attributes: Attributes,
    pub name: RefCell<Vec<u8>>,
    pub info: Rc<InfoObject>,
    pub group: Rc<GroupObject>,
    pub memory: Memory,
    /// The context of the window's own team, so its calls may be interleaved with those on the communicator.
    pub context: u32,
    /// The displacement unit of each rank.
    pub units: Vec<i64>,
    /// Addresses of empty memory that this rank has attached.
    pub empty: RefCell<Vec<usize>>,
    pub facts: Facts,
}

/// The view of a fully mapped window that threads use without the lock.
#[derive(Clone)]
pub struct Mapped {
    pub window: MappedWindow<'static>,
    /// The displacement unit of each rank.
    units: Arc<[i64]>,
}

impl Mapped {
    pub fn new(window: MappedWindow<'static>, units: &[i64]) -> Self {
        Self { window, units: units.into() }
    }

    /// A rank in the window, and the byte offset of a displacement there.
    #[inline(always)]
    pub fn place(&self, rank: c_int, displacement: i64) -> Option<(usize, usize)> {
        let target = rank as usize;
        let byte = displacement.checked_mul(*self.units.get(target)?)?;
        Some((target, usize::try_from(byte).ok()?))
    }
}

/// The memory of a window.
#[allow(clippy::large_enum_variant)] // one for each window, behind its `Rc`
#[repr(C)] // so that the window is at one place in both
pub enum Memory {
    Own(RawWindow),
    /// Memory that each rank attaches, accessed by address.
    Attached(RawDynamicWindow),
}

/// The values of predefined attributes, at the addresses that programs receive.
pub struct Facts {
    pub base: usize,
    pub size: i64,
    pub unit: c_int,
    pub flavor: c_int,
    pub model: c_int,
}

impl WinObject {
    /// The value of a predefined attribute: an address, or the address of a number.
    pub fn attribute_value(&self, key: c_int) -> Option<usize> {
        let facts = &self.facts;
        Some(match key {
            MPI_WIN_BASE => facts.base,
            MPI_WIN_SIZE => (&raw const facts.size).addr(),
            MPI_WIN_DISP_UNIT => (&raw const facts.unit).addr(),
            MPI_WIN_CREATE_FLAVOR => (&raw const facts.flavor).addr(),
            MPI_WIN_MODEL => (&raw const facts.model).addr(),
            _ => return None,
        })
    }

    /// The window of `farside_rma`.
    #[inline]
    pub fn raw(&self) -> &RawWindow {
        match &self.memory {
            Memory::Own(raw) => raw,
            Memory::Attached(dynamic) => dynamic.window(),
        }
    }

    /// The window of `farside_rma`, if it is dynamic.
    #[inline]
    pub fn dynamic(&self) -> Option<&RawDynamicWindow> {
        if let Memory::Attached(dynamic) = &self.memory { Some(dynamic) } else { None }
    }

    /// Checks a rank argument; `None` for `MPI_PROC_NULL`.
    #[inline]
    pub fn target(&self, rank: c_int, name: &'static str) -> Result<Option<usize>> {
        match usize::try_from(rank) {
            Ok(target) if target < self.units.len() => Ok(Some(target)),
            _ if rank == MPI_PROC_NULL => Ok(None),
            _ => Err(bad_rank(rank, self.units.len(), name)),
        }
    }

    /// The window of `farside_rma`, a rank in it, and the byte offset of a displacement there (for a dynamic window,
    /// the address).
    #[inline(always)]
    pub fn place(&self, rank: c_int, displacement: i64) -> Option<(&RawWindow, usize, usize)> {
        let target = rank as usize;
        let byte = displacement.checked_mul(*self.units.get(target)?)?;
        Some((self.raw(), target, usize::try_from(byte).ok()?))
    }

    /// The byte offset of a displacement in a target's memory.
    #[inline]
    pub fn offset(&self, target: usize, displacement: i64) -> Result<usize> {
        // For a dynamic window the displacement is an address, which may be negative as an `i64`.
        if self.dynamic().is_some() {
            return Ok(displacement as usize);
        }
        let byte = displacement.checked_mul(self.units[target]);
        byte.and_then(|byte| usize::try_from(byte).ok()).ok_or_else(|| {
            fail(MPI_ERR_DISP, format!("is {displacement}, but its byte offset must be nonnegative and fit 64 bits"))
                .named("target_disp")
        })
    }
}

impl Drop for WinObject {
    fn drop(&mut self) {
        self.raw().job().forget_context(self.context);
    }
}

impl HasErrhandler for (Win, Rc<WinObject>) {
    fn errhandler_of(&self) -> ErrhandlerOf {
        (Rc::clone(&self.1.errhandler.borrow()), self.0.0)
    }
}
