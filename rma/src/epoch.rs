#![allow(unsafe_code)]
//! Access epochs: the operations that a closure may issue, with buffers that are borrowed until the epoch is closed.

use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use bytemuck::Pod;
use farside_core::{Error, ErrorKind, Located, Result, located};

use crate::elements::{bytes, same_length};
use crate::op::{CasElement, Element, Op};
use crate::raw::layouts::Layouts;
use crate::raw::{Body, RawWindow};
use crate::selection::Selection;

/// An access epoch. Displacements and lengths are in elements of the target's window; targets are ranks of the
/// window's team. Operations are complete at origin and target when the epoch has been closed.
///
/// As in `std::thread::scope`, a buffer given to an operation must outlive the scope `'scope`, which ends only after
/// the closing call: no leak and no panic inside the closure can make a transfer outlive its buffer. The epoch is also
/// closed after an error or a panic of the closure.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let mut window = Window::<i64>::allocate(&team, 8)?;
///     // All four elements of a buffer go to every second of eight elements.
///     let (all, every_second) = (Selection::contiguous(4)?, Selection::vector(4, 1, 2)?);
///     let (data, one) = ([1, 2, 3, 4], [100]);
///     window.fence(Assert::empty(), |epoch| {
///         if team.rank() == 0 {
///             epoch.put_selected(&data, &all, 1, 0, &every_second)?;
///         }
///         // Atomic with respect to the accumulate of the other rank.
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

impl<'scope, 'env, T: Pod> Epoch<'scope, 'env, T> {
    pub(crate) fn new(raw: &'scope RawWindow) -> Self {
        Self { raw, scope: PhantomData, env: PhantomData, element: PhantomData }
    }

    /// Puts `from` to `target` at `displacement`. One message; a copy if the window is mapped.
    ///
    /// # Errors
    /// `NoSuchRank`, `OutOfRange`; `WrongEpoch` for a target that the epoch does not allow.
    #[inline(always)]
    #[track_caller]
    pub fn put(&'scope self, from: &'scope [T], target: usize, displacement: usize) -> Result<()> {
        // SAFETY: `from` is borrowed until the epoch is closed or abandoned.
        unsafe { self.raw.put(from.as_ptr().cast(), size_of_val(from), target, bytes::<T>(displacement)?) }.located()
    }

    /// Puts elements `range` of this rank's own window memory to `target` at `displacement`, without a copy of them. If
    /// peers write to them in the same epoch, each transferred byte has either its old or its new value.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let mut window = Window::<u32>::allocate(&team, 3)?;
    ///     window.local_mut()?[0] = 7 + team.rank() as u32;
    ///     let right = (team.rank() + 1) % 3;
    ///     window.fence(Assert::default(), |epoch| epoch.put_own(0..1, right, 2))?;
    ///     assert_eq!(window.local()?[2], 7 + (team.rank() as u32 + 2) % 3);
    ///     window.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`put`](Self::put); `OutOfRange` for a range outside of this rank's memory.
    #[track_caller]
    pub fn put_own(&self, range: Range<usize>, target: usize, displacement: usize) -> Result<()> {
        located(|| {
            let own = bytes::<T>(range.start)?..bytes::<T>(range.end)?;
            self.raw.put_own(own, target, bytes::<T>(displacement)?)
        })
    }

    /// Puts one value, which is copied if the operation is queued.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    #[inline(always)]
    #[track_caller]
    pub fn put_value(&self, value: T, target: usize, displacement: usize) -> Result<()> {
        self.raw.put_value(value, target, bytes::<T>(displacement)?).located()
    }

    /// Gets several ranges into disjoint parts of one buffer. Each part names the range of the buffer, the target and
    /// the displacement there. One message and its reply for each.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let mut window = Window::<u32>::allocate(&team, 4)?;
    ///     window.local_mut()?.fill(team.rank() as u32);
    ///     let mut buffer = [9; 5];
    ///     window.fence(Assert::default(), |epoch| epoch.get_parts(&mut buffer, &[(3..5, 1, 0), (0..2, 0, 2)]))?;
    ///     assert_eq!(buffer, [0, 0, 9, 1, 1]);
    ///     window.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`get`](Self::get); `BadArgument` for parts that overlap or exceed the buffer. After an error none or
    /// only some of the gets have been started.
    #[track_caller]
    pub fn get_parts(&'scope self, into: &'scope mut [T], parts: &[(Range<usize>, usize, usize)]) -> Result<()> {
        located(|| {
            let mut ranges: Vec<&Range<usize>> = parts.iter().map(|(range, ..)| range).collect();
            ranges.sort_unstable_by_key(|range| (range.start, range.end));
            let mut free = 0;
            for range in ranges {
                if range.start < free || range.end < range.start || range.end > into.len() {
                    return Err(bad_part(range, free, into.len()));
                }
                free = range.end;
            }
            let base = into.as_mut_ptr();
            for (range, target, displacement) in parts {
                let (to, len) = (base.wrapping_add(range.start).cast(), range.len() * size_of::<T>());
                // SAFETY: as in `get`; the parts are disjoint, and no reference to the buffer remains.
                unsafe { self.raw.get(to, len, *target, bytes::<T>(*displacement)?) }?;
            }
            Ok(())
        })
    }

