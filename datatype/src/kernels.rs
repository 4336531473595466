//! Copy kernels: loops over equal blocks, one for each block length or class of lengths, chosen from a table.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod lists;
mod moves;
#[cfg(target_arch = "x86_64")]
mod paced;
#[cfg(target_arch = "x86_64")]
mod past;
pub(crate) mod whole;
pub(crate) mod window;

pub(crate) use lists::{blocks, gather, matched, matched_blocks, scatter};
use moves::{Ends, Fixed, Long, Move, Row, Upto};

/// How blocks follow each other: their number, and the bytes from start to start at either side.
#[derive(Clone, Copy)]
pub(crate) struct Steps {
    pub(crate) count: usize,
    pub(crate) from: isize,
    pub(crate) to: isize,
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
use {kernel, table};

const CLASSES: usize = 17;

/// The kernels that some processors have or gain from, and whatever there is one of for each.
macro_rules! specials {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Kernels behind those for all processors.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        enum Special {
            $($(#[$doc])* $name,)*
        }
        /// Their number.
        const SPECIAL: usize = [$(Special::$name),*].len();
        /// Their loops, in this order.
        const SPECIAL_KERNELS: [Kernels; SPECIAL] = [$(special_kernels(Special::$name)),*];
        /// Those over whole messages.
        const SPECIAL_WAYS: [whole::Ways; SPECIAL] = [$(whole::special::<{ Special::$name as usize }>()),*];
    };
}
specials! {
    /// Rows, 128 bytes a turn.
    Rows,
    /// Blocks of 4 bytes close to each other.
    Fours,
    /// Blocks of 8 bytes close to each other.
    Eights,
    /// Every second element of 4 bytes.
    SecondFours,
    /// Every second element of 8 bytes.
    SecondEights,
    /// Every second element of 16 bytes.
    SecondSixteens,
    /// Rows by whole cache lines.
    Lines,
    /// Every second element of 4 bytes, also written by stores that leave out the others.
    ApartFours,
    /// Every second element of 8 bytes, likewise.
    ApartEights,
    /// Rows of messages that are larger than the caches.
    Past,
    /// Blocks whose places share few sets of a cache.
    Paced,
}
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

/// Bytes from one block of `len` bytes to the next at either side: `by` and `step`, but at the side `SIDE` its length.
#[inline(always)]
const fn steps<const SIDE: u8>(len: usize, by: isize, step: isize) -> (isize, isize) {
    match SIDE {
        TO => (by, len as isize),
        FROM => (len as isize, step),
        _ => (by, step),
    }
}

/// Block length, number, steps at either side, and where the first blocks are.
pub(crate) type Strided = unsafe fn(usize, usize, isize, isize, *const u8, *mut u8);
type Nested = unsafe fn(usize, &Steps, &Steps, *const u8, *mut u8);

const STRIDED: &[Strided; CLASSES] = table!(each, NEITHER);
const COLLECT: &[Strided; CLASSES] = table!(each, TO);
const SPREAD: &[Strided; CLASSES] = table!(each, FROM);
const NESTED: &[Nested; CLASSES] = table!(each_of_each, NEITHER);
const COLLECT_NESTED: &[Nested; CLASSES] = table!(each_of_each, TO);
const SPREAD_NESTED: &[Nested; CLASSES] = table!(each_of_each, FROM);

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

impl Kernels {
    /// The loop where the side `SIDE` has its blocks one right after the other.
    #[inline(always)]
    const fn side<const SIDE: u8>(&self) -> Strided {
        match SIDE {
            TO => self.collect,
            FROM => self.spread,
            _ => self.strided,
        }
    }
}

const fn kernels(class: usize) -> Kernels {
    Kernels { collect: COLLECT[class], spread: SPREAD[class], strided: STRIDED[class] }
}

#[cfg(target_arch = "x86_64")]
const fn special_kernels(special: Special) -> Kernels {
    avx2::kernels(special)
}

/// Never chosen.
#[cfg(not(target_arch = "x86_64"))]
const fn special_kernels(_: Special) -> Kernels {
    kernels(0)
}

/// Those of all processors, then what this one may have.
const KERNELS: &[Kernels; CLASSES + SPECIAL] = &{
    let mut all = [const { kernels(0) }; CLASSES + SPECIAL];
    let mut class = 1;
    while class < CLASSES {
        all[class] = kernels(class);
        class += 1;
    }
    let mut special = 0;
    while special < SPECIAL {
        all[CLASSES + special] = SPECIAL_KERNELS[special];
        special += 1;
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
        let are_few = len >= ROW_FEW && len.saturating_mul(count) <= FEW_BYTES;
        #[cfg(target_arch = "x86_64")]
        if let Some(special) = avx2::which(len, count, stride, are_few) {
            return Self(CLASSES as u8 + special as u8);
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = stride;
        if are_few {
            return Self(0);
        }
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

/// The loops over rows, for so many repetitions of several of them; `inner` goes from the side that is not packed.
#[inline]
fn rows(len: usize, times: usize, inner: &Steps) -> Option<&'static Kernels> {
    (len >= LONG && inner.count > 4).then(|| Class::of(len, times.saturating_mul(inner.count), inner.from).kernels())
}

/// `outer` to places for all of `inner`, one right after the other.
fn packed_to(len: usize, outer: Steps, inner: Steps) -> Steps {
    Steps { to: (len * inner.count) as isize, ..outer }
}

/// Calls `kernel` for each step of `outer`.
///
/// # Safety
/// As [`strided`].
unsafe fn each_run(kernel: Strided, len: usize, outer: Steps, inner: Steps, mut from: *const u8, mut to: *mut u8) {
    for _ in 0..outer.count {
        // SAFETY: the caller's promise.
        unsafe { kernel(len, inner.count, inner.from, inner.to, from, to) };
        // Addresses past the last block are never used, so they may wrap.
        (from, to) = (from.wrapping_offset(outer.from), to.wrapping_offset(outer.to));
    }
}

/// Copies the blocks of `inner` for each step of `outer`.
///
/// # Safety
/// As [`strided`].
#[inline(always)]
pub(crate) unsafe fn nested(len: usize, outer: Steps, inner: Steps, from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        match rows(len, outer.count, &inner) {
            Some(kernels) => each_run(kernels.strided, len, outer, inner, from, to),
            None => choose(NESTED, len)(len, &outer, &inner, from, to),
        }
    }
}

/// As [`nested`], to blocks that are all consecutive; what `outer` and `inner` say of that side is not looked at.
///
/// # Safety
/// As [`strided`].
#[inline(always)]
pub(crate) unsafe fn collect_nested(len: usize, outer: Steps, inner: Steps, from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        match rows(len, outer.count, &inner) {
            Some(kernels) => each_run(kernels.collect, len, packed_to(len, outer, inner), inner, from, to),
            None => choose(COLLECT_NESTED, len)(len, &outer, &inner, from, to),
        }
    }
}

/// As [`nested`], from blocks that are all consecutive; what `outer` and `inner` say of that side is not looked at.
///
/// # Safety
/// As [`strided`].
#[inline(always)]
pub(crate) unsafe fn spread_nested(len: usize, outer: Steps, inner: Steps, from: *const u8, to: *mut u8) {
    let turned = |s: Steps| Steps { from: s.to, to: s.from, ..s };
    // SAFETY: the caller's promise.
    unsafe {
        match rows(len, outer.count, &turned(inner)) {
            Some(kernels) => {
                let outer = turned(packed_to(len, turned(outer), inner));
                each_run(kernels.spread, len, outer, inner, from, to);
            }
            None => choose(SPREAD_NESTED, len)(len, &outer, &inner, from, to),
        }
    }
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
    let (by, step) = steps::<SIDE>(block.len(), by, step);
    // Four at a time from the same two addresses: none waits for the address of the one before. Addresses past the last
    // block are never used, so they may wrap.
    let place = |start: isize, i: isize| start.wrapping_mul(i);
    for _ in 0..count / 4 {
        for i in 0..4 {
            // SAFETY: a block that the caller vouches for.
            unsafe { block.one(from.wrapping_offset(place(by, i)), to.wrapping_offset(place(step, i))) };
        }
        (from, to) = (from.wrapping_offset(place(by, 4)), to.wrapping_offset(place(step, 4)));
    }
    for _ in 0..count % 4 {
        // SAFETY: as above.
        unsafe { block.one(from, to) };
        (from, to) = (from.wrapping_offset(by), to.wrapping_offset(step));
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
    let (outer_from, outer_to) = steps::<SIDE>(inner.count * M::of(len).len(), outer.from, outer.to);
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
