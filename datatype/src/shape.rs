//! The layout of a message: the normalized nested-strided tree, and its construction.

use std::sync::Arc;

use crate::error::{DatatypeError, DatatypeErrorKind, Result};
use crate::kernels::{Class, PairClass};

/// The maximum nesting depth of the levels of a layout, and of the constructors of a datatype.
pub const MAX_DEPTH: usize = 64;

/// Bytes of a tile of repetitions that pack and unpack process piece by piece, so that the tile stays in the L1 cache.
const TILE_BYTES: u64 = 8192;

/// Number of blocks among which one may be split in two while the blocks still count as equal.
const BLOCKS_PER_SPLIT: u64 = 64;

/// A level of the tree. Its first block in packed order starts at 0, and the only empty level is a `Run` of no blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// `count` blocks of `len` bytes with starts `stride` apart; a single block has stride 0. Created by [`Node::run`].
    Run { count: u64, stride: i64, len: u64, class: Class },
    /// `count` repetitions of `inner` with starts `stride` apart.
    Repeat { count: u64, stride: i64, inner: Arc<Inner> },
    /// `inner` at each of the displacements.
    Same { at: Arc<[i64]>, inner: Arc<Inner> },
    /// Blocks of different lengths.
    Blocks(Arc<[Block]>),
    /// Different nodes in sequence.
    Parts(Arc<Parts>),
}

/// The node that a level repeats; never empty.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Inner {
    pub(crate) node: Node,
    /// Packed bytes.
    pub(crate) size: u64,
    /// Bytes from the lowest to the highest, and the offset of the lowest.
    pub(crate) span: u64,
    low: i64,
    /// Number of repetitions in a tile; see [`TILE_BYTES`].
    pub(crate) in_tile: u32,
    depth: u32,
    /// The class of its two blocks, if it has two.
    pub(crate) pair: PairClass,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) at: i64,
    /// Number of packed bytes up to its end.
    pub(crate) end: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) items: Box<[Part]>,
    depth: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) at: i64,
    /// Number of packed bytes up to its end.
    pub(crate) end: u64,
    pub(crate) node: Node,
}

impl Inner {
    fn high(&self) -> i64 {
        self.low.wrapping_add(self.span as i64)
    }
}

impl Node {
    pub(crate) const EMPTY: Node = Node::Run { count: 0, stride: 0, len: 0, class: Class::NONE };

    pub(crate) fn run(count: u64, stride: i64, len: u64) -> Self {
        Node::Run { count, stride, len, class: Class::of(len as usize) }
    }

    /// The pieces of a node: blocks, or nodes of the next level.
    pub(crate) fn pieces(&self) -> u64 {
        match self {
            Node::Run { count, .. } | Node::Repeat { count, .. } => *count,
            Node::Same { at, .. } => at.len() as u64,
            Node::Blocks(blocks) => blocks.len() as u64,
            Node::Parts(parts) => parts.items.len() as u64,
        }
    }

    /// The index of the piece that holds packed byte `skip`; the number of pieces if `skip` is past the end.
    #[inline]
    pub(crate) fn piece_at(&self, skip: u64) -> u64 {
        match self {
            _ if skip == 0 => 0,
            Node::Run { len, .. } => skip / len,
            Node::Repeat { inner, .. } | Node::Same { inner, .. } => skip / inner.size,
            Node::Blocks(blocks) => blocks.partition_point(|block| block.end <= skip) as u64,
            Node::Parts(parts) => parts.items.partition_point(|part| part.end <= skip) as u64,
        }
    }

    /// Number of packed bytes before piece `index`.
    #[inline]
    pub(crate) fn packed_before(&self, index: u64) -> u64 {
        let before = (index as usize).checked_sub(1);
        match self {
            Node::Run { len, .. } => index * len,
            Node::Repeat { inner, .. } | Node::Same { inner, .. } => index * inner.size,
            Node::Blocks(blocks) => before.map_or(0, |before| blocks[before].end),
            Node::Parts(parts) => before.map_or(0, |before| parts.items[before].end),
        }
    }

    /// The offset of piece `index`.
    #[inline]
    pub(crate) fn place(&self, index: u64) -> i64 {
        match self {
            Node::Run { stride, .. } | Node::Repeat { stride, .. } => index as i64 * stride,
            Node::Same { at, .. } => at[index as usize],
            Node::Blocks(blocks) => blocks[index as usize].at,
            Node::Parts(parts) => parts.items[index as usize].at,
        }
    }

