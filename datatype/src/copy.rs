//! Pack, unpack and copies from layout to layout over the tree of a type map: whole levels by the loops of
//! [`crate::kernels`], a part of a level by descending to its start and its end.
//!
//! Functions are generic over `PACKED_SIDE`, the side whose bytes are consecutive. A node describes the offsets of the
//! other side; if `NEITHER` side is packed, two nodes of the same structure ([`Node::is_alike`]) describe both.
#![allow(unsafe_code)]

use crate::kernels::{FROM, Len, Mover, NEITHER, Pair, PairClass, Steps, TO, listed, nested, pairs, sides, strided};
use crate::runs::{Run, Runs};
use crate::shape::{Inner, Node, Shape};

/// Minimum length of a stride with which few repetitions share a page.
const FAR_BYTES: u64 = 1024;
/// Minimum number of repetitions, and maximum number of pieces, that are copied in tiles.
const TILE_MIN: usize = 4;
const PIECES_MAX: u64 = 16;
/// Number of blocks that are examined for equal lengths before a run of equal blocks is copied.
const SAME_MAX: usize = 64;

/// Moves `len` bytes of `shape` from packed byte `skip` on (or up to its end) between their offsets relative to `base`
/// and consecutive bytes at `packed`, and returns their number.
///
/// If blocks share bytes, unpacking keeps the value of the last one in packed order.
///
/// # Safety
/// Every block, relative to `base`, must be readable (`TO`) or writable (`FROM`), and `packed` writable or readable for
/// the bytes that are moved; the two must not overlap.
#[inline(always)]
pub(crate) unsafe fn walk<M: Mover, const PACKED_SIDE: usize>(
    shape: &Shape,
    base: *mut u8,
    skip: u64,
    len: u64,
    packed: *mut u8,
) -> usize {
    if skip == 0 && len >= shape.size {
        let at = base.wrapping_offset(shape.offset as isize);
        let (from, to) = sides::<PACKED_SIDE, _>(packed, at, at);
        // SAFETY: by the caller's contract; the first block is at 0 of `at`.
        if unsafe { by_one_loop::<M, PACKED_SIDE>(&shape.node, &shape.node, from, to) } {
            return shape.size as usize;
        }
    }
    // SAFETY: by the caller's contract.
    unsafe { walk_any::<M, PACKED_SIDE>(shape, base, skip, len, packed) }
}

/// [`walk`] of any shape.
///
/// # Safety
/// The same as its contract.
#[inline(never)]
unsafe fn walk_any<M: Mover, const PACKED_SIDE: usize>(
    shape: &Shape,
    base: *mut u8,
    skip: u64,
    len: u64,
    packed: *mut u8,
) -> usize {
    let len = len.min(shape.size.saturating_sub(skip));
    let at = base.wrapping_offset(shape.offset as isize);
    // SAFETY: by the caller's contract; the tree's first block is at 0 of `at`.
    unsafe {
        if len == shape.size {
            let (from, to) = sides::<PACKED_SIDE, _>(packed, at, at);
            move_whole::<M, PACKED_SIDE>(&shape.node, &shape.node, from, to);
        } else if len > 0 {
            move_part::<M, PACKED_SIDE>(&shape.node, at, skip, len, packed);
        }
    }
    len as usize
}

/// Copies `len` bytes from packed byte `skip` on of `from` to the same bytes of `to`, up to the end of the shorter,
/// without an intermediate buffer, and returns their number.
///
/// # Safety
/// Every block of `from` must be readable and every one of `to` writable, relative to their bases, and none of the
/// first may share a byte with one of the second.
#[inline(always)]
pub(crate) unsafe fn transfer<M: Mover>(
    from: &Shape,
    from_base: *const u8,
    to: &Shape,
    to_base: *mut u8,
    skip: u64,
    len: u64,
) -> usize {
    if skip == 0 && len >= from.size && (std::ptr::eq(from, to) || from.node.is_alike(&to.node)) {
        let (a, b) = (from_base.wrapping_offset(from.offset as isize), to_base.wrapping_offset(to.offset as isize));
        // SAFETY: by the caller's contract, for the blocks of each side.
        if unsafe { by_one_loop::<M, NEITHER>(&from.node, &to.node, a, b) } {
            return from.size as usize;
        }
    }
    // SAFETY: by the caller's contract.
    unsafe { transfer_any::<M>(from, from_base, to, to_base, skip, len) }
}

