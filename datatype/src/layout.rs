//! The layout type: its constructors, which normalize, and its sizes.

use std::fmt;

use crate::blocks::Blocks;

/// Strides that one layout can nest after normalization.
pub const MAX_DIMS: usize = 6;

/// Bytes of a buffer, in the order in which they are packed: a block, repeated at a stride, the whole of that repeated
/// at a larger stride, and so on. The first block starts at offset 0; blocks ascend and do not overlap.
///
/// Always in normal form: rows that fill their pitch are one block, a dimension of count 1 is none, dimensions that
/// continue each other are one, and all layouts of no bytes are the same. So two layouts are equal exactly if they
/// give the same bytes in the same order. The value owns no memory: a vector of ten million blocks is as small as
/// one of two.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Bytes of one block.
    pub(crate) block: usize,
    size: usize,
    extent: usize,
    depth: usize,
    /// Innermost first; those past `depth` are zero.
    dims: [Dim; MAX_DIMS],
}

/// `count` repetitions, `stride` bytes from start to start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Dim {
    pub(crate) count: usize,
    pub(crate) stride: usize,
}

/// Why a layout, or a pair of them, cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutError {
    /// The stride is smaller than what is repeated.
    Overlap {
        /// Bytes from start to start.
        stride: usize,
        /// Bytes from the start to the end of what is repeated.
        extent: usize,
    },
    /// The last byte would be more than `isize::MAX` bytes from the first.
    Overflow,
    /// More than [`MAX_DIMS`] strides.
    TooDeep,
    /// Two layouts of different sizes where equal ones are needed.
    SizeMismatch {
        /// Bytes of the one.
        left: usize,
        /// Bytes of the other.
        right: usize,
    },
}

impl Layout {
    /// `bytes` bytes without a gap.
    #[must_use]
    #[inline]
    pub const fn contiguous(bytes: usize) -> Self {
        Self { block: bytes, size: bytes, extent: bytes, depth: 0, dims: [Dim { count: 0, stride: 0 }; MAX_DIMS] }
    }

    /// `count` blocks of `block_bytes`, `stride_bytes` from start to start (a vector, in MPI's words).
    ///
    /// # Errors
    /// `Overlap` if the stride is smaller than the block, `Overflow` if the extent exceeds `isize::MAX`; neither if
    /// there are fewer than two blocks, or no bytes in them.
    pub fn strided(count: usize, block_bytes: usize, stride_bytes: usize) -> Result<Self, LayoutError> {
        Self::nested(&Self::contiguous(block_bytes), count, stride_bytes)
    }

    /// A section of a row-major array: the first `cols_bytes` of each of `rows` rows that are `row_bytes` apart.
    ///
    /// # Errors
    /// `Overlap` if a row is shorter than its section, `Overflow` if the extent exceeds `isize::MAX`.
    pub fn section_2d(row_bytes: usize, rows: usize, cols_bytes: usize) -> Result<Self, LayoutError> {
        Self::strided(rows, cols_bytes, row_bytes)
    }

    /// `count` times `inner`, `stride_bytes` from start to start.
    ///
    /// # Errors
    /// `Overlap` if the stride is smaller than the extent of `inner`, `Overflow` if the extent of the whole exceeds
    /// `isize::MAX`, `TooDeep` if more than [`MAX_DIMS`] strides remain in normal form.
    pub fn nested(inner: &Self, count: usize, stride_bytes: usize) -> Result<Self, LayoutError> {
        if count == 0 || inner.size == 0 {
            return Ok(Self::contiguous(0));
        }
        if count == 1 {
            return Ok(*inner);
        }
        if stride_bytes < inner.extent {
            return Err(LayoutError::Overlap { stride: stride_bytes, extent: inner.extent });
        }
        let extent = stride_bytes
            .checked_mul(count - 1)
            .and_then(|last| last.checked_add(inner.extent))
            .filter(|extent| isize::try_from(*extent).is_ok())
            .ok_or(LayoutError::Overflow)?;
        // The products below do not exceed the extent, because blocks do not overlap.
        let mut whole = Self { size: inner.size * count, extent, ..*inner };
        match whole.dims[..whole.depth].last_mut() {
            None if stride_bytes == inner.block => whole.block *= count,
            Some(outer) if outer.count.checked_mul(outer.stride) == Some(stride_bytes) => outer.count *= count,
            _ => {
                *whole.dims.get_mut(whole.depth).ok_or(LayoutError::TooDeep)? = Dim { count, stride: stride_bytes };
                whole.depth += 1;
            }
        }
        Ok(whole)
    }

    /// Bytes that are transferred.
    #[must_use]
    #[inline]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Bytes from the start of the first block to the end of the last; 0 if there is none.
    #[must_use]
    #[inline]
    pub const fn extent(&self) -> usize {
        self.extent
    }

    /// Whether there is no gap.
    #[must_use]
    #[inline]
    pub const fn is_contiguous(&self) -> bool {
        self.depth == 0
    }

    /// Blocks that [`Layout::blocks`] gives from byte 0. All have the same length.
    #[must_use]
    #[inline]
    pub const fn block_count(&self) -> usize {
        if self.size == 0 { 0 } else { self.size / self.block }
    }

    /// The blocks from packed byte `from_byte` on, as (offset, length): the rest of the block that holds that byte
    /// first. No block is empty; there are none if `from_byte` is the size or more. Finding the start takes one
    /// division per dimension.
    ///
    /// Where an outer stride is just the extent of what it repeats, the last block of one repetition touches the first
    /// of the next; these stay two.
    #[must_use]
    pub fn blocks(&self, from_byte: usize) -> Blocks<'_> {
        Blocks::new(self, from_byte)
    }

    /// The strides, innermost first.
    #[inline]
    pub(crate) fn dims(&self) -> &[Dim] {
        &self.dims[..self.depth]
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Layout({} bytes", self.block)?;
        for dim in self.dims() {
            write!(f, ", {} x stride {}", dim.count, dim.stride)?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap { stride, extent } => {
                write!(f, "a stride of {stride} bytes makes blocks of extent {extent} overlap")
            }
            Self::Overflow => write!(f, "the layout reaches further than {} bytes", isize::MAX),
            Self::TooDeep => write!(f, "more than {MAX_DIMS} nested strides"),
            Self::SizeMismatch { left, right } => {
                write!(f, "layouts of different sizes: {left} bytes and {right} bytes")
            }
        }
    }
}

impl std::error::Error for LayoutError {}
