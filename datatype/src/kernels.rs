//! Copy loops over blocks of equal length: each is written once and instantiated for every class of block lengths, and
//! compiled a second time with AVX2 enabled, which is used if the processor supports it.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use crate::shape::Block;

/// The memory accesses of the copy loops. [`Private`] is for memory that no other thread or rank accesses during the
/// call; for memory that is accessed concurrently the caller supplies an implementation that is opaque to the compiler.
///
/// ```
/// use farside_datatype::{Datatype, Mover, Named};
///
/// /// Byte by byte, for memory that another process may write.
/// struct Volatile;
///
/// impl Mover for Volatile {
///     type Wide = Self;
///
///     unsafe fn fixed<const N: usize>(from: *const u8, to: *mut u8) {
///         // SAFETY: by the caller's contract.
///         unsafe { Self::long(from, to, N) };
///     }
///
///     unsafe fn long(from: *const u8, to: *mut u8, len: usize) {
///         for i in 0..len {
///             // SAFETY: by the caller's contract.
///             unsafe { to.add(i).write_volatile(from.add(i).read_volatile()) };
///         }
///     }
/// }
///
/// let map = Datatype::vector(2, 1, 2, &Named::Byte.into())?.message(1)?;
/// let (buffer, mut packed) = ([7, 0, 8], [0; 2]);
/// // SAFETY: the message lies in `buffer`, and `packed` has room for it.
/// let len = unsafe { map.pack_raw::<Volatile>(buffer.as_ptr(), 0, packed.as_mut_ptr(), 2) };
/// assert_eq!((len, packed), (2, [7, 8]));
/// # Ok::<(), farside_datatype::DatatypeError>(())
/// ```
pub trait Mover: 'static {
    /// The mover for functions with AVX2 enabled, which are only called on processors that support it.
    type Wide: Mover;

    /// Copies `N` bytes, at most 64.
    ///
    /// # Safety
    /// `from` is readable and `to` writable for `N` bytes, at any alignment, and the two ranges are disjoint.
    unsafe fn fixed<const N: usize>(from: *const u8, to: *mut u8);

    /// Copies `len` bytes of a block that is too long for inline copying.
    ///
    /// # Safety
    /// `from` is readable and `to` writable for `len` bytes, at any alignment, and the two ranges are disjoint.
    unsafe fn long(from: *const u8, to: *mut u8, len: usize);
}

/// Plain copies, for sources that no other thread writes and targets that no other thread accesses.
#[derive(Clone, Copy, Debug)]
pub struct Private;

impl Mover for Private {
    type Wide = Self;

    #[inline(always)]
    unsafe fn fixed<const N: usize>(from: *const u8, to: *mut u8) {
        // SAFETY: by the caller's contract.
        unsafe { std::ptr::copy_nonoverlapping(from, to, N) };
    }

    #[inline(always)]
    unsafe fn long(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: by the caller's contract.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    }
}

/// The copy of one block of a class of lengths.
trait Length: Copy {
    fn of(len: usize) -> Self;

    fn len(self) -> usize;

    /// # Safety
    /// The contract of [`Mover::long`], for a block of this length.
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
        // SAFETY: by the caller's contract.
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

/// Any length, with a function call for each block.
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
        // SAFETY: by the caller's contract.
        unsafe { M::long(from, to, self.0) };
    }
}

/// Minimum number of elements of a column of pairs for which vector instructions pay.
const COLUMN_MIN: usize = 16;
/// Blocks of at least this length are copied by one function call each.
const MIN_CALL_LEN: usize = 256;
const CLASSES: usize = 14;
/// Blocks at distances of whole pages map to the same L1 cache set, in which the lines of pending stores evict each
/// other. So such stores are paced: a few stores are completed before the next ones start.
const PAGE: isize = 4096;
/// Minimum number of blocks, and maximum block length in bytes, for which pacing pays.
const PACED_MIN: usize = 24;
const PACED_MAX: usize = 128;

