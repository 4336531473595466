//! Whole messages: for each layout the loop that moves all of it, chosen once, when its type map is made.
#![allow(unsafe_code)]

use super::lists::listed;
use super::{CLASSES, Ends, FROM, Fixed, LONG, Long, Move, NEITHER, Row, SPECIAL, SPECIAL_KERNELS, SPECIAL_WAYS};
use super::{Steps, TO, Upto, class, each, each_class, each_of_each, steps};
#[cfg(target_arch = "x86_64")]
use super::{avx2, paced, past, window};
use crate::copy;
use crate::shape::{Inner, Node, Shape};
use crate::transfer::mirror;
use crate::typemap::TypeMap;

/// Moves all bytes of a layout: from and to are where its first block starts, or the packed bytes.
///
/// # Safety
/// Of the functions: the layout is the one that it was chosen for, all its blocks are readable at the one side and
/// writable at the other, and no block of the one shares a byte with one of the other.
pub(crate) type Whole = unsafe fn(&TypeMap, *const u8, *mut u8);

/// How all of a message moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ways {
    /// From its places to consecutive bytes.
    pub(crate) pack: Whole,
    /// From consecutive bytes to its places.
    pub(crate) unpack: Whole,
    /// From its places to the same elsewhere.
    pub(crate) copy: Whole,
    /// Of two blocks and repetitions of them: these, which lie too deep in the shape for few of them.
    pair: Pair,
}

/// Repetitions of two blocks that are few.
const FEW: u64 = 12;

/// The lengths of two blocks, where the second starts from the start of the first, and how often they repeat.
#[derive(Clone, Copy, Debug)]
struct Pair {
    first: u8,
    second: u8,
    place: i64,
    count: u64,
    stride: i64,
}

impl Ways {
    /// Of no bytes.
    pub(crate) const NONE: Self = Self::alike(nothing);
    const ANY: Self = Self::new(any::<TO>, any::<FROM>, any::<NEITHER>);
    const LONG: Self = Self::alike(one::<Long>);

    const fn new(pack: Whole, unpack: Whole, copy: Whole) -> Self {
        Self { pack, unpack, copy, pair: Pair { first: 0, second: 0, place: 0, count: 0, stride: 0 } }
    }

    const fn alike(way: Whole) -> Self {
        Self::new(way, way, way)
    }

    /// Of a shape; `has_window` says whether it has a [`Window`](super::window::Window).
    pub(crate) fn of(shape: &Shape, has_window: bool) -> Self {
        if shape.size == 0 {
            return Self::NONE;
        }
        let pairs = pairs_of(&shape.node);
        if has_window
            && !(pairs.is_some() && are_pairs_better())
            && let Some(ways) = WINDOW
        {
            return ways;
        }
        match &shape.node {
            Node::Run { count: 1, len, .. } if *len >= LONG as u64 => Self::LONG,
            Node::Run { count: 1, len, .. } => ONE[class(*len as usize)],
            Node::Run { class, stride, .. } => {
                let run = RUN[class.index()];
                wide(class.index()).map_or(run, |wide| match rather_narrow(*stride) {
                    true => Ways { pack: wide.run.pack, ..run },
                    false => wide.run,
                })
            }
            Node::Repeat { inner, .. } => match &inner.node {
                Node::Run { count, len, .. } if *count > 1 => {
                    let class = class(*len as usize);
                    wide(class).map_or(NESTED[class], |wide| wide.nested)
                }
                _ => pairs.unwrap_or(Self::ANY),
            },
            Node::Same { at, inner } => inner.node.block().map_or(Self::ANY, |len| {
                if let Some(past) = past_list(len as usize, at) {
                    return past;
                }
                let class = class(len as usize);
                wide(class).map_or(LISTED[class], |wide| wide.list)
            }),
            Node::Blocks(_) => pairs.unwrap_or(Self::ANY),
            Node::Parts(_) => Self::ANY,
        }
    }
}

/// The loops for one class of lengths.
macro_rules! one {
    ([] $move:ty) => {
        Ways::alike(one::<$move>)
    };
}
macro_rules! run {
    ([] $move:ty) => {
        Ways::new(run::<TO, $move>, run::<FROM, $move>, run::<NEITHER, $move>)
    };
}
macro_rules! nested {
    ([] $move:ty) => {
        Ways::new(nested::<TO, $move>, nested::<FROM, $move>, nested::<NEITHER, $move>)
    };
}
macro_rules! list {
    ([] $move:ty) => {
        Ways::new(list::<true, $move>, list::<false, $move>, list_alike::<$move>)
    };
}

