#![allow(unsafe_code)]
//! Blocks of a call's buffers in memory.

use std::fmt;
use std::rc::Rc;

use smallvec::{SmallVec, smallvec};

use crate::am::{Layout, Payload, Sink, Source};
use crate::coll::schedule::{Buffer, Slice};
use crate::device::Block;
use crate::memory::copy;

/// Memory of the input or the output of a call.
#[derive(Clone, Default)]
pub enum Memory {
    /// None: the rank has no such buffer.
    #[default]
    None,
    /// Contiguous blocks, from this address on.
    Contiguous(*mut u8),
    /// Block `b` begins this many elements after the address.
    Displaced(*mut u8, Rc<[isize]>),
    /// Contiguous blocks in the packed bytes of a layout. Not for reductions.
    Layout(Rc<dyn Layout>),
}

impl Memory {
    /// The address of contiguous memory.
    pub(super) fn piece(&self) -> Option<*mut u8> {
        if let Self::Contiguous(base) = self { Some(*base) } else { None }
    }

    /// Becomes a clone of `other`; contiguous memory only gets another address.
    #[inline(always)]
    pub(super) fn become_as(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::Contiguous(base), Self::Contiguous(other)) => *base = *other,
            (Self::None, Self::None) => {}
            (own, other) => *own = other.clone(),
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Contiguous(base) => write!(f, "Contiguous({base:?})"),
            Self::Displaced(base, starts) => write!(f, "Displaced({base:?}, {starts:?})"),
            Self::Layout(layout) => write!(f, "Layout({} bytes)", layout.packed_len()),
        }
    }
}

/// Blocks of memory, usually one.
pub(super) type Blocks = SmallVec<[Block; 1]>;

/// The three buffers of a run.
pub(super) struct Buffers<'a> {
    pub(super) memory: [&'a Memory; 3],
    /// For each buffer: the start that each block has if the blocks are contiguous, and the end of the last one, in
    /// bytes.
    pub(super) starts: &'a [Vec<usize>; 3],
    /// Bytes of an element.
    pub(super) element: usize,
}

/// A part of a message.
#[derive(Clone)]
enum Piece {
    Bytes(Block),
    /// Packed bytes of a layout: start and length.
    Packed(Rc<dyn Layout>, usize, usize),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(block) => block.len,
            Self::Packed(_, _, len) => *len,
        }
    }
}

/// The blocks of a message; in this order they are the packed bytes of a layout.
struct Pieces(Vec<Piece>);

// SAFETY: the pieces do not change, and yield the requested bytes in order.
unsafe impl Layout for Pieces {
    fn packed_len(&self) -> usize {
        self.0.iter().map(Piece::len).sum()
    }

    fn blocks(&self, from: usize, len: usize, blocks: &mut Vec<Block>) {
        let (mut skip, mut left) = (from, len);
        for piece in &self.0 {
            if left == 0 {
                return;
            }
            if skip >= piece.len() {
                skip -= piece.len();
                continue;
            }
            let now = (piece.len() - skip).min(left);
            match piece {
                Piece::Bytes(block) => blocks.push(Block { base: block.base.wrapping_add(skip), len: now }),
                Piece::Packed(layout, start, _) => layout.blocks(start + skip, now, blocks),
            }
            (skip, left) = (0, left - now);
        }
    }
}

