//! Walking a layout block by block, and two layouts piece by piece.

use std::iter::FusedIterator;

use crate::layout::{Layout, LayoutError, MAX_DIMS};

/// The blocks of a layout as (offset, length), in packed order; see [`Layout::blocks`].
#[derive(Clone, Debug)]
pub struct Blocks<'a> {
    layout: &'a Layout,
    /// Blocks that are still to come.
    left: usize,
    /// Where the next block starts.
    offset: usize,
    /// Bytes of the next block that are left out; 0 after the first.
    skip: usize,
    /// Where each dimension stands, innermost first.
    index: [usize; MAX_DIMS],
}

impl<'a> Blocks<'a> {
    pub(crate) fn new(layout: &'a Layout, from_byte: usize) -> Self {
        let mut blocks = Self { layout, left: 0, offset: 0, skip: 0, index: [0; MAX_DIMS] };
        if from_byte >= layout.size() {
            return blocks;
        }
        let first = from_byte / layout.block;
        blocks.left = layout.block_count() - first;
        blocks.skip = from_byte % layout.block;
        let mut rest = first;
        for (index, dim) in blocks.index.iter_mut().zip(layout.dims()) {
            *index = rest % dim.count;
            rest /= dim.count;
            blocks.offset += *index * dim.stride;
        }
        blocks
    }

    #[inline]
    fn advance(&mut self) {
        for (index, dim) in self.index.iter_mut().zip(self.layout.dims()) {
            *index += 1;
            if *index < dim.count {
                self.offset += dim.stride;
                return;
            }
            *index = 0;
            self.offset -= (dim.count - 1) * dim.stride;
        }
    }
}

impl Iterator for Blocks<'_> {
    type Item = (usize, usize);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let block = (self.offset + self.skip, self.layout.block - self.skip);
        self.skip = 0;
        self.advance();
        Some(block)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Blocks<'_> {}
impl FusedIterator for Blocks<'_> {}

/// The pieces that two layouts of the same size have in common, as (offset in `a`, offset in `b`, length): the bytes
/// of `a` and `b` in packed order, cut wherever a block of either ends. There are fewer pieces than blocks in both
/// together.
///
/// # Errors
/// `SizeMismatch` if the sizes differ.
pub fn pair_blocks<'a>(a: &'a Layout, b: &'a Layout) -> Result<PairBlocks<'a>, LayoutError> {
    if a.size() != b.size() {
        return Err(LayoutError::SizeMismatch { left: a.size(), right: b.size() });
    }
    Ok(PairBlocks { a: Side::new(a), b: Side::new(b) })
}

/// See [`pair_blocks`].
#[derive(Clone, Debug)]
pub struct PairBlocks<'a> {
    a: Side<'a>,
    b: Side<'a>,
}

/// One of the two layouts: the block at hand, of which `len` bytes from `offset` on are not given out, and the rest.
#[derive(Clone, Debug)]
struct Side<'a> {
    offset: usize,
    len: usize,
    rest: Blocks<'a>,
}

impl<'a> Side<'a> {
    fn new(layout: &'a Layout) -> Self {
        Self { offset: 0, len: 0, rest: layout.blocks(0) }
    }

    /// Bytes of the block at hand; takes the next one if it is used up.
    #[inline]
    fn available(&mut self) -> Option<usize> {
        if self.len == 0 {
            (self.offset, self.len) = self.rest.next()?;
        }
        Some(self.len)
    }

    #[inline]
    fn take(&mut self, len: usize) -> usize {
        let offset = self.offset;
        self.offset += len;
        self.len -= len;
        offset
    }
}

impl Iterator for PairBlocks<'_> {
    type Item = (usize, usize, usize);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let len = self.a.available()?.min(self.b.available()?);
        Some((self.a.take(len), self.b.take(len), len))
    }
}

impl FusedIterator for PairBlocks<'_> {}