/// The loop `$copy` for each class, in the order of [`Class`].
macro_rules! each_class {
    ($copy:ident $(, $generic:ident)*) => {
        [
            $copy::<$($generic,)* Fixed<1>>,
            $copy::<$($generic,)* Fixed<2>>,
            $copy::<$($generic,)* AtLeast<2>>,
            $copy::<$($generic,)* Fixed<4>>,
            $copy::<$($generic,)* AtLeast<4>>,
            $copy::<$($generic,)* Fixed<8>>,
            $copy::<$($generic,)* AtLeast<8>>,
            $copy::<$($generic,)* Fixed<16>>,
            $copy::<$($generic,)* AtLeast<16>>,
            $copy::<$($generic,)* Fixed<32>>,
            $copy::<$($generic,)* AtLeast<32>>,
            $copy::<$($generic,)* Fixed<64>>,
            $copy::<$($generic,)* AtLeast<64>>,
            $copy::<$($generic,)* Long>,
        ]
    };
}

/// The loops over pairs whose first block has class `$first`; the index is the class of the second block ([`PairClass`]).
macro_rules! each_second {
    ($first:ty) => {
        [
            copy_pairs::<M, PACKED_SIDE, $first, Fixed<1>>,
            copy_pairs::<M, PACKED_SIDE, $first, AtLeast<2>>,
            copy_pairs::<M, PACKED_SIDE, $first, Fixed<4>>,
            copy_pairs::<M, PACKED_SIDE, $first, AtLeast<4>>,
            copy_pairs::<M, PACKED_SIDE, $first, Fixed<8>>,
            copy_pairs::<M, PACKED_SIDE, $first, AtLeast<8>>,
            copy_pairs::<M, PACKED_SIDE, $first, AtLeast<16>>,
        ]
    };
}

/// Index of the loop that copies blocks of a length on this processor: the portable loops come first, then those for
/// wider registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(u8);

impl Class {
    /// The class of an empty run.
    pub(crate) const NONE: Self = Self(0);

    /// The class of blocks of `len` bytes. Each power of two up to 64 has two classes: the power itself, and longer
    /// blocks up to the next power.
    #[inline]
    pub(crate) fn of(len: usize) -> Self {
        let power = len.max(1).ilog2().min(6) as usize;
        // No length is between 1 and 2.
        let class = (2 * power + usize::from(len > 1 << power)).saturating_sub(1);
        let class = if len < MIN_CALL_LEN { class } else { CLASSES - 1 };
        Self((class + if has_wide() { CLASSES } else { 0 }) as u8)
    }

    #[inline(always)]
    fn choose<T: Copy>(self, table: &[[T; CLASSES]; 2]) -> T {
        table.as_flattened()[usize::from(self.0)]
    }
}

/// The length of blocks, and its class, which is cheaper to store than to compute.
#[derive(Clone, Copy)]
pub(crate) struct Len(pub(crate) usize, pub(crate) Class);

impl Len {
    #[inline(always)]
    pub(crate) fn of(len: u64) -> Self {
        Self(len as usize, Class::of(len as usize))
    }
}

/// A sequence of equal blocks: their number, and their strides at the source and at the target.
#[derive(Clone, Copy)]
pub(crate) struct Steps {
    pub(crate) count: usize,
    pub(crate) from: isize,
    pub(crate) to: isize,
}

/// The side whose bytes are packed, that is, consecutive.
pub(crate) const NEITHER: usize = 0;
pub(crate) const TO: usize = 1;
pub(crate) const FROM: usize = 2;

/// Values for source and target: `packed` for the packed side, and the given value for the other side.
#[inline(always)]
pub(crate) fn sides<const PACKED_SIDE: usize, T>(packed: T, from: T, to: T) -> (T, T) {
    match PACKED_SIDE {
        TO => (from, packed),
        FROM => (packed, to),
        _ => (from, to),
    }
}

/// A listed offset of a block.
pub(crate) trait Place {
    fn at(&self) -> isize;
}

impl Place for i64 {
    #[inline(always)]
    fn at(&self) -> isize {
        *self as isize
    }
}

impl Place for Block {
    #[inline(always)]
    fn at(&self) -> isize {
        self.at as isize
    }
}

/// Two blocks that repeat: their lengths, and the offset of the second from the first at the source and at the target.
pub(crate) struct Pair {
    pub(crate) lens: (usize, usize),
    pub(crate) second: (isize, isize),
    pub(crate) steps: Steps,
}

