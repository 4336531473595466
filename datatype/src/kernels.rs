//! Copy loops over blocks of equal length: each is written once and instantiated for every class of block lengths, and
//! compiled a second time with AVX2 enabled, which is chosen when the processor has it.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use crate::shape::Block;

/// How the copy loops access memory. [`Private`] serves memory that nobody else accesses during the call; for memory that
/// others may access at the same time the caller brings an implementation that the compiler cannot reason about.
pub trait Mover: 'static {
    /// Copies `N` bytes, at most 64.
    ///
    /// # Safety
    /// `from` is readable and `to` writable for `N` bytes, at any alignment, and the two ranges are disjoint.
    unsafe fn fixed<const N: usize>(from: *const u8, to: *mut u8);

    /// Copies `len` bytes, of a block too long to be copied in line.
    ///
    /// # Safety
    /// As for [`fixed`](Self::fixed), for `len` bytes.
    unsafe fn long(from: *const u8, to: *mut u8, len: usize);
}

/// Plain copies, for memory that nobody else writes, and of which nobody else accesses what is written.
#[derive(Clone, Copy, Debug)]
pub struct Private;

impl Mover for Private {
    #[inline(always)]
    unsafe fn fixed<const N: usize>(from: *const u8, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from, to, N) };
    }

    #[inline(always)]
    unsafe fn long(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    }
}

/// A class of block lengths: copies one block.
trait Length: Copy {
    fn of(len: usize) -> Self;

    fn len(self) -> usize;

    /// # Safety
    /// As [`Mover::long`], for a block.
    unsafe fn copy<M: Mover>(self, from: *const u8, to: *mut u8);
}

/// `N` bytes.
#[derive(Clone, Copy)]
struct Fixed<const N: usize>;

impl<const N: usize> Length for Fixed<N> {
    #[inline(always)]
    fn of(_: usize) -> Self {
        Self
    }

    #[inline(always)]
    fn len(self) -> usize {
        N
    }

    #[inline(always)]
    unsafe fn copy<M: Mover>(self, from: *const u8, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { M::fixed::<N>(from, to) };
    }
}

/// At least `N` bytes, `N` at a time; the last `N` overlap those before.
#[derive(Clone, Copy)]
struct AtLeast<const N: usize>(usize);

impl<const N: usize> Length for AtLeast<N> {
    #[inline(always)]
    fn of(len: usize) -> Self {
        Self(len)
    }

    #[inline(always)]
    fn len(self) -> usize {
        self.0
    }

    #[inline(always)]
    unsafe fn copy<M: Mover>(self, from: *const u8, to: *mut u8) {
        let last = self.0 - N;
        let mut at = 0;
        // SAFETY: all pieces are parts of the block.
        unsafe {
            // Only the longest class has more than two pieces.
            if N < 64 {
                M::fixed::<N>(from, to);
            } else {
                while at < last {
                    M::fixed::<N>(from.add(at), to.add(at));
                    at += N;
                }
            }
            M::fixed::<N>(from.add(last), to.add(last));
        }
    }
}

/// Any length, by a call for each block.
#[derive(Clone, Copy)]
struct Long(usize);

impl Length for Long {
    #[inline(always)]
    fn of(len: usize) -> Self {
        Self(len)
    }

    #[inline(always)]
    fn len(self) -> usize {
        self.0
    }

    #[inline(always)]
    unsafe fn copy<M: Mover>(self, from: *const u8, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { M::long(from, to, self.0) };
    }
}

/// Blocks of this length and more are copied by a call for each.
const LONG: usize = 1024;
const CLASSES: usize = 14;

/// The loop `$copy` of the mover `M` for each class, in the order that [`class`] gives.
macro_rules! each_class {
    ($copy:ident, $packed:ident) => {
        [
            $copy::<M, Fixed<1>, $packed>,
            $copy::<M, Fixed<2>, $packed>,
            $copy::<M, AtLeast<2>, $packed>,
            $copy::<M, Fixed<4>, $packed>,
            $copy::<M, AtLeast<4>, $packed>,
            $copy::<M, Fixed<8>, $packed>,
            $copy::<M, AtLeast<8>, $packed>,
            $copy::<M, Fixed<16>, $packed>,
            $copy::<M, AtLeast<16>, $packed>,
            $copy::<M, Fixed<32>, $packed>,
            $copy::<M, AtLeast<32>, $packed>,
            $copy::<M, Fixed<64>, $packed>,
            $copy::<M, AtLeast<64>, $packed>,
            $copy::<M, Long, $packed>,
        ]
    };
}

