//! Walking a type map from any packed byte: runs of equal blocks, for copy kernels, and single blocks, for descriptors.

use std::iter::FusedIterator;

use smallvec::SmallVec;

use crate::shape::{Node, Shape};

/// `count` blocks of `len` bytes, the first at `offset`, with starts `stride` bytes apart.
///
/// ```
/// use farside_datatype::{Datatype, Named, Run};
///
/// let million = Datatype::vector(1_000_000, 1, 2, &Named::Int.into())?.message(1)?;
/// let mut runs = million.runs(0, u64::MAX);
/// assert_eq!(runs.next(), Some(Run { offset: 0, count: 1_000_000, stride: 8, len: 4 }));
/// assert_eq!(runs.next(), None);
/// # Ok::<(), farside_datatype::DatatypeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Offset of the first block, relative to the buffer's address.
    pub offset: i64,
    /// Number of blocks, at least 1.
    pub count: u64,
    /// Distance between the starts of blocks in bytes; may be negative.
    pub stride: i64,
    /// Bytes of a block, at least 1.
    pub len: u64,
}

/// A level on the stack of the walk, and its next piece.
#[derive(Clone, Debug)]
struct Frame<'a> {
    node: &'a Node,
    base: i64,
    next: u64,
}

/// The bytes of a message in packed order, as runs; see [`TypeMap::runs`](crate::TypeMap::runs).
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    stack: SmallVec<[Frame<'a>; 6]>,
    /// The current run, and the run that follows it before the stack is consulted.
    ready: Option<Run>,
    after: Option<Run>,
    /// The number of packed bytes that remain.
    left: u64,
}

impl<'a> Runs<'a> {
    pub(crate) fn new(shape: &'a Shape, from: u64, len: u64) -> Self {
        let left = len.min(shape.size.saturating_sub(from));
        let mut runs = Self { stack: SmallVec::new(), ready: None, after: None, left };
        if left > 0 {
            runs.descend(&shape.node, shape.offset, from);
        }
        runs
    }

    /// Descends to the block that holds packed byte `skip` of `node`.
    #[inline]
    fn descend(&mut self, mut node: &'a Node, mut base: i64, mut skip: u64) {
        loop {
            let first = node.piece_at(skip);
            let inside = skip - node.packed_before(first);
            if let Node::Run { count, stride, len, .. } = *node {
                let offset = base + node.place(first);
                self.ready = Some(Run { offset, count: count - first, stride, len });
                return self.cut_head(inside);
            }
            self.stack.push(Frame { node, base, next: first + 1 });
            let Some(piece) = node.piece(first) else {
                self.ready = Some(Self::block(node, base, first));
                return self.cut_head(inside);
            };
            (base, node, skip) = (base + node.place(first), piece, inside);
        }
    }

    /// Block `index` of a list of blocks.
    #[inline]
    fn block(blocks: &Node, base: i64, index: u64) -> Run {
        let len = blocks.packed_before(index + 1) - blocks.packed_before(index);
        Run { offset: base + blocks.place(index), count: 1, stride: 0, len }
    }

    /// Skips the first `skip` bytes of the current run's first block; the rest of that block becomes a run of its own.
    #[inline]
    fn cut_head(&mut self, skip: u64) {
        if skip > 0
            && let Some(run) = &mut self.ready
        {
            let more = run.count - 1;
            self.after = (more > 0).then(|| Run { offset: run.offset + run.stride, count: more, ..*run });
            *run = Run { offset: run.offset + skip as i64, count: 1, stride: 0, len: run.len - skip };
        }
    }

    /// Continues with the next block on the stack; `None` at the end.
    #[inline]
    fn advance(&mut self) -> Option<()> {
        loop {
            let Frame { node, base, next } = self.stack.last_mut()?;
            if *next == node.pieces() {
                self.stack.pop();
                continue;
            }
            let (node, base, index) = (*node, *base, *next);
            *next += 1;
            match node.piece(index) {
                Some(piece) => self.descend(piece, base + node.place(index), 0),
                None => self.ready = Some(Self::block(node, base, index)),
            }
            return Some(());
        }
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    #[inline]
    fn next(&mut self) -> Option<Run> {
        if self.left == 0 {
            return None;
        }
        if self.ready.is_none() {
            self.ready = self.after.take();
            if self.ready.is_none() {
                self.advance()?;
            }
        }
        let run = self.ready.take()?;
        // A run is part of the message, so its bytes fit 64 bits.
        let bytes = run.count * run.len;
        if bytes <= self.left {
            self.left -= bytes;
            return Some(run);
        }
        let full = self.left / run.len;
        if full == 0 {
            let len = std::mem::take(&mut self.left);
            return Some(Run { count: 1, stride: 0, len, ..run });
        }
        self.left -= full * run.len;
        let offset = run.offset + full as i64 * run.stride;
        self.ready = Some(Run { offset, count: run.count - full, ..run });
        Some(Run { count: full, ..run })
    }
}

impl FusedIterator for Runs<'_> {}

/// The bytes of a message in packed order, as (offset, length) of blocks that do not touch; see
/// [`TypeMap::blocks`](crate::TypeMap::blocks).
#[derive(Clone, Debug)]
pub struct MapBlocks<'a> {
    runs: Runs<'a>,
    run: Option<Run>,
    held: Option<(i64, u64)>,
}

impl<'a> MapBlocks<'a> {
    pub(crate) fn new(runs: Runs<'a>) -> Self {
        Self { runs, run: None, held: None }
    }

    #[inline]
    fn single(&mut self) -> Option<(i64, u64)> {
        let mut run = match self.run.take() {
            Some(run) => run,
            None => self.runs.next()?,
        };
        let block = (run.offset, run.len);
        if run.count > 1 {
            run.count -= 1;
            run.offset += run.stride;
            self.run = Some(run);
        }
        Some(block)
    }
}

impl Iterator for MapBlocks<'_> {
    type Item = (i64, u64);

    #[inline]
    fn next(&mut self) -> Option<(i64, u64)> {
        let (offset, mut len) = match self.held.take() {
            Some(block) => block,
            None => self.single()?,
        };
        while let Some(next) = self.single() {
            if next.0 != offset + len as i64 {
                self.held = Some(next);
                break;
            }
            len += next.1;
        }
        Some((offset, len))
    }
}

impl FusedIterator for MapBlocks<'_> {}
