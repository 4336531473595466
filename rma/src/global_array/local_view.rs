//! A rank's own block as local memory.

use super::section::Section;

/// This rank's block of a global array: its elements in row-major order, borrowed for the duration of
/// [`GlobalArray::with_local`](super::GlobalArray::with_local). Local index 0 is element `section().start`.
#[derive(Debug)]
pub struct LocalView<'a, T, const D: usize> {
    pub(super) section: Section<D>,
    pub(super) elements: &'a mut [T],
}

impl<T, const D: usize> LocalView<'_, T, D> {
    /// The section of the global array that this block is.
    #[must_use]
    pub fn section(&self) -> Section<D> {
        self.section
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

    /// Length of a row: the indices of the last dimension. At least 1, as `chunks_exact` requires; an empty block then
    /// has no rows.
    fn row_len(&self) -> usize {
        self.section.shape()[D - 1].max(1)
    }

    /// The rows, in order. In one dimension all elements are one row; an empty block has no rows.
    pub fn rows(&self) -> std::slice::ChunksExact<'_, T> {
        self.elements.chunks_exact(self.row_len())
    }

    /// The rows, mutably.
    pub fn rows_mut(&mut self) -> std::slice::ChunksExactMut<'_, T> {
        let row_len = self.row_len();
        self.elements.chunks_exact_mut(row_len)
    }
}
