//! The type map of a message: where its bytes lie, in which order, and the signature of its elements.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use crate::error::{DatatypeError, Result};
use crate::layout::Layout;
use crate::named::Named;
use crate::pack::check_signatures;
use crate::runs::{MapBlocks, Runs};
use crate::shape::{Node, Sequence, Shape};
use crate::signature::Signature;

/// Whether two bytes of a message share an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// No two do.
    None,
    /// Those at this offset do.
    At(i64),
    /// Not known: blocks of more than 2^20 interleave.
    Undecided,
}

/// Blocks that [`TypeMap::overlap`] looks at singly before it gives up.
const OVERLAP_LIMIT: u64 = 1 << 20;

/// A message of some datatype (MPI-4.1 §5.1: type map and type signature): its bytes in packed order, normalized.
///
/// Memory does not grow with counts, only with the lists that indexed and struct types were given. Made by
/// [`Datatype::message`](crate::Datatype::message), from a [`Layout`], or from its wire form
/// ([`TypeMap::from_wire`]). Offsets are relative to the address that the transfer is given, and may be negative.
#[derive(Clone, Debug)]
pub struct TypeMap {
    pub(crate) shape: Shape,
    pub(crate) signature: Signature,
    /// What [`TypeMap::overlap`] has found, shared with clones; none where that costs less than to look it up.
    overlap: Option<Arc<OnceLock<Overlap>>>,
}

impl PartialEq for TypeMap {
    fn eq(&self, other: &Self) -> bool {
        self.shape == other.shape && self.signature == other.signature
    }
}

impl Eq for TypeMap {}

impl TypeMap {
    /// No bytes.
    pub const EMPTY: TypeMap = TypeMap { shape: Shape::EMPTY, signature: Signature::NONE, overlap: None };

    pub(crate) fn new(shape: Shape, signature: Signature) -> Self {
        let overlap = (!matches!(shape.node, Node::Run { .. })).then(Arc::default);
        Self { shape, signature, overlap }
    }

    /// Bytes that are transferred.
    #[must_use]
    #[inline]
    pub fn size(&self) -> u64 {
        self.shape.size
    }

    /// Where the lowest byte lies (MPI: true lower bound); 0 if there is none.
    #[must_use]
    #[inline]
    pub fn true_lb(&self) -> i64 {
        self.shape.low
    }

    /// One past the highest byte; 0 if there is none.
    #[must_use]
    #[inline]
    pub fn true_ub(&self) -> i64 {
        self.shape.high
    }

    /// The elements, for a check against the other side's.
    #[must_use]
    pub fn signature(&self) -> Signature {
        self.signature
    }

    /// The predefined type that all elements are of, pair types counted as their two elements; `None` if there are
    /// several or no elements.
    #[must_use]
    pub fn element(&self) -> Option<Named> {
        Named::ALL.get(usize::from(self.signature.uniform()?)).copied()
    }

    /// Checks that both have the same elements in the same order, as the two sides of a transfer must.
    ///
    /// # Errors
    /// `Signature`, with the elements and bytes of this one as the origin's.
    pub fn check_elements(&self, target: &TypeMap) -> Result<()> {
        check_signatures(self, target, "TypeMap::check_elements")
    }

