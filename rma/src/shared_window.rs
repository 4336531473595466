#![allow(unsafe_code)]
//! Shared windows: ranks of one node load and store each other's memory directly.

use std::marker::PhantomData;

use farside_core::memory::copy;
use farside_core::{Error, ErrorKind, Result, Team};

use crate::elements::bytes;
use crate::op::{Element, Op};
use crate::raw::{Options, RawWindow};

/// A window whose memory every rank of the team accesses by load and store.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let window = SharedWindow::<u32>::allocate(&team, 1)?;
///     window.of(team.rank())?.store(0, 1 << team.rank())?;
///     window.sync()?;
///     team.barrier()?;
///     window.sync()?;
///     let all = (0..3).map(|rank| window.of(rank)?.load(0)).sum::<Result<u32>>()?;
///     assert_eq!(all, 7);
///     window.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug)]
pub struct SharedWindow<T: Element> {
    raw: RawWindow,
    element: PhantomData<T>,
}

impl<T: Element> SharedWindow<T> {
    /// Allocates a window of `len` zeroed elements at this rank. Collective; lengths may differ.
    ///
    /// # Errors
    /// `Unsupported` if ranks of the team cannot map each other's memory; those of [`crate::Window::allocate`].
    pub fn allocate(team: &Team, len: usize) -> Result<Self> {
        let raw = RawWindow::allocate_of(team, bytes::<T>(len), Options::default(), Some(T::TYPE))?;
        if !raw.is_mapped() {
            raw.free()?;
            return Err(Error::new(ErrorKind::Unsupported, "make a shared window")
                .device(team.job().device().capabilities().name)
                .cause("the ranks of the team do not map each other's memory")
                .remedy("make it over a team of ranks of one node"));
        }
        Ok(Self { raw, element: PhantomData })
    }

    /// The memory of `rank`.
    ///
    /// # Errors
    /// `NoSuchRank`.
    pub fn of(&self, rank: usize) -> Result<SharedSlice<'_, T>> {
        let base = self.raw.mapped_base(rank)?.ok_or_else(|| Error::new(ErrorKind::Unsupported, "map a window"))?;
        Ok(SharedSlice { base: base.cast(), len: self.raw.len_at(rank)? / size_of::<T>(), window: PhantomData })
    }

    /// Orders this rank's loads and stores before and after the call. To order them between ranks, call it
    /// before and after a barrier of the team.
    ///
    /// # Errors
    /// `Freed`.
    pub fn sync(&self) -> Result<()> {
        self.raw.sync()
    }

    /// The team.
    #[must_use]
    pub fn team(&self) -> &Team {
        self.raw.team()
    }

    /// Frees the window. Collective, with a barrier.
    ///
    /// # Errors
    /// `PeerLost`.
    pub fn free(self) -> Result<()> {
        self.raw.free()
    }
}

/// Elements that several ranks load and store. Each access is atomic per element; two accesses are not ordered.
#[derive(Clone, Copy, Debug)]
pub struct SharedSlice<'w, T> {
    base: *mut T,
    len: usize,
    window: PhantomData<&'w RawWindow>,
}

impl<T: Element> SharedSlice<'_, T> {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the slice has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn at(&self, index: usize, operation: &'static str) -> Result<*mut T> {
        if index < self.len {
            Ok(self.base.wrapping_add(index))
        } else {
            Err(Error::new(ErrorKind::OutOfRange, operation).cause(format!("element {index} of {}", self.len)))
        }
    }

    /// Loads element `index`.
    ///
    /// # Errors
    /// `OutOfRange`.
    #[inline]
    pub fn load(&self, index: usize) -> Result<T> {
        let from = self.at(index, "load")?;
        let mut value = T::zeroed();
        // SAFETY: the element is aligned, and inside memory that is mapped as long as the window exists.
        unsafe { copy::load(from.cast(), (&raw mut value).cast(), size_of::<T>()) };
        Ok(value)
    }

    /// Stores element `index`.
    ///
    /// # Errors
    /// `OutOfRange`.
    #[inline]
    pub fn store(&self, index: usize, value: T) -> Result<()> {
        let to = self.at(index, "store")?;
        // SAFETY: as in `load`.
        unsafe { copy::store((&raw const value).cast(), to.cast(), size_of::<T>()) };
        Ok(())
    }

    /// Applies `op` to element `index` atomically and returns its former value.
    ///
    /// # Errors
    /// `OutOfRange`, `Unsupported`.
    pub fn fetch_and_op(&self, op: Op, operand: T, index: usize) -> Result<T> {
        op.check(T::TYPE, "fetch and op")?;
        let to = self.at(index, "fetch and op")?;
        // SAFETY: as in `load`; the operation is defined on the type.
        Ok(unsafe { crate::op::kernel::fetch_apply(op, to, operand) })
    }
}