    /// Piece `index`; `None` where pieces are blocks.
    #[inline]
    pub(crate) fn piece(&self, index: u64) -> Option<&Node> {
        match self {
            Node::Run { .. } | Node::Blocks(_) => None,
            Node::Repeat { inner, .. } | Node::Same { inner, .. } => Some(&inner.node),
            Node::Parts(parts) => Some(&parts.items[index as usize].node),
        }
    }

    /// Whether the pieces of `other` have the same kinds and lengths, so that the two can be copied level by level.
    pub(crate) fn is_alike(&self, other: &Node) -> bool {
        let alike = |a: &Arc<Inner>, b: &Arc<Inner>| Arc::ptr_eq(a, b) || a.node.is_alike(&b.node);
        match (self, other) {
            (Node::Run { count, len, .. }, Node::Run { count: n, len: l, .. }) => (count, len) == (n, l),
            (Node::Repeat { count, inner: a, .. }, Node::Repeat { count: n, inner: b, .. }) => {
                count == n && alike(a, b)
            }
            (Node::Same { at, inner: a }, Node::Same { at: places, inner: b }) => {
                at.len() == places.len() && alike(a, b)
            }
            (Node::Blocks(a), Node::Blocks(b)) => {
                Arc::ptr_eq(a, b) || a.iter().map(|block| block.end).eq(b.iter().map(|block| block.end))
            }
            (Node::Parts(a), Node::Parts(b)) => {
                let part = |(a, b): (&Part, &Part)| a.end == b.end && a.node.is_alike(&b.node);
                Arc::ptr_eq(a, b) || (a.items.len() == b.items.len() && a.items.iter().zip(&b.items).all(part))
            }
            _ => false,
        }
    }

    fn depth(&self) -> u32 {
        match self {
            Node::Run { .. } | Node::Blocks(_) => 0,
            Node::Repeat { inner, .. } | Node::Same { inner, .. } => 1 + inner.depth,
            Node::Parts(parts) => 1 + parts.depth,
        }
    }

    /// The lowest byte, and one past the highest; their distance was checked on construction.
    fn reach(&self) -> (i64, i64) {
        let around = |reaches: &mut dyn Iterator<Item = (i64, i64)>| {
            reaches.fold((i64::MAX, i64::MIN), |(low, high), (from, to)| (low.min(from), high.max(to)))
        };
        let repeated = |count: u64, stride: i64, low: i64, high: i64| {
            let last = (count.saturating_sub(1) as i64).wrapping_mul(stride);
            (low.wrapping_add(last.min(0)), high.wrapping_add(last.max(0)))
        };
        match self {
            Node::Run { count, stride, len, .. } => repeated(*count, *stride, 0, *len as i64),
            Node::Repeat { count, stride, inner } => repeated(*count, *stride, inner.low, inner.high()),
            Node::Same { at, inner } => {
                around(&mut at.iter().map(|at| (at.wrapping_add(inner.low), at.wrapping_add(inner.high()))))
            }
            Node::Blocks(blocks) => around(&mut blocks.iter().enumerate().map(|(i, block)| {
                (block.at, block.at.wrapping_add((block.end - self.packed_before(i as u64)) as i64))
            })),
            Node::Parts(parts) => around(&mut parts.items.iter().map(|part| {
                let (low, high) = part.node.reach();
                (part.at.wrapping_add(low), part.at.wrapping_add(high))
            })),
        }
    }

    /// The length of the node, if it is a single block.
    pub(crate) fn block(&self) -> Option<u64> {
        match self {
            Node::Run { count: 1, len, .. } => Some(*len),
            _ => None,
        }
    }

    /// Number of blocks; blocks that touch across levels count singly.
    pub(crate) fn block_count(&self) -> u64 {
        match self {
            Node::Run { count, .. } => *count,
            Node::Repeat { count, inner, .. } => count * inner.node.block_count(),
            Node::Same { at, inner } => at.len() as u64 * inner.node.block_count(),
            Node::Blocks(blocks) => blocks.len() as u64,
            Node::Parts(parts) => parts.items.iter().map(|part| part.node.block_count()).sum(),
        }
    }
}

/// A tree and its offset relative to the base address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Offset of the first block in packed order.
    pub(crate) offset: i64,
    /// Packed bytes.
    pub(crate) size: u64,
    /// The lowest byte, and one past the highest; both 0 if empty.
    pub(crate) low: i64,
    pub(crate) high: i64,
    pub(crate) node: Node,
}

