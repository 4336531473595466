//! Pack and unpack over the tree of a type map: whole levels by the loops of [`crate::kernels`], parts of one by the way
//! down to where they start and end.
//!
//! What repeats something of several small pieces is copied piece by piece, each for a tile of repetitions that stays
//! in the nearest cache: so one loop has blocks of one length.
#![allow(unsafe_code)]

use crate::kernels::{self, Steps};
use crate::shape::{Block, Inner, Node, Shape};

/// A distance between repetitions of which a page holds few.
const FAR_BYTES: u64 = 1024;
/// Repetitions below which there is no tile, and pieces above which there is none.
const TILE_MIN: usize = 4;
const PIECES_MAX: usize = 16;

/// Which way bytes go: from the buffer to their packed form (`PACK`) or back.
#[inline(always)]
fn way<const PACK: bool>(at: *mut u8, packed: *mut u8) -> (*const u8, *mut u8) {
    if PACK { (at, packed) } else { (packed, at) }
}

/// The same for distances, at the buffer and in packed form.
#[inline(always)]
fn steps<const PACK: bool>(count: usize, at: isize, packed: isize) -> Steps {
    if PACK { Steps { count, from: at, to: packed } } else { Steps { count, from: packed, to: at } }
}

/// Moves `count` blocks of `len` bytes, `stride` from start to start in the buffer and consecutive in packed form.
///
/// # Safety
/// As [`walk`], for these blocks.
#[inline(always)]
unsafe fn run<const PACK: bool>(len: u64, count: u64, stride: i64, at: *mut u8, packed: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        if PACK {
            kernels::collect(len as usize, count as usize, stride as isize, at, packed);
        } else {
            kernels::spread(len as usize, count as usize, stride as isize, packed, at);
        }
    }
}

/// Moves the bytes of `shape` from packed byte `skip` on, `len` of them or up to its end, and returns how many.
///
/// Where blocks share bytes, the last in packed order counts when they are unpacked.
///
/// # Safety
/// Every block, relative to `base`, must be readable (`PACK`) or writable, and `packed` writable or readable for the
/// bytes that are moved; the two must be apart.
#[inline]
pub(crate) unsafe fn walk<const PACK: bool>(
    shape: &Shape,
    base: *mut u8,
    skip: u64,
    len: u64,
    packed: *mut u8,
) -> usize {
    let len = len.min(shape.size.saturating_sub(skip));
    let at = base.wrapping_offset(shape.offset as isize);
    if len > 0 {
        // SAFETY: the caller's promise; the tree's first block is at 0 of `at`.
        unsafe {
            if len == shape.size {
                whole::<PACK>(&shape.node, at, packed);
            } else {
                part::<PACK>(&shape.node, shape.size, at, skip, len, packed);
            }
        }
    }
    len as usize
}

/// Moves all of `node`, which is not empty.
///
/// # Safety
/// As [`walk`].
pub(crate) unsafe fn whole<const PACK: bool>(node: &Node, at: *mut u8, packed: *mut u8) {
    // SAFETY: the caller's promise, for the blocks of each level.
    unsafe {
        match node {
            Node::Run { count, stride, len, class } => {
                let kernels = class.kernels();
                let (len, count, stride) = (*len as usize, *count as usize, *stride as isize);
                if PACK {
                    (kernels.collect)(len, count, stride, len as isize, at, packed);
                } else {
                    (kernels.spread)(len, count, len as isize, stride, packed, at);
                }
            }
            Node::Repeat { count, stride, inner } => {
                let times = Times::of(*count as usize, *stride, inner);
                repeat::<PACK>(&inner.node, inner.size, times, at, packed);
            }
            Node::Same { at: list, inner } => same::<PACK>(list, inner, at, packed),
            Node::Blocks(blocks) => each_block::<PACK>(0, blocks, at, packed),
            Node::Parts(parts) => {
                let mut start = 0;
                for part in &parts.items {
                    let packed = packed.wrapping_add(start as usize);
                    whole::<PACK>(&part.node, at.wrapping_offset(part.at as isize), packed);
                    start = part.end;
                }
            }
        }
    }
}

/// Moves all of `blocks`, which start at packed byte `before`.
///
/// # Safety
/// As [`walk`].
#[inline]
unsafe fn each_block<const PACK: bool>(mut before: u64, mut blocks: &[Block], at: *mut u8, mut packed: *mut u8) {
    while !blocks.is_empty() {
        // SAFETY: the caller's promise.
        let done = unsafe { kernels::blocks::<PACK>(before, blocks, at, packed) };
        let end = blocks[done - 1].end;
        packed = packed.wrapping_add((end - before) as usize);
        (before, blocks) = (end, &blocks[done..]);
    }
}