/// Arguments: length of the blocks, their number and strides on either side, and the addresses of the first blocks.
type Strided = unsafe fn(usize, usize, isize, isize, *const u8, *mut u8);
type Nested = unsafe fn(usize, &Steps, &Steps, *const u8, *mut u8);
/// Arguments: length of the blocks, equally many offsets on either side, and the base addresses of these offsets.
type Listed<P> = unsafe fn(usize, &[P], *const P, *const u8, *mut u8);
type Pairs = unsafe fn(&Pair, *const u8, *mut u8);

/// The loops of a mover for a packed side and a type of offsets: the portable loops, and those for wider registers.
struct Loops<M, P, const PACKED_SIDE: usize>(PhantomData<(M, P)>);

impl<M: Mover, P: Place + 'static, const PACKED_SIDE: usize> Loops<M, P, PACKED_SIDE> {
    const STRIDED: &'static [[Strided; CLASSES]; 2] =
        &[each_class!(copy_strided, M, PACKED_SIDE), each_class!(copy_strided_wide, M, PACKED_SIDE)];
    const NESTED: &'static [[Nested; CLASSES]; 2] =
        &[each_class!(copy_nested, M, PACKED_SIDE), each_class!(copy_nested_wide, M, PACKED_SIDE)];
    const LISTED: &'static [[Listed<P>; CLASSES]; 2] =
        &[each_class!(copy_listed, M, P, PACKED_SIDE), each_class!(copy_listed_wide, M, P, PACKED_SIDE)];
    const PAIRS: &'static [[Pairs; 7]; 7] = &[
        each_second!(Fixed<1>),
        each_second!(AtLeast<2>),
        each_second!(Fixed<4>),
        each_second!(AtLeast<4>),
        each_second!(Fixed<8>),
        each_second!(AtLeast<8>),
        each_second!(AtLeast<16>),
    ];
}

/// Whether this processor supports the wider registers.
#[inline(always)]
fn has_wide() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Copies `steps.count` blocks of `len` bytes, in their order; the blocks of side `PACKED_SIDE` are consecutive, and
/// its stride is ignored.
///
/// # Safety
/// Every block at `from` must be readable and every one at `to` writable, and no block of the one may share a byte with
/// one of the other.
#[inline(always)]
pub(crate) unsafe fn strided<M: Mover, const PACKED_SIDE: usize>(
    Len(len, class): Len,
    steps: Steps,
    from: *const u8,
    to: *mut u8,
) {
    let copy = class.choose(Loops::<M, i64, PACKED_SIDE>::STRIDED);
    // SAFETY: by the caller's contract; the table has what this processor can do.
    unsafe { copy(len, steps.count, steps.from, steps.to, from, to) };
}

/// Copies, for each step of `outer`, the blocks of `inner`, like [`strided`].
///
/// # Safety
/// Every block at `from` is readable and every one at `to` writable, and no block of one shares a byte with the other.
#[inline(always)]
pub(crate) unsafe fn nested<M: Mover, const PACKED_SIDE: usize>(
    Len(len, class): Len,
    outer: Steps,
    inner: Steps,
    from: *const u8,
    to: *mut u8,
) {
    if inner.count == 1 {
        // SAFETY: by the caller's contract.
        return unsafe { strided::<M, PACKED_SIDE>(Len(len, class), outer, from, to) };
    }
    let copy = class.choose(Loops::<M, i64, PACKED_SIDE>::NESTED);
    // SAFETY: by the caller's contract; the table has what this processor can do.
    unsafe { copy(len, &outer, &inner, from, to) };
}

/// Copies blocks of `len` bytes in their order. They are consecutive on side `PACKED_SIDE`; on a side that is not
/// packed they are at the offsets `a` or `b`, two lists of equal length.
///
/// # Safety
/// Every block at `from` is readable and every one at `to` writable, and no block of one shares a byte with the other.
#[inline(always)]
pub(crate) unsafe fn listed<M: Mover, P: Place + 'static, const PACKED_SIDE: usize>(
    Len(len, class): Len,
    a: &[P],
    b: &[P],
    from: *const u8,
    to: *mut u8,
) {
    debug_assert!(a.len() == b.len());
    let copy = class.choose(Loops::<M, P, PACKED_SIDE>::LISTED);
    // SAFETY: by the caller's contract; the table has what this processor can do.
    unsafe { copy(len, a, b.as_ptr(), from, to) };
}