impl Shape {
    pub(crate) const EMPTY: Shape = Shape { offset: 0, size: 0, low: 0, high: 0, node: Node::EMPTY };

    /// `len` bytes from `offset` on; `None` if an offset exceeds 2^63.
    pub(crate) fn block(offset: i64, len: u64) -> Option<Self> {
        if len == 0 {
            return Some(Self::EMPTY);
        }
        let high = offset.checked_add(i64::try_from(len).ok()?)?;
        Some(Self { offset, size: len, low: offset, high, node: Node::run(1, 0, len) })
    }

    /// The same shape, shifted by `by` bytes.
    pub(crate) fn shift(&self, by: i64, call: &'static str) -> Result<Self> {
        if self.size == 0 {
            return Ok(Self::EMPTY);
        }
        let moved = |at: i64| at.checked_add(by).ok_or_else(|| DatatypeError::overflow(call, "a displacement"));
        Ok(Self {
            offset: moved(self.offset)?,
            low: moved(self.low)?,
            high: moved(self.high)?,
            size: self.size,
            node: self.node.clone(),
        })
    }

    /// `count` repetitions of this shape with starts `stride` apart; dimensions that continue each other are merged.
    pub(crate) fn repeat(&self, count: u64, stride: i64, call: &'static str) -> Result<Self> {
        if count == 0 || self.size == 0 {
            return Ok(Self::EMPTY);
        }
        if count == 1 {
            return Ok(self.clone());
        }
        let too_far = || DatatypeError::overflow(call, "the true extent of the type");
        let size = size_limit(self.size.checked_mul(count), call)?;
        let last = i64::try_from(count - 1).ok().and_then(|n| n.checked_mul(stride)).ok_or_else(too_far)?;
        let low = self.low.checked_add(last.min(0)).ok_or_else(too_far)?;
        let high = self.high.checked_add(last.max(0)).ok_or_else(too_far)?;
        // Distances between any two bytes must fit as well.
        high.checked_sub(low).ok_or_else(too_far)?;
        let continues = |count: u64, inner: i64| {
            i64::try_from(count).ok().and_then(|count| count.checked_mul(inner)) == Some(stride)
        };
        let node = match &self.node {
            // Products of counts stay below the size, which was checked.
            Node::Run { count: 1, len, .. } if i64::try_from(*len) == Ok(stride) => Node::run(1, 0, size),
            Node::Run { count: 1, len, .. } => Node::run(count, stride, *len),
            Node::Run { count: inner, stride: by, len, .. } if continues(*inner, *by) => {
                Node::run(inner * count, *by, *len)
            }
            Node::Repeat { count: n, stride: by, inner } if continues(*n, *by) => {
                Node::Repeat { count: n * count, stride: *by, inner: inner.clone() }
            }
            node => Node::Repeat { count, stride, inner: inner(node.clone(), self.size, call)? },
        };
        Ok(Self { offset: self.offset, size, low, high, node })
    }

    /// Whether its bytes are consecutive in packed order.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.size == 0 || self.node.block().is_some()
    }
}

fn size_limit(size: Option<u64>, call: &'static str) -> Result<u64> {
    size.filter(|size| i64::try_from(*size).is_ok())
        .ok_or_else(|| DatatypeError::overflow(call, "the size of the type"))
}

fn too_deep(call: &'static str) -> DatatypeError {
    DatatypeError::new(DatatypeErrorKind::TooDeep, call, format!("the layout has more than {MAX_DEPTH} levels"))
}

fn inner(node: Node, size: u64, call: &'static str) -> Result<Arc<Inner>> {
    let depth = node.depth();
    if depth as usize + 1 >= MAX_DEPTH {
        return Err(too_deep(call));
    }
    let (low, high) = node.reach();
    let span = high.wrapping_sub(low) as u64;
    let pair = match &node {
        Node::Blocks(blocks) if blocks.len() == 2 => PairClass::of((blocks[0].end, size - blocks[0].end)),
        _ => PairClass::NONE,
    };
    Ok(Arc::new(Inner { in_tile: (TILE_BYTES / span.max(1)) as u32, span, node, size, low, depth, pair }))
}

/// A sequence of shapes in packed order; neighbours are merged when they are added.
pub(crate) struct Sequence {
    call: &'static str,
    parts: Vec<(i64, u64, Node)>,
    size: u64,
    low: i64,
    high: i64,
}

