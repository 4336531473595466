#![allow(unsafe_code)]
//! Shared windows: ranks of one node load and store each other's memory directly.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice::{from_mut, from_ref};
use std::sync::atomic::{Ordering, fence};

use bytemuck::Pod;
use farside_core::memory::copy;
use farside_core::{Error, ErrorKind, Result, Team, located};

use crate::elements::{WindowElement, bytes};
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
pub struct SharedWindow<T: Pod> {
    raw: RawWindow,
    element: PhantomData<T>,
}

impl<T: Pod> SharedWindow<T> {
    /// Allocates a window of `len` zeroed elements at this rank. Collective; lengths may differ.
    ///
    /// # Errors
    /// `Unsupported` if ranks of the team cannot map each other's memory; those of [`crate::Window::allocate`].
    #[track_caller]
    pub fn allocate(team: &Team, len: usize) -> Result<Self> {
        located(|| {
            let element = WindowElement::of::<T>("a shared window");
            let raw = RawWindow::allocate_of(team, bytes::<T>(len), Options::default(), Some(element))?;
            if !raw.is_mapped() {
                raw.free()?;
                return Err(Error::new(ErrorKind::Unsupported, "create a shared window")
                    .device(team.job().device().capabilities().name)
                    .cause("the ranks of the team do not map each other's memory")
                    .remedy("create it over a team of ranks of one node"));
            }
            Ok(Self { raw, element: PhantomData })
        })
    }

    /// The memory of `rank`.
    ///
    /// # Errors
    /// `NoSuchRank`.
    #[track_caller]
    pub fn of(&self, rank: usize) -> Result<SharedSlice<'_, T>> {
        located(|| {
            self.raw.usable("map a window")?;
            let base = self.raw.mapped_base(rank)?.ok_or_else(|| Error::new(ErrorKind::Unsupported, "map a window"))?;
            let len = self.raw.len_at(rank)? / size_of::<T>();
            Ok(SharedSlice { base: base.cast(), len, window: &self.raw, rank, element: PhantomData })
        })
    }

    /// Orders this rank's loads and stores before and after the call. To order them between ranks, call it
    /// before and after a barrier of the team.
    ///
    /// # Errors
    /// `Freed`.
    #[track_caller]
    pub fn sync(&self) -> Result<()> {
        located(|| self.raw.sync())
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
    #[track_caller]
    pub fn free(self) -> Result<()> {
        located(|| self.raw.free())
    }
}

/// Elements that several ranks load and store. An element of 1, 2, 4 or 8 bytes is loaded and stored as a whole. Loads
/// have acquire and stores release ordering: a rank that loads a value that another rank has stored also sees that
/// rank's earlier stores.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let window = SharedWindow::<u64>::allocate(&team, 3)?;
///     let first = window.of(0)?;
///     first.fetch_and_op(Op::Sum, 10, 0)?;
///     first.write(1, &[7, 8])?;
///     team.barrier()?;
///     assert_eq!(first.to_vec()?, [30, 7, 8]);
///     window.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SharedSlice<'w, T> {
    base: *mut T,
    len: usize,
    window: &'w RawWindow,
    rank: usize,
    element: PhantomData<T>,
}

impl<'w, T: Pod> SharedSlice<'w, T> {
    /// The `len` elements of this rank's own memory.
    pub(crate) fn own(window: &'w RawWindow, len: usize) -> Self {
        let base = if len == 0 { NonNull::dangling().as_ptr() } else { window.base().cast() };
        Self { base, len, window, rank: window.team().rank(), element: PhantomData }
    }

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

    /// The address of `count` elements from `index` on.
    #[inline]
    fn at(&self, index: usize, count: usize, operation: &'static str) -> Result<*mut T> {
        self.window.check_not_borrowed(operation)?;
        if self.rank != self.window.team().rank() {
            self.window.usable(operation)?;
        }
        if index <= self.len && count <= self.len - index {
            Ok(self.base.wrapping_add(index))
        } else {
            Err(out_of_range(operation, index, count, self.len))
        }
    }