/// Moves `inner` at each of these displacements.
///
/// # Safety
/// As [`walk`].
#[inline]
unsafe fn same<const PACK: bool>(list: &[i64], inner: &Inner, at: *mut u8, packed: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        match inner.node.block() {
            Some(len) if PACK => kernels::gather(len as usize, list, at, packed),
            Some(len) => kernels::scatter(len as usize, list, packed, at),
            None => {
                for (i, by) in list.iter().enumerate() {
                    let packed = packed.wrapping_add(i * inner.size as usize);
                    whole::<PACK>(&inner.node, at.wrapping_offset(*by as isize), packed);
                }
            }
        }
    }
}

/// Repetitions: how many, and how far from start to start in the buffer and in packed form.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    pub(crate) count: usize,
    pub(crate) at: isize,
    /// In a copy from layout to layout, at its source.
    pub(crate) packed: isize,
    /// How many of them make a tile; 0 if what two of them span in the buffer may interleave, so that their order
    /// matters to bytes that are shared.
    pub(crate) tile: usize,
}

impl Times {
    /// Once.
    pub(crate) const ONCE: Times = Times { count: 1, at: 0, packed: 0, tile: 0 };

    #[inline(always)]
    pub(crate) fn of(count: usize, stride: i64, inner: &Inner) -> Self {
        let stride_abs = stride.unsigned_abs();
        // Far strides may fall on the same few lines of the cache.
        let most = if stride_abs < FAR_BYTES { usize::MAX } else { 8 };
        let tile = if stride_abs >= inner.span { most.min(inner.in_tile as usize) } else { 0 };
        Self { count, at: stride as isize, packed: inner.size as isize, tile }
    }

    fn steps<const PACK: bool>(self) -> Steps {
        steps::<PACK>(self.count, self.at, self.packed)
    }

    /// Whether it pays to go through `pieces` pieces one by one, each for a tile.
    pub(crate) fn tiles(self, pieces: usize) -> bool {
        self.tile >= TILE_MIN && self.count >= TILE_MIN && pieces <= PIECES_MAX
    }

    /// The tiles, each with where it starts in the buffer and in packed form.
    #[inline(always)]
    pub(crate) fn each_tile(self, at: *mut u8, packed: *mut u8, mut visit: impl FnMut(Times, *mut u8, *mut u8)) {
        let mut done = 0;
        while done < self.count {
            let count = self.tile.min(self.count - done);
            let (by, packed_by) = (self.at.wrapping_mul(done as isize), self.packed.wrapping_mul(done as isize));
            visit(Times { count, ..self }, at.wrapping_offset(by), packed.wrapping_offset(packed_by));
            done += count;
        }
    }
}

/// Moves `node`, of `size` bytes, so many times.
///
/// # Safety
/// As [`walk`], for every repetition.
unsafe fn repeat<const PACK: bool>(node: &Node, size: u64, times: Times, at: *mut u8, packed: *mut u8) {
    let (from, to) = way::<PACK>(at, packed);
    // SAFETY: the caller's promise, for the blocks of each repetition.
    unsafe {
        match node {
            Node::Run { count: 1, len, .. } => kernels::strided(*len as usize, times.steps::<PACK>(), from, to),
            Node::Run { count, stride, len, .. } => {
                let inner = steps::<PACK>(*count as usize, *stride as isize, *len as isize);
                let outer = times.steps::<PACK>();
                if times.packed as u64 != size {
                    kernels::nested(*len as usize, outer, inner, from, to);
                } else if PACK {
                    kernels::collect_nested(*len as usize, outer, inner, from, to);
                } else {
                    kernels::spread_nested(*len as usize, outer, inner, from, to);
                }
            }
            Node::Blocks(blocks) if times.tiles(blocks.len()) => times.each_tile(at, packed, |times, at, packed| {
                let mut start = 0;
                for block in blocks.iter() {
                    let (from, to) =
                        way::<PACK>(at.wrapping_offset(block.at as isize), packed.wrapping_add(start as usize));
                    kernels::strided((block.end - start) as usize, times.steps::<PACK>(), from, to);
                    start = block.end;
                }
            }),
            Node::Parts(parts) if times.tiles(parts.items.len()) => times.each_tile(at, packed, |times, at, packed| {
                let mut start = 0;
                for part in &parts.items {
                    let (at, packed) = (at.wrapping_offset(part.at as isize), packed.wrapping_add(start as usize));
                    repeat::<PACK>(&part.node, part.end - start, times, at, packed);
                    start = part.end;
                }
            }),
            Node::Same { at: list, inner } if times.tiles(list.len()) => {
                times.each_tile(at, packed, |times, at, packed| {
                    for (i, by) in list.iter().enumerate() {
                        let packed = packed.wrapping_add(i * inner.size as usize);
                        repeat::<PACK>(&inner.node, inner.size, times, at.wrapping_offset(*by as isize), packed);
                    }
                });
            }
            Node::Repeat { count, stride, inner } if times.tiles(*count as usize) => {
                times.each_tile(at, packed, |times, at, packed| {
                    for i in 0..*count as usize {
                        let (by, packed) = ((i as i64 * stride) as isize, packed.wrapping_add(i * inner.size as usize));
                        repeat::<PACK>(&inner.node, inner.size, times, at.wrapping_offset(by), packed);
                    }
                });
            }
            _ => {
                let (mut at, mut packed) = (at, packed);
                for _ in 0..times.count {
                    whole::<PACK>(node, at, packed);
                    (at, packed) = (at.wrapping_offset(times.at), packed.wrapping_offset(times.packed));
                }
            }
        }
    }
}

