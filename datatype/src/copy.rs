//! Copy kernels: the one module of this crate that handles addresses.
//!
//! A run of equal blocks is copied by a loop for its block length: 4, 8 and 16 bytes with AVX2 where the processor has
//! it, other short lengths by a loop of fixed-size moves, and long ones by `memcpy` a block.
#![allow(unsafe_code)]

use std::ptr::copy_nonoverlapping;

use crate::runs::{Run, Runs};

/// The loop for a run's block length.
macro_rules! by_length {
    ($run:expr, $kernel:ident, $($argument:expr),*) => {
        match $run.len {
            1 => $kernel::<1>($($argument),*),
            2 => $kernel::<2>($($argument),*),
            4 => $kernel::<4>($($argument),*),
            8 => $kernel::<8>($($argument),*),
            12 => $kernel::<12>($($argument),*),
            16 => $kernel::<16>($($argument),*),
            24 => $kernel::<24>($($argument),*),
            32 => $kernel::<32>($($argument),*),
            64 => $kernel::<64>($($argument),*),
            _ => any_length($($argument),*, $run.len as usize),
        }
    };
}

/// Copies `count` blocks of `N` bytes from `from_step` apart to `to_step` apart.
///
/// # Safety
/// As [`strided`], with blocks of `N` bytes.
#[inline(always)]
unsafe fn fixed<const N: usize>(mut from: *const u8, from_step: isize, mut to: *mut u8, to_step: isize, count: usize) {
    for _ in 0..count {
        // SAFETY: a block that the caller vouches for; the addresses past the last are never used.
        unsafe { to.cast::<[u8; N]>().write_unaligned(from.cast::<[u8; N]>().read_unaligned()) };
        from = from.wrapping_offset(from_step);
        to = to.wrapping_offset(to_step);
    }
}

/// # Safety
/// As [`strided`].
unsafe fn any_length(mut from: *const u8, from_step: isize, mut to: *mut u8, to_step: isize, count: usize, len: usize) {
    for _ in 0..count {
        // SAFETY: a block that the caller vouches for; the addresses past the last are never used.
        unsafe { copy_nonoverlapping(from, to, len) };
        from = from.wrapping_offset(from_step);
        to = to.wrapping_offset(to_step);
    }
}

