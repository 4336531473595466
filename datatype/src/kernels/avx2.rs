//! What AVX2 does faster: every second element is collected by shuffles; many short blocks close to each other otherwise by
//! gather instructions, where those are fast; and rows are copied 128 bytes a turn, without a call for each.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    _mm_mullo_epi32, _mm_set1_epi32, _mm_setr_epi32, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_i32gather_epi32,
    _mm256_i32gather_epi64, _mm256_loadu_si256, _mm256_mullo_epi32, _mm256_permute2x128_si256,
    _mm256_permute4x64_epi64, _mm256_set1_epi32, _mm256_setr_epi32, _mm256_shuffle_ps, _mm256_storeu_si256,
    _mm256_unpacklo_epi64,
};

use super::{
    COLLECT, FROM, Kernels, LONG, NEITHER, ROW_MAX, Special, Strided, TO, avx512, choose, class, paced, past, steps,
};

/// Blocks below which gathering does not pay, and bytes from start to start above which it does not: then each has a cache
/// line of its own, and the loads, not their number, take the time.
const MANY: usize = 512;
const NEAR: usize = 32;
/// Bytes that a cache close to the processor holds.
const CLOSE: usize = 1 << 20;
/// Elements below which shuffles do not pay.
const SOME: usize = 32;

const FOURS: usize = class(4);
const EIGHTS: usize = class(8);
const SIXTEENS: usize = class(16);

/// What the kernels that need more than every processor has are.
pub(super) const fn kernels(special: Special) -> Kernels {
    match special {
        Special::Rows => Kernels { collect: rows::<TO>, spread: rows::<FROM>, strided: rows::<NEITHER> },
        Special::Fours => collecting(FOURS, gathered::<8>),
        Special::Eights => collecting(EIGHTS, gathered::<4>),
        Special::SecondFours => collecting(FOURS, seconds::<4>),
        Special::SecondEights => collecting(EIGHTS, seconds::<8>),
        Special::SecondSixteens => collecting(SIXTEENS, seconds::<16>),
        Special::Lines => {
            Kernels { collect: avx512::rows::<TO>, spread: avx512::rows::<FROM>, strided: avx512::rows::<NEITHER> }
        }
        Special::ApartFours => Kernels { spread: avx512::spread::<4>, ..collecting(FOURS, seconds::<4>) },
        Special::ApartEights => Kernels { spread: avx512::spread::<8>, ..collecting(EIGHTS, seconds::<8>) },
        Special::Past => {
            Kernels { collect: past::rows::<TO>, spread: past::rows::<FROM>, strided: past::rows::<NEITHER> }
        }
        Special::Paced => paced::KERNELS,
    }
}

/// Those of a class for all processors, but for how they collect.
const fn collecting(class: usize, collect: Strided) -> Kernels {
    Kernels { collect, ..super::kernels(class) }
}

/// Whether this is a processor of AMD (or Hygon): no other has SSE4a. There a gather takes more time than its loads one by
/// one, with Intel's less.
pub(super) fn is_amd() -> bool {
    is_x86_feature_detected!("sse4a")
}

/// Whether this is one of AMD's before Zen 5, the first of them with this instruction: with eight lines in a set of the nearest
/// cache and not twelve. Zen 3 and Zen 5 are those that were measured.
pub(super) fn is_older_amd() -> bool {
    is_amd() && !is_x86_feature_detected!("avx512vp2intersect")
}

/// Which of the special kernels is faster than that for all processors, if this one has it and there is one. `are_few` are rows that
/// `memcpy` copies as well as 32 bytes at a time.
#[inline]
pub(super) fn which(len: usize, count: usize, stride: isize, are_few: bool) -> Option<Special> {
    let is_row = (LONG..=avx512::ROW_MAX).contains(&len) || past::is_better(len, count, stride);
    let is_short = matches!(len, 4 | 8 | 16) && count >= SOME && stride.unsigned_abs() <= NEAR;
    if is_row || is_short || paced::may_be_better(len, count, stride) {
        which_special(len, count, stride, are_few)
    } else {
        None
    }
}

