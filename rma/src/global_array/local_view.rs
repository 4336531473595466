//! A rank's own elements as local memory.

use super::distribution::Distribution;
use super::section::Section;

/// This rank's elements of a global array, in row-major order, borrowed for the duration of
/// [`GlobalArray::with_local`](super::GlobalArray::with_local). In an array in blocks, local index 0 is element
/// `section().start`.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let array = GlobalArray::<usize, 2>::new(&team, [4, 3])?;
///     array.with_local(|mut view| {
///         let first = view.section().start[0];
///         for (i, row) in view.rows_mut().enumerate() {
///             row.fill(first + i);
///         }
///         Ok::<(), Error>(())
///     })?;
///     array.sync()?;
///     assert_eq!(array.gather(&[[0, 0], [1, 2], [3, 1]])?, [0, 1, 3]);
///     array.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug)]
pub struct LocalView<'a, T, const D: usize> {
    distribution: &'a Distribution<D>,
    place: [usize; D],
    shape: [usize; D],
    section: Section<D>,
    elements: &'a mut [T],
}

impl<'a, T, const D: usize> LocalView<'a, T, D> {
    pub(super) fn new(distribution: &'a Distribution<D>, rank: usize, elements: &'a mut [T]) -> Self {
        let (place, shape) = (distribution.place(rank), distribution.local_shape(rank));
        Self { distribution, place, shape, section: distribution.owned(rank), elements }
    }

    /// The section of the global array that consists of these elements, or the smallest section that contains them all,
    /// if they are not consecutive.
    #[must_use]
    pub fn section(&self) -> Section<D> {
        self.section
    }

    /// Number of this rank's indices in each dimension: the elements are a row-major array of this shape.
    #[must_use]
    pub fn shape(&self) -> [usize; D] {
        self.shape
    }

    /// The elements.
    #[must_use]
    pub fn elements(&self) -> &[T] {
        self.elements
    }

    /// The elements, mutably.
    pub fn elements_mut(&mut self) -> &mut [T] {
        self.elements
    }

    /// Length of a row: the indices of the last dimension. At least 1, as `chunks_exact` requires; a view without
    /// elements still has no rows.
    fn row_len(&self) -> usize {
        self.shape[D - 1].max(1)
    }

    /// The rows, in order. A one-dimensional array has a single row; a view without elements has none.
    pub fn rows(&self) -> std::slice::ChunksExact<'_, T> {
        self.elements.chunks_exact(self.row_len())
    }

    /// The rows, mutably.
    pub fn rows_mut(&mut self) -> std::slice::ChunksExactMut<'_, T> {
        let row_len = self.row_len();
        self.elements.chunks_exact_mut(row_len)
    }

    /// The elements with their global indices, in row-major order.
    pub fn iter(&self) -> impl Iterator<Item = ([usize; D], &T)> {
        let (distribution, place, shape) = (self.distribution, self.place, self.shape);
        self.elements.iter().enumerate().map(move |(at, element)| (global(distribution, place, shape, at), element))
    }

    /// Calls `f` with the global index and the element of each element, in row-major order.
    pub fn for_each(&mut self, mut f: impl FnMut([usize; D], &mut T)) {
        let (distribution, place, shape) = (self.distribution, self.place, self.shape);
        for (at, element) in self.elements.iter_mut().enumerate() {
            f(global(distribution, place, shape, at), element);
        }
    }
}

/// The global index of the element at a local position.
fn global<const D: usize>(
    distribution: &Distribution<D>,
    place: [usize; D],
    shape: [usize; D],
    mut at: usize,
) -> [usize; D] {
    let mut index = [0; D];
    for d in (0..D).rev() {
        index[d] = distribution.global(d, place[d], at % shape[d]);
        at /= shape[d];
    }
    index
}