/// Index of the loop that copies repetitions of two blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PairClass(u8);

impl PairClass {
    /// The class of pairs without a loop.
    pub(crate) const NONE: Self = Self(u8::MAX);

    pub(crate) fn of(lens: (u64, u64)) -> Self {
        let class = |len: u64| match len {
            1 => Some(0),
            2..=3 => Some(1),
            4 => Some(2),
            5..=7 => Some(3),
            8 => Some(4),
            9..=16 => Some(5),
            17..=32 => Some(6),
            _ => None,
        };
        class(lens.0).zip(class(lens.1)).map_or(Self::NONE, |(a, b)| Self(7 * a + b))
    }
}

/// Copies repetitions of two blocks, in their order, and returns whether it has a loop for their class.
///
/// # Safety
/// The contract of [`strided`]. The caller sets the stride of side `PACKED_SIDE`; each pair of blocks is consecutive
/// there.
#[inline(always)]
pub(crate) unsafe fn pairs<M: Mover, const PACKED_SIDE: usize>(
    class: PairClass,
    pair: &Pair,
    from: *const u8,
    to: *mut u8,
) -> bool {
    let Some(copy) = Loops::<M, i64, PACKED_SIDE>::PAIRS.as_flattened().get(usize::from(class.0)) else { return false };
    // SAFETY: by the caller's contract.
    unsafe { copy(pair, from, to) };
    true
}

/// A loop, compiled for wider registers.
macro_rules! wide {
    ($wide:ident, $copy:ident $(<$P:ident>)?, $($name:ident: $type:ty),*) => {
        /// # Safety
        /// The contract of [`strided`], on a processor with AVX2.
        #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
        unsafe fn $wide<M: Mover, $($P: Place,)? const PACKED_SIDE: usize, L: Length>($($name: $type),*) {
            // SAFETY: by the caller's contract.
            unsafe { $copy::<M::Wide, $($P,)? PACKED_SIDE, L>($($name),*) };
        }
    };
}

wide!(copy_strided_wide, copy_strided, len: usize, n: usize, a: isize, b: isize, from: *const u8, to: *mut u8);
wide!(copy_nested_wide, copy_nested, len: usize, outer: &Steps, inner: &Steps, from: *const u8, to: *mut u8);
wide!(copy_listed_wide, copy_listed<P>, len: usize, a: &[P], b: *const P, from: *const u8, to: *mut u8);

/// Waits for the issued loads, which delays further stores.
#[inline(always)]
fn pause() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every processor of this architecture has the instruction.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
}

/// # Safety
/// Every block at `from` is readable and every one at `to` writable, and no block of one shares a byte with the other.
#[inline(always)]
unsafe fn copy_strided<M: Mover, const PACKED_SIDE: usize, L: Length>(
    len: usize,
    count: usize,
    from_step: isize,
    to_step: isize,
    mut from: *const u8,
    mut to: *mut u8,
) {
    let block = L::of(len);
    let (from_step, to_step) = sides::<PACKED_SIDE, _>(block.len() as isize, from_step, to_step);
    // Addresses past the last block are never used, so they may wrap.
    let place = |i: isize| (from_step.wrapping_mul(i), to_step.wrapping_mul(i));
    let few = |count: usize, mut from: *const u8, mut to: *mut u8| {
        for _ in 0..count {
            // SAFETY: a block that the caller guarantees.
            unsafe { block.copy::<M>(from, to) };
            (from, to) = (from.wrapping_offset(from_step), to.wrapping_offset(to_step));
        }
    };
    // Returns early, so that a short message need not save the registers that the loops below use.
    if count <= 4 {
        return few(count, from, to);
    }
    // A column of an array of pairs: with its stride known, the compiler copies several elements by an instruction.
    if PACKED_SIDE == TO && from_step == 2 * to_step && count >= COLUMN_MIN {
        for i in 0..count {
            let at = i * block.len();
            // SAFETY: a block that the caller guarantees.
            unsafe { block.copy::<M>(from.wrapping_add(2 * at), to.wrapping_add(at)) };
        }
        return;
    }
    let is_paced = PACKED_SIDE != TO && to_step % PAGE == 0 && count >= PACED_MIN && block.len() <= PACED_MAX;
    // Four blocks at a time relative to the same two addresses, so that no copy waits for the address computation of
    // the previous one.
    for _ in 0..count / 4 {
        for i in 0..4 {
            let (from_at, to_at) = place(i);
            // SAFETY: a block that the caller guarantees.
            unsafe { block.copy::<M>(from.wrapping_offset(from_at), to.wrapping_offset(to_at)) };
            if is_paced && (i == 3 || i == 1 && PACKED_SIDE == FROM) {
                pause();
            }
        }
        (from, to) = (from.wrapping_offset(place(4).0), to.wrapping_offset(place(4).1));
    }
    few(count % 4, from, to);
}