/// [`transfer`] between any shapes.
///
/// # Safety
/// The same as its contract.
#[inline(never)]
unsafe fn transfer_any<M: Mover>(
    from: &Shape,
    from_base: *const u8,
    to: &Shape,
    to_base: *mut u8,
    skip: u64,
    len: u64,
) -> usize {
    let len = len.min(from.size.min(to.size).saturating_sub(skip));
    let (a, b) = (from_base.wrapping_offset(from.offset as isize), to_base.wrapping_offset(to.offset as isize));
    // SAFETY: by the caller's contract, for the blocks of each side.
    unsafe {
        if len == from.size && len == to.size && (std::ptr::eq(from, to) || from.node.is_alike(&to.node)) {
            move_whole::<M, NEITHER>(&from.node, &to.node, a, b);
        } else if to.node.block().is_some() {
            walk::<M, TO>(from, from_base.cast_mut(), skip, len, b.wrapping_add(skip as usize));
        } else if from.node.block().is_some() {
            walk::<M, FROM>(to, to_base, skip, len, a.cast_mut().wrapping_add(skip as usize));
        } else {
            by_runs::<M>(Runs::new(from, skip, len), from_base, Runs::new(to, skip, len), to_base);
        }
    }
    len as usize
}

/// Moves a whole node if a single loop can copy it, and returns whether it did.
///
/// # Safety
/// The contract of [`walk`], with the first block, or the first packed byte, at `from` and `to`.
#[inline(always)]
unsafe fn by_one_loop<M: Mover, const PACKED_SIDE: usize>(a: &Node, b: &Node, from: *const u8, to: *mut u8) -> bool {
    // SAFETY: by the caller's contract.
    unsafe {
        match (a, b) {
            (Node::Run { count, stride, len, class }, Node::Run { stride: by, .. }) => {
                let steps = Steps { count: *count as usize, from: *stride as isize, to: *by as isize };
                strided::<M, PACKED_SIDE>(Len(*len as usize, *class), steps, from, to);
                true
            }
            (Node::Repeat { count, stride, inner }, Node::Repeat { stride: by, inner: other, .. }) => {
                let (from_step, to_step) = sides::<PACKED_SIDE, _>(inner.size as isize, *stride as isize, *by as isize);
                let steps = Steps { count: *count as usize, from: from_step, to: to_step };
                repeated_pairs::<M, PACKED_SIDE>(inner, other, steps, from, to)
            }
            _ => false,
        }
    }
}

/// Moves the pieces if they are repetitions of two blocks whose lengths a loop supports.
///
/// # Safety
/// The contract of [`walk`], for every repetition.
#[inline(always)]
unsafe fn repeated_pairs<M: Mover, const PACKED_SIDE: usize>(
    inner: &Inner,
    other: &Inner,
    steps: Steps,
    from: *const u8,
    to: *mut u8,
) -> bool {
    if inner.pair != PairClass::NONE
        && let (Node::Blocks(blocks), Node::Blocks(places)) = (&inner.node, &other.node)
        && let ([first, second], [_, other]) = (&**blocks, &**places)
    {
        let lens = (first.end as usize, (second.end - first.end) as usize);
        let pair = Pair { lens, second: (second.at as isize, other.at as isize), steps };
        // SAFETY: by the caller's contract.
        return unsafe { pairs::<M, PACKED_SIDE>(inner.pair, &pair, from, to) };
    }
    false
}