impl Buffers<'_> {
    /// The bytes of some slices, if they are contiguous in memory.
    #[inline]
    pub(super) fn contiguous(&self, slices: &[Slice]) -> Option<Block> {
        match slices {
            [] => Some(Block { base: std::ptr::null_mut(), len: 0 }),
            [slice] => self.block(*slice),
            _ => None,
        }
    }

    #[inline]
    fn block(&self, slice: Slice) -> Option<Block> {
        let starts = &self.starts[slice.buffer as usize];
        let (first, end) = (slice.first as usize, (slice.first + slice.count) as usize);
        let (start, len) = (starts[first], starts[end] - starts[first]);
        match self.memory[slice.buffer as usize] {
            Memory::Contiguous(base) => Some(Block { base: base.wrapping_add(start), len }),
            Memory::Displaced(base, displacements) if slice.count == 1 => {
                let at = displacements[first].wrapping_mul(self.element as isize);
                Some(Block { base: base.wrapping_offset(at), len })
            }
            _ => None,
        }
    }

    /// The blocks of some slices; blocks that are adjacent in memory are merged.
    fn pieces(&self, slices: &[Slice]) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut push = |piece: Piece| match (pieces.last_mut(), piece) {
            (Some(Piece::Bytes(last)), Piece::Bytes(next)) if last.base.wrapping_add(last.len) == next.base => {
                last.len += next.len;
            }
            (_, piece) if piece.len() == 0 => {}
            (_, piece) => pieces.push(piece),
        };
        for slice in slices {
            if let Some(block) = self.block(*slice) {
                push(Piece::Bytes(block));
            } else if let Memory::Layout(layout) = self.memory[slice.buffer as usize] {
                let starts = &self.starts[slice.buffer as usize];
                let (start, end) = (starts[slice.first as usize], starts[(slice.first + slice.count) as usize]);
                push(Piece::Packed(Rc::clone(layout), start, end - start));
            } else {
                for block in slice.blocks().filter_map(|b| self.block(Slice::new(slice.buffer, b, 1))) {
                    push(Piece::Bytes(block));
                }
            }
        }
        pieces
    }

    /// The source of a message with these slices.
    #[inline]
    pub(super) fn source(&self, slices: &[Slice]) -> Source {
        if let Some(block) = self.contiguous(slices) {
            return Source::Bytes(block);
        }
        match &mut self.pieces(slices)[..] {
            [] => Source::of(&[]),
            [Piece::Bytes(block)] => Source::Bytes(*block),
            pieces => Source::Layout(Rc::new(Pieces(pieces.to_vec()))),
        }
    }

    /// The sink of a message for these slices.
    ///
    /// # Safety
    /// The memory of the slices is as [`Sink::memory`] says.
    pub(super) unsafe fn sink(&self, slices: &[Slice]) -> Sink {
        // SAFETY: by the caller's contract.
        unsafe {
            match self.source(slices) {
                Source::Bytes(block) => Sink::memory(block.base, block.len),
                Source::Layout(layout) => Sink::layout(layout),
            }
        }
    }

    /// The blocks of memory of some slices.
    #[inline]
    pub(super) fn each(&self, slices: &[Slice]) -> Blocks {
        match self.contiguous(slices) {
            Some(block) => smallvec![block],
            None => self.range(slices, 0, usize::MAX),
        }
    }

    /// The blocks of memory of at most `len` bytes of some slices, from byte `from` on.
    pub(super) fn range(&self, slices: &[Slice], from: usize, len: usize) -> Blocks {
        if let Some(block) = self.contiguous(slices) {
            return smallvec![Block { base: block.base.wrapping_add(from), len: len.min(block.len - from) }];
        }
        let mut blocks = Vec::new();
        Pieces(self.pieces(slices)).blocks(from, len, &mut blocks);
        blocks.into()
    }

    /// Copies slices to a block of the same length.
    ///
    /// # Safety
    /// The memory of the slices is valid and not written; that of the block is valid for writes and not accessed
    /// otherwise.
    #[inline]
    pub(super) unsafe fn gather(&self, slices: &[Slice], into: Block) {
        if let Some(block) = self.contiguous(slices) {
            debug_assert_eq!(block.len, into.len);
            // SAFETY: by the caller's contract; the block is not part of the slices, which other code may read.
            return unsafe { copy::store(block.base, into.base, into.len) };
        }
        zip(&self.each(slices), &[into], 1, |from, into, len| {
            // SAFETY: by the caller's contract; the block is not part of the slices, which other code may read.
            unsafe { copy::store(from, into, len) };
            true
        });
    }

    /// Fills slices with `bytes`, which must not be longer.
    ///
    /// # Safety
    /// The memory of the slices is valid for writes and is not accessed otherwise.
    #[inline]
    pub(super) unsafe fn fill(&self, slices: &[Slice], bytes: Payload<'_>) {
        if let Some(block) = self.contiguous(slices) {
            debug_assert!(block.len >= bytes.len());
            // SAFETY: `bytes` is not longer than the slices, by the caller's check; the memory is valid by the caller's
            // contract.
            unsafe { bytes.copy_to(0, block.base, bytes.len()) };
            return;
        }
        let mut done = 0;
        for block in self.each(slices) {
            let now = block.len.min(bytes.len() - done);
            // SAFETY: as above.
            unsafe { bytes.copy_to(done, block.base, now) };
            done += now;
        }
    }

    /// Copies slices to others of the same length. Skips blocks that are the same memory in both.
    ///
    /// # Safety
    /// The memory of all slices is valid; that of `into` is not accessed otherwise, and that of `from` not written.
    pub(super) unsafe fn copy(&self, from: &[Slice], into: &[Slice]) {
        let copy = |from: *const u8, into: *mut u8, len: usize| {
            if !std::ptr::eq(from, into) {
                // SAFETY: blocks of the slices; those of different slices do not overlap.
                unsafe { std::ptr::copy(from, into, len) };
            }
            true
        };
        match (self.contiguous(from), self.contiguous(into)) {
            (Some(from), Some(into)) => _ = copy(from.base, into.base, from.len.min(into.len)),
            _ => _ = zip(&self.each(from), &self.each(into), 1, copy),
        }
    }
}

