//! Sections: a half-open range of indices in each dimension.

use std::fmt;
use std::ops::Range;

use farside_core::{Error, ErrorKind, Result};

/// A rectangle of a global array: `start[d] <= i < end[d]` in every dimension `d`. Made from ranges: `3..7` in one
/// dimension, `(0..2, 3..7)` (rows, columns) in two. Buffers for it hold its elements in row-major order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Section<const D: usize> {
    /// First index of each dimension.
    pub start: [usize; D],
    /// One past the last index of each dimension.
    pub end: [usize; D],
}

impl<const D: usize> Section<D> {
    /// All of an array of `shape`.
    #[must_use]
    pub fn whole(shape: [usize; D]) -> Self {
        Self { start: [0; D], end: shape }
    }

    /// How many indices it has in each dimension.
    #[must_use]
    pub fn shape(&self) -> [usize; D] {
        std::array::from_fn(|d| self.end[d].saturating_sub(self.start[d]))
    }

    /// How many elements.
    #[must_use]
    pub fn len(&self) -> usize {
        // Of a section that fits an array; one that does not may be anything.
        self.shape().into_iter().fold(1, usize::saturating_mul)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the element at `index` is in it.
    #[must_use]
    pub fn contains(&self, index: [usize; D]) -> bool {
        (0..D).all(|d| (self.start[d]..self.end[d]).contains(&index[d]))
    }

    /// What both have in common.
    #[must_use]
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let start = std::array::from_fn(|d| self.start[d].max(other.start[d]));
        Self { start, end: std::array::from_fn(|d| self.end[d].min(other.end[d]).max(start[d])) }
    }

    /// Elements of a row-major buffer of this section that come before `index`, which is in it.
    pub(crate) fn offset_of(&self, index: [usize; D]) -> usize {
        let shape = self.shape();
        (0..D).fold(0, |offset, d| offset * shape[d] + (index[d] - self.start[d]))
    }

    /// An error that names the first dimension in which the section is not inside `shape`.
    pub(crate) fn check(&self, shape: [usize; D], operation: &'static str) -> Result<()> {
        let wrong = (0..D).find(|d| self.start[*d] > self.end[*d] || self.end[*d] > shape[*d]);
        match wrong {
            None => Ok(()),
            Some(d) => Err(Error::new(ErrorKind::OutOfRange, operation)
                .cause(format!("{}..{} in dimension {d}, which has {} indices", self.start[d], self.end[d], shape[d]))
                .remedy("use ranges inside the array's shape, none of which ends before it starts")),
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

impl<const D: usize> fmt::Display for Section<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        for d in 0..D {
            write!(f, "{}{}..{}", if d == 0 { "" } else { ", " }, self.start[d], self.end[d])?;
        }
        f.write_str(")")
    }
}