    /// Gets elements of `target` from `displacement` on into `into`. One message and its reply.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    #[inline(always)]
    #[track_caller]
    pub fn get(&'scope self, into: &'scope mut [T], target: usize, displacement: usize) -> Result<()> {
        // SAFETY: as in `put`; the borrow is exclusive.
        unsafe { self.raw.get(into.as_mut_ptr().cast(), size_of_val(into), target, bytes::<T>(displacement)?) }
            .located()
    }

    /// Accumulates `operand` into `target`, each element atomically among all accumulates and compare-and-swaps; those
    /// of this rank to one element are applied in order. A concurrent put or local store to the elements may be lost.
    /// Complete at the target after the call that closes the epoch or flushes. One message; none on mapped windows. In
    /// fence and PSCW epochs over verbs, several accumulates share a packet and a long one takes several; the target
    /// applies them when it is inside the runtime, at the latest when it closes the epoch.
    ///
    /// # Errors
    /// Those of [`put`](Self::put); `Unsupported` for a logical or bitwise operation on floats.
    #[inline(always)]
    #[track_caller]
    pub fn accumulate(&'scope self, op: Op, operand: &'scope [T], target: usize, displacement: usize) -> Result<()>
    where
        T: Element,
    {
        let offset = bytes::<T>(displacement)?;
        // SAFETY: as in `put`.
        unsafe { self.raw.accumulate(op, operand.as_ptr(), std::ptr::null_mut(), operand.len(), target, offset) }
            .located()
    }

    /// Accumulates `operand` into `target` and writes the previous values to `old`, which has the same length. One
    /// message and its reply; if [`accumulate`](Self::accumulate) sends packets, each has a reply.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let mut window = Window::<i64>::from_vec(&team, vec![5, 6])?;
    ///     let mut old = [0; 2];
    ///     window.fence(Assert::empty(), |epoch| {
    ///         epoch.get_accumulate(Op::Max, &[9, 1], &mut old, 1 - team.rank(), 0)
    ///     })?;
    ///     assert_eq!(old, [5, 6]);
    ///     assert_eq!(window.into_vec()?, [9, 6]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`accumulate`](Self::accumulate); `BadArgument` for lengths that differ.
    #[track_caller]
    pub fn get_accumulate(
        &'scope self,
        op: Op,
        operand: &'scope [T],
        old: &'scope mut [T],
        target: usize,
        displacement: usize,
    ) -> Result<()>
    where
        T: Element,
    {
        located(|| {
            same_length(operand.len(), old.len())?;
            let offset = bytes::<T>(displacement)?;
            // SAFETY: as in `put` and `get`.
            unsafe { self.raw.accumulate(op, operand.as_ptr(), old.as_mut_ptr(), operand.len(), target, offset) }
        })
    }

    /// Applies `op` to one element; its previous value is written to `old`.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let mut window = Window::<u32>::allocate(&team, 1)?;
    ///     let mut ticket = 0;
    ///     window.fence(Assert::empty(), |epoch| epoch.fetch_and_op(Op::Sum, &1, &mut ticket, 0, 0))?;
    ///     // Every rank has drawn a different number.
    ///     let mut all = [0; 3];
    ///     team.allgather(&[ticket], &mut all)?;
    ///     all.sort_unstable();
    ///     assert_eq!(all, [0, 1, 2]);
    ///     window.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`accumulate`](Self::accumulate).
    #[inline(always)]
    #[track_caller]
    pub fn fetch_and_op(
        &'scope self,
        op: Op,
        operand: &'scope T,
        old: &'scope mut T,
        target: usize,
        displacement: usize,
    ) -> Result<()>
    where
        T: Element,
    {
        // SAFETY: as in `put` and `get`.
        unsafe { self.raw.accumulate(op, operand, old, 1, target, bytes::<T>(displacement)?) }.located()
    }

