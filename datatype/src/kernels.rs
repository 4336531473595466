//! Copy kernels: loops over equal blocks, one for each block length or class of lengths, chosen from a table.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
pub(crate) mod whole;

use std::ptr::copy_nonoverlapping;

use crate::shape::Block;

/// How blocks follow each other: their number, and the bytes from start to start at either side.
#[derive(Clone, Copy)]
pub(crate) struct Steps {
    pub(crate) count: usize,
    pub(crate) from: isize,
    pub(crate) to: isize,
}

/// Copies one block of a length that its type knows, or knows the class of.
trait Move: Copy {
    /// For blocks of `len` bytes.
    fn of(len: usize) -> Self;

    /// Bytes of a block.
    fn len(self) -> usize;

    /// # Safety
    /// The block at `from` must be readable, that at `to` writable, and the two apart.
    unsafe fn one(self, from: *const u8, to: *mut u8);
}

/// `N` bytes.
#[derive(Clone, Copy)]
struct Fixed<const N: usize>;

impl<const N: usize> Move for Fixed<N> {
    #[inline(always)]
    fn of(_: usize) -> Self {
        Self
    }

    #[inline(always)]
    fn len(self) -> usize {
        N
    }

    #[inline(always)]
    unsafe fn one(self, from: *const u8, to: *mut u8) {
        // SAFETY: a block of `N` bytes, which the caller vouches for.
        unsafe { copy_nonoverlapping(from, to, N) };
    }
}

/// More than `N` and fewer than 2 `N` bytes: the first `N` and the last `N`.
#[derive(Clone, Copy)]
struct Ends<const N: usize>(usize);

impl<const N: usize> Move for Ends<N> {
    #[inline(always)]
    fn of(len: usize) -> Self {
        Self(len)
    }

    #[inline(always)]
    fn len(self) -> usize {
        self.0
    }

    #[inline(always)]
    unsafe fn one(self, from: *const u8, to: *mut u8) {
        let rest = self.0 - N;
        // SAFETY: both pieces are parts of a block that the caller vouches for.
        unsafe {
            copy_nonoverlapping(from, to, N);
            copy_nonoverlapping(from.add(rest), to.add(rest), N);
        }
    }
}

/// From `N` to 2 `N` bytes: as [`Ends`].
#[derive(Clone, Copy)]
struct Upto<const N: usize>(Ends<N>);

impl<const N: usize> Move for Upto<N> {
    #[inline(always)]
    fn of(len: usize) -> Self {
        Self(Ends(len))
    }

    #[inline(always)]
    fn len(self) -> usize {
        self.0.0
    }

    #[inline(always)]
    unsafe fn one(self, from: *const u8, to: *mut u8) {
        // SAFETY: the caller's promise; of exactly `N` bytes both pieces are all.
        unsafe { self.0.one(from, to) };
    }
}

/// At least [`LONG`] bytes, and so few that a call costs more than it gains: 64 at a time, the last 64 once more.
#[derive(Clone, Copy)]
struct Row(usize);

impl Move for Row {
    #[inline(always)]
    fn of(len: usize) -> Self {
        Self(len)
    }

    #[inline(always)]
    fn len(self) -> usize {
        self.0
    }

    #[inline(always)]
    unsafe fn one(self, from: *const u8, to: *mut u8) {
        let last = self.0 - 64;
        let mut at = 0;
        // SAFETY: all pieces are parts of a block that the caller vouches for, which is longer than one of them.
        unsafe {
            while at < last {
                copy_nonoverlapping(from.add(at), to.add(at), 64);
                at += 64;
            }
            copy_nonoverlapping(from.add(last), to.add(last), 64);
        }
    }
}

/// So many bytes.
#[derive(Clone, Copy)]
struct Long(usize);

impl Move for Long {
    #[inline(always)]
    fn of(len: usize) -> Self {
        Self(len)
    }

    #[inline(always)]
    fn len(self) -> usize {
        self.0
    }

    #[inline(always)]
    unsafe fn one(self, from: *const u8, to: *mut u8) {
        // SAFETY: a block that the caller vouches for.
        unsafe { copy_nonoverlapping(from, to, self.0) };
    }
}

