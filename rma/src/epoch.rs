#![allow(unsafe_code)]
//! Access epochs: the operations that a closure may issue, with buffers that are borrowed until the epoch is closed.
//!
//! As in `std::thread::scope`, a buffer given to an operation must outlive the scope `'scope`, which ends only
//! after the closing call: no leak and no panic inside the closure can make a transfer outlive its buffer.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use farside_core::Result;

use crate::elements::{bytes, same_length};
use crate::op::{CasElement, Element, Op};
use crate::raw::RawWindow;
use crate::raw::layouts::Layouts;
use crate::selection::Selection;

/// An access epoch. Displacements and lengths are in elements of the target's window; targets are ranks of the
/// window's team. Operations are complete at origin and target when the epoch has been closed.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let mut window = Window::<i64>::allocate(&team, 8)?;
///     // Every second element of eight, from all that a buffer holds.
///     let (all, every_second) = (Selection::contiguous(4)?, Selection::vector(4, 1, 2)?);
///     let (data, one) = ([1, 2, 3, 4], [100]);
///     window.fence(Assert::empty(), |epoch| {
///         if team.rank() == 0 {
///             epoch.put_selected(&data, &all, 1, 0, &every_second)?;
///         }
///         // Atomic with those of the other rank.
///         epoch.accumulate(Op::Sum, &one, 1, 7)
///     })?;
///     if team.rank() == 1 {
///         assert_eq!(window.local()?, [1, 0, 2, 0, 3, 0, 4, 200]);
///     }
///     window.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug)]
pub struct Epoch<'scope, 'env: 'scope, T> {
    pub(crate) raw: &'scope RawWindow,
    // Invariant in both lifetimes, like `std::thread::Scope`.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
    element: PhantomData<T>,
}

impl<'scope, 'env, T: Element> Epoch<'scope, 'env, T> {
    pub(crate) fn new(raw: &'scope RawWindow) -> Self {
        Self { raw, scope: PhantomData, env: PhantomData, element: PhantomData }
    }

    /// Puts `from` to `target` at `displacement`. One message; a copy where the window is mapped.
    ///
    /// # Errors
    /// `NoSuchRank`, `OutOfRange`; `WrongEpoch` for a target that the epoch does not allow.
    #[inline(always)]
    pub fn put(&'scope self, from: &'scope [T], target: usize, displacement: usize) -> Result<()> {
        // SAFETY: `from` is borrowed until the epoch is closed or abandoned.
        unsafe { self.raw.put(from.as_ptr().cast(), size_of_val(from), target, bytes::<T>(displacement)?) }
    }

    /// Puts one value, which is copied if it has to wait.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    #[inline(always)]
    pub fn put_value(&self, value: T, target: usize, displacement: usize) -> Result<()> {
        self.raw.put_value(value, target, bytes::<T>(displacement)?)
    }

    /// Gets elements of `target` from `displacement` on into `into`. One message and its answer.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    #[inline(always)]
    pub fn get(&'scope self, into: &'scope mut [T], target: usize, displacement: usize) -> Result<()> {
        // SAFETY: as in `put`, exclusively.
        unsafe { self.raw.get(into.as_mut_ptr().cast(), size_of_val(into), target, bytes::<T>(displacement)?) }
    }

    /// Accumulates `operand` into `target`, each element atomically among all accumulates and compare-and-swaps; those
    /// of this rank to one element are applied in order. One message. In fence and PSCW epochs over verbs, several
    /// accumulates share a packet and a long one takes several; the target applies them when it is inside the runtime,
    /// at the latest when it closes the epoch.
    ///
    /// # Errors
    /// Those of [`put`](Self::put); `Unsupported` for a logical or bitwise operation on floats.
    #[inline(always)]
    pub fn accumulate(&'scope self, op: Op, operand: &'scope [T], target: usize, displacement: usize) -> Result<()> {
        let offset = bytes::<T>(displacement)?;
        // SAFETY: as in `put`.
        unsafe { self.raw.accumulate(op, operand.as_ptr(), std::ptr::null_mut(), operand.len(), target, offset) }
    }

    /// Accumulates `operand` into `target` and writes the former values to `old`, which has the same length. One
    /// message and its answer; where [`accumulate`](Self::accumulate) sends packets, each has an answer.
    ///
    /// # Errors
    /// Those of [`accumulate`](Self::accumulate); `BadArgument` for lengths that differ.
    pub fn get_accumulate(
        &'scope self,
        op: Op,
        operand: &'scope [T],
        old: &'scope mut [T],
        target: usize,
        displacement: usize,
    ) -> Result<()> {
        same_length(operand.len(), old.len())?;
        let offset = bytes::<T>(displacement)?;
        // SAFETY: as in `put` and `get`.
        unsafe { self.raw.accumulate(op, operand.as_ptr(), old.as_mut_ptr(), operand.len(), target, offset) }
    }

    /// Applies `op` to one element; its former value is written to `old`.
    ///
    /// # Errors
    /// Those of [`accumulate`](Self::accumulate).
    #[inline(always)]
    pub fn fetch_and_op(
        &'scope self,
        op: Op,
        operand: &'scope T,
        old: &'scope mut T,
        target: usize,
        displacement: usize,
    ) -> Result<()> {
        // SAFETY: as in `put` and `get`.
        unsafe { self.raw.accumulate(op, operand, old, 1, target, bytes::<T>(displacement)?) }
    }