/// # Safety
/// Every block at `from` is readable and every one at `to` writable, and no block of one shares a byte with the other.
#[inline(always)]
unsafe fn copy_nested<M: Mover, const PACKED_SIDE: usize, L: Length>(
    len: usize,
    outer: &Steps,
    inner: &Steps,
    mut from: *const u8,
    mut to: *mut u8,
) {
    let (outer, inner) = (*outer, *inner);
    let row = (L::of(len).len() * inner.count) as isize;
    let (from_step, to_step) = sides::<PACKED_SIDE, _>(row, outer.from, outer.to);
    macro_rules! rows {
        ($count:expr) => {
            for _ in 0..outer.count {
                // SAFETY: blocks that the caller guarantees.
                unsafe { copy_strided::<M, PACKED_SIDE, L>(len, $count, inner.from, inner.to, from, to) };
                // Addresses past the last block are never used, so they may wrap.
                (from, to) = (from.wrapping_offset(from_step), to.wrapping_offset(to_step));
            }
        };
    }
    // The few remaining blocks are copied without a loop.
    match inner.count {
        2 => rows!(2),
        3 => rows!(3),
        4 => rows!(4),
        count => rows!(count),
    }
}

/// # Safety
/// The contract of [`strided`]; `a` and `b` have equal lengths.
#[inline(always)]
unsafe fn copy_listed<M: Mover, P: Place, const PACKED_SIDE: usize, L: Length>(
    len: usize,
    a: &[P],
    b: *const P,
    from: *const u8,
    to: *mut u8,
) {
    let block = L::of(len);
    for (i, a) in a.iter().enumerate() {
        // The target side has a separate offset list only in a copy to another layout. SAFETY: `a` and `b` have equal
        // lengths.
        let b = if PACKED_SIDE == NEITHER { unsafe { (*b.add(i)).at() } } else { a.at() };
        let (from_at, to_at) = sides::<PACKED_SIDE, _>((i * block.len()) as isize, a.at(), b);
        // SAFETY: a block that the caller guarantees.
        unsafe { block.copy::<M>(from.wrapping_offset(from_at), to.wrapping_offset(to_at)) };
    }
}

/// # Safety
/// The contract of [`pairs`].
unsafe fn copy_pairs<M: Mover, const PACKED_SIDE: usize, A: Length, B: Length>(
    pair: &Pair,
    mut from: *const u8,
    mut to: *mut u8,
) {
    let (a, b, steps) = (A::of(pair.lens.0), B::of(pair.lens.1), pair.steps);
    let (from_second, to_second) = sides::<PACKED_SIDE, _>(a.len() as isize, pair.second.0, pair.second.1);
    for _ in 0..steps.count {
        // SAFETY: blocks that the caller guarantees.
        unsafe {
            a.copy::<M>(from, to);
            b.copy::<M>(from.wrapping_offset(from_second), to.wrapping_offset(to_second));
        }
        // Addresses past the last block are never used, so they may wrap.
        (from, to) = (from.wrapping_offset(steps.from), to.wrapping_offset(steps.to));
    }
}
