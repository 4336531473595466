#![allow(unsafe_code)]
//! Puts that notify their target by a flag.

use bytemuck::Pod;
use farside_core::{Located, Result, located};

use super::Symmetric;
use super::flags::Flags;
use crate::elements::bytes;
use crate::pending::{Buffer, Pending};
use crate::raw::RawWindow;
use crate::raw::layouts::Layouts;
use crate::selection::Selection;

impl<T: Pod> Symmetric<T> {
    /// Puts `from` to `rank` at element `at`, and then sets flag `index` of that rank to `value`: a rank that sees the
    /// value sees the data. `from` may be reused on return. Two messages; a copy and a store if memory is mapped.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let (halo, flags) = (Symmetric::<f64>::allocate(&team, 8)?, Flags::allocate(&team, 1)?);
    ///     halo.put_notify(&[0.5; 8], 1 - team.rank(), 0, &flags, 0, 1)?;
    ///     flags.wait_until(0, ge(1))?;
    ///     assert_eq!(halo.local().to_vec()?, [0.5; 8]);
    ///     flags.free()?;
    ///     halo.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`put`](Self::put); `BadArgument` for flags of another team.
    #[inline]
    #[track_caller]
    pub fn put_notify(
        &self,
        from: &[T],
        rank: usize,
        at: usize,
        flags: &Flags,
        index: usize,
        value: u64,
    ) -> Result<()> {
        self.put_and(from, (rank, at), (flags, index), || flags.set(rank, index, value))
    }

    /// Puts `from` to `rank` at element `at`, and then adds `value` to flag `index` of that rank, so that several ranks can
    /// notify by one flag: a rank that sees the sum sees the data of all that have added. `from` may be reused on return.
    /// Two messages and a reply; a copy and an atomic if memory is mapped.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let (all, flags) = (Symmetric::<usize>::allocate(&team, 3)?, Flags::allocate(&team, 1)?);
    ///     all.put_notify_add(&[10 * team.rank()], 0, team.rank(), &flags, 0, 1)?;
    ///     if team.rank() == 0 {
    ///         flags.wait_until(0, eq(3))?;
    ///         assert_eq!(all.local().to_vec()?, [0, 10, 20]);
    ///     }
    ///     flags.free()?;
    ///     all.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`put_notify`](Self::put_notify).
    #[inline]
    #[track_caller]
    pub fn put_notify_add(
        &self,
        from: &[T],
        rank: usize,
        at: usize,
        flags: &Flags,
        index: usize,
        value: u64,
    ) -> Result<()> {
        self.put_and(from, (rank, at), (flags, index), || flags.add(rank, index, value))
    }

    /// Puts, and then makes a notification of the same rank, which is ordered after the put.
    #[inline]
    #[track_caller]
    fn put_and(
        &self,
        from: &[T],
        (rank, at): (usize, usize),
        (flags, index): (&Flags, usize),
        notify: impl Fn() -> Result<()>,
    ) -> Result<()> {
        flags.check_team(self.team()).located()?;
        flags.check(rank, index).located()?;
        let (data, len, offset) = (from.as_ptr().cast(), size_of_val(from), bytes::<T>(at)?);
        // SAFETY: `from` is valid during the call, and `blocking` completes or abandons the operation.
        unsafe {
            if !self.raw().job().store_order().refuses() && self.raw().try_put(data, len, rank, offset) {
                return notify();
            }
            // Two requests: a notification that is part of a request has one writer, and its values grow, but a flag
            // takes any value of any rank.
            let put = |raw: &RawWindow| {
                raw.put(data, len, rank, offset)?;
                notify()
            };
            self.raw().blocking(rank, put).located()
        }
    }

    /// [Puts selected elements](Self::put_selected), and then sets a flag of the same rank, given with its index and value:
    /// a rank that sees the value sees the elements. `from` may be reused on return. Messages as of
    /// [`put_selected`](Self::put_selected), and one for the flag.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let (halo, flags) = (Symmetric::<f64>::allocate(&team, 12)?, Flags::allocate(&team, 1)?);
    ///     // A row becomes the first column of the peer's 4 x 3 matrix.
    ///     let (row, column) = (Selection::contiguous(4)?, Selection::vector(4, 1, 3)?);
    ///     halo.put_selected_notify(&[0.5; 4], &row, 1 - team.rank(), 0, &column, (&flags, 0, 1))?;
    ///     flags.wait_until(0, ge(1))?;
    ///     assert_eq!(halo.local().to_vec()?[..4], [0.5, 0.0, 0.0, 0.5]);
    ///     flags.free()?;
    ///     halo.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`put_selected`](Self::put_selected) and [`put_notify`](Self::put_notify).
    #[track_caller]
    pub fn put_selected_notify(
        &self,
        from: &[T],
        of: &Selection<T>,
        rank: usize,
        at: usize,
        to: &Selection<T>,
        (flags, index, value): (&Flags, usize, u64),
    ) -> Result<()> {
        located(|| {
            flags.check_team(self.team())?;
            flags.check(rank, index)?;
            let layouts = Layouts::put(from, of, at, to)?;
            let put = |raw: &RawWindow| {
                raw.transfer_layouts(rank, layouts)?;
                flags.set(rank, index, value)
            };
            self.raw().blocking(rank, put)
        })
    }

    /// Starts a [`put_notify`](Self::put_notify) of a buffer, which the handle returns.
    ///
    /// # Errors
    /// Those of [`put_notify`](Self::put_notify); the buffer is then dropped.
    #[track_caller]
    pub fn put_notify_nbi<B: Buffer<T>>(
        &self,
        from: B,
        rank: usize,
        at: usize,
        flags: &Flags,
        index: usize,
        value: u64,
    ) -> Result<Pending<B>> {
        located(|| {
            flags.check_team(self.team())?;
            flags.check(rank, index)?;
            let put = self.put_nbi(from, rank, at)?;
            flags.set(rank, index, value)?;
            Ok(put)
        })
    }
}