impl Sequence {
    pub(crate) fn new(call: &'static str) -> Self {
        Self { call, parts: Vec::new(), size: 0, low: i64::MAX, high: i64::MIN }
    }

    pub(crate) fn push(&mut self, shape: &Shape) -> Result<()> {
        if shape.size == 0 {
            return Ok(());
        }
        self.size = size_limit(self.size.checked_add(shape.size), self.call)?;
        self.low = self.low.min(shape.low);
        self.high = self.high.max(shape.high);
        if self.high.checked_sub(self.low).is_none() {
            return Err(DatatypeError::overflow(self.call, "the true extent of the type"));
        }
        if let Some((at, size, last)) = self.parts.last_mut()
            && let Some(merged) = merge(last, shape.offset - *at, &shape.node)
        {
            *last = merged;
            *size += shape.size;
            return Ok(());
        }
        self.parts.push((shape.offset, shape.size, shape.node.clone()));
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<Shape> {
        let Some((offset, first_size, first)) = self.parts.first().cloned() else {
            return Ok(Shape::EMPTY);
        };
        let (size, low, high) = (self.size, self.low, self.high);
        if self.parts.len() == 1 {
            return Ok(Shape { offset, size, low, high, node: first });
        }
        let node = if self.parts.iter().all(|(_, _, node)| *node == first) {
            let stride = self.parts[1].0 - offset;
            if self.parts.windows(2).all(|pair| pair[1].0 - pair[0].0 == stride) {
                // The bounds of a single element are not computed here, only those of the whole.
                let one = Shape { offset, size: first_size, low: offset, high: offset, node: first };
                let whole = one.repeat(self.parts.len() as u64, stride, self.call)?;
                return Ok(Shape { low, high, ..whole });
            }
            let at = self.parts.iter().map(|(at, ..)| at - offset).collect();
            Node::Same { at, inner: inner(first, first_size, self.call)? }
        } else if let Some((at, len)) = self.almost_equal() {
            Node::Same { at, inner: inner(Node::run(1, 0, len), len, self.call)? }
        } else {
            let mut end = 0;
            let parts = self.parts.into_iter().map(|(at, size, node)| {
                end += size;
                Part { at: at - offset, end, node }
            });
            let items: Box<[Part]> = parts.collect();
            let depth = items.iter().map(|part| part.node.depth()).max().unwrap_or(0);
            if items.iter().all(|part| part.node.block().is_some()) {
                Node::Blocks(items.iter().map(|part| Block { at: part.at, end: part.end }).collect())
            } else if depth as usize + 1 >= MAX_DEPTH {
                return Err(too_deep(self.call));
            } else {
                Node::Parts(Arc::new(Parts { items, depth }))
            }
        };
        Ok(Shape { offset, size, low, high, node })
    }
}

impl Sequence {
    /// The offsets of blocks of one length, and that length, if only a few blocks must be split to make all equal: a
    /// list of equal blocks takes half the memory, and is copied faster.
    fn almost_equal(&self) -> Option<(Arc<[i64]>, u64)> {
        let lens = || self.parts.iter().map(|(_, _, node)| node.block());
        let len = lens().try_fold(u64::MAX, |least, len| Some(least.min(len?)))?;
        let count = lens().flatten().try_fold(0, |count, each| (each % len == 0).then_some(count + each / len))?;
        let parts = self.parts.len() as u64;
        if count > parts + parts / BLOCKS_PER_SPLIT {
            return None;
        }
        let offset = self.parts.first()?.0;
        let each = |(at, size, _): &(i64, u64, Node)| {
            let first = at - offset;
            (0..size / len).map(move |i| first + (i * len) as i64)
        };
        Some((self.parts.iter().flat_map(each).collect(), len))
    }
}

/// Merges `last` and `next`, at `distance` from it, into one level: adjacent blocks, and vectors that continue.
fn merge(last: &Node, distance: i64, next: &Node) -> Option<Node> {
    let (Node::Run { count, stride, len, .. }, Node::Run { count: more, stride: by, len: next_len, .. }) = (last, next)
    else {
        return None;
    };
    if *count == 1 && *more == 1 {
        let touches = i64::try_from(*len) == Ok(distance);
        return touches.then(|| Node::run(1, 0, len + next_len));
    }
    let step = if *count > 1 { *stride } else { *by };
    let continues =
        len == next_len && (*more == 1 || *by == step) && i64::try_from(*count).ok()?.checked_mul(step)? == distance;
    continues.then(|| Node::run(count + more, step, *len))
}