    /// Loads element `index`.
    ///
    /// # Errors
    /// `OutOfRange`; `WrongEpoch` while the memory is borrowed for exclusive local access.
    #[inline]
    #[track_caller]
    pub fn load(&self, index: usize) -> Result<T> {
        located(|| {
            let mut value = T::zeroed();
            self.read(index, from_mut(&mut value))?;
            Ok(value)
        })
    }

    /// Loads as many elements from `index` on as `into` has.
    ///
    /// # Errors
    /// Those of [`load`](Self::load).
    #[inline]
    #[track_caller]
    pub fn read(&self, index: usize, into: &mut [T]) -> Result<()> {
        located(|| {
            let from = self.at(index, into.len(), "load")?;
            // SAFETY: the elements are aligned, and inside memory that is mapped as long as the window exists.
            unsafe { copy::load(from.cast(), into.as_mut_ptr().cast(), size_of_val(into)) };
            // Acquire: pairs with the Release of `write`, and with the devices' ordering of writes.
            fence(Ordering::Acquire);
            Ok(())
        })
    }

    /// Loads all elements.
    ///
    /// # Errors
    /// Those of [`load`](Self::load).
    #[track_caller]
    pub fn to_vec(&self) -> Result<Vec<T>> {
        located(|| {
            let mut all = vec![T::zeroed(); self.len];
            self.read(0, &mut all)?;
            Ok(all)
        })
    }

    /// Stores element `index`.
    ///
    /// # Errors
    /// Those of [`load`](Self::load).
    #[inline]
    #[track_caller]
    pub fn store(&self, index: usize, value: T) -> Result<()> {
        self.write(index, from_ref(&value))
    }

    /// Stores elements from `index` on.
    ///
    /// # Errors
    /// Those of [`load`](Self::load).
    #[inline]
    #[track_caller]
    pub fn write(&self, index: usize, from: &[T]) -> Result<()> {
        located(|| {
            let to = self.at(index, from.len(), "store")?;
            // Release: pairs with the Acquire of `read`.
            fence(Ordering::Release);
            // SAFETY: as in `read`.
            unsafe { copy::store(from.as_ptr().cast(), to.cast(), size_of_val(from)) };
            Ok(())
        })
    }

    /// Applies `op` to element `index` atomically and returns its previous value.
    ///
    /// # Errors
    /// Those of [`load`](Self::load); `Unsupported` for an operation that is not defined on the type, and where the
    /// atomics of peers are executed by an HCA, with which CPU atomics are not coherent.
    #[track_caller]
    pub fn fetch_and_op(&self, op: Op, operand: T, index: usize) -> Result<T>
    where
        T: Element,
    {
        located(|| {
            const OP: &str = "fetch and op";
            op.check(T::TYPE, OP)?;
            let to = self.at(index, 1, OP)?;
            if !self.window.is_mapped() {
                return Err(Error::new(ErrorKind::Unsupported, OP)
                    .cause("the window's memory is not mapped at all ranks, so the device performs its atomics")
                    .remedy("perform the operation on this rank in an epoch"));
            }
            let _access = self.window.enter_elements(self.window.target(self.rank, OP)?, true)?;
            // SAFETY: as in `read`; the operation is defined on the type.
            Ok(unsafe { crate::op::kernel::fetch_apply(op, to, operand) })
        })
    }
}

#[cold]
fn out_of_range(operation: &'static str, index: usize, count: usize, len: usize) -> Error {
    let cause = if count == 1 {
        format!("element {index} is outside the {len} elements of the rank")
    } else {
        format!("the {count} elements starting at {index} are not inside the {len} elements of the rank")
    };
    Error::new(ErrorKind::OutOfRange, operation).cause(cause)
}
