//! Loops over blocks whose places are listed.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use super::LONG;
use super::{CLASSES, Ends, Fixed, Long, Move, Row, choose, each_class, kernel, table};
use crate::shape::Block;

type Listed = unsafe fn(usize, &[i64], *const u8, *mut u8);
type Matched = unsafe fn(usize, &[i64], &[i64], *const u8, *mut u8);
type CountedBoth = unsafe fn(usize, u64, &[Block], &[Block], *const u8, *mut u8) -> usize;
type Counted = unsafe fn(usize, u64, &[Block], *mut u8, *mut u8) -> usize;

const GATHER: &[Listed; CLASSES] = table!(listed, true);
const SCATTER: &[Listed; CLASSES] = table!(listed, false);
const MATCHED: &[Matched; CLASSES] = table!(each_matched);
const MATCHED_EQUAL: &[CountedBoth; CLASSES] = table!(equal_both);
const GATHER_EQUAL: &[Counted; CLASSES] = table!(equal, true);
const SCATTER_EQUAL: &[Counted; CLASSES] = table!(equal, false);

/// Copies blocks of `len` bytes from these displacements of `from` to consecutive places.
///
/// # Safety
/// As [`strided`](super::strided).
#[inline(always)]
pub(crate) unsafe fn gather(len: usize, at: &[i64], from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { choose(GATHER, len)(len, at, from, to) }
}

/// Copies consecutive blocks of `len` bytes to these displacements of `to`.
///
/// # Safety
/// As [`strided`](super::strided).
#[inline(always)]
pub(crate) unsafe fn scatter(len: usize, at: &[i64], from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { choose(SCATTER, len)(len, at, from, to) }
}

/// Copies blocks of `len` bytes from these displacements of `from` to those of `to`, of which there are as many.
///
/// # Safety
/// As [`strided`](super::strided).
#[inline(always)]
pub(crate) unsafe fn matched(len: usize, at: &[i64], places: &[i64], from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { choose(MATCHED, len)(len, at, places, from, to) }
}

/// Copies the first of `blocks`, which start at packed byte `before`, and those after it as long as they have its
/// length, to consecutive places (`COLLECTS`) or from there, and returns how many.
///
/// # Safety
/// As [`strided`](super::strided).
#[inline(always)]
pub(crate) unsafe fn blocks<const COLLECTS: bool>(
    before: u64,
    blocks: &[Block],
    at: *mut u8,
    packed: *mut u8,
) -> usize {
    let Some(first) = blocks.first() else { return 0 };
    let len = (first.end - before) as usize;
    let table = if COLLECTS { GATHER_EQUAL } else { SCATTER_EQUAL };
    // SAFETY: the caller's promise; rows only by what the processor has.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if is_row_by_lines(len) {
            return equal_by_lines::<COLLECTS>(len, before, blocks, at, packed);
        }
        choose(table, len)(len, before, blocks, at, packed)
    }
}

/// Copies the first block of `list` to the place of the first of `places`, and those after them as long as both have the
/// same length, and returns how many. The first two are of equal length, and start at packed byte `before`.
///
/// # Safety
/// As [`strided`](super::strided).
#[inline(always)]
pub(crate) unsafe fn matched_blocks(
    before: u64,
    list: &[Block],
    places: &[Block],
    from: *const u8,
    to: *mut u8,
) -> usize {
    let Some(first) = list.first() else { return 0 };
    let len = (first.end - before) as usize;
    // SAFETY: the caller's promise; rows only by what the processor has.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if is_row_by_lines(len) {
            return equal_both_by_lines(len, before, list, places, from, to);
        }
        choose(MATCHED_EQUAL, len)(len, before, list, places, from, to)
    }
}

/// Longer rows gain nothing by that.
#[cfg(target_arch = "x86_64")]
const BY_LINES: usize = 256;

/// Whether blocks of this length are rows, and the processor moves whole lines.
#[cfg(target_arch = "x86_64")]
#[inline]
fn is_row_by_lines(len: usize) -> bool {
    (LONG..=BY_LINES).contains(&len) && is_x86_feature_detected!("avx512f")
}