/// Moves `len` bytes of `node`, of `size` bytes, from packed byte `skip` on; there are so many, and `len` is not 0.
///
/// # Safety
/// As [`walk`].
unsafe fn part<const PACK: bool>(node: &Node, size: u64, at: *mut u8, skip: u64, len: u64, packed: *mut u8) {
    debug_assert!(len > 0 && len <= size && skip <= size - len);
    // SAFETY: the caller's promise, for the blocks of each level.
    unsafe {
        if len == size {
            return whole::<PACK>(node, at, packed);
        }
        match node {
            Node::Run { stride, len: each, .. } => {
                let block = |i: u64| at.wrapping_offset((i as i64 * stride) as isize);
                equal(
                    *each,
                    skip,
                    len,
                    |i, skip, len, done| {
                        let at = block(i).wrapping_add(skip as usize);
                        run::<PACK>(len, 1, 0, at, packed.wrapping_add(done as usize));
                    },
                    |i, count, done| {
                        run::<PACK>(*each, count, *stride, block(i), packed.wrapping_add(done as usize));
                    },
                );
            }
            Node::Repeat { stride, inner, .. } => {
                let one = |i: u64| at.wrapping_offset((i as i64 * stride) as isize);
                equal(
                    inner.size,
                    skip,
                    len,
                    |i, skip, len, done| {
                        let packed = packed.wrapping_add(done as usize);
                        part::<PACK>(&inner.node, inner.size, one(i), skip, len, packed);
                    },
                    |i, count, done| {
                        let times = Times::of(count as usize, *stride, inner);
                        repeat::<PACK>(&inner.node, inner.size, times, one(i), packed.wrapping_add(done as usize));
                    },
                );
            }
            Node::Same { at: list, inner } => equal(
                inner.size,
                skip,
                len,
                |i, skip, len, done| {
                    let at = at.wrapping_offset(list[i as usize] as isize);
                    part::<PACK>(&inner.node, inner.size, at, skip, len, packed.wrapping_add(done as usize));
                },
                |i, count, done| {
                    let list = &list[i as usize..(i + count) as usize];
                    same::<PACK>(list, inner, at, packed.wrapping_add(done as usize));
                },
            ),
            Node::Blocks(blocks) => {
                let end = skip + len;
                let first = blocks.partition_point(|block| block.end <= skip);
                let last = blocks.partition_point(|block| block.end <= end);
                let start = |i: usize| i.checked_sub(1).map_or(0, |before| blocks[before].end);
                let some = |i: usize, from: u64, to: u64| {
                    let at = at.wrapping_offset(blocks[i].at as isize).wrapping_add((from - start(i)) as usize);
                    run::<PACK>(to - from, 1, 0, at, packed.wrapping_add((from - skip) as usize));
                };
                if first == last {
                    return some(first, skip, end);
                }
                let whole = if start(first) < skip { first + 1 } else { first };
                if whole > first {
                    some(first, skip, blocks[first].end);
                }
                let packed = packed.wrapping_add((start(whole) - skip) as usize);
                each_block::<PACK>(start(whole), &blocks[whole..last], at, packed);
                if start(last) < end {
                    some(last, start(last), end);
                }
            }
            Node::Parts(parts) => {
                let mut i = parts.items.partition_point(|item| item.end <= skip);
                let mut start = i.checked_sub(1).map_or(0, |before| parts.items[before].end);
                let mut done = 0;
                while done < len {
                    let (item, inside) = (&parts.items[i], skip + done - start);
                    let some = (item.end - start - inside).min(len - done);
                    let (at, packed) = (at.wrapping_offset(item.at as isize), packed.wrapping_add(done as usize));
                    part::<PACK>(&item.node, item.end - start, at, inside, some, packed);
                    (start, done, i) = (item.end, done + some, i + 1);
                }
            }
        }
    }
}

/// Cuts `len` bytes from `skip` on of repetitions of `each` bytes into a rest of one, whole ones, and a start of one.
/// `some` gets which, the bytes left out, the bytes taken and those before; `whole` the first, how many, and the bytes
/// before.
#[inline(always)]
fn equal(
    each: u64,
    skip: u64,
    len: u64,
    mut some: impl FnMut(u64, u64, u64, u64),
    mut whole: impl FnMut(u64, u64, u64),
) {
    let (mut first, head) = (skip / each, skip % each);
    let mut done = 0;
    if head > 0 {
        done = len.min(each - head);
        some(first, head, done, 0);
        first += 1;
    }
    let count = (len - done) / each;
    if count > 0 {
        whole(first, count, done);
        (first, done) = (first + count, done + count * each);
    }
    if done < len {
        some(first, 0, len - done, done);
    }
}