/// Copies `run.count` blocks of `run.len` bytes: `from` on, `from_step` apart, to `to` on, `to_step` apart.
///
/// # Safety
/// Every block at `from` must be readable and every one at `to` writable, and none of the first may share a byte with
/// one of the second.
#[inline]
unsafe fn strided(run: &Run, from: *const u8, from_step: isize, to: *mut u8, to_step: isize) {
    let count = run.count as usize;
    // SAFETY: the caller's promise, for blocks of `run.len` bytes.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if count >= 8 && matches!(run.len, 4 | 8 | 16) && std::arch::is_x86_feature_detected!("avx2") {
            let done = match run.len {
                4 if to_step == 4 => avx2::gather::<4>(from, from_step, to, count),
                8 if to_step == 8 => avx2::gather::<8>(from, from_step, to, count),
                16 if to_step == 16 => avx2::gather::<16>(from, from_step, to, count),
                4 if from_step == 4 => avx2::scatter::<4>(from, to, to_step, count),
                8 if from_step == 8 => avx2::scatter::<8>(from, to, to_step, count),
                16 if from_step == 16 => avx2::scatter::<16>(from, to, to_step, count),
                _ => 0,
            };
            let (from, to) =
                (from.wrapping_offset(from_step * done as isize), to.wrapping_offset(to_step * done as isize));
            return by_length!(run, fixed, from, from_step, to, to_step, count - done);
        }
        by_length!(run, fixed, from, from_step, to, to_step, count)
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_loadu_si128, _mm_storeu_si128, _mm256_castsi256_si128, _mm256_extract_epi32,
        _mm256_extract_epi64, _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_set_epi32, _mm256_set_epi64x,
        _mm256_set_m128i, _mm256_storeu_si256,
    };

    /// Strided blocks of 4, 8 or 16 bytes to consecutive ones, 32 bytes at a time. Returns how many blocks it copied;
    /// fewer than 32 bytes are left.
    ///
    /// # Safety
    /// As [`super::strided`], with consecutive blocks at `to`, on a processor with AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn gather<const LEN: usize>(from: *const u8, step: isize, to: *mut u8, count: usize) -> usize {
        let lanes = 32 / LEN;
        let whole = count - count % lanes;
        let mut done = 0;
        while done < whole {
            let block = |i: usize| from.wrapping_offset((done + i) as isize * step);
            // SAFETY: blocks `done` to `done + lanes` are below `count`; unaligned loads and stores.
            unsafe {
                let four = |i: usize| block(i).cast::<i32>().read_unaligned();
                let eight = |i: usize| block(i).cast::<i64>().read_unaligned();
                let both: __m256i = match LEN {
                    4 => _mm256_set_epi32(four(7), four(6), four(5), four(4), four(3), four(2), four(1), four(0)),
                    8 => _mm256_set_epi64x(eight(3), eight(2), eight(1), eight(0)),
                    _ => {
                        let half = |i: usize| _mm_loadu_si128(block(i).cast::<__m128i>());
                        _mm256_set_m128i(half(1), half(0))
                    }
                };
                _mm256_storeu_si256(to.add(done * LEN).cast(), both);
            }
            done += lanes;
        }
        done
    }

    /// Consecutive blocks of 4, 8 or 16 bytes to strided ones; otherwise as [`gather`].
    ///
    /// # Safety
    /// As [`super::strided`], with consecutive blocks at `from`, on a processor with AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn scatter<const LEN: usize>(from: *const u8, to: *mut u8, step: isize, count: usize) -> usize {
        let lanes = 32 / LEN;
        let whole = count - count % lanes;
        let mut done = 0;
        while done < whole {
            let block = |i: usize| to.wrapping_offset((done + i) as isize * step);
            // SAFETY: as in `gather`.
            unsafe {
                let both = _mm256_loadu_si256(from.add(done * LEN).cast());
                let four = |i: usize, value: i32| block(i).cast::<i32>().write_unaligned(value);
                let eight = |i: usize, value: i64| block(i).cast::<i64>().write_unaligned(value);
                match LEN {
                    4 => {
                        four(0, _mm256_extract_epi32::<0>(both));
                        four(1, _mm256_extract_epi32::<1>(both));
                        four(2, _mm256_extract_epi32::<2>(both));
                        four(3, _mm256_extract_epi32::<3>(both));
                        four(4, _mm256_extract_epi32::<4>(both));
                        four(5, _mm256_extract_epi32::<5>(both));
                        four(6, _mm256_extract_epi32::<6>(both));
                        four(7, _mm256_extract_epi32::<7>(both));
                    }
                    8 => {
                        eight(0, _mm256_extract_epi64::<0>(both));
                        eight(1, _mm256_extract_epi64::<1>(both));
                        eight(2, _mm256_extract_epi64::<2>(both));
                        eight(3, _mm256_extract_epi64::<3>(both));
                    }
                    _ => {
                        _mm_storeu_si128(block(0).cast::<__m128i>(), _mm256_castsi256_si128(both));
                        _mm_storeu_si128(block(1).cast::<__m128i>(), _mm256_extracti128_si256::<1>(both));
                    }
                }
            }
            done += lanes;
        }
        done
    }
}

/// Packs runs of the buffer at `base` to `out`, and returns the bytes packed.
///
/// # Safety
/// Every block of `runs`, relative to `base`, must be readable, `out` writable for their total, and apart from them.
pub(crate) unsafe fn pack(runs: Runs<'_>, base: *const u8, out: *mut u8) -> usize {
    let mut at = 0;
    for run in runs {
        // SAFETY: the caller's promise for this run.
        unsafe {
            strided(&run, base.wrapping_offset(run.offset as isize), run.stride as isize, out.add(at), run.len as isize)
        };
        at += (run.count * run.len) as usize;
    }
    at
}

