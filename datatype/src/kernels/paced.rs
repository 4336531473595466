//! Blocks at distances of whole pages lie in few sets of the nearest cache. A processor that fetches lines for many stores to
//! come loses those of the first before they are written; with a pause after every few blocks it does not.
#![allow(unsafe_code)]

use std::arch::x86_64::_mm_lfence;

use super::avx2::{is_amd, is_older_amd};
use super::{CLASSES, Class, Ends, Fixed, Kernels, LONG, Long, Move, Row, Strided, choose, each_class, kernel, table};

/// The sets of the nearest cache repeat after so many bytes.
const SETS: usize = 4096;
/// Distances that are multiples of this leave few sets.
pub(super) const DISTANCE: usize = 512;
/// Blocks for each set below which nothing is lost, and blocks above which the next caches lose them too.
const MANY: usize = 24;
const TOO_MANY: usize = 1 << 14;
/// Bytes of a block above which pauses do not help: of blocks in up to [`FEW`] sets, and in more.
const LONGEST: (usize, usize) = (128, 64);
const FEW: usize = 2;

/// To consecutive places the loops without pauses.
pub(super) const KERNELS: Kernels = Kernels { collect, spread, strided };

const SPREAD: &[Strided; CLASSES] = table!(paced, true);
const STRIDED: &[Strided; CLASSES] = table!(paced, false);

#[inline]
pub(super) fn may_be_better(len: usize, count: usize, stride: isize) -> bool {
    if !stride.unsigned_abs().is_multiple_of(DISTANCE) {
        return false;
    }
    let sets = sets(stride);
    let longest = if sets <= FEW { LONGEST.0 } else { LONGEST.1 };
    (MANY * sets..=TOO_MANY).contains(&count) && len <= longest
}

/// Whether so many blocks of `len` bytes are better written with pauses: by processors of AMD, where that was measured.
pub(super) fn is_better(len: usize, count: usize, stride: isize) -> bool {
    may_be_better(len, count, stride) && is_amd() && (!is_older_amd() || is_better_with_few_ways(len, count, stride))
}

/// The same where a set has eight lines and not twelve. Of longer blocks, and of fewer, these processors lose nothing.
fn is_better_with_few_ways(len: usize, count: usize, stride: isize) -> bool {
    let fewest = match sets(stride) {
        1 => 64,
        2 => 512,
        4 => 1024,
        _ => return false,
    };
    len <= 16 && count >= fewest
}

/// Blocks between two pauses.
#[inline]
fn burst(sets: usize) -> usize {
    if !is_older_amd() {
        (2 * sets).min(8)
    } else if sets <= 2 {
        4
    } else {
        8
    }
}

/// In how many sets blocks at this distance lie.
#[inline]
fn sets(stride: isize) -> usize {
    SETS >> stride.trailing_zeros().min(SETS.trailing_zeros())
}

/// # Safety
/// As [`super::strided`].
unsafe fn collect(len: usize, count: usize, by: isize, step: isize, from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { (Class::of(len, 1, 1).kernels().collect)(len, count, by, step, from, to) }
}

/// # Safety
/// As [`super::strided`].
unsafe fn spread(len: usize, count: usize, by: isize, step: isize, from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise; rows only by what the processor has.
    unsafe {
        if len >= LONG && is_x86_feature_detected!("avx512f") {
            return paced_by_lines(len, count, by, step, from, to);
        }
        choose(SPREAD, len)(len, count, by, step, from, to)
    }
}

/// # Safety
/// As [`super::strided`].
unsafe fn strided(len: usize, count: usize, by: isize, step: isize, from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { choose(STRIDED, len)(len, count, by, step, from, to) }
}

/// [`paced`] of rows from consecutive places.
///
/// # Safety
/// As there, on a processor with AVX-512.
#[target_feature(enable = "avx512f")]
unsafe fn paced_by_lines(len: usize, count: usize, by: isize, step: isize, from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { paced::<true, Row>(len, count, by, step, from, to) };
}

/// # Safety
/// As [`super::strided`].
#[inline(always)]
unsafe fn paced<const PACKED: bool, M: Move>(
    len: usize,
    count: usize,
    by: isize,
    step: isize,
    mut from: *const u8,
    mut to: *mut u8,
) {
    let block = M::of(len);
    let (by, sets) = if PACKED { (block.len() as isize, sets(step)) } else { (by, sets(step).min(sets(by))) };
    let burst = burst(sets);
    let mut left = burst;
    for _ in 0..count {
        // SAFETY: a block that the caller vouches for.
        unsafe { block.one(from, to) };
        // Addresses past the last are never used, so they may wrap.
        (from, to) = (from.wrapping_offset(by), to.wrapping_offset(step));
        left -= 1;
        if left == 0 {
            // SAFETY: every processor of this architecture has the instruction.
            unsafe { _mm_lfence() };
            left = burst;
        }
    }
}