/// Moves a whole node.
///
/// # Safety
/// The contract of [`walk`], with the first block, or the first packed byte, at `from` and `to`.
#[inline(always)]
unsafe fn move_whole<M: Mover, const PACKED_SIDE: usize>(a: &Node, b: &Node, from: *const u8, to: *mut u8) {
    // SAFETY: by the caller's contract.
    unsafe {
        match (a, b) {
            _ if by_one_loop::<M, PACKED_SIDE>(a, b, from, to) => {}
            (Node::Repeat { count, stride, inner }, Node::Repeat { stride: by, inner: other, .. }) => {
                repeat_whole::<M, PACKED_SIDE>(*count as usize, (*stride, inner), (*by, other), from, to);
            }
            _ => move_pieces::<M, PACKED_SIDE>(a, b, 0..a.pieces(), from, to),
        }
    }
}

/// Moves some pieces of a node. The packed address is that of the first of these pieces, the other address that of the
/// node.
///
/// # Safety
/// The contract of [`walk`].
unsafe fn move_pieces<M: Mover, const PACKED_SIDE: usize>(
    a: &Node,
    b: &Node,
    range: std::ops::Range<u64>,
    from: *const u8,
    to: *mut u8,
) {
    let (first, end) = (range.start as usize, range.end as usize);
    let packed_before = a.packed_before(range.start);
    // The address of a piece on either side.
    let ends = |index: u64| {
        let packed = (a.packed_before(index) - packed_before) as isize;
        let (from_at, to_at) = sides::<PACKED_SIDE, _>(packed, a.place(index) as isize, b.place(index) as isize);
        (from.wrapping_offset(from_at), to.wrapping_offset(to_at))
    };
    // SAFETY: by the caller's contract, for the blocks of each piece.
    unsafe {
        match (a, b) {
            (Node::Run { stride, len, class, .. }, Node::Run { stride: by, .. }) => {
                let (from, to) = ends(range.start);
                let steps = Steps { count: end - first, from: *stride as isize, to: *by as isize };
                strided::<M, PACKED_SIDE>(Len(*len as usize, *class), steps, from, to);
            }
            (Node::Repeat { stride, inner, .. }, Node::Repeat { stride: by, inner: other, .. }) => {
                let (from, to) = ends(range.start);
                repeat_whole::<M, PACKED_SIDE>(end - first, (*stride, inner), (*by, other), from, to);
            }
            (Node::Same { at, inner }, Node::Same { at: places, .. }) if inner.node.block().is_some() => {
                listed::<M, _, PACKED_SIDE>(Len::of(inner.size), &at[first..end], &places[first..end], from, to);
            }
            (Node::Blocks(blocks), Node::Blocks(places)) => {
                let mut next = first;
                while next < end {
                    let before = a.packed_before(next as u64);
                    let len = blocks[next].end - before;
                    let last = end.min(next + SAME_MAX);
                    let mut until = before;
                    let same = blocks[next..last].iter().take_while(|block| {
                        until += len;
                        block.end == until
                    });
                    let last = next + same.count();
                    let (from_at, to_at) = sides::<PACKED_SIDE, _>((before - packed_before) as isize, 0, 0);
                    let (from, to) = (from.wrapping_offset(from_at), to.wrapping_offset(to_at));
                    listed::<M, _, PACKED_SIDE>(Len::of(len), &blocks[next..last], &places[next..last], from, to);
                    next = last;
                }
            }
            _ => {
                for index in range {
                    let (from, to) = ends(index);
                    if let (Some(a), Some(b)) = (a.piece(index), b.piece(index)) {
                        move_whole::<M, PACKED_SIDE>(a, b, from, to);
                    }
                }
            }
        }
    }
}

/// Repetitions: their number, and their stride.
#[derive(Clone, Copy)]
struct Times {
    steps: Steps,
    /// Number of repetitions in a tile; 0 if two of them may interleave, so that their order matters for shared bytes.
    tile: usize,
}