/// The class of blocks of `len` bytes: two for each power of two up to 64, the power itself and what is longer.
#[inline(always)]
fn class(len: usize) -> usize {
    if len >= LONG {
        return CLASSES - 1;
    }
    let power = len.max(1).ilog2().min(6) as usize;
    // Nothing is longer than 1 and shorter than 2.
    (2 * power + usize::from(len > 1 << power)).saturating_sub(1)
}

/// How equal blocks follow each other: their number, and the bytes from start to start at the source and at the target.
#[derive(Clone, Copy)]
pub(crate) struct Steps {
    pub(crate) count: usize,
    pub(crate) from: isize,
    pub(crate) to: isize,
}

impl Steps {
    pub(crate) const ONCE: Steps = Steps { count: 1, from: 0, to: 0 };
}

/// Which side has its bytes in packed form, one right after the other.
pub(crate) const NEITHER: usize = 0;
pub(crate) const TO: usize = 1;
pub(crate) const FROM: usize = 2;

/// Values of the source and the target, of which the packed side has `packed`.
#[inline(always)]
pub(crate) fn sides<const PACKED: usize, T>(packed: T, from: T, to: T) -> (T, T) {
    match PACKED {
        TO => (from, packed),
        FROM => (packed, to),
        _ => (from, to),
    }
}

/// Where the blocks of a loop lie, at the source and at the target; a packed side needs no list.
#[derive(Clone, Copy)]
pub(crate) enum Places<'a> {
    /// `outer` times `inner`.
    Strided { outer: Steps, inner: Steps },
    /// At listed displacements.
    Listed(&'a [i64], &'a [i64]),
    /// Those of some blocks, which all have the same length.
    Blocks(&'a [Block], &'a [Block]),
}

/// A loop: length of the blocks, their places, and the addresses that these count from.
type Loop = unsafe fn(usize, &Places<'_>, *const u8, *mut u8);
/// The loops of each side that may be packed, by class.
type Table = [[Loop; CLASSES]; 3];

/// The loops of a mover.
struct Loops<M>(PhantomData<M>);

impl<M: Mover> Loops<M> {
    const PORTABLE: &'static Table =
        &[each_class!(copy_blocks, NEITHER), each_class!(copy_blocks, TO), each_class!(copy_blocks, FROM)];
    #[cfg(target_arch = "x86_64")]
    const AVX2: &'static Table = &[
        each_class!(copy_blocks_avx2, NEITHER),
        each_class!(copy_blocks_avx2, TO),
        each_class!(copy_blocks_avx2, FROM),
    ];

    #[inline(always)]
    fn table() -> &'static Table {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            return Self::AVX2;
        }
        Self::PORTABLE
    }
}

/// Copies blocks of `len` bytes, in their order; both sides may have steps of any size.
///
/// # Safety
/// Every block at `from` must be readable and every one at `to` writable, and no block of the one may share a byte with
/// one of the other.
#[inline(always)]
pub(crate) unsafe fn strided<M: Mover>(len: usize, outer: Steps, inner: Steps, from: *const u8, to: *mut u8) {
    let (outer, inner) = if inner.count == 1 { (Steps::ONCE, outer) } else { (outer, inner) };
    let is_packed = |step: isize, outer_step: isize| {
        step == len as isize && (outer.count == 1 || outer_step == (len * inner.count) as isize)
    };
    let packed = match () {
        () if is_packed(inner.to, outer.to) => TO,
        () if is_packed(inner.from, outer.from) => FROM,
        () => NEITHER,
    };
    // SAFETY: the caller's promise; the table has what this processor can do.
    unsafe { Loops::<M>::table()[packed][class(len)](len, &Places::Strided { outer, inner }, from, to) };
}

/// Copies blocks of `len` bytes, which are consecutive at the `PACKED` side, in their order.
///
/// # Safety
/// As [`strided`].
#[inline(always)]
pub(crate) unsafe fn listed<M: Mover, const PACKED: usize>(
    len: usize,
    places: Places<'_>,
    from: *const u8,
    to: *mut u8,
) {
    // SAFETY: the caller's promise; the table has what this processor can do.
    unsafe { Loops::<M>::table()[PACKED][class(len)](len, &places, from, to) };
}

