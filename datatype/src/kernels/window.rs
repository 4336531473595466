//! Short blocks that lie close together: all of them, and of several repetitions if a register holds them, are moved at once
//! by a permutation of its bytes (AVX-512). What lies between the blocks is neither read nor written.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m512i, _mm512_loadu_si512, _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_permutexvar_epi8,
};

#[cfg(target_arch = "x86_64")]
use super::{FROM, TO};
use crate::shape::{Block, Inner, Node, Shape};
#[cfg(target_arch = "x86_64")]
use crate::typemap::TypeMap;

/// Bytes of a register.
const REGISTER: usize = 64;

/// Bytes from the first to the last repetition above which this is no good: a line that is not in a cache is sooner written
/// by blocks than by a store that leaves some of it out.
const CLOSE: u64 = 1 << 20;

/// Blocks that fit into a register, as many repetitions of them as do, and how often that repeats.
#[derive(Debug)]
pub(crate) struct Window {
    /// Where each packed byte lies, from the lowest on.
    places: [u8; REGISTER],
    /// Which packed byte each one of those is.
    packed: [u8; REGISTER],
    /// From the first block to the lowest.
    low: isize,
    /// How often as many repetitions follow as fit, and from each to the next: where they lie, and packed.
    turns: u64,
    step: isize,
    size: isize,
    full: Masks,
    /// Of the repetitions that are left then, if there are any.
    rest: Masks,
}

/// The bytes of repetitions that are moved at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Masks {
    /// From the lowest on: which of them are in a block.
    inside: u64,
    /// Packed ones.
    dense: u64,
}

/// The lowest `bits` of a word, all of it if that is more.
const fn lowest(bits: usize) -> u64 {
    if bits < 64 { (1 << bits) - 1 } else { u64::MAX }
}

impl Window {
    /// The window of a message, if it is of such blocks and this processor has the instructions.
    pub(crate) fn of(shape: &Shape) -> Option<Self> {
        match &shape.node {
            Node::Blocks(blocks) => Self::new(blocks, shape.size, 1, 0),
            Node::Repeat { count, stride, inner } => match &**inner {
                Inner { node: Node::Blocks(blocks), size, .. } => Self::new(blocks, *size, *count, *stride),
                _ => None,
            },
            _ => None,
        }
        .filter(|_| is_supported())
    }

    fn new(blocks: &[Block], size: u64, count: u64, stride: i64) -> Option<Self> {
        if blocks.len() > REGISTER || size > REGISTER as u64 || count.saturating_mul(stride.unsigned_abs()) > CLOSE {
            return None;
        }
        let low = blocks.iter().map(|b| b.at).min()?;
        let mut bytes = Vec::with_capacity(REGISTER);
        for (i, block) in blocks.iter().enumerate() {
            let before = if i == 0 { 0 } else { blocks[i - 1].end };
            let start = usize::try_from(block.at.checked_sub(low)?).ok()?;
            bytes.extend((0..(block.end - before) as usize).map(|byte| start.saturating_add(byte)));
        }
        let (size, span) = (bytes.len(), 1 + *bytes.iter().max()?);
        let fits = |times: usize, step: usize| times * size <= REGISTER && (times - 1) * step + span <= REGISTER;
        if !fits(1, 0) {
            return None;
        }
        // Repetitions between whose blocks others lie go one by one.
        let step = usize::try_from(stride).ok().filter(|step| *step >= span && *step <= REGISTER);
        let most = usize::try_from(count).unwrap_or(usize::MAX).min(REGISTER);
        let at_once = step.map_or(1, |step| (1..=most).take_while(|times| fits(*times, step)).last().unwrap_or(1));
        let (mut places, mut packed, mut inside) = ([0; REGISTER], [0; REGISTER], 0_u64);
        let all = (0..at_once).flat_map(|time| bytes.iter().map(move |byte| time * step.unwrap_or(0) + byte));
        for (i, place) in all.enumerate() {
            // Of blocks that share a byte the last one counts when they are unpacked, and that is left to others.
            if inside >> place & 1 == 1 {
                return None;
            }
            inside |= 1 << place;
            (places[i], packed[place]) = (place as u8, i as u8);
        }
        let first = |times: usize| Masks {
            inside: inside & if times < at_once { lowest(times * step.unwrap_or(0)) } else { u64::MAX },
            dense: lowest(times * size),
        };
        Some(Self {
            places,
            packed,
            low: isize::try_from(low).ok()?,
            turns: count / at_once as u64,
            step: isize::try_from(stride).ok()?.checked_mul(at_once as isize)?,
            size: (at_once * size) as isize,
            full: first(at_once),
            rest: first((count % at_once as u64) as usize),
        })
    }
}

#[cfg(target_arch = "x86_64")]
fn is_supported() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vbmi")
}

#[cfg(not(target_arch = "x86_64"))]
fn is_supported() -> bool {
    false
}