    /// Sets an element to `desired` if it is `expected`; its former value is written to `old`. One message and its
    /// answer.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    #[inline(always)]
    pub fn compare_and_swap(
        &'scope self,
        expected: T,
        desired: T,
        old: &'scope mut T,
        target: usize,
        displacement: usize,
    ) -> Result<()>
    where
        T: CasElement,
    {
        // SAFETY: as in `get`.
        unsafe { self.raw.compare_and_swap(expected, desired, old, target, bytes::<T>(displacement)?) }
    }

    /// Puts the elements that `of` selects in `from` to those that `at` selects at `target`, counted from
    /// `displacement`. A copy where the window is mapped; else as few messages as the device allows
    /// ([`RawWindow::put_typed`]).
    ///
    /// # Errors
    /// Those of [`put`](Self::put); `BadArgument` for selections of different lengths, for a buffer too short for its
    /// selection, and for a selection of received elements that contains an element twice.
    #[inline]
    pub fn put_selected(
        &'scope self,
        from: &'scope [T],
        of: &Selection<T>,
        target: usize,
        displacement: usize,
        at: &Selection<T>,
    ) -> Result<()> {
        self.raw.transfer_layouts(target, Layouts::put(from, of, displacement, at)?)
    }

    /// Gets the elements that `at` selects at `target`, counted from `displacement`, to those that `of` selects in
    /// `into`.
    ///
    /// # Errors
    /// Those of [`put_selected`](Self::put_selected).
    #[inline]
    pub fn get_selected(
        &'scope self,
        into: &'scope mut [T],
        of: &Selection<T>,
        target: usize,
        displacement: usize,
        at: &Selection<T>,
    ) -> Result<()> {
        self.raw.transfer_layouts(target, Layouts::get(into, of, displacement, at)?)
    }

    /// Gets several selections into one buffer. Each part names the elements of the buffer, the target, the
    /// displacement and the elements at the target. If two parts fill the same element, it has the value of either.
    pub(crate) fn get_all_selected<'s>(
        &'scope self,
        into: &'scope mut [T],
        parts: impl Iterator<Item = (&'s Selection<T>, usize, usize, &'s Selection<T>)>,
    ) -> Result<()>
    where
        T: 's,
    {
        let (base, len) = (into.as_mut_ptr(), size_of_val(into));
        for (of, target, displacement, at) in parts {
            of.check_inside(len)?;
            let offset = bytes::<T>(displacement)?;
            // SAFETY: as in `get_selected`; the buffer is this call's alone, and no reference to it is left.
            unsafe { self.raw.get_typed(base.cast(), of.type_map(), target, offset, at.type_map()) }?;
        }
        Ok(())
    }

    /// Accumulates the elements that `of` selects in `operand` into those that `at` selects at `target`, each
    /// atomically. An element that `at` selects twice is updated twice.
    ///
    /// # Errors
    /// Those of [`put_selected`](Self::put_selected) and [`accumulate`](Self::accumulate).
    pub fn accumulate_selected(
        &'scope self,
        op: Op,
        operand: &'scope [T],
        of: &Selection<T>,
        target: usize,
        displacement: usize,
        at: &Selection<T>,
    ) -> Result<()> {
        self.raw.issue_layouts(target, Layouts::accumulate(op, operand, None, of, displacement, at)?, None)
    }

    /// Accumulates the selected elements of `operand` like [`accumulate_selected`](Self::accumulate_selected), and
    /// writes the former values to the elements that `of` selects in `old`.
    ///
    /// # Errors
    /// Those of [`accumulate_selected`](Self::accumulate_selected).
    #[allow(clippy::too_many_arguments)] // the arguments of MPI's call
    pub fn get_accumulate_selected(
        &'scope self,
        op: Op,
        operand: &'scope [T],
        old: &'scope mut [T],
        of: &Selection<T>,
        target: usize,
        displacement: usize,
        at: &Selection<T>,
    ) -> Result<()> {
        self.raw.issue_layouts(target, Layouts::accumulate(op, operand, Some(old), of, displacement, at)?, None)
    }

    /// Length of the window at `target`, in elements.
    ///
    /// # Errors
    /// `NoSuchRank`.
    pub fn len_at(&self, target: usize) -> Result<usize> {
        Ok(self.raw.len_at(target)? / size_of::<T>())
    }
}

/// Runs the body of an epoch and then its closing call, also after an error or a panic of the body. An error of the
/// body takes precedence over one of closing; a panic resumes after the epoch is closed. A closing call that panics or
/// does not finish leaves the window broken.
pub(crate) fn closing<R>(
    raw: &RawWindow,
    body: impl FnOnce() -> Result<R>,
    close: impl FnOnce() -> Result<()>,
) -> Result<R> {
    let body = catch_unwind(AssertUnwindSafe(body));
    // Buffers go out of scope after this, so no operation may refer to them any more.
    let closed = raw.close_by(close);
    match body {
        Ok(Ok(r)) => closed.map(|()| r),
        Ok(Err(e)) => Err(e),
        Err(panic) => {
            if let Err(e) = closed {
                tracing::error!("an epoch that panicked was not closed either: {e}");
            }
            resume_unwind(panic)
        }
    }
}