    /// Sets an element to `desired` if it is `expected`; its previous value is written to `old`. One message and its
    /// reply.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let mut window = Window::<u32>::allocate(&team, 1)?;
    ///     let (me, mut found) = (team.rank() as u32 + 1, 0);
    ///     // The first rank to arrive finds 0 and becomes the leader; the other ranks find its number.
    ///     window.fence(Assert::empty(), |epoch| epoch.compare_and_swap(0, me, &mut found, 0, 0))?;
    ///     let mut leaders = [u32::from(found == 0)];
    ///     team.allreduce(&mut leaders, Op::Sum)?;
    ///     assert_eq!(leaders, [1]);
    ///     window.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    #[inline(always)]
    #[track_caller]
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
        unsafe { self.raw.compare_and_swap(expected, desired, old, target, bytes::<T>(displacement)?) }.located()
    }

    /// Puts the elements that `of` selects in `from` to those that `at` selects at `target`, counted from
    /// `displacement`. A copy if the window is mapped; otherwise as few messages as the device allows
    /// ([`RawWindow::put_typed`]).
    ///
    /// # Errors
    /// Those of [`put`](Self::put); `BadArgument` for selections of different lengths, for a buffer too short for its
    /// selection, and for a selection of elements to get into that contains an element twice.
    #[inline]
    #[track_caller]
    pub fn put_selected(
        &'scope self,
        from: &'scope [T],
        of: &Selection<T>,
        target: usize,
        displacement: usize,
        at: &Selection<T>,
    ) -> Result<()> {
        located(|| self.raw.transfer_layouts(target, Layouts::put(from, of, displacement, at)?))
    }

    /// Gets the elements that `at` selects at `target`, counted from `displacement`, to those that `of` selects in
    /// `into`.
    ///
    /// # Errors
    /// Those of [`put_selected`](Self::put_selected).
    #[inline]
    #[track_caller]
    pub fn get_selected(
        &'scope self,
        into: &'scope mut [T],
        of: &Selection<T>,
        target: usize,
        displacement: usize,
        at: &Selection<T>,
    ) -> Result<()> {
        located(|| self.raw.transfer_layouts(target, Layouts::get(into, of, displacement, at)?))
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
            // SAFETY: as in `get_selected`; only this call accesses the buffer, and no reference to it remains.
            unsafe { self.raw.get_typed(base.cast(), of.type_map(), target, offset, at.type_map()) }?;
        }
        Ok(())
    }

    /// Accumulates the elements that `of` selects in `operand` into those that `at` selects at `target`, each
    /// atomically. An element that `at` selects twice is updated twice.
    ///
    /// # Errors
    /// Those of [`put_selected`](Self::put_selected) and [`accumulate`](Self::accumulate).
    #[track_caller]
    pub fn accumulate_selected(
        &'scope self,
        op: Op,
        operand: &'scope [T],
        of: &Selection<T>,
        target: usize,
        displacement: usize,
        at: &Selection<T>,
    ) -> Result<()>
    where
        T: Element,
    {
        located(|| self.raw.issue_layouts(target, Layouts::accumulate(op, operand, None, of, displacement, at)?, None))
    }

    /// Accumulates the selected elements of `operand` like [`accumulate_selected`](Self::accumulate_selected), and
    /// writes the previous values to the elements that `of` selects in `old`.
    ///
    /// # Errors
    /// Those of [`accumulate_selected`](Self::accumulate_selected).
    #[allow(clippy::too_many_arguments)] // the arguments of MPI's call
    #[track_caller]
    pub fn get_accumulate_selected(
        &'scope self,
        op: Op,
        operand: &'scope [T],
        old: &'scope mut [T],
        of: &Selection<T>,
        target: usize,
        displacement: usize,
        at: &Selection<T>,
    ) -> Result<()>
    where
        T: Element,
    {
        located(|| {
            self.raw.issue_layouts(target, Layouts::accumulate(op, operand, Some(old), of, displacement, at)?, None)
        })
    }

    /// Length of the window at `target`, in elements.
    ///
    /// # Errors
    /// `NoSuchRank`.
    #[track_caller]
    pub fn len_at(&self, target: usize) -> Result<usize> {
        located(|| Ok(self.raw.len_at(target)? / size_of::<T>()))
    }
}

#[cold]
fn bad_part(range: &Range<usize>, free: usize, len: usize) -> Error {
    let e = Error::new(ErrorKind::BadArgument, "get into parts of a buffer");
    if range.start < free && range.start <= range.end {
        return e
            .cause(format!(
                "elements {range:?} overlap an earlier part of the buffer, which ends before element {free}"
            ))
            .remedy("give disjoint ranges of the buffer");
    }
    e.cause(format!("elements {range:?} are not inside the buffer of {len} elements"))
        .remedy("give ranges inside the buffer")
}

/// Runs the body of an epoch and then its closing call, even after an error or a panic of the body, of which the other
/// participating ranks are notified. An error of the body takes precedence over one of closing; a panic resumes after
/// the epoch is closed. A closing call that panics or does not finish leaves the window broken. An error of the closing
/// call has the location of this call.
#[track_caller]
#[inline]
pub(crate) fn closing<R, E: From<Error>>(
    raw: &RawWindow,
    kind: Body,
    body: impl FnOnce() -> Result<R, E>,
    close: impl FnOnce() -> Result<()>,
) -> Result<R, E> {
    let body = raw.in_body(kind, || catch_unwind(AssertUnwindSafe(body)));
    raw.report_if_failed(kind, &body);
    // The buffers go out of scope afterwards, so no operation may still refer to them.
    let closed = located(|| raw.close_by(close));
    match body {
        Ok(Ok(r)) => Ok(closed.map(|()| r).map_err(|e| raw.naming_failed_rank(kind, e))?),
        Ok(Err(e)) => Err(e),
        Err(panic) => {
            if let Err(e) = closed {
                tracing::error!("failed to close an epoch whose body panicked: {e}");
            }
            resume_unwind(panic)
        }
    }
}