/// Moves all of a message that has a window.
///
/// # Safety
/// As [`Whole`](super::whole::Whole), on a processor with AVX-512 (F, BW and VBMI).
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) unsafe fn all<const SIDE: u8>(map: &TypeMap, from: *const u8, to: *mut u8) {
    let Some(w) = map.window.as_deref() else { return };
    // SAFETY: tables of the size of a register.
    let (places, packed) =
        unsafe { (_mm512_loadu_si512(w.places.as_ptr().cast()), _mm512_loadu_si512(w.packed.as_ptr().cast())) };
    let (low_from, low_to) = super::steps::<SIDE>(0, w.low, w.low);
    let (mut from, mut to) = (from.wrapping_offset(low_from), to.wrapping_offset(low_to));
    let (from_step, to_step) = super::steps::<SIDE>(w.size as usize, w.step, w.step);
    // Not read again after each store.
    let full = w.full;
    for _ in 0..w.turns {
        // SAFETY: blocks that the caller vouches for, and nothing else: the masks leave out the rest.
        unsafe { turn::<SIDE>(full, places, packed, from, to) };
        // Addresses past the last are never used, so they may wrap.
        (from, to) = (from.wrapping_offset(from_step), to.wrapping_offset(to_step));
    }
    if w.rest.dense != 0 {
        // SAFETY: as above, of the repetitions that are left.
        unsafe { turn::<SIDE>(w.rest, places, packed, from, to) };
    }
}

/// Moves what a register holds.
///
/// # Safety
/// These bytes are readable at `from` and writable at `to`, on a processor with AVX-512 (F, BW and VBMI).
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
unsafe fn turn<const SIDE: u8>(
    Masks { inside, dense }: Masks,
    places: __m512i,
    packed: __m512i,
    from: *const u8,
    to: *mut u8,
) {
    // SAFETY: the caller's promise; bytes that a mask leaves out are not touched.
    unsafe {
        match SIDE {
            TO => {
                let bytes = _mm512_maskz_loadu_epi8(inside, from.cast());
                _mm512_mask_storeu_epi8(to.cast(), dense, _mm512_permutexvar_epi8(places, bytes));
            }
            FROM => {
                let bytes = _mm512_maskz_loadu_epi8(dense, from.cast());
                _mm512_mask_storeu_epi8(to.cast(), inside, _mm512_permutexvar_epi8(packed, bytes));
            }
            _ => _mm512_mask_storeu_epi8(to.cast(), inside, _mm512_maskz_loadu_epi8(inside, from.cast())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(blocks: &[(i64, u64)], count: u64, stride: i64) -> Option<Window> {
        let mut end = 0;
        let mut block = |(at, len)| {
            end += len;
            Block { at, end }
        };
        let blocks: Vec<Block> = blocks.iter().map(|b| block(*b)).collect();
        let size = blocks.last().map_or(0, |b| b.end);
        Window::new(&blocks, size, count, stride)
    }

    #[test]
    fn as_many_repetitions_go_at_once_as_fit_at_either_side() {
        let at_once = |blocks: &[(i64, u64)], count, stride| {
            let size: u64 = blocks.iter().map(|b| b.1).sum();
            window(blocks, count, stride).map(|w| w.size as u64 / size)
        };
        assert_eq!(at_once(&[(0, 1), (4, 4)], 100, 8), Some(8));
        assert_eq!(at_once(&[(0, 1), (4, 4)], 3, 8), Some(3));
        assert_eq!(at_once(&[(0, 1), (4, 3)], 100, 8), Some(8));
        assert_eq!(at_once(&[(0, 4), (8, 24), (32, 1)], 100, 40), Some(1));
        assert_eq!(at_once(&[(0, 1), (2, 1)], 100, 30), Some(3), "the third ends at byte 63");
        assert_eq!(at_once(&[(0, 1), (2, 1)], 100, 31), Some(2));
        assert_eq!(at_once(&[(0, 1), (2, 1)], 100, -8), Some(1));
        assert_eq!(at_once(&[(0, 1), (8, 1)], 100, 4), Some(1), "each lies in the next");
        assert_eq!(at_once(&[(0, 1), (63, 1)], 128, 1 << 13), Some(1));
        assert_eq!(at_once(&[(0, 1), (63, 1)], 129, 1 << 13), None, "further than the caches hold");
    }

    #[test]
    fn blocks_too_far_apart_too_long_or_with_common_bytes_have_none() {
        for blocks in
            [&[(0, 1), (64, 1)][..], &[(0, 65)], &[(-32, 1), (32, 1)], &[(0, 4), (3, 4)], &[(8, 4), (0, 9)], &[]]
        {
            assert!(window(blocks, 10, 200).is_none(), "{blocks:?}");
        }
        assert!(window(&[(0, 4), (i64::MAX, 4)], 1, 0).is_none() && window(&[(i64::MIN, 1), (1, 1)], 1, 0).is_none());
    }

    #[test]
    fn tables_name_the_places_in_packed_order() {
        let w = window(&[(5, 2), (0, 1)], 11, 8).unwrap();
        let inside = 0x6161_6161_6161_6161;
        assert_eq!((w.low, w.turns, w.step, w.size), (0, 1, 64, 24));
        assert_eq!(w.full, Masks { inside, dense: 0xff_ffff });
        assert_eq!(w.rest, Masks { inside: 0x61_6161, dense: 0x1ff });
        assert_eq!(window(&[(5, 2), (0, 1)], 16, 8).unwrap().rest, Masks::default());
        assert_eq!(w.places[..6], [5, 6, 0, 13, 14, 8]);
        assert_eq!([5, 6, 0, 13, 14, 8].map(|place| w.packed[place]), [0, 1, 2, 3, 4, 5]);
    }
}