/// [`copy_blocks`], compiled for wider registers.
///
/// # Safety
/// As [`strided`], on a processor with AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn copy_blocks_avx2<M: Mover, L: Length, const PACKED: usize>(
    len: usize,
    places: &Places<'_>,
    from: *const u8,
    to: *mut u8,
) {
    // SAFETY: the caller's promise.
    unsafe { copy_blocks::<M, L, PACKED>(len, places, from, to) };
}

/// # Safety
/// As [`strided`].
#[inline(always)]
unsafe fn copy_blocks<M: Mover, L: Length, const PACKED: usize>(
    len: usize,
    places: &Places<'_>,
    from: *const u8,
    to: *mut u8,
) {
    let block = L::of(len);
    // SAFETY: the caller's promise.
    unsafe {
        match *places {
            Places::Strided { outer, inner } => copy_strided::<M, L, PACKED>(block, outer, inner, from, to),
            Places::Listed(a, b) => {
                let places = a.iter().zip(b).map(|(a, b)| (*a, *b));
                copy_listed::<M, L, PACKED>(block, places, from, to);
            }
            Places::Blocks(a, b) => {
                let places = a.iter().zip(b).map(|(a, b)| (a.at, b.at));
                copy_listed::<M, L, PACKED>(block, places, from, to);
            }
        }
    }
}

/// # Safety
/// As [`strided`].
#[inline(always)]
unsafe fn copy_strided<M: Mover, L: Length, const PACKED: usize>(
    block: L,
    outer: Steps,
    inner: Steps,
    mut from: *const u8,
    mut to: *mut u8,
) {
    let (from_step, to_step) = sides::<PACKED, _>(block.len() as isize, inner.from, inner.to);
    let (from_row, to_row) = sides::<PACKED, _>((block.len() * inner.count) as isize, outer.from, outer.to);
    macro_rules! rows {
        ($count:expr) => {
            for _ in 0..outer.count {
                // SAFETY: blocks that the caller vouches for.
                unsafe { copy_row::<M, L>(block, Steps { count: $count, from: from_step, to: to_step }, from, to) };
                // Addresses past the last block are never used, so they may wrap.
                (from, to) = (from.wrapping_offset(from_row), to.wrapping_offset(to_row));
            }
        };
    }
    // Few blocks at a time: without a loop for them.
    match inner.count {
        2 => rows!(2),
        3 => rows!(3),
        4 => rows!(4),
        count => rows!(count),
    }
}

/// # Safety
/// As [`strided`].
#[inline(always)]
unsafe fn copy_row<M: Mover, L: Length>(block: L, steps: Steps, mut from: *const u8, mut to: *mut u8) {
    // Addresses past the last block are never used, so they may wrap.
    let place = |i: isize| (steps.from.wrapping_mul(i), steps.to.wrapping_mul(i));
    // Four at a time from the same two addresses: none waits for the address of the one before.
    for _ in 0..steps.count / 4 {
        for i in 0..4 {
            let (from_at, to_at) = place(i);
            // SAFETY: a block that the caller vouches for.
            unsafe { block.copy::<M>(from.wrapping_offset(from_at), to.wrapping_offset(to_at)) };
        }
        (from, to) = (from.wrapping_offset(place(4).0), to.wrapping_offset(place(4).1));
    }
    for _ in 0..steps.count % 4 {
        // SAFETY: as above.
        unsafe { block.copy::<M>(from, to) };
        (from, to) = (from.wrapping_offset(steps.from), to.wrapping_offset(steps.to));
    }
}

/// # Safety
/// As [`strided`].
#[inline(always)]
unsafe fn copy_listed<M: Mover, L: Length, const PACKED: usize>(
    block: L,
    places: impl Iterator<Item = (i64, i64)>,
    from: *const u8,
    to: *mut u8,
) {
    let mut packed = 0;
    for (a, b) in places {
        let (from_at, to_at) = sides::<PACKED, _>(packed, a as isize, b as isize);
        // SAFETY: a block that the caller vouches for.
        unsafe { block.copy::<M>(from.wrapping_offset(from_at), to.wrapping_offset(to_at)) };
        packed += block.len() as isize;
    }
}