/// Something for each class of lengths, in the order of [`CLASS`]: `$way` of `$with` and the [`Move`] of the class.
macro_rules! each_class {
    ($way:ident $with:tt) => {
        &[
            $way!($with Long),
            $way!($with Fixed<1>),
            $way!($with Fixed<2>),
            $way!($with Ends<2>),
            $way!($with Fixed<4>),
            $way!($with Ends<4>),
            $way!($with Fixed<8>),
            $way!($with Ends<8>),
            $way!($with Fixed<12>),
            $way!($with Fixed<16>),
            $way!($with Ends<16>),
            $way!($with Fixed<24>),
            $way!($with Fixed<32>),
            $way!($with Ends<32>),
            $way!($with Fixed<64>),
            $way!($with Ends<64>),
            $way!($with Row),
        ]
    };
}
use each_class;

/// A table of kernels: `$kernel` with the [`Move`] of each class as its last parameter.
macro_rules! table {
    ($kernel:ident $(, $constant:tt)*) => {
        each_class!(kernel [$kernel $(, $constant)*])
    };
}
macro_rules! kernel {
    ([$kernel:ident $(, $constant:tt)*] $move:ty) => {
        $kernel::<$($constant,)* $move>
    };
}

const CLASSES: usize = 17;
/// Kernels of processors that have more than all others.
const SPECIAL: usize = 3;
/// Lengths from here on are not in [`CLASS`].
const LONG: usize = 128;
/// The longest [`Row`]; what is longer is left to `memcpy`.
const ROW_MAX: usize = 1024;
/// Rows from this length on are left to it as well if all together have so many bytes, which the nearest cache holds.
const ROW_FEW: usize = 256;
const FEW_BYTES: usize = 8192;

/// The place in a table for each length below [`LONG`].
const CLASS: &[u8; LONG] = &{
    let mut classes = [0; LONG];
    let mut len = 1;
    while len < LONG {
        classes[len] = match len {
            1 => 1,
            2 => 2,
            3 => 3,
            4 => 4,
            5..=7 => 5,
            8 => 6,
            12 => 8,
            9..=15 => 7,
            16 => 9,
            24 => 11,
            17..=31 => 10,
            32 => 12,
            33..=63 => 13,
            64 => 14,
            _ => 15,
        };
        len += 1;
    }
    classes
};

/// The place in a table for blocks of `len` bytes.
#[inline(always)]
const fn class(len: usize) -> usize {
    let class = if len < LONG { CLASS[len] } else { 16 * (len <= ROW_MAX) as u8 };
    if class as usize >= CLASSES { CLASSES - 1 } else { class as usize }
}

/// The kernel of a table for blocks of `len` bytes.
#[inline(always)]
fn choose<T: Copy>(table: &[T; CLASSES], len: usize) -> T {
    table[class(len)]
}

/// Which side has its blocks one right after the other.
const NEITHER: u8 = 0;
const TO: u8 = 1;
const FROM: u8 = 2;

/// Block length, number, steps at either side, and where the first blocks are.
pub(crate) type Strided = unsafe fn(usize, usize, isize, isize, *const u8, *mut u8);
type Nested = unsafe fn(usize, &Steps, &Steps, *const u8, *mut u8);
type Listed = unsafe fn(usize, &[i64], *const u8, *mut u8);
type Matched = unsafe fn(usize, &[i64], &[i64], *const u8, *mut u8);
type CountedBoth = unsafe fn(usize, u64, &[Block], &[Block], *const u8, *mut u8) -> usize;
type Counted = unsafe fn(usize, u64, &[Block], *mut u8, *mut u8) -> usize;

const STRIDED: &[Strided; CLASSES] = table!(each, NEITHER);
const COLLECT: &[Strided; CLASSES] = table!(each, TO);
const SPREAD: &[Strided; CLASSES] = table!(each, FROM);
const NESTED: &[Nested; CLASSES] = table!(each_of_each, NEITHER);
const COLLECT_NESTED: &[Nested; CLASSES] = table!(each_of_each, TO);
const SPREAD_NESTED: &[Nested; CLASSES] = table!(each_of_each, FROM);
const GATHER: &[Listed; CLASSES] = table!(listed, true);
const SCATTER: &[Listed; CLASSES] = table!(listed, false);
const MATCHED: &[Matched; CLASSES] = table!(each_matched);
const MATCHED_EQUAL: &[CountedBoth; CLASSES] = table!(equal_both);
const GATHER_EQUAL: &[Counted; CLASSES] = table!(equal, true);
const SCATTER_EQUAL: &[Counted; CLASSES] = table!(equal, false);

