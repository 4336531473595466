//! The type map of a message: the offsets of its bytes, their order, and the signature of its elements.

use std::sync::{Arc, OnceLock};

use crate::error::{DatatypeError, Result};
use crate::named::Named;
use crate::overlap::Overlap;
use crate::pack::check_signatures;
use crate::runs::{MapBlocks, Runs};
use crate::shape::{Node, Sequence, Shape};
use crate::signature::Signature;

/// A message of some datatype (MPI-4.1 §5.1: type map and type signature): its bytes in packed order, normalized.
///
/// Its memory does not depend on counts, only on the length of the lists of indexed and struct types. Created by
/// [`Datatype::message`](crate::Datatype::message), or from its wire form ([`TypeMap::from_wire`]). Offsets are
/// relative to the address that the transfer is given, and may be negative.
///
/// ```
/// use farside_datatype::{Datatype, Named, TypeMap};
///
/// // A column of a 3 x 3 matrix of bytes is packed, and unpacked to a row of another matrix.
/// let column = Datatype::vector(3, 1, 3, &Named::Byte.into())?.message(1)?;
/// let row = Datatype::contiguous(3, &Named::Byte.into())?.message(1)?;
/// let (from, mut packed, mut to) = ([1, 2, 3, 4, 5, 6, 7, 8, 9], [0; 3], [0; 9]);
/// assert_eq!(column.pack(&from, 0, 0, &mut packed)?, 3);
/// assert_eq!(row.unpack(&packed, 0, &mut to, 0)?, 3);
/// assert_eq!(to, [1, 4, 7, 0, 0, 0, 0, 0, 0]);
/// // The same in one pass; and the layout as another rank receives it.
/// column.copy(&from, 0, &row, &mut to, 0)?;
/// assert_eq!(TypeMap::from_wire(&column.to_wire())?, column);
/// # Ok::<(), farside_datatype::DatatypeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TypeMap {
    pub(crate) shape: Shape,
    pub(crate) signature: Signature,
    /// The cached result of [`TypeMap::overlap`], shared with clones; `None` if computing it costs less than a look-up.
    pub(crate) overlap: Known,
}

/// A cache of the result of [`TypeMap::overlap`].
pub(crate) type Known = Option<Arc<OnceLock<Overlap>>>;

impl PartialEq for TypeMap {
    fn eq(&self, other: &Self) -> bool {
        self.shape == other.shape && self.signature == other.signature
    }
}

impl Eq for TypeMap {}

impl TypeMap {
    /// The empty message.
    pub const EMPTY: TypeMap = TypeMap { shape: Shape::EMPTY, signature: Signature::NONE, overlap: None };

    pub(crate) fn new(shape: Shape, signature: Signature) -> Self {
        let overlap = (!matches!(shape.node, Node::Run { .. })).then(Arc::default);
        Self { shape, signature, overlap }
    }

    /// The number of bytes that are transferred.
    #[must_use]
    #[inline]
    pub fn size(&self) -> u64 {
        self.shape.size
    }

    /// Offset of the lowest byte (MPI: true lower bound); 0 for an empty message.
    #[must_use]
    #[inline]
    pub fn true_lb(&self) -> i64 {
        self.shape.low
    }

    /// One past the offset of the highest byte; 0 for an empty message.
    #[must_use]
    #[inline]
    pub fn true_ub(&self) -> i64 {
        self.shape.high
    }

    /// The signature of the elements, to be compared with the other side's.
    #[must_use]
    pub fn signature(&self) -> Signature {
        self.signature
    }

    /// The predefined type of all elements, where a pair type counts as its two elements; `None` if there are several
    /// types or no elements.
    #[must_use]
    pub fn element(&self) -> Option<Named> {
        Named::ALL.get(usize::from(self.signature.uniform()?)).copied()
    }

    /// Checks that both sides of a transfer have the same elements in the same order.
    ///
    /// # Errors
    /// `Signature`, with the elements and bytes of this one as the origin's.
    pub fn check_elements(&self, target: &TypeMap) -> Result<()> {
        check_signatures(self, target, "TypeMap::check_elements")
    }

    /// Whether the message is one block.
    #[must_use]
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.shape.is_contiguous()
    }

    /// The number of blocks; an upper bound, because blocks that touch across levels are counted singly.
    #[must_use]
    pub fn block_count(&self) -> u64 {
        self.shape.node.block_count()
    }

    /// The runs of `len` packed bytes from packed byte `from` on, fewer at the end of the message. Finding the start
    /// takes one step per level, and a binary search at a level of an indexed type.
    #[must_use]
    pub fn runs(&self, from: u64, len: u64) -> Runs<'_> {
        Runs::new(&self.shape, from, len)
    }

    /// The blocks from packed byte `from` on; consecutive blocks that touch are joined.
    #[must_use]
    pub fn blocks(&self, from: u64) -> MapBlocks<'_> {
        MapBlocks::new(self.runs(from, u64::MAX))
    }

    pub(crate) fn named(named: Named) -> Result<Self> {
        let call = "predefined datatype";
        let block = |at: usize, len: usize| {
            Shape::block(at as i64, len as u64).ok_or_else(|| DatatypeError::overflow(call, "the size"))
        };
        let Some((first, second)) = named.pair() else {
            return Ok(Self::new(block(0, named.size())?, named.signature()));
        };
        let mut sequence = Sequence::new(call);
        sequence.push(&block(0, first.size())?)?;
        sequence.push(&block(named.second_at(), second.size())?)?;
        Ok(Self::new(sequence.finish()?, named.signature()))
    }

    /// A contiguous array of elements; `None` for a pair type, for no elements, and for too many.
    #[inline]
    pub(crate) fn of_array(named: Named, count: u64) -> Option<Self> {
        let bytes = (named.size() as u64).checked_mul(count).filter(|bytes| *bytes > 0 && named.pair().is_none())?;
        Some(Self::new(Shape::block(0, bytes)?, named.signature().repeat(count)))
    }

    pub(crate) fn shift(&self, by: i64, call: &'static str) -> Result<Self> {
        Ok(Self::new(self.shape.shift(by, call)?, self.signature))
    }

    pub(crate) fn repeat(&self, count: u64, stride: i64, call: &'static str) -> Result<Self> {
        if count == 1 {
            return Ok(self.clone());
        }
        Ok(Self::new(self.shape.repeat(count, stride, call)?, self.signature.repeat(count)))
    }
}
