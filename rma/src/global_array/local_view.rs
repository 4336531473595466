//! The own block of a rank, as memory.

use super::section::Section;

/// This rank's block of a global array: its elements in row-major order, lent for the time of
/// [`GlobalArray::with_local`](super::GlobalArray::with_local). Local index 0 is element `section().start`.
#[derive(Debug)]
pub struct LocalView<'a, T, const D: usize> {
    pub(super) section: Section<D>,
    pub(super) elements: &'a mut [T],
}

impl<T, const D: usize> LocalView<'_, T, D> {
    /// Which elements of the global array these are.
    #[must_use]
    pub fn section(&self) -> Section<D> {
        self.section
    }

    /// The elements.
    #[must_use]
    pub fn elements(&self) -> &[T] {
        self.elements
    }

    /// The elements, to change.
    pub fn elements_mut(&mut self) -> &mut [T] {
        self.elements
    }

    /// Elements of one row: indices of the last dimension. Not 0, so that there are no rows rather than empty ones.
    fn row_len(&self) -> usize {
        self.section.shape()[D - 1].max(1)
    }

    /// The rows, from the first: all elements as one row in one dimension; none if the block has no elements.
    pub fn rows(&self) -> std::slice::ChunksExact<'_, T> {
        self.elements.chunks_exact(self.row_len())
    }

    /// The rows, to change.
    pub fn rows_mut(&mut self) -> std::slice::ChunksExactMut<'_, T> {
        let row_len = self.row_len();
        self.elements.chunks_exact_mut(row_len)
    }
}