/// The classes of [`paired`].
macro_rules! paired {
    ($way:ident $(, $first:ty)?) => {
        [
            $way!($($first,)? Fixed<1>),
            $way!($($first,)? Upto<2>),
            $way!($($first,)? Fixed<4>),
            $way!($($first,)? Upto<4>),
            $way!($($first,)? Fixed<8>),
            $way!($($first,)? Upto<8>),
            $way!($($first,)? Upto<16>),
        ]
    };
}
macro_rules! pairs {
    ($first:ty) => {
        paired!(pair, $first)
    };
}
macro_rules! pair {
    ($a:ty, $b:ty) => {
        Ways::new(pairs::<TO, $a, $b>, pairs::<FROM, $a, $b>, pairs::<NEITHER, $a, $b>)
    };
}

#[cfg(target_arch = "x86_64")]
const WINDOW: Option<Ways> = Some(Ways::new(window::all::<TO>, window::all::<FROM>, window::all::<NEITHER>));
#[cfg(not(target_arch = "x86_64"))]
const WINDOW: Option<Ways> = None;

const ONE: &[Ways; CLASSES] = each_class!(one []);
const RUN: &[Ways; CLASSES + SPECIAL] = &{
    let (general, mut all) = (each_class!(run []), [Ways::NONE; CLASSES + SPECIAL]);
    let mut class = 0;
    while class < CLASSES {
        all[class] = general[class];
        class += 1;
    }
    let mut special = 0;
    while special < SPECIAL {
        all[CLASSES + special] = SPECIAL_WAYS[special];
        special += 1;
    }
    all
};
const NESTED: &[Ways; CLASSES] = each_class!(nested []);
const LISTED: &[Ways; CLASSES] = each_class!(list []);
const PAIRS: &[[Ways; 7]; 7] = &paired!(pairs);

/// The loops over blocks of a class of lengths, where 32 bytes go at a time.
struct Wide {
    run: Ways,
    nested: Ways,
    list: Ways,
}

/// Those of a class whose blocks are longer than what all processors copy at a time, if this one copies more.
#[cfg(target_arch = "x86_64")]
fn wide(kind: usize) -> Option<&'static Wide> {
    const FIRST: usize = class(32);
    macro_rules! wide {
        ($($move:ty),*) => {
            [$(Wide {
                run: Ways::new(
                    by_avx2!(run::<TO, $move>),
                    by_avx2!(run::<FROM, $move>),
                    by_avx2!(run::<NEITHER, $move>),
                ),
                nested: Ways::new(
                    by_avx2!(nested::<TO, $move>),
                    by_avx2!(nested::<FROM, $move>),
                    by_avx2!(nested::<NEITHER, $move>),
                ),
                list: Ways::new(
                    by_avx2!(list::<true, $move>),
                    by_avx2!(list::<false, $move>),
                    by_avx2!(list_alike::<$move>),
                ),
            }),*]
        };
    }
    macro_rules! by_avx2 {
        ($($way:tt)*) => {{
            /// # Safety
            /// As [`Whole`], on a processor with AVX2.
            #[target_feature(enable = "avx2")]
            unsafe fn way(map: &TypeMap, from: *const u8, to: *mut u8) {
                // SAFETY: the caller's promise.
                unsafe { $($way)*(map, from, to) };
            }
            way
        }};
    }
    const WIDE: &[Wide; 5] = &wide!(Fixed<32>, Ends<32>, Fixed<64>, Ends<64>, Row);
    let wide = WIDE.get(kind.checked_sub(FIRST)?)?;
    is_x86_feature_detected!("avx2").then_some(wide)
}

/// Whether blocks at this distance are better written 16 bytes at a time: those that share few sets of the nearest cache, by
/// processors that lose lines of it there ([`super::paced`]) the sooner the fewer stores a block takes.
#[cfg(target_arch = "x86_64")]
fn rather_narrow(stride: i64) -> bool {
    stride.unsigned_abs().is_multiple_of(paced::DISTANCE as u64) && avx2::is_older_amd()
}

#[cfg(not(target_arch = "x86_64"))]
fn rather_narrow(_: i64) -> bool {
    false
}