    /// Whether packed order is one block.
    #[must_use]
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.shape.is_contiguous()
    }

    /// Blocks; an upper bound, because blocks that touch across levels are counted singly.
    #[must_use]
    pub fn block_count(&self) -> u64 {
        self.shape.node.block_count()
    }

    /// The runs of `len` packed bytes from packed byte `from` on, fewer at the end of the message. To find the start
    /// takes a step per level, a binary search at those of indexed types.
    #[must_use]
    pub fn runs(&self, from: u64, len: u64) -> Runs<'_> {
        Runs::new(&self.shape, from, len)
    }

    /// The blocks from packed byte `from` on; those that touch are one.
    #[must_use]
    pub fn blocks(&self, from: u64) -> MapBlocks<'_> {
        MapBlocks::new(self.runs(from, u64::MAX))
    }

    /// Whether two bytes share an address, which the receiving side of a transfer must not have (MPI-4.1 §3.2.4,
    /// §12.3.1).
    ///
    /// Nested strides are decided in a step per level, in whichever order they nest; other types by sorting their
    /// blocks, up to 2^20 of them. Asked again, of a clone too, it takes no time.
    #[must_use]
    #[inline]
    pub fn overlap(&self) -> Overlap {
        match (&self.shape.node, &self.overlap) {
            (Node::Run { count, stride, len }, _) if *count <= 1 || stride.unsigned_abs() >= *len => Overlap::None,
            (_, Some(found)) => *found.get_or_init(|| self.find_overlap()),
            (_, None) => self.find_overlap(),
        }
    }

    fn find_overlap(&self) -> Overlap {
        if disjoint(&self.shape.node).is_some() {
            return Overlap::None;
        }
        let mut ends = BTreeMap::new();
        for (index, (start, len)) in self.blocks(0).enumerate() {
            if index as u64 >= OVERLAP_LIMIT {
                return Overlap::Undecided;
            }
            let end = start + len as i64;
            if let Some((_, before)) = ends.range(..=start).next_back()
                && *before > start
            {
                return Overlap::At(start);
            }
            if let Some((after, _)) = ends.range(start..).next()
                && *after < end
            {
                return Overlap::At(*after);
            }
            ends.insert(start, end);
        }
        Overlap::None
    }

    pub(crate) fn named(named: Named) -> Result<Self> {
        let call = "predefined datatype";
        let mut sequence = Sequence::new(call);
        let mut block = |at: usize, len: usize| {
            let shape = Shape::block(at as i64, len as u64).ok_or_else(|| DatatypeError::overflow(call, "the size"))?;
            sequence.push(&shape)
        };
        match named.pair() {
            Some((first, second)) => {
                block(0, first.size())?;
                block(named.second_at(), second.size())?;
            }
            None => block(0, named.size())?,
        }
        Ok(Self::new(sequence.finish()?, named.signature()))
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

impl TryFrom<&Layout> for TypeMap {
    type Error = DatatypeError;

    /// The bytes of `layout`, as elements of `MPI_BYTE`.
    ///
    /// # Errors
    /// None for a layout that exists: its extent fits.
    fn try_from(layout: &Layout) -> Result<Self> {
        let call = "TypeMap::try_from(Layout)";
        let too_far = || DatatypeError::overflow(call, "the reach of the layout");
        let mut map = Self::named(Named::Byte)?.repeat(layout.block as u64, 1, call)?;
        for dim in layout.dims() {
            map = map.repeat(dim.count as u64, i64::try_from(dim.stride).map_err(|_| too_far())?, call)?;
        }
        Ok(map)
    }
}

/// Bytes from the lowest to the highest, if nested strides show that no two share an address; `None`: not known.
fn disjoint(node: &Node) -> Option<u64> {
    let mut dims: SmallVec<[(u64, u64); 8]> = SmallVec::new();
    let mut node = node;
    let mut reach = loop {
        match node {
            Node::Run { count, stride, len } => {
                dims.push((stride.unsigned_abs(), *count));
                break *len;
            }
            Node::Repeat { count, stride, inner } => {
                dims.push((stride.unsigned_abs(), *count));
                node = &inner.node;
            }
            Node::Same { at, inner } => {
                let inner = disjoint(&inner.node)?;
                break ascending(at.iter().map(|at| (*at, inner)))?;
            }
            Node::Blocks(blocks) => {
                let starts = std::iter::once(0).chain(blocks.iter().map(|block| block.end));
                break ascending(blocks.iter().zip(starts).map(|(block, start)| (block.at, block.end - start)))?;
            }
            // Their lowest bytes need not be their first, so that their reach says little.
            Node::Parts(_) => return None,
        }
    };
    dims.sort_unstable();
    for (stride, count) in dims.into_iter().filter(|(_, count)| *count > 1) {
        if stride < reach {
            return None;
        }
        reach = stride.checked_mul(count - 1)?.checked_add(reach)?;
    }
    Some(reach)
}

/// The reach of pieces (start, reach) that ascend without touching.
fn ascending(pieces: impl Iterator<Item = (i64, u64)>) -> Option<u64> {
    let mut end = 0_u64;
    for (start, reach) in pieces {
        let start = u64::try_from(start).ok()?;
        if start < end {
            return None;
        }
        end = start.checked_add(reach)?;
    }
    Some(end)
}
