//! Rows of large messages are stored past the caches: whole lines of the target, which no cache holds any more, are not read
//! before they are written. Where rows come from is fetched ahead, since a processor does not see from one row to the next.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    _MM_HINT_T0, _mm_prefetch, _mm_sfence, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_stream_si256,
};

use super::avx2::is_amd;
use super::{FROM, STRIDED, TO, choose, steps};

/// Messages of so many bytes: with their places they take more than the caches have for one processor.
const LARGE: usize = 8 << 20;
/// Rows from here on are left to `memcpy` on Intel's processors: to pack 16 MiB in rows of this length took some 4 % less so
/// (measured: Granite Rapids).
const LONGEST: usize = 4096;
/// How far ahead of a row its successors are fetched.
const AHEAD: usize = 8192;
const LINE: usize = 64;

/// Whether so many blocks of `len` bytes, `stride` from start to start, are better stored past the caches; if the processor
/// has AVX2. Blocks that share bytes are not: of such stores the later one need not win.
#[inline]
pub(super) fn is_better(len: usize, count: usize, stride: isize) -> bool {
    let is_large = len >= LINE && len.saturating_mul(count) >= LARGE && stride.unsigned_abs() >= len;
    is_large && (len < LONGEST || is_amd())
}

/// As [`is_better`], of blocks at listed places.
pub(super) fn is_better_listed(len: usize, at: &[i64]) -> bool {
    is_better(len, at.len(), isize::MAX) && at.windows(2).all(|pair| pair[1] - pair[0] >= len as i64)
}

/// Rows of at least a line.
///
/// # Safety
/// As [`super::strided`], on a processor with AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn rows<const SIDE: u8>(
    len: usize,
    count: usize,
    by: isize,
    step: isize,
    mut from: *const u8,
    mut to: *mut u8,
) {
    debug_assert!(len >= LINE);
    let (by, step) = steps::<SIDE>(len, by, step);
    if step.unsigned_abs() < len {
        // Rows at the target that share bytes, where those at the origin do not.
        // SAFETY: the caller's promise.
        return unsafe { choose(STRIDED, len)(len, count, by, step, from, to) };
    }
    let rows_ahead = AHEAD.div_ceil(by.unsigned_abs().max(1)) as isize;
    for _ in 0..count {
        // SAFETY: the caller's promise, for a row.
        unsafe { row(len, from, to, from.wrapping_offset(by.wrapping_mul(rows_ahead))) };
        // Addresses past the last row are never used, so they may wrap.
        (from, to) = (from.wrapping_offset(by), to.wrapping_offset(step));
    }
    // Such stores are ordered with later ones by this alone.
    _mm_sfence();
}

/// Blocks of at least a line at listed places, at the sides that are not [`TO`] or [`FROM`]; there they are consecutive.
///
/// # Safety
/// As [`super::strided`], on a processor with AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn listed<const SIDE: u8>(len: usize, at: &[i64], from: *const u8, to: *mut u8) {
    let blocks_ahead = AHEAD / 2 / len;
    for (i, place) in at.iter().enumerate() {
        let (packed, place) = ((i * len) as isize, *place as isize);
        let later = at.get(i + blocks_ahead).map_or(place, |at| *at as isize);
        let (source, next) = if SIDE == FROM { (packed, packed + AHEAD as isize) } else { (place, later) };
        let target = if SIDE == TO { packed } else { place };
        // SAFETY: the caller's promise, for a block.
        unsafe { row(len, from.wrapping_offset(source), to.wrapping_offset(target), from.wrapping_offset(next)) };
    }
    _mm_sfence();
}

/// One row; `later` is fetched, wherever that is.
///
/// # Safety
/// There are `len` readable bytes at `from` and writable ones at `to`, at least a line, on a processor with AVX2.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn row(len: usize, from: *const u8, to: *mut u8, later: *const u8) {
    // SAFETY: pieces of the row; to fetch ahead touches nothing.
    unsafe {
        let half = |at: usize| _mm256_loadu_si256(from.add(at).cast());
        let line = |at: usize| {
            _mm_prefetch::<_MM_HINT_T0>(later.wrapping_add(at).cast());
            (half(at), half(at + LINE / 2))
        };
        // The lines that this row has for itself; what is before and behind them goes the usual way.
        let mut at = to.addr().wrapping_neg() % LINE;
        if at > 0 {
            let (low, high) = line(0);
            _mm256_storeu_si256(to.cast(), low);
            _mm256_storeu_si256(to.add(LINE / 2).cast(), high);
        }
        while at + LINE <= len {
            let (low, high) = line(at);
            _mm256_stream_si256(to.add(at).cast(), low);
            _mm256_stream_si256(to.add(at + LINE / 2).cast(), high);
            at += LINE;
        }
        if at < len {
            let (low, high) = line(len - LINE);
            _mm256_storeu_si256(to.add(len - LINE).cast(), low);
            _mm256_storeu_si256(to.add(len - LINE / 2).cast(), high);
        }
    }
}
