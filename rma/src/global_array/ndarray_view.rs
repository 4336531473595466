//! A rank's own elements as an array of the crate `ndarray`.

use ndarray::{ArrayView, ArrayViewMut, IntoDimension};

use super::LocalView;

/// The dimension of `ndarray` for `D` indices: `Ix1` to `Ix6`.
type Dimension<const D: usize> = <[usize; D] as IntoDimension>::Dim;

/// Views that the feature `ndarray` adds.
impl<T, const D: usize> LocalView<'_, T, D>
where
    [usize; D]: IntoDimension,
{
    /// The elements as an array of [`shape`](Self::shape), with local indices. It borrows this view, so it cannot outlive
    /// the lock. For up to 6 dimensions; `into_dyn` gives an `ArrayViewD`. Local.
    ///
    /// ```
    /// use farside_rma::global_array::Format;
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let rows = GlobalArray::<f64, 2>::distributed(&job.world()?, [4, 3], [Format::Block, Format::Whole])?;
    ///     rows.map(|[i, j], _| (10 * i + j) as f64)?;
    ///     // This rank's part of the product of a matrix and a vector.
    ///     let product = rows.with_local(|local| Ok::<_, Error>(local.view().dot(&ndarray::arr1(&[1.0, 0.0, 2.0]))))?;
    ///     let first = 30.0 * (2 * job.rank()) as f64 + 4.0;
    ///     assert_eq!(product, ndarray::arr1(&[first, first + 30.0]));
    ///     rows.free()
    /// })
    /// .unwrap();
    /// ```
    ///
    /// A program that keeps the view for longer does not compile:
    ///
    /// ```compile_fail,E0521
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let array = GlobalArray::<u32, 1>::new(&job.world()?, [4])?;
    ///     let mut kept = None;
    ///     array.with_local(|local| {
    ///         kept = Some(local.view());
    ///         Ok::<(), Error>(())
    ///     })?;
    ///     assert_eq!(kept.map(|kept| kept.sum()), Some(0));
    ///     array.free()
    /// })
    /// .unwrap();
    /// ```
    #[must_use]
    #[allow(clippy::missing_panics_doc)]
    pub fn view(&self) -> ArrayView<'_, T, Dimension<D>> {
        ArrayView::from_shape(self.shape().into_dimension(), self.elements()).expect("a dense array of this shape")
    }

    /// The elements as a mutable array of [`shape`](Self::shape), like [`view`](Self::view).
    ///
    /// ```
    /// use farside_rma::global_array::Format;
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(2, |job| {
    ///     let array = GlobalArray::<u32, 2>::distributed(&job.world()?, [4, 6], [Format::Block, Format::Whole])?;
    ///     array.with_local(|mut local| {
    ///         local.view_mut().column_mut(1).fill(7);
    ///         Ok::<(), Error>(())
    ///     })?;
    ///     assert_eq!(array.reduce(Op::Sum)?, Some(28));
    ///     array.free()
    /// })
    /// .unwrap();
    /// ```
    #[must_use]
    #[allow(clippy::missing_panics_doc)]
    pub fn view_mut(&mut self) -> ArrayViewMut<'_, T, Dimension<D>> {
        let shape = self.shape().into_dimension();
        ArrayViewMut::from_shape(shape, self.elements_mut()).expect("a dense array of this shape")
    }
}