/// Unpacks `input` to runs of the buffer at `base`, and returns the bytes unpacked. Where blocks share bytes, the last
/// in packed order counts.
///
/// # Safety
/// Every block of `runs`, relative to `base`, must be writable, `input` readable for their total, and apart from them.
pub(crate) unsafe fn unpack(runs: Runs<'_>, input: *const u8, base: *mut u8) -> usize {
    let mut at = 0;
    for run in runs {
        // SAFETY: the caller's promise for this run.
        unsafe {
            strided(
                &run,
                input.add(at),
                run.len as isize,
                base.wrapping_offset(run.offset as isize),
                run.stride as isize,
            )
        };
        at += (run.count * run.len) as usize;
    }
    at
}

/// Copies the bytes of `from` to those of `to`, layout to layout, and returns how many; the shorter side ends it.
///
/// # Safety
/// Every block of `from` must be readable and every one of `to` writable, relative to their bases, and none of the
/// first may share a byte with one of the second.
pub(crate) unsafe fn transfer(from: Runs<'_>, from_base: *const u8, to: Runs<'_>, to_base: *mut u8) -> usize {
    let (mut from, mut to) = (Side::new(from), Side::new(to));
    let mut total = 0;
    while let (Some((a, a_step, a_len)), Some((b, b_step, b_len))) = (from.at_hand(), to.at_hand()) {
        let (whole_a, whole_b) = (from.done == 0, to.done == 0);
        // Blocks of one length pair off as long as both runs last, and a longer block is taken for a run of the other
        // side's; else one piece.
        let (count, len, a_step, b_step) = if whole_a && whole_b && a_len == b_len {
            (from.run.count.min(to.run.count), a_len, a_step, b_step)
        } else if whole_b && a_len > b_len {
            (to.run.count.min(a_len / b_len), b_len, b_len as i64, b_step)
        } else if whole_a && b_len > a_len {
            (from.run.count.min(b_len / a_len), a_len, a_step, a_len as i64)
        } else {
            (1, a_len.min(b_len), 0, 0)
        };
        let run = Run { offset: 0, count, stride: 0, len };
        // SAFETY: the pieces are parts of blocks that the caller vouches for.
        unsafe {
            let (a, b) = (from_base.wrapping_offset(a as isize), to_base.wrapping_offset(b as isize));
            strided(&run, a, a_step as isize, b, b_step as isize);
        }
        from.take(count * len);
        to.take(count * len);
        total += (count * len) as usize;
    }
    total
}

/// One side of a transfer: the run at hand, of whose first block `done` bytes are copied.
struct Side<'a> {
    runs: Runs<'a>,
    run: Run,
    done: u64,
}

impl<'a> Side<'a> {
    fn new(runs: Runs<'a>) -> Self {
        Self { runs, run: Run { offset: 0, count: 0, stride: 0, len: 0 }, done: 0 }
    }

    /// Offset of what comes next, the stride of its run, and the bytes left of its block.
    fn at_hand(&mut self) -> Option<(i64, i64, u64)> {
        if self.run.count == 0 {
            self.run = self.runs.next()?;
        }
        Some((self.run.offset + self.done as i64, self.run.stride, self.run.len - self.done))
    }

    /// The next `bytes` are copied: whole blocks, or a part of one.
    fn take(&mut self, bytes: u64) {
        self.done += bytes;
        let blocks = self.done / self.run.len;
        self.done -= blocks * self.run.len;
        self.run.count -= blocks;
        // Past the last block there is nothing, and the sum need not fit.
        self.run.offset = self.run.offset.wrapping_add(self.run.stride.wrapping_mul(blocks as i64));
    }
}