/// The loops over blocks of one length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernels {
    /// To consecutive blocks; the step at their side is not looked at.
    pub(crate) collect: Strided,
    /// From consecutive blocks; the step at their side is not looked at.
    pub(crate) spread: Strided,
    /// Steps at both sides.
    pub(crate) strided: Strided,
}

const fn kernels(class: usize) -> Kernels {
    Kernels { collect: COLLECT[class], spread: SPREAD[class], strided: STRIDED[class] }
}

/// Those of all processors, then what this one may have.
const KERNELS: &[Kernels; CLASSES + SPECIAL] = &{
    let mut all = [const { kernels(0) }; CLASSES + SPECIAL];
    let mut class = 1;
    while class < CLASSES {
        all[class] = kernels(class);
        class += 1;
    }
    #[cfg(target_arch = "x86_64")]
    {
        let [rows, fours, eights] = avx2::KERNELS;
        (all[CLASSES], all[CLASSES + 1], all[CLASSES + 2]) = (rows, fours, eights);
    }
    all
};

/// Which loops are for certain blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(u8);

impl Class {
    /// Of no blocks.
    pub(crate) const NONE: Self = Self(0);

    /// For `count` blocks of `len` bytes, `stride` from start to start where they are not consecutive.
    #[inline]
    pub(crate) fn of(len: usize, count: usize, stride: isize) -> Self {
        if len >= ROW_FEW && len.saturating_mul(count) <= FEW_BYTES {
            return Self(0);
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(special) = avx2::which(len, count, stride) {
            return Self(CLASSES as u8 + special);
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (count, stride);
        Self(class(len) as u8)
    }

    /// Its place among the loops of all classes; past the end of those of all processors if it needs one that has more.
    fn index(self) -> usize {
        usize::from(self.0)
    }

    #[inline(always)]
    pub(crate) fn kernels(self) -> &'static Kernels {
        &KERNELS[usize::from(self.0).min(CLASSES + SPECIAL - 1)]
    }
}

/// Copies blocks of `len` bytes, in their order.
///
/// # Safety
/// Every block at `from` must be readable and every one at `to` writable, and none of the first may share a byte with
/// one of the second.
#[inline(always)]
pub(crate) unsafe fn strided(len: usize, steps: Steps, from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        (Class::of(len, steps.count, steps.from).kernels().strided)(len, steps.count, steps.from, steps.to, from, to)
    }
}

/// As [`strided`], to consecutive blocks.
///
/// # Safety
/// As [`strided`].
#[inline(always)]
pub(crate) unsafe fn collect(len: usize, count: usize, step: isize, from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { (Class::of(len, count, step).kernels().collect)(len, count, step, len as isize, from, to) }
}

/// As [`strided`], from consecutive blocks.
///
/// # Safety
/// As [`strided`].
#[inline(always)]
pub(crate) unsafe fn spread(len: usize, count: usize, step: isize, from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { (Class::of(len, count, step).kernels().spread)(len, count, len as isize, step, from, to) }
}

/// Copies the blocks of `inner` for each step of `outer`.
///
/// # Safety
/// As [`strided`].
#[inline(always)]
pub(crate) unsafe fn nested(len: usize, outer: Steps, inner: Steps, from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { choose(NESTED, len)(len, &outer, &inner, from, to) }
}

/// As [`nested`], to blocks that are all consecutive; what `outer` and `inner` say of that side is not looked at.
///
/// # Safety
/// As [`strided`].
#[inline(always)]
pub(crate) unsafe fn collect_nested(len: usize, outer: Steps, inner: Steps, from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { choose(COLLECT_NESTED, len)(len, &outer, &inner, from, to) }
}

/// As [`nested`], from blocks that are all consecutive; what `outer` and `inner` say of that side is not looked at.
///
/// # Safety
/// As [`strided`].
#[inline(always)]
pub(crate) unsafe fn spread_nested(len: usize, outer: Steps, inner: Steps, from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { choose(SPREAD_NESTED, len)(len, &outer, &inner, from, to) }
}