fn which_special(len: usize, count: usize, stride: isize, are_few: bool) -> Option<Special> {
    if !is_x86_feature_detected!("avx2") {
        return None;
    }
    let more = is_x86_feature_detected!("avx512f");
    let is_second = stride == 2 * len as isize;
    let is_gathered = count >= MANY && stride.unsigned_abs() <= NEAR && !is_amd();
    // A line that is not in a cache is sooner written by elements than by a store that leaves some of it out.
    let apart = more && len.saturating_mul(2 * count) <= CLOSE;
    Some(match len {
        _ if past::is_better(len, count, stride) => Special::Past,
        _ if paced::is_better(len, count, stride) => Special::Paced,
        4 if is_second && apart => Special::ApartFours,
        8 if is_second && apart => Special::ApartEights,
        4 if is_second => Special::SecondFours,
        8 if is_second => Special::SecondEights,
        16 if is_second => Special::SecondSixteens,
        4 if is_gathered => Special::Fours,
        8 if is_gathered => Special::Eights,
        4 | 8 | 16 => return None,
        LONG.. if more && avx512::are_better(len, count) => Special::Lines,
        LONG..=ROW_MAX if !are_few => Special::Rows,
        _ => return None,
    })
}

/// Every second element of `LEN` bytes, 4, 8 or 16, to consecutive places.
///
/// # Safety
/// As [`super::strided`], with `by` twice `LEN`, on a processor with AVX2. What lies between two blocks is read too: it is
/// in the pages of the blocks.
#[target_feature(enable = "avx2")]
unsafe fn seconds<const LEN: usize>(len: usize, count: usize, by: isize, _step: isize, from: *const u8, to: *mut u8) {
    debug_assert!(len == LEN && by == 2 * LEN as isize);
    let at_once = 32 / LEN;
    let mut done = 0;
    // What comes of two halves each is sorted by quarters.
    let in_order = |all| _mm256_permute4x64_epi64::<0b11_01_10_00>(all);
    // SAFETY: 64 bytes from a block on, behind which are as many blocks and one more.
    let register = |done: usize| unsafe {
        let from = from.add(2 * done * LEN);
        let (low, high) = (_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast()));
        let all = match LEN {
            4 => {
                let (low, high) = (_mm256_castsi256_ps(low), _mm256_castsi256_ps(high));
                in_order(_mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(low, high)))
            }
            8 => in_order(_mm256_unpacklo_epi64(low, high)),
            _ => _mm256_permute2x128_si256::<0x20>(low, high),
        };
        _mm256_storeu_si256(to.add(done * LEN).cast(), all);
    };
    // Behind the last block nothing may be read, so it is not among these. Of many, four at a turn: a processor foresees the
    // end of few turns.
    while done + 4 * at_once < count {
        for i in 0..4 {
            register(done + i * at_once);
        }
        done += 4 * at_once;
    }
    while done + at_once < count {
        register(done);
        done += at_once;
    }
    // SAFETY: the caller's promise, for the rest.
    unsafe {
        let (from, to) = (from.add(2 * done * LEN), to.add(done * LEN));
        choose(COLLECT, LEN)(LEN, count - done, by, LEN as isize, from, to);
    }
}

/// Rows of [`LONG`] to [`ROW_MAX`] bytes.
///
/// # Safety
/// As [`super::strided`], on a processor with AVX2.
#[target_feature(enable = "avx2")]
unsafe fn rows<const SIDE: u8>(len: usize, count: usize, by: isize, step: isize, mut from: *const u8, mut to: *mut u8) {
    debug_assert!((LONG..=ROW_MAX).contains(&len));
    let (by, step) = steps::<SIDE>(len, by, step);
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
    debug_assert!(len == 32 / LANES && by.unsigned_abs() <= NEAR);
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