/// [`equal_both`] of rows.
///
/// # Safety
/// As there, on a processor with AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn equal_both_by_lines(
    len: usize,
    before: u64,
    list: &[Block],
    places: &[Block],
    from: *const u8,
    to: *mut u8,
) -> usize {
    // SAFETY: the caller's promise.
    unsafe { equal_both::<Row>(len, before, list, places, from, to) }
}

/// [`equal`] of rows.
///
/// # Safety
/// As there, on a processor with AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn equal_by_lines<const COLLECTS: bool>(
    len: usize,
    before: u64,
    blocks: &[Block],
    at: *mut u8,
    packed: *mut u8,
) -> usize {
    // SAFETY: the caller's promise.
    unsafe { equal::<COLLECTS, Row>(len, before, blocks, at, packed) }
}

/// # Safety
/// As [`strided`](super::strided).
#[inline(always)]
unsafe fn equal_both<M: Move>(
    len: usize,
    mut before: u64,
    list: &[Block],
    places: &[Block],
    from: *const u8,
    to: *mut u8,
) -> usize {
    let block = M::of(len);
    let mut done = 0;
    for (a, b) in list.iter().zip(places) {
        let end = before + block.len() as u64;
        if (a.end ^ end) | (b.end ^ end) != 0 {
            break;
        }
        // SAFETY: blocks that the caller vouches for.
        unsafe { block.one(from.wrapping_offset(a.at as isize), to.wrapping_offset(b.at as isize)) };
        (before, done) = (end, done + 1);
    }
    done
}

/// # Safety
/// As [`strided`](super::strided).
#[inline(always)]
unsafe fn equal<const COLLECTS: bool, M: Move>(
    len: usize,
    mut before: u64,
    blocks: &[Block],
    at: *mut u8,
    mut packed: *mut u8,
) -> usize {
    let block = M::of(len);
    let len = block.len() as u64;
    let one = |next: &Block, packed: *mut u8| {
        let place = at.wrapping_offset(next.at as isize);
        // SAFETY: a block that the caller vouches for.
        unsafe { if COLLECTS { block.one(place, packed) } else { block.one(packed, place) } }
    };
    let (fours, _) = blocks.as_chunks::<4>();
    let mut done = 0;
    for [a, b, c, d] in fours {
        let other = |from: u64, to: u64| (to - from) ^ len;
        if other(before, a.end) | other(a.end, b.end) | other(b.end, c.end) | other(c.end, d.end) != 0 {
            break;
        }
        one(a, packed);
        one(b, packed.wrapping_add(len as usize));
        one(c, packed.wrapping_add(2 * len as usize));
        one(d, packed.wrapping_add(3 * len as usize));
        (before, packed, done) = (d.end, packed.wrapping_add(4 * len as usize), done + 4);
    }
    for next in &blocks[done..] {
        if next.end - before != len {
            break;
        }
        one(next, packed);
        (before, packed, done) = (next.end, packed.wrapping_add(len as usize), done + 1);
    }
    done
}

/// # Safety
/// As [`strided`](super::strided).
#[inline(always)]
pub(super) unsafe fn listed<const COLLECTS: bool, M: Move>(
    len: usize,
    at: &[i64],
    mut from: *const u8,
    mut to: *mut u8,
) {
    let block = M::of(len);
    for at in at {
        let at = *at as isize;
        // SAFETY: blocks that the caller vouches for.
        unsafe {
            if COLLECTS {
                block.one(from.wrapping_offset(at), to);
                to = to.wrapping_add(block.len());
            } else {
                block.one(from, to.wrapping_offset(at));
                from = from.wrapping_add(block.len());
            }
        }
    }
}

/// # Safety
/// As [`strided`](super::strided).
unsafe fn each_matched<M: Move>(len: usize, at: &[i64], places: &[i64], from: *const u8, to: *mut u8) {
    let block = M::of(len);
    for (at, place) in at.iter().zip(places) {
        // SAFETY: blocks that the caller vouches for.
        unsafe { block.one(from.wrapping_offset(*at as isize), to.wrapping_offset(*place as isize)) };
    }
}
