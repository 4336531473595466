//! What AVX2 does faster: many short blocks close to each other are collected by its gather instructions, and rows are
//! copied 128 bytes a turn, without a call for each.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    _mm_mullo_epi32, _mm_set1_epi32, _mm_setr_epi32, _mm256_i32gather_epi32, _mm256_i32gather_epi64,
    _mm256_loadu_si256, _mm256_mullo_epi32, _mm256_set1_epi32, _mm256_setr_epi32, _mm256_storeu_si256,
};

use super::{COLLECT, FROM, Kernels, LONG, NEITHER, ROW_MAX, SPECIAL, SPREAD, STRIDED, TO, choose};

/// Blocks below which gathering does not pay, and bytes from start to start above which it does not: then each has a cache
/// line of its own, and the loads, not their number, take the time.
const MANY: usize = 512;
const NEAR: usize = 32;

/// For rows, and for blocks of 4 and of 8 bytes close to each other.
pub(super) const KERNELS: [Kernels; SPECIAL] = [
    Kernels { collect: rows::<TO>, spread: rows::<FROM>, strided: rows::<NEITHER> },
    Kernels { collect: gathered::<8>, spread: SPREAD[4], strided: STRIDED[4] },
    Kernels { collect: gathered::<4>, spread: SPREAD[6], strided: STRIDED[6] },
];

/// Which of [`KERNELS`] is faster than that for all processors, if any and if this one has AVX2.
#[inline]
pub(super) fn which(len: usize, count: usize, stride: isize) -> Option<u8> {
    let many = count >= MANY && stride.unsigned_abs() <= NEAR;
    let which = match len {
        LONG..=ROW_MAX => 0,
        4 if many => 1,
        8 if many => 2,
        _ => return None,
    };
    is_x86_feature_detected!("avx2").then_some(which)
}

/// Rows of [`LONG`] to [`ROW_MAX`] bytes.
///
/// # Safety
/// As [`super::strided`], on a processor with AVX2.
#[target_feature(enable = "avx2")]
unsafe fn rows<const SIDE: u8>(len: usize, count: usize, by: isize, step: isize, mut from: *const u8, mut to: *mut u8) {
    debug_assert!((LONG..=ROW_MAX).contains(&len));
    let (by, step) = match SIDE {
        TO => (by, len as isize),
        FROM => (len as isize, step),
        _ => (by, step),
    };
    for _ in 0..count {
        // SAFETY: pieces of a row that the caller vouches for, which is at least as long as one.
        unsafe {
            let piece = |at: usize| {
                let of = |i: usize| _mm256_loadu_si256(from.add(at + 32 * i).cast());
                let all = [of(0), of(1), of(2), of(3)];
                for (i, part) in all.into_iter().enumerate() {
                    _mm256_storeu_si256(to.add(at + 32 * i).cast(), part);
                }
            };
            // From a boundary of the target on, since a store across one costs two.
            let mut at = to.addr().wrapping_neg() % 32;
            if at > 0 {
                _mm256_storeu_si256(to.cast(), _mm256_loadu_si256(from.cast()));
            }
            while at + LONG <= len {
                piece(at);
                at += LONG;
            }
            if at < len {
                piece(len - LONG);
            }
        }
        // Addresses past the last row are never used, so they may wrap.
        (from, to) = (from.wrapping_offset(by), to.wrapping_offset(step));
    }
}

/// Blocks of 32 / `LANES` bytes, 4 or 8, `by` apart, to consecutive places.
///
/// # Safety
/// As [`collect`].
#[target_feature(enable = "avx2")]
unsafe fn gathered<const LANES: usize>(
    len: usize,
    count: usize,
    by: isize,
    _step: isize,
    from: *const u8,
    to: *mut u8,
) {
    debug_assert!(len == 32 / LANES);
    // SAFETY: the caller's promise.
    unsafe {
        let done = collect::<LANES>(count, by, from, to);
        let (from, to) = (from.wrapping_offset(done as isize * by), to.wrapping_add(done * len));
        choose(COLLECT, len)(len, count - done, by, len as isize, from, to);
    }
}

/// Blocks of 32 / `LANES` bytes, 4 or 8, to consecutive places, 32 bytes at a time. Returns how many it copied; fewer
/// than 32 bytes are left.
///
/// # Safety
/// As [`super::strided`], with blocks at most [`NEAR`] apart, on a processor with AVX2.
#[target_feature(enable = "avx2")]
unsafe fn collect<const LANES: usize>(count: usize, by: isize, from: *const u8, to: *mut u8) -> usize {
    let (step, whole) = (by as i32, count - count % LANES);
    let fours = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(step));
    let eights = _mm_mullo_epi32(_mm_setr_epi32(0, 1, 2, 3), _mm_set1_epi32(step));
    let mut done = 0;
    while done < whole {
        let at = from.wrapping_offset(done as isize * by);
        // SAFETY: blocks `done` to `done + LANES` are below `count`; only they are read.
        unsafe {
            let all = if LANES == 8 {
                _mm256_i32gather_epi32::<1>(at.cast(), fours)
            } else {
                _mm256_i32gather_epi64::<1>(at.cast(), eights)
            };
            _mm256_storeu_si256(to.add(done * (32 / LANES)).cast(), all);
        }
        done += LANES;
    }
    done
}