/// Moves the inner nodes of two repetitions, each with its stride on a side that is not packed.
///
/// # Safety
/// The contract of [`walk`], for every repetition.
unsafe fn repeat_whole<M: Mover, const PACKED_SIDE: usize>(
    count: usize,
    (stride, inner): (i64, &Inner),
    (by, other): (i64, &Inner),
    from: *const u8,
    to: *mut u8,
) {
    let (from_step, to_step) = sides::<PACKED_SIDE, _>(inner.size as isize, stride as isize, by as isize);
    let steps = Steps { count, from: from_step, to: to_step };
    // SAFETY: by the caller's contract.
    unsafe {
        if let (Node::Run { count, stride, len, class }, Node::Run { stride: by, .. }) = (&inner.node, &other.node) {
            let inner = Steps { count: *count as usize, from: *stride as isize, to: *by as isize };
            return nested::<M, PACKED_SIDE>(Len(*len as usize, *class), steps, inner, from, to);
        }
        if repeated_pairs::<M, PACKED_SIDE>(inner, other, steps, from, to) {
            return;
        }
        // Only the order of writes matters, and unless the target is packed these are the bytes of `other`.
        let apart = by.unsigned_abs();
        // Large strides may map to the same few cache sets.
        let most = if apart < FAR_BYTES { usize::MAX } else { 8 };
        let tile = if apart >= other.span { most.min(other.in_tile as usize) } else { 0 };
        repeat::<M, PACKED_SIDE>(&inner.node, &other.node, Times { steps, tile }, from, to);
    }
}

/// Moves all repetitions of a node. A node of several small pieces is moved piece by piece, each for a tile of
/// repetitions that stays in the L1 cache, so that each loop has blocks of one length.
///
/// # Safety
/// The contract of [`walk`], for every repetition.
unsafe fn repeat<M: Mover, const PACKED_SIDE: usize>(a: &Node, b: &Node, times: Times, from: *const u8, to: *mut u8) {
    let Times { steps, tile } = times;
    let after = |n: usize, from: *const u8, to: *mut u8| {
        (from.wrapping_offset(steps.from * n as isize), to.wrapping_offset(steps.to * n as isize))
    };
    // SAFETY: by the caller's contract, for the blocks of each repetition.
    unsafe {
        if let (Node::Run { count, stride, len, class }, Node::Run { stride: by, .. }) = (a, b) {
            // The two nested loops may be exchanged, so consecutive copies are not contiguous on the packed side either.
            let (from_step, to_step) = sides::<PACKED_SIDE, _>(*len as isize, *stride as isize, *by as isize);
            let inner = Steps { count: *count as usize, from: from_step, to: to_step };
            return nested::<M, NEITHER>(Len(*len as usize, *class), steps, inner, from, to);
        }
        let is_tiled = tile >= TILE_MIN && steps.count >= TILE_MIN && a.pieces() <= PIECES_MAX;
        if !is_tiled {
            for done in 0..steps.count {
                let (from, to) = after(done, from, to);
                move_pieces::<M, PACKED_SIDE>(a, b, 0..a.pieces(), from, to);
            }
            return;
        }
        for done in (0..steps.count).step_by(tile) {
            let (from, to) = after(done, from, to);
            let times = Times { steps: Steps { count: tile.min(steps.count - done), ..steps }, tile };
            for index in 0..a.pieces() {
                let before = a.packed_before(index);
                let (from_at, to_at) =
                    sides::<PACKED_SIDE, _>(before as isize, a.place(index) as isize, b.place(index) as isize);
                let (from, to) = (from.wrapping_offset(from_at), to.wrapping_offset(to_at));
                match (a.piece(index), b.piece(index)) {
                    (Some(a), Some(b)) => repeat::<M, PACKED_SIDE>(a, b, times, from, to),
                    _ => {
                        let len = Len::of(a.packed_before(index + 1) - before);
                        strided::<M, NEITHER>(len, times.steps, from, to);
                    }
                }
            }
        }
    }
}

