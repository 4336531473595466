//! Sections: a half-open range of indices in each dimension.

use std::fmt;
use std::ops::Range;

use farside_core::{Error, ErrorKind, Result};

/// A rectangle of a global array: `start[d] <= i < end[d]` in every dimension `d`. It converts from ranges: `3..7` in
/// one dimension, `(0..2, 3..7)` (rows, columns) in two, and three of them in three. Buffers of a section hold its elements in row-major order.
///
/// ```
/// use farside_rma::Section;
///
/// let section = Section::from((1..3, 0..5));
/// assert_eq!((section.shape(), section.len()), ([2, 5], 10));
/// assert!(section.contains([2, 4]) && !section.contains([3, 0]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Section<const D: usize> {
    /// First index of each dimension.
    pub start: [usize; D],
    /// One past the last index of each dimension.
    pub end: [usize; D],
}

impl<const D: usize> Section<D> {
    /// The section that is the whole array of `shape`.
    #[must_use]
    pub fn whole(shape: [usize; D]) -> Self {
        Self { start: [0; D], end: shape }
    }

    /// Number of indices in each dimension.
    #[must_use]
    pub fn shape(&self) -> [usize; D] {
        std::array::from_fn(|d| self.end[d].saturating_sub(self.start[d]))
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        // A section inside an array cannot overflow; for any other one the value saturates.
        self.shape().into_iter().fold(1, usize::saturating_mul)
    }

    /// Whether the section has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the element at `index` is in the section.
    #[must_use]
    pub fn contains(&self, index: [usize; D]) -> bool {
        (0..D).all(|d| (self.start[d]..self.end[d]).contains(&index[d]))
    }

    /// Checks that the section is inside `shape`; the error names the first dimension in which it is not.
    pub(crate) fn check(&self, shape: [usize; D], operation: &'static str) -> Result<()> {
        let wrong = (0..D).find(|d| self.start[*d] > self.end[*d] || self.end[*d] > shape[*d]);
        match wrong {
            None => Ok(()),
            Some(d) => Err(Error::new(ErrorKind::OutOfRange, operation)
                .cause(format!(
                    "{}..{} is not inside dimension {d}, which has {} indices",
                    self.start[d], self.end[d], shape[d]
                ))
                .remedy("use ranges inside the array's shape that do not end before they start")),
        }
    }
}

impl From<Range<usize>> for Section<1> {
    fn from(range: Range<usize>) -> Self {
        Self { start: [range.start], end: [range.end] }
    }
}

impl From<(Range<usize>, Range<usize>)> for Section<2> {
    fn from((rows, columns): (Range<usize>, Range<usize>)) -> Self {
        Self { start: [rows.start, columns.start], end: [rows.end, columns.end] }
    }
}

impl From<(Range<usize>, Range<usize>, Range<usize>)> for Section<3> {
    fn from((planes, rows, columns): (Range<usize>, Range<usize>, Range<usize>)) -> Self {
        Self { start: [planes.start, rows.start, columns.start], end: [planes.end, rows.end, columns.end] }
    }
}

impl<const D: usize> fmt::Display for Section<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        for d in 0..D {
            write!(f, "{}{}..{}", if d == 0 { "" } else { ", " }, self.start[d], self.end[d])?;
        }
        f.write_str(")")
    }
}
