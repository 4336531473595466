//! What AVX-512 does faster: rows are copied by whole cache lines, and every second element is written by stores that leave
//! out the others.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    _mm256_loadu_si256, _mm512_cvtepu32_epi64, _mm512_loadu_si512, _mm512_mask_storeu_epi32, _mm512_mask_storeu_epi64,
    _mm512_maskz_expand_epi64, _mm512_storeu_si512, _mm512_zextsi256_si512,
};

use super::avx2::is_amd;
use super::{LONG, SPREAD, choose, steps};

/// Bytes of a register, and of a line.
const LINE: usize = 64;
/// The longest row.
pub(super) const ROW_MAX: usize = 8192;

/// Bytes of long rows above which `memcpy` is better: on AMD's processors what the nearest cache holds, on Intel's an eighth of
/// the second (measured: Zen 5, Granite Rapids).
const MOST_AMD: usize = 1 << 15;
const MOST: usize = 1 << 18;

/// Whether so many rows are better copied by these loops.
pub(super) fn are_better(len: usize, count: usize) -> bool {
    let most = if is_amd() { MOST_AMD } else { MOST };
    len <= super::ROW_MAX || len <= ROW_MAX && len.saturating_mul(count) <= most
}

/// Rows of [`LONG`] to [`ROW_MAX`] bytes.
///
/// # Safety
/// As [`super::strided`], on a processor with AVX-512.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn rows<const SIDE: u8>(
    len: usize,
    count: usize,
    by: isize,
    step: isize,
    mut from: *const u8,
    mut to: *mut u8,
) {
    debug_assert!((LONG..=ROW_MAX).contains(&len));
    let (by, step) = steps::<SIDE>(len, by, step);
    // Short rows without a branch: the first and the last lines, which may share bytes.
    if len <= 4 * LINE {
        let (second, third, last) = (LINE.min(len - LINE), (len - LINE).saturating_sub(LINE), len - LINE);
        for _ in 0..count {
            // SAFETY: as below.
            unsafe {
                let of = |at: usize| _mm512_loadu_si512(from.add(at).cast());
                let put = |at: usize, line| _mm512_storeu_si512(to.add(at).cast(), line);
                if len == 2 * LINE {
                    let (a, b) = (of(0), of(LINE));
                    put(0, a);
                    put(LINE, b);
                } else {
                    let (a, b, c, d) = (of(0), of(second), of(third), of(last));
                    put(0, a);
                    put(second, b);
                    put(third, c);
                    put(last, d);
                }
            }
            (from, to) = (from.wrapping_offset(by), to.wrapping_offset(step));
        }
        return;
    }
    for _ in 0..count {
        // SAFETY: pieces of a row that the caller vouches for, which is longer than a line.
        unsafe {
            let load = |at: usize| _mm512_loadu_si512(from.add(at).cast());
            let line = |at: usize| _mm512_storeu_si512(to.add(at).cast(), load(at));
            // From a line of the target on: a store of a whole line needs nothing of what was there.
            let mut at = to.addr().wrapping_neg() % LINE;
            if at > 0 {
                line(0);
            }
            while at + 4 * LINE <= len {
                let all = [load(at), load(at + LINE), load(at + 2 * LINE), load(at + 3 * LINE)];
                for (i, part) in all.into_iter().enumerate() {
                    _mm512_storeu_si512(to.add(at + LINE * i).cast(), part);
                }
                at += 4 * LINE;
            }
            while at + LINE <= len {
                line(at);
                at += LINE;
            }
            if at < len {
                line(len - LINE);
            }
        }
        // Addresses past the last row are never used, so they may wrap.
        (from, to) = (from.wrapping_offset(by), to.wrapping_offset(step));
    }
}

/// Consecutive elements of `LEN` bytes, 4 or 8, to every second place.
///
/// # Safety
/// As [`super::strided`], with `step` twice `LEN`, on a processor with AVX-512.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn spread<const LEN: usize>(
    len: usize,
    count: usize,
    _by: isize,
    step: isize,
    from: *const u8,
    to: *mut u8,
) {
    debug_assert!(len == LEN && step == 2 * LEN as isize);
    let at_once = 32 / LEN;
    let mut done = 0;
    while done + at_once <= count {
        // SAFETY: 32 bytes of elements that are left, to as many places; nothing between the places is written.
        unsafe {
            let (from, to) = (from.add(done * LEN), to.add(2 * done * LEN));
            let elements = _mm256_loadu_si256(from.cast());
            if LEN == 4 {
                _mm512_mask_storeu_epi32(to.cast(), 0x5555, _mm512_cvtepu32_epi64(elements));
            } else {
                let apart = _mm512_maskz_expand_epi64(0x55, _mm512_zextsi256_si512(elements));
                _mm512_mask_storeu_epi64(to.cast(), 0x55, apart);
            }
        }
        done += at_once;
    }
    // SAFETY: the caller's promise, for the rest.
    unsafe {
        let (from, to) = (from.add(done * LEN), to.add(2 * done * LEN));
        choose(SPREAD, LEN)(LEN, count - done, LEN as isize, step, from, to);
    }
}