/// Copies blocks of `len` bytes from these displacements of `from` to consecutive places.
///
/// # Safety
/// As [`strided`].
#[inline(always)]
pub(crate) unsafe fn gather(len: usize, at: &[i64], from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { choose(GATHER, len)(len, at, from, to) }
}

/// Copies consecutive blocks of `len` bytes to these displacements of `to`.
///
/// # Safety
/// As [`strided`].
#[inline(always)]
pub(crate) unsafe fn scatter(len: usize, at: &[i64], from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { choose(SCATTER, len)(len, at, from, to) }
}

/// Copies blocks of `len` bytes from these displacements of `from` to those of `to`, of which there are as many.
///
/// # Safety
/// As [`strided`].
#[inline(always)]
pub(crate) unsafe fn matched(len: usize, at: &[i64], places: &[i64], from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { choose(MATCHED, len)(len, at, places, from, to) }
}

/// Copies the first of `blocks`, which start at packed byte `before`, and those after it as long as they have its
/// length, to consecutive places (`COLLECTS`) or from there, and returns how many.
///
/// # Safety
/// As [`strided`].
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
    // SAFETY: the caller's promise.
    unsafe { choose(table, len)(len, before, blocks, at, packed) }
}

/// Copies the first block of `list` to the place of the first of `places`, and those after them as long as both have the
/// same length, and returns how many. The first two are of equal length, and start at packed byte `before`.
///
/// # Safety
/// As [`strided`].
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
    // SAFETY: the caller's promise.
    unsafe { choose(MATCHED_EQUAL, len)(len, before, list, places, from, to) }
}

/// # Safety
/// As [`strided`].
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
/// As [`strided`].
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
/// As [`strided`].
#[inline(always)]
unsafe fn each<const SIDE: u8, M: Move>(
    len: usize,
    count: usize,
    by: isize,
    step: isize,
    mut from: *const u8,
    mut to: *mut u8,
) {
    let block = M::of(len);
    let (by, step) = match SIDE {
        TO => (by, block.len() as isize),
        FROM => (block.len() as isize, step),
        _ => (by, step),
    };
    let mut one = || {
        // SAFETY: a block that the caller vouches for.
        unsafe { block.one(from, to) };
        // Addresses past the last are never used, so they may wrap.
        (from, to) = (from.wrapping_offset(by), to.wrapping_offset(step));
    };
    for _ in 0..count / 4 {
        one();
        one();
        one();
        one();
    }
    for _ in 0..count % 4 {
        one();
    }
}

/// # Safety
/// As [`strided`].
#[inline(always)]
unsafe fn each_of_each<const SIDE: u8, M: Move>(
    len: usize,
    outer: &Steps,
    inner: &Steps,
    mut from: *const u8,
    mut to: *mut u8,
) {
    let (outer, inner) = (*outer, *inner);
    let packed = (inner.count * M::of(len).len()) as isize;
    let (outer_from, outer_to) = match SIDE {
        TO => (outer.from, packed),
        FROM => (packed, outer.to),
        _ => (outer.from, outer.to),
    };
    macro_rules! outer {
        ($count:expr) => {
            for _ in 0..outer.count {
                // SAFETY: blocks that the caller vouches for.
                unsafe { each::<SIDE, M>(len, $count, inner.from, inner.to, from, to) };
                // Addresses past the last block are never used, so they may wrap.
                (from, to) = (from.wrapping_offset(outer_from), to.wrapping_offset(outer_to));
            }
        };
    }
    // Few blocks at a time: without a loop for them.
    match inner.count {
        2 => outer!(2),
        3 => outer!(3),
        4 => outer!(4),
        count => outer!(count),
    }
}

/// # Safety
/// As [`strided`].
#[inline(always)]
unsafe fn listed<const COLLECTS: bool, M: Move>(len: usize, at: &[i64], mut from: *const u8, mut to: *mut u8) {
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
/// As [`strided`].
unsafe fn each_matched<M: Move>(len: usize, at: &[i64], places: &[i64], from: *const u8, to: *mut u8) {
    let block = M::of(len);
    for (at, place) in at.iter().zip(places) {
        // SAFETY: blocks that the caller vouches for.
        unsafe { block.one(from.wrapping_offset(*at as isize), to.wrapping_offset(*place as isize)) };
    }
}