/// The loops over so many listed blocks that they are better stored past the caches.
#[cfg(target_arch = "x86_64")]
fn past_list(len: usize, at: &[i64]) -> Option<Ways> {
    /// # Safety
    /// As [`Whole`], on a processor with AVX2.
    #[target_feature(enable = "avx2")]
    unsafe fn way<const SIDE: u8>(map: &TypeMap, from: *const u8, to: *mut u8) {
        let Node::Same { at, inner } = &map.shape.node else { return };
        // SAFETY: the caller's promise.
        unsafe { past::listed::<SIDE>(inner.size as usize, at, from, to) };
    }
    let has = past::is_better_listed(len, at) && is_x86_feature_detected!("avx2");
    has.then_some(Ways::new(way::<TO>, way::<FROM>, way::<NEITHER>))
}

#[cfg(not(target_arch = "x86_64"))]
fn past_list(_: usize, _: &[i64]) -> Option<Ways> {
    None
}

#[cfg(not(target_arch = "x86_64"))]
fn wide(_: usize) -> Option<&'static Wide> {
    None
}

unsafe fn nothing(_: &TypeMap, _: *const u8, _: *mut u8) {}

/// One block.
///
/// # Safety
/// As [`Whole`].
unsafe fn one<M: Move>(map: &TypeMap, from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise, for a block of all bytes.
    unsafe { M::of(map.shape.size as usize).one(from, to) };
}

/// Equal blocks at equal distances.
///
/// # Safety
/// As [`Whole`].
#[inline(always)]
unsafe fn run<const SIDE: u8, M: Move>(map: &TypeMap, from: *const u8, to: *mut u8) {
    let Node::Run { count, stride, len, .. } = map.shape.node else { return };
    // SAFETY: the caller's promise.
    unsafe { each::<SIDE, M>(len as usize, count as usize, stride as isize, stride as isize, from, to) };
}

/// Such that a processor which has more than others moves faster.
pub(super) const fn special<const KIND: usize>() -> Ways {
    Ways::new(run_special::<TO, KIND>, run_special::<FROM, KIND>, run_special::<NEITHER, KIND>)
}

/// # Safety
/// As [`Whole`].
unsafe fn run_special<const SIDE: u8, const KIND: usize>(map: &TypeMap, from: *const u8, to: *mut u8) {
    let Node::Run { count, stride, len, .. } = map.shape.node else { return };
    let kernel = const { SPECIAL_KERNELS[KIND].side::<SIDE>() };
    // SAFETY: the caller's promise; the class was chosen for this processor.
    unsafe { kernel(len as usize, count as usize, stride as isize, stride as isize, from, to) };
}

/// Repetitions of such.
///
/// # Safety
/// As [`Whole`].
#[inline(always)]
unsafe fn nested<const SIDE: u8, M: Move>(map: &TypeMap, from: *const u8, to: *mut u8) {
    let Node::Repeat { count, stride, inner } = &map.shape.node else { return };
    let Inner { node: Node::Run { count: n, stride: by, len, .. }, .. } = &**inner else { return };
    let outer = Steps { count: *count as usize, from: *stride as isize, to: *stride as isize };
    let inner = Steps { count: *n as usize, from: *by as isize, to: *by as isize };
    // SAFETY: the caller's promise.
    unsafe { each_of_each::<SIDE, M>(*len as usize, &outer, &inner, from, to) };
}

/// The loops for two short blocks or repetitions of them, if a message is that.
fn pairs_of(node: &Node) -> Option<Ways> {
    let (blocks, count, stride) = match node {
        Node::Blocks(blocks) => (blocks, 1, 0),
        Node::Repeat { count, stride, inner } => match &inner.node {
            Node::Blocks(blocks) => (blocks, *count, *stride),
            _ => return None,
        },
        _ => return None,
    };
    let [first, second] = &**blocks else { return None };
    let (a, b) = (first.end, second.end - first.end);
    let pair = Pair { first: u8::try_from(a).ok()?, second: u8::try_from(b).ok()?, place: second.at, count, stride };
    Some(Ways { pair, ..PAIRS[paired(a)?][paired(b)?] })
}

/// Whether two blocks are sooner moved one by one than by a permutation: by Intel's processors (measured: Granite Rapids),
/// where masked stores of bytes cost more than AMD's.
#[cfg(target_arch = "x86_64")]
fn are_pairs_better() -> bool {
    !avx2::is_amd()
}

#[cfg(not(target_arch = "x86_64"))]
fn are_pairs_better() -> bool {
    true
}

/// The place in [`PAIRS`] for blocks of `len` bytes.
fn paired(len: u64) -> Option<usize> {
    Some(match len {
        1 => 0,
        2..=3 => 1,
        4 => 2,
        5..=7 => 3,
        8 => 4,
        9..=16 => 5,
        17..=32 => 6,
        _ => return None,
    })
}