/// Calls `f` with each part of two lists of equal length that is contiguous in both; parts are multiples of `unit`
/// bytes if the blocks are. Returns `false` as soon as `f` does.
pub(super) fn zip(
    from: &[Block],
    into: &[Block],
    unit: usize,
    mut f: impl FnMut(*const u8, *mut u8, usize) -> bool,
) -> bool {
    let (mut a, mut b) = (from.iter().copied(), into.iter().copied());
    let empty = Block { base: std::ptr::null_mut(), len: 0 };
    let (mut x, mut y) = (empty, empty);
    loop {
        while x.len == 0 {
            let Some(next) = a.next() else { return true };
            x = next;
        }
        while y.len == 0 {
            let Some(next) = b.next() else { return true };
            y = next;
        }
        let len = x.len.min(y.len);
        debug_assert!(len.is_multiple_of(unit), "an element is in two blocks");
        if !f(x.base, y.base, len) {
            return false;
        }
        let rest = |block: Block| Block { base: block.base.wrapping_add(len), len: block.len - len };
        (x, y) = (rest(x), rest(y));
    }
}

/// Index of scratch among the three buffers.
pub(super) const SCRATCH: usize = Buffer::Scratch as usize;

/// A cache line of scratch.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

const LINE: usize = 64;

/// Zeroed memory for scratch and operands.
#[derive(Default)]
pub(super) struct Scratch {
    lines: Vec<Line>,
    /// Index of the first line that has the alignment of the elements.
    first: usize,
}

impl Scratch {
    /// Allocates at least `bytes` bytes, aligned to `align`; `None` if the memory cannot be allocated.
    pub(super) fn new(bytes: usize, align: usize) -> Option<Self> {
        let count = bytes.div_ceil(LINE) + (align / LINE).saturating_sub(1);
        let mut lines = Vec::new();
        lines.try_reserve_exact(count).ok()?;
        lines.resize(count, Line([0; LINE]));
        let first = lines.as_ptr().addr().wrapping_neg() % align.max(1) / LINE;
        Some(Self { first: first.min(lines.len()), lines })
    }

    /// Length in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.lines[..])
    }

    pub(super) fn start_mut(&mut self) -> *mut u8 {
        self.lines[self.first..].as_mut_ptr().cast()
    }

    pub(super) fn start(&self) -> *const u8 {
        self.lines[self.first..].as_ptr().cast()
    }

    /// Whether at least `bytes` bytes fit.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        (self.lines.len() - self.first) * LINE >= bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_of_more_than_memory_is_refused() {
        assert!(Scratch::new(1 << 60, 64).is_none() && Scratch::new(usize::MAX, 1).is_none());
    }

    #[test]
    fn scratch_is_aligned_for_elements_of_any_alignment() {
        for align in (0..16).map(|power| 1 << power) {
            for bytes in [1, 63, 64, 65, 4096] {
                let mut scratch = Scratch::new(bytes, align).unwrap();
                assert!(
                    scratch.start_mut().addr().is_multiple_of(align) && scratch.has_room(bytes),
                    "{bytes} by {align}"
                );
            }
        }
    }
}
