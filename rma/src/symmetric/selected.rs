#![allow(unsafe_code)]
//! Puts and gets of noncontiguous elements: strided, indexed, or selected.

use bytemuck::Pod;
use farside_core::{Result, located};

use super::Symmetric;
use crate::raw::layouts::Layouts;
use crate::selection::Selection;

impl<T: Pod> Symmetric<T> {
    /// Puts elements to `rank`, `stride` elements apart, the first to element `at`; complete at the target on return.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let table = Symmetric::<u32>::allocate(&team, 6)?;
    ///     table.put_strided(&[1, 2], 1 - team.rank(), 0, 3)?;
    ///     table.put_indexed(&[8, 9], 1 - team.rank(), &[5, 1])?;
    ///     table.barrier()?;
    ///     assert_eq!(table.local().to_vec()?, [1, 9, 0, 2, 0, 8]);
    ///     table.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`put_selected`](Self::put_selected).
    #[track_caller]
    pub fn put_strided(&self, from: &[T], rank: usize, at: usize, stride: usize) -> Result<()> {
        located(|| {
            self.put_selected(from, &Selection::contiguous(from.len())?, rank, at, &strided(from.len(), stride)?)
        })
    }

    /// Gets elements of `rank`, `stride` elements apart, the first from element `at`; complete on return.
    ///
    /// # Errors
    /// Those of [`put_selected`](Self::put_selected).
    #[track_caller]
    pub fn get_strided(&self, into: &mut [T], rank: usize, at: usize, stride: usize) -> Result<()> {
        located(|| {
            let (all, apart) = (Selection::contiguous(into.len())?, strided(into.len(), stride)?);
            self.get_selected(into, &all, rank, at, &apart)
        })
    }

    /// Puts element `i` of `from` to element `at[i]` of `rank`; complete at the target on return. If an index occurs twice, its
    /// element gets one of the values.
    ///
    /// # Errors
    /// Those of [`put_selected`](Self::put_selected).
    #[track_caller]
    pub fn put_indexed(&self, from: &[T], rank: usize, at: &[usize]) -> Result<()> {
        located(|| self.put_selected(from, &Selection::contiguous(from.len())?, rank, 0, &Selection::indices(at)?))
    }

    /// Gets element `at[i]` of `rank` into element `i` of `into`; complete on return.
    ///
    /// # Errors
    /// Those of [`put_selected`](Self::put_selected).
    #[track_caller]
    pub fn get_indexed(&self, into: &mut [T], rank: usize, at: &[usize]) -> Result<()> {
        located(|| {
            // Mapped elements are loaded one by one; the selection serves only for messages and errors.
            let fits = into.len() == at.len() && at.iter().all(|at| *at < self.len);
            let loaded = |(slot, at): (&mut T, &usize)| {
                // SAFETY: one element, valid during the call; the call completes the get or does nothing.
                unsafe { self.raw().try_get((&raw mut *slot).cast(), size_of::<T>(), rank, at * size_of::<T>()) }
            };
            if fits && self.raw().chooses_freely() && into.iter_mut().zip(at).all(loaded) {
                return Ok(());
            }
            let all = Selection::contiguous(into.len())?;
            self.get_selected(into, &all, rank, 0, &Selection::indices(at)?)
        })
    }

    /// Puts the elements that `of` selects in `from` to those that `to` selects at `rank`, counted from `at`; complete
    /// at the target on return. A copy if memory is mapped; otherwise as few messages as the device allows
    /// ([`put_typed`](crate::raw::RawWindow::put_typed)).
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let table = Symmetric::<u32>::allocate(&team, 12)?;
    ///     // A row becomes a column of the peer's 4 x 3 matrix.
    ///     let (row, column) = (Selection::contiguous(4)?, Selection::vector(4, 1, 3)?);
    ///     table.put_selected(&[1, 2, 3, 4], &row, 1 - team.rank(), 2, &column)?;
    ///     table.barrier()?;
    ///     assert_eq!(table.local().to_vec()?, [0, 0, 1, 0, 0, 2, 0, 0, 3, 0, 0, 4]);
    ///     table.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`put`](Self::put); `BadArgument` for selections of different lengths, a buffer too short for its
    /// selection, and a selection of elements to get into that contains an element twice.
    #[track_caller]
    pub fn put_selected(&self, from: &[T], of: &Selection<T>, rank: usize, at: usize, to: &Selection<T>) -> Result<()> {
        located(|| {
            let layouts = Layouts::put(from, of, at, to)?;
            self.raw().blocking(rank, |raw| raw.transfer_layouts(rank, layouts))
        })
    }

    /// Puts the elements that `of` selects in this rank's own memory to those that `to` selects at `rank`, counted from
    /// `at`, without a copy of them; complete at the target on return. Messages as of
    /// [`put_selected`](Self::put_selected). To this rank itself the elements are copied twice, since the selections may
    /// overlap.
    ///
    /// # Errors
    /// Those of [`put_selected`](Self::put_selected) and [`put_own`](Self::put_own).
    #[track_caller]
    pub fn put_own_selected(&self, of: &Selection<T>, rank: usize, at: usize, to: &Selection<T>) -> Result<()> {
        located(|| {
            if rank == self.team().rank() {
                let (mut copied, all) = (vec![T::zeroed(); of.len()], Selection::contiguous(of.len())?);
                self.get_selected(&mut copied, &all, rank, 0, of)?;
                return self.put_selected(&copied, &all, rank, at, to);
            }
            self.raw().blocking(rank, |raw| raw.put_own_selected(of, rank, at, to))
        })
    }

    /// Gets the elements that `from` selects at `rank`, counted from `at`, to those that `of` selects in `into`; complete
    /// on return.
    ///
    /// # Errors
    /// Those of [`put_selected`](Self::put_selected).
    #[track_caller]
    pub fn get_selected(
        &self,
        into: &mut [T],
        of: &Selection<T>,
        rank: usize,
        at: usize,
        from: &Selection<T>,
    ) -> Result<()> {
        located(|| {
            let layouts = Layouts::get(into, of, at, from)?;
            self.raw().blocking(rank, |raw| raw.transfer_layouts(rank, layouts))
        })
    }
}

/// `count` elements, `stride` apart.
fn strided<T: Pod>(count: usize, stride: usize) -> Result<Selection<T>> {
    Selection::vector(count, 1, stride)
}