/// Repetitions of two short blocks.
///
/// # Safety
/// As [`Whole`].
unsafe fn pairs<const SIDE: u8, A: Move, B: Move>(map: &TypeMap, mut from: *const u8, mut to: *mut u8) {
    let pair = &map.ways.pair;
    if pair.count > FEW {
        // SAFETY: the caller's promise.
        return unsafe { many_pairs::<SIDE, A, B>(pair, from, to) };
    }
    let (from_step, to_step) = pair.steps::<SIDE, A, B>();
    // A compiler that cannot tell how often this goes does not unroll it, from which so few gain nothing. At the packed side no
    // step is 0; where there is none and steps are, the first repetition is all of them.
    let end = |at: usize, step: isize| at.wrapping_add_signed(step.wrapping_mul(pair.count as isize));
    let end = if SIDE == FROM { end(from.addr(), from_step) } else { end(to.addr(), to_step) };
    loop {
        // SAFETY: the caller's promise; there is at least one.
        unsafe { pair.one::<SIDE, A, B>(from, to) };
        // Addresses past the last are never used, so they may wrap.
        (from, to) = (from.wrapping_offset(from_step), to.wrapping_offset(to_step));
        if end == if SIDE == FROM { from.addr() } else { to.addr() } {
            break;
        }
    }
}

/// So many that turns are better few.
///
/// # Safety
/// As [`Whole`].
#[inline(never)]
unsafe fn many_pairs<const SIDE: u8, A: Move, B: Move>(pair: &Pair, mut from: *const u8, mut to: *mut u8) {
    let (from_step, to_step) = pair.steps::<SIDE, A, B>();
    for _ in 0..pair.count {
        // SAFETY: the caller's promise.
        unsafe { pair.one::<SIDE, A, B>(from, to) };
        // Addresses past the last are never used, so they may wrap.
        (from, to) = (from.wrapping_offset(from_step), to.wrapping_offset(to_step));
    }
}

impl Pair {
    /// From one repetition to the next at either side.
    #[inline(always)]
    fn steps<const SIDE: u8, A: Move, B: Move>(&self) -> (isize, isize) {
        let (a, b, stride) = (A::of(self.first as usize), B::of(self.second as usize), self.stride as isize);
        steps::<SIDE>(a.len() + b.len(), stride, stride)
    }

    /// Moves one.
    ///
    /// # Safety
    /// Its blocks are readable at the one side and writable at the other, and apart.
    #[inline(always)]
    unsafe fn one<const SIDE: u8, A: Move, B: Move>(&self, from: *const u8, to: *mut u8) {
        let (a, b, place) = (A::of(self.first as usize), B::of(self.second as usize), self.place as isize);
        let (from_second, to_second) = steps::<SIDE>(a.len(), place, place);
        // SAFETY: the caller's promise.
        unsafe {
            a.one(from, to);
            b.one(from.wrapping_offset(from_second), to.wrapping_offset(to_second));
        }
    }
}

/// Equal blocks at listed places, to consecutive bytes (`COLLECTS`) or from there.
///
/// # Safety
/// As [`Whole`].
#[inline(always)]
unsafe fn list<const COLLECTS: bool, M: Move>(map: &TypeMap, from: *const u8, to: *mut u8) {
    let Node::Same { at, inner } = &map.shape.node else { return };
    // SAFETY: the caller's promise.
    unsafe { listed::<COLLECTS, M>(inner.size as usize, at, from, to) };
}

/// Equal blocks at listed places, to the same elsewhere.
///
/// # Safety
/// As [`Whole`].
#[inline(always)]
unsafe fn list_alike<M: Move>(map: &TypeMap, from: *const u8, to: *mut u8) {
    let Node::Same { at, inner } = &map.shape.node else { return };
    let block = M::of(inner.size as usize);
    for at in at.iter() {
        // SAFETY: the caller's promise.
        unsafe { block.one(from.wrapping_offset(*at as isize), to.wrapping_offset(*at as isize)) };
    }
}

/// Whatever it is.
///
/// # Safety
/// As [`Whole`].
unsafe fn any<const SIDE: u8>(map: &TypeMap, from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        match SIDE {
            TO => copy::whole::<true>(&map.shape.node, from.cast_mut(), to),
            FROM => copy::whole::<false>(&map.shape.node, to, from.cast_mut()),
            _ => mirror(&map.shape, from, to),
        }
    }
}
