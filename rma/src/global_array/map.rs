//! Elementwise functions on each rank's own part.

use bytemuck::Pod;
use farside_core::{Error, ErrorKind, Result, located};

use super::GlobalArray;

impl<T: Pod, const D: usize> GlobalArray<T, D> {
    /// Replaces each of this rank's elements by `f` of its global index and its value, in row-major order, under an
    /// exclusive lock like [`with_local`](Self::with_local). Local, without messages.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let array = GlobalArray::<f64, 2>::new(&job.world()?, [4, 5])?;
    ///     array.map(|[i, j], old| old + (10 * i + j) as f64)?;
    ///     array.sync()?;
    ///     assert_eq!(array.get_element([3, 2])?, 32.0);
    ///     array.free()
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [`with_local`](Self::with_local).
    #[track_caller]
    pub fn map(&self, mut f: impl FnMut([usize; D], T) -> T) -> Result<()> {
        located(|| self.for_each(|index, element| *element = f(index, *element)))
    }

    /// Sets this rank's elements of `to` to `f` of the global index and the element of this array, in row-major order. The
    /// element types may differ; the arrays have the same team and distribution. Local, without messages, under exclusive
    /// locks on this rank's part of both.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(3, |job| {
    ///     let team = job.world()?;
    ///     let counts = GlobalArray::<u32, 1>::new(&team, [7])?;
    ///     let shares = GlobalArray::<f64, 1>::new(&team, [7])?;
    ///     counts.map(|[i], _| i as u32)?;
    ///     counts.map_into(&shares, |_, count| f64::from(count) / 21.0)?;
    ///     assert!((shares.reduce(Op::Sum)?.unwrap_or_default() - 1.0).abs() < 1e-12);
    ///     shares.free()?;
    ///     counts.free()
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [`for_each_with`](Self::for_each_with).
    #[track_caller]
    pub fn map_into<U: Pod>(&self, to: &GlobalArray<U, D>, mut f: impl FnMut([usize; D], T) -> U) -> Result<()> {
        located(|| to.for_each_with(self, |index, to, from| *to = f(index, *from)))
    }

    /// Calls `f` with the global index and the element of each of this rank's elements, and the element of `other` at that
    /// index, in row-major order. The arrays have the same team and distribution. Local, without messages, under exclusive
    /// locks on this rank's part of both.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let team = job.world()?;
    ///     let (x, y) = (GlobalArray::<f64, 1>::new(&team, [9])?, GlobalArray::<f64, 1>::new(&team, [9])?);
    ///     x.map(|[i], _| i as f64)?;
    ///     y.map(|_, _| 1.0)?;
    ///     // y = 2 x + y.
    ///     y.for_each_with(&x, |_, y, x| *y += 2.0 * x)?;
    ///     y.sync()?;
    ///     assert_eq!(y.get_element([8])?, 17.0);
    ///     y.free()?;
    ///     x.free()
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// `BadArgument` for an array of another team or distribution; `WrongEpoch` if `other` is this array; those of
    /// [`with_local`](Self::with_local) of either.
    #[track_caller]
    pub fn for_each_with<U: Pod>(
        &self,
        other: &GlobalArray<U, D>,
        mut f: impl FnMut([usize; D], &mut T, &U),
    ) -> Result<()> {
        located(|| {
            if !self.distribution.has_same_elements(&other.distribution)
                || self.team().context() != other.team().context()
            {
                return Err(Error::new(ErrorKind::BadArgument, "combine two global arrays")
                    .rank(self.team().job().rank())
                    .cause("the arrays have different teams or distributions")
                    .remedy("create both with the same shape, formats and grid, or use `redistribute_into` first"));
            }
            other.with_local(|others| {
                self.with_local(|mut view| {
                    let mut others = others.elements().iter();
                    view.for_each(|index, element| {
                        // Both parts have the same length, since the distributions are equal.
                        if let Some(other) = others.next() {
                            f(index, element, other);
                        }
                    });
                    Ok(())
                })
            })
        })
    }
}
