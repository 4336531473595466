//! Detection of bytes of a message that share an address.

use std::collections::BTreeMap;

use crate::shape::Node;
use crate::typemap::TypeMap;

/// Whether two bytes of a message share an address.
///
/// ```
/// use farside_datatype::{Datatype, Named, Overlap};
///
/// let int = Datatype::from(Named::Int);
/// assert_eq!(Datatype::vector(3, 2, 2, &int)?.message(1)?.overlap(), Overlap::None);
/// assert_eq!(Datatype::vector(3, 2, 1, &int)?.message(1)?.overlap(), Overlap::At(4));
/// # Ok::<(), farside_datatype::DatatypeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// No two bytes share an address.
    None,
    /// Two bytes share the address at this offset.
    At(i64),
    /// Undecided: more than 2^20 blocks of lists or structures interleave, or nested strides interleave in more than
    /// 2^22 ways.
    Undecided,
}

/// Maximum number of single blocks that [`TypeMap::overlap`] examines.
const BLOCKS_MAX: u64 = 1 << 20;
/// Maximum number of distances between nested strides that it examines.
const STEPS_MAX: u64 = 1 << 22;

impl TypeMap {
    /// Whether two bytes share an address, which the receiving side of a transfer must not have (MPI-4.1 §3.2.4,
    /// §12.3.1).
    ///
    /// For nested strides that do not interleave, in any nesting order, one step per level decides, and otherwise a
    /// search over their distances, independently of their counts; for other types the blocks are sorted, up to 2^20 of
    /// them. The result is cached, and shared with clones.
    #[must_use]
    #[inline]
    pub fn overlap(&self) -> Overlap {
        match (&self.shape.node, &self.overlap) {
            (Node::Run { count, stride, len, .. }, _) if *count <= 1 || stride.unsigned_abs() >= *len => Overlap::None,
            (_, Some(found)) => *found.get_or_init(|| self.find_overlap()),
            (_, None) => self.find_overlap(),
        }
    }

    fn find_overlap(&self) -> Overlap {
        if disjoint(&self.shape.node).is_some() {
            return Overlap::None;
        }
        match strides(&self.shape.node).and_then(|(dims, len)| Search::of(dims, len)) {
            Some(None) => return Overlap::None,
            // The sum is an offset inside the message, so it cannot overflow.
            Some(Some(at)) => return Overlap::At(self.shape.offset.wrapping_add(at as i64)),
            None => {}
        }
        let mut ends = BTreeMap::new();
        for (index, (start, len)) in self.blocks(0).enumerate() {
            if index as u64 >= BLOCKS_MAX {
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
}

/// A dimension of nested strides: bytes from start to start, and the count.
#[derive(Clone, Copy)]
struct Dim {
    stride: i128,
    count: i128,
}

/// The strides of a tree that consists only of nested strides, without those of a single repetition, and the length of
/// a block.
fn strides(mut node: &Node) -> Option<(Vec<Dim>, i128)> {
    let mut dims = Vec::new();
    let len = loop {
        let (count, stride) = match node {
            Node::Run { count, stride, .. } | Node::Repeat { count, stride, .. } => (*count, *stride),
            _ => return None,
        };
        if count > 1 {
            dims.push(Dim { stride: stride.into(), count: count.into() });
        }
        match node {
            Node::Repeat { inner, .. } => node = &inner.node,
            Node::Run { len, .. } => break i128::from(*len),
            _ => return None,
        }
    };
    Some((dims, len))
}

/// Searches for two blocks that are less than a block length apart: index differences, not all zero, whose sum of
/// strides is below the block length.
struct Search {
    /// The largest strides come first.
    dims: Vec<Dim>,
    len: i128,
    /// The index differences chosen so far.
    chosen: Vec<i128>,
    steps: u64,
}

impl Search {
    /// Offset of an overlap of two blocks from the first block's start; `None` if the search was aborted.
    fn of(mut dims: Vec<Dim>, len: i128) -> Option<Option<i128>> {
        dims.sort_by_key(|dim| std::cmp::Reverse(dim.stride.abs()));
        if dims.last().is_some_and(|dim| dim.stride == 0) {
            return Some(Some(0));
        }
        let mut search = Self { dims, len, chosen: Vec::new(), steps: 0 };
        if !search.has_close_blocks(0, false)? {
            return Some(None);
        }
        // Positive differences are the indices of one block, negative ones those of the other.
        let of = |sign: i128| search.dims.iter().zip(&search.chosen).map(|(d, n)| d.stride * (sign * n).max(0)).sum();
        let (one, other): (i128, i128) = (of(1), of(-1));
        Some(Some(one.max(other)))
    }

    /// Whether some index differences in the remaining dimensions bring the distance `apart` below the block length;
    /// `chosen` then contains them.
    fn has_close_blocks(&mut self, apart: i128, any: bool) -> Option<bool> {
        let level = self.chosen.len();
        let Some(Dim { stride, count }) = self.dims.get(level).copied() else {
            return Some(any && apart.abs() < self.len);
        };
        // The largest distance that the remaining dimensions can bridge.
        let reach: i128 = self.dims[level + 1..].iter().map(|dim| dim.stride.abs() * (dim.count - 1)).sum();
        let reach = reach + self.len - 1;
        let (from, to) = (-reach - apart, reach - apart);
        let (from, to) = if stride > 0 { (from, to) } else { (-to, -from) };
        let step = stride.abs();
        // Either block of a pair may be taken as the first, so it suffices to try a positive first difference.
        let lowest = if any { 1 - count } else { 0 };
        let first = (-(-from).div_euclid(step)).max(lowest);
        let last = to.div_euclid(step).min(count - 1);
        for difference in first..=last {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return None;
            }
            self.chosen.push(difference);
            if self.has_close_blocks(apart + stride * difference, any || difference != 0)? {
                return Some(true);
            }
            self.chosen.pop();
        }
        Some(false)
    }
}

/// Bytes from the lowest to the highest, if nested strides show that no two bytes share an address; `None` if this is
/// not decided.
fn disjoint(node: &Node) -> Option<u64> {
    let mut dims: Vec<(u64, u64)> = Vec::new();
    let mut node = node;
    let mut reach = loop {
        match node {
            Node::Run { count, stride, len, .. } => {
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
            // Their lowest bytes need not come first in packed order, so comparing their spans decides nothing.
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

/// The total span of pieces (start, span) that ascend without touching.
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