/// Moves `len` bytes of a node from packed byte `skip` on; `len` is not 0 and does not exceed the node. `packed` is the
/// address of the first of them, `at` that of the node.
///
/// # Safety
/// The contract of [`walk`].
unsafe fn move_part<M: Mover, const PACKED_SIDE: usize>(
    node: &Node,
    at: *mut u8,
    skip: u64,
    len: u64,
    packed: *mut u8,
) {
    let end = skip + len;
    let (first, last) = (node.piece_at(skip), node.piece_at(end));
    // Moves a range of packed bytes of piece `index`.
    let some = |index: u64, start: u64, end: u64| {
        let inside = start - node.packed_before(index);
        let (at, packed) =
            (at.wrapping_offset(node.place(index) as isize), packed.wrapping_add((start - skip) as usize));
        // SAFETY: by the caller's contract, for some bytes of a piece.
        unsafe {
            match node.piece(index) {
                Some(piece) => move_part::<M, PACKED_SIDE>(piece, at, inside, end - start, packed),
                None => {
                    let at = at.wrapping_add(inside as usize);
                    let (from, to) = sides::<PACKED_SIDE, _>(packed, at, at);
                    strided::<M, NEITHER>(Len::of(end - start), Steps { count: 1, from: 0, to: 0 }, from, to);
                }
            }
        }
    };
    let mut start = first;
    if node.packed_before(first) < skip {
        some(first, skip, end.min(node.packed_before(first + 1)));
        start = first + 1;
    }
    if start < last {
        let packed = packed.wrapping_add((node.packed_before(start) - skip) as usize);
        let (from, to) = sides::<PACKED_SIDE, _>(packed, at, at);
        // SAFETY: by the caller's contract, for whole pieces.
        unsafe { move_pieces::<M, PACKED_SIDE>(node, node, start..last, from, to) };
    }
    if start <= last && node.packed_before(last) < end {
        some(last, node.packed_before(last), end);
    }
}

/// Copies the bytes of any runs to those of any other runs, up to the end of the shorter side.
///
/// # Safety
/// The contract of [`transfer`].
unsafe fn by_runs<M: Mover>(from: Runs<'_>, from_base: *const u8, to: Runs<'_>, to_base: *mut u8) {
    let (mut from, mut to) = (RunsSide::new(from), RunsSide::new(to));
    while let (Some((a, a_step, a_len)), Some((b, b_step, b_len))) = (from.current(), to.current()) {
        let (whole_a, whole_b) = (from.done == 0, to.done == 0);
        // Blocks of equal length are copied pairwise up to the end of the shorter run; a longer block is treated as a
        // run of blocks of the other side's length; anything else is copied as a single piece.
        let (count, len, a_step, b_step) = if whole_a && whole_b && a_len == b_len {
            (from.run.count.min(to.run.count), a_len, a_step, b_step)
        } else if whole_b && a_len > b_len {
            (to.run.count.min(a_len / b_len), b_len, b_len as i64, b_step)
        } else if whole_a && b_len > a_len {
            (from.run.count.min(b_len / a_len), a_len, a_step, a_len as i64)
        } else {
            (1, a_len.min(b_len), 0, 0)
        };
        // SAFETY: the pieces are parts of blocks that the caller guarantees.
        unsafe {
            let (a, b) = (from_base.wrapping_offset(a as isize), to_base.wrapping_offset(b as isize));
            let steps = Steps { count: count as usize, from: a_step as isize, to: b_step as isize };
            strided::<M, NEITHER>(Len::of(len), steps, a, b);
        }
        from.take(count * len);
        to.take(count * len);
    }
}

/// One side of a transfer: the current run, of whose first block `done` bytes are copied.
struct RunsSide<'a> {
    runs: Runs<'a>,
    run: Run,
    done: u64,
}

impl<'a> RunsSide<'a> {
    fn new(runs: Runs<'a>) -> Self {
        Self { runs, run: Run { offset: 0, count: 0, stride: 0, len: 0 }, done: 0 }
    }

    /// Offset of the next byte, the stride of its run, and the bytes left of its block.
    fn current(&mut self) -> Option<(i64, i64, u64)> {
        if self.run.count == 0 {
            self.run = self.runs.next()?;
        }
        Some((self.run.offset + self.done as i64, self.run.stride, self.run.len - self.done))
    }

    /// Advances by `bytes` copied bytes: whole blocks, or a part of one block.
    fn take(&mut self, bytes: u64) {
        self.done += bytes;
        let blocks = self.done / self.run.len;
        self.done -= blocks * self.run.len;
        self.run.count -= blocks;
        // Past the last block the offset is not used, and need not fit.
        self.run.offset = self.run.offset.wrapping_add(self.run.stride.wrapping_mul(blocks as i64));
    }
}
