#![allow(unsafe_code)]
//! Accumulates on memory that other threads and processes update concurrently, with one atomic operation per element or
//! per word of shorter elements ([`wide`]); and on memory that no other thread updates, with plain loads and stores.
//!
//! If the CPU has the operation (integer sum, bitwise and, or, xor, exchange, load, store) it is used; the others
//! are compare-and-swap loops. They do not write if the element would not change, so that an already reached minimum
//! does not move the cache line.
//!
//! **Orderings.** Every update is `AcqRel`, every plain load `Acquire` and every plain store `Release`. They pair with
//! each other on the same element: an origin that fetches a value sees all earlier writes of the origin that wrote the
//! value. The synchronization calls do not rely on this; they pair through their own signal cells. On x86 these
//! orderings cost no more than `Relaxed`.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicIsize};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};

use farside_core::memory::copy;
use farside_core::{Error, ErrorKind, Result};

use super::element::with_type;
use super::scalar::Scalar;
use super::{CasElement, Element, ElementType, Op, wide};

/// Accumulates `operand` into `count` elements of type `ty` at `target`, each atomically.
///
/// If the operation is not defined on the type ([`Op::allowed`]; callers check with [`Op::check`]), this does nothing.
/// [`Op::NoOp`] does nothing.
///
/// # Safety
/// - `target` is aligned to `ty.size()`, and `count` elements from there are valid for reads and writes.
/// - While the call runs, every other access to them is atomic, of the same size or by this function.
/// - `operand` is valid for reads of `count` elements at any alignment, is not written while the call runs, and does
///   not overlap the target.
pub unsafe fn accumulate(op: Op, ty: ElementType, target: *mut u8, operand: *const u8, count: usize) {
    debug_assert!(op.allowed(ty), "{op} is not defined on {ty}");
    debug_assert!(target.addr().is_multiple_of(ty.size()));
    // SAFETY: by the caller's contracts are those of `accumulate_typed`.
    with_type!(ty, T => unsafe { accumulate_typed::<T>(op, target.cast(), operand.cast(), count) });
}

/// Accumulates, and writes the previous value of each element to `result`.
///
/// [`Op::NoOp`] is an atomic read, and does not read `operand`.
///
/// # Safety
/// The contract of [`accumulate`]; `operand` need not be valid for [`Op::NoOp`]. `result` is valid for writes of
/// `count` elements at any alignment, is not accessed otherwise while the call runs, and overlaps neither `target` nor
/// `operand`.
pub unsafe fn fetch_accumulate(
    op: Op,
    ty: ElementType,
    target: *mut u8,
    operand: *const u8,
    result: *mut u8,
    count: usize,
) {
    debug_assert!(op.allowed(ty), "{op} is not defined on {ty}");
    debug_assert!(target.addr().is_multiple_of(ty.size()));
    // SAFETY: by the caller's contracts are those of `fetch_typed`.
    with_type!(ty, T => unsafe {
        fetch_typed::<T>(op, target.cast(), operand.cast(), result.cast(), count);
    });
}

/// Accumulates `operand` into the one element at `target`, atomically. With `op` known at compile time this is the
/// bare CPU instruction. An operation that is not defined on the type does nothing.
///
/// # Safety
/// `target` is aligned to its size and valid for reads and writes; while the call runs, every other access to it is
/// atomic and of the same size.
#[inline(always)]
pub unsafe fn apply<T: Element>(op: Op, target: *mut T, operand: T) {
    debug_assert!(op.allowed(T::TYPE), "{op} is not defined on {}", T::TYPE);
    // SAFETY: the caller guarantees an aligned, valid target that is otherwise accessed atomically.
    let cell = unsafe { T::cell(target) };
    update!(op, T, f => { f(cell, operand); });
}

/// Accumulates into the one element at `target`, atomically, and returns its previous value.
///
/// ```
/// use std::sync::atomic::AtomicU32;
///
/// use farside_rma::op::{Op, fetch_apply};
///
/// let counter = AtomicU32::new(5);
/// std::thread::scope(|threads| {
///     for _ in 0..4 {
///         // SAFETY: aligned, and every other access is atomic and of 4 bytes.
///         threads.spawn(|| unsafe { fetch_apply(Op::Sum, counter.as_ptr(), 10) });
///     }
/// });
/// assert_eq!(counter.into_inner(), 45);
/// ```
///
/// # Safety
/// The contract of [`apply`].
#[inline(always)]
pub unsafe fn fetch_apply<T: Element>(op: Op, target: *mut T, operand: T) -> T {
    debug_assert!(op.allowed(T::TYPE), "{op} is not defined on {}", T::TYPE);
    // SAFETY: the caller guarantees an aligned, valid target that is otherwise accessed atomically.
    let cell = unsafe { T::cell(target) };
    fetch!(op, T, f => f(cell, operand))
}

/// Writes `desired` to the element at `target` if it is `expected`, atomically, and returns its previous value.
///
/// # Safety
/// The contract of [`apply`].
#[inline(always)]
pub unsafe fn compare_and_swap<T: CasElement>(target: *mut T, expected: T, desired: T) -> T {
    // SAFETY: the caller guarantees an aligned, valid target that is otherwise accessed atomically.
    let cell = unsafe { T::cell(target) };
    match T::compare_exchange(cell, expected, desired) {
        Ok(old) | Err(old) => old,
    }
}

/// Sets `acc[i]` to `acc[i] op operand[i]` for every element; not atomic.
///
/// ```
/// use farside_rma::op::{Op, combine};
///
/// let mut sums = [1u8, 200];
/// combine(Op::Sum, &mut sums, &[1, 100])?;
/// assert_eq!(sums, [2, 44]);
/// # Ok::<(), farside_rma::Error>(())
/// ```
///
/// # Errors
/// `Unsupported` if the operation is not defined on the type, `BadArgument` if the lengths differ; `acc` is then
/// unchanged.
pub fn combine<T: Element>(op: Op, acc: &mut [T], operand: &[T]) -> Result<()> {
    op.check(T::TYPE, "combine")?;
    if acc.len() != operand.len() {
        return Err(Error::new(ErrorKind::BadArgument, "combine").cause(format!(
            "accumulator of length {}, operand of length {}",
            acc.len(),
            operand.len()
        )));
    }
    // SAFETY: both slices have this length, and the exclusive borrow of `acc` excludes other accesses.
    unsafe { combine_raw(op, acc.as_mut_ptr(), operand.as_ptr(), acc.len()) };
    Ok(())
}

/// [`fetch_accumulate`], or [`accumulate`] if `result` is null; by plain loads and stores if this rank is `alone`.
/// `result` may be the memory of `operand`.
///
/// # Safety
/// The contract of [`fetch_accumulate`]; `alone` says that no other rank updates the elements while the call runs.
pub(crate) unsafe fn change(
    alone: bool,
    op: Op,
    ty: ElementType,
    target: *mut u8,
    operand: *const u8,
    result: *mut u8,
    count: usize,
) {
    let len = count * ty.size();
    // If results replace the operands, elements are processed one after the other.
    let is_replaced = !result.is_null() && op != Op::NoOp && operand.addr().abs_diff(result.addr()) < len;
    // SAFETY: by the contract. A peer may load or store the elements concurrently, so the loop is not inlined, lest the
    // compiler assume exclusive access.
    unsafe {
        if alone && !is_replaced {
            if !result.is_null() {
                copy::load(target, result, len);
            }
            with_type!(ty, T => combine_raw::<T>(op, target.cast(), operand.cast(), count));
        } else if result.is_null() {
            accumulate(op, ty, target, operand, count);
        } else {
            fetch_accumulate(op, ty, target, operand, result, count);
        }
    }
}

/// # Safety
/// `acc` is aligned and valid for reads and writes, and `operand`, unless for [`Op::NoOp`], valid for reads of `count`
/// elements.
#[inline(never)]
unsafe fn combine_raw<T: Element>(op: Op, acc: *mut T, operand: *const T, count: usize) {
    /// The same loops, compiled for wider registers: at least 1.5 times as fast on sums and minima of 512 B and 8 KiB.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn wide<T: Element>(op: Op, acc: *mut T, operand: *const T, count: usize) {
        // SAFETY: the same contract.
        unsafe { each_by(op, acc, operand, count) };
    }
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the same contract; the processor has the registers.
        return unsafe { wide(op, acc, operand, count) };
    }
    // SAFETY: the same contract.
    unsafe { each_by(op, acc, operand, count) };
}

/// # Safety
/// The contract of [`combine_raw`].
#[inline(always)]
unsafe fn each_by<T: Element>(op: Op, acc: *mut T, operand: *const T, count: usize) {
    macro_rules! each {
        ($f:expr) => {
            for i in 0..count {
                // SAFETY: `i < count`; the operand may be unaligned.
                unsafe { acc.add(i).write($f(acc.add(i).read(), operand.add(i).read_unaligned())) };
            }
        };
    }
    match op {
        Op::Sum => each!(T::sum),
        Op::Prod => each!(T::prod),
        Op::Min => each!(T::lesser),
        Op::Max => each!(T::greater),
        Op::Land => each!(T::land),
        Op::Lor => each!(T::lor),
        Op::Lxor => each!(T::lxor),
        Op::Band => each!(T::band),
        Op::Bor => each!(T::bor),
        Op::Bxor => each!(T::bxor),
        Op::Replace => each!(|_, x| x),
        Op::NoOp => {}
    }
}

/// # Safety
/// The contract of [`accumulate`], for `T`.
unsafe fn accumulate_typed<T: Element>(op: Op, target: *mut T, operand: *const T, count: usize) {
    if op == Op::NoOp {
        return;
    }
    if size_of::<T>() < 8 && count > 1 {
        // SAFETY: the same contract, in both.
        return unsafe {
            match op {
                Op::Replace => wide::store(target, operand, count),
                _ => wide::update(op, target, operand, std::ptr::null_mut(), count),
            }
        };
    }
    update!(op, T, f => for i in 0..count {
        // SAFETY: `i < count`, for which the caller guarantees both ranges; reads of the operand may be unaligned.
        unsafe { f(T::cell(target.add(i)), operand.add(i).read_unaligned()) };
    });
}

/// # Safety
/// The contract of [`fetch_accumulate`], for `T`.
unsafe fn fetch_typed<T: Element>(op: Op, target: *mut T, operand: *const T, result: *mut T, count: usize) {
    if size_of::<T>() < 8 && count > 1 {
        // SAFETY: the same contract.
        return unsafe { wide::update(op, target, operand, result, count) };
    }
    if op == Op::NoOp {
        for i in 0..count {
            // SAFETY: `i < count`, for which the caller guarantees both ranges; the result may be unaligned.
            unsafe { result.add(i).write_unaligned(T::load(T::cell(target.add(i)))) };
        }
        return;
    }
    fetch!(op, T, f => for i in 0..count {
        // SAFETY: `i < count`, for which the caller guarantees the three ranges; operand and result may be unaligned.
        unsafe {
            let old = f(T::cell(target.add(i)), operand.add(i).read_unaligned());
            result.add(i).write_unaligned(old);
        }
    });
}

/// Evaluates `$body` with `$f` as the function that applies `$op` and returns the old value. One match per call: every
/// arm is its own loop or call.
macro_rules! fetch {
    ($op:expr, $T:ident, $f:ident => $body:expr) => {
        fetch!(@ $op, $f => $body;
            Sum = $T::fetch_sum,
            Prod = |cell: &$T::Cell, x: $T| $T::fetch_with(cell, |t| t.prod(x)),
            Min = |cell: &$T::Cell, x: $T| $T::fetch_with(cell, |t| t.lesser(x)),
            Max = |cell: &$T::Cell, x: $T| $T::fetch_with(cell, |t| t.greater(x)),
            Land = |cell: &$T::Cell, x: $T| $T::fetch_with(cell, |t| t.land(x)),
            Lor = |cell: &$T::Cell, x: $T| $T::fetch_with(cell, |t| t.lor(x)),
            Lxor = |cell: &$T::Cell, x: $T| $T::fetch_with(cell, |t| t.lxor(x)),
            Band = $T::fetch_band,
            Bor = $T::fetch_bor,
            Bxor = $T::fetch_bxor,
            Replace = $T::swap,
            NoOp = |cell: &$T::Cell, _: $T| $T::load(cell)
        )
    };
    (@ $op:expr, $f:ident => $body:expr; $($name:ident = $fetch:expr),*) => {
        match $op {
            $(Op::$name => { let $f = $fetch; $body })*
        }
    };
}

/// `fetch!` without the old value: `Replace` is then a plain store, and `NoOp` does nothing.
macro_rules! update {
    ($op:expr, $T:ident, $f:ident => $body:expr) => {
        match $op {
            Op::Replace => { let $f = $T::store; $body }
            Op::NoOp => {}
            other => fetch!(other, $T, fetch => { let $f = |cell: &$T::Cell, x: $T| { fetch(cell, x); }; $body }),
        }
    };
}

use {fetch, update};

/// A value with an atomic of its size: the atomic half of [`Element`], which it seals.
pub trait AtomicScalar: Scalar {
    /// The atomic of that size.
    type Cell;

    /// The memory at `target` as an atomic.
    ///
    /// # Safety
    /// `target` is aligned to its size and valid for reads and writes; for the lifetime `'a`, every other access to
    /// it is atomic and of the same size.
    unsafe fn cell<'a>(target: *mut Self) -> &'a Self::Cell;

    /// Reads.
    fn load(cell: &Self::Cell) -> Self;

    /// Writes.
    fn store(cell: &Self::Cell, x: Self);

    /// Writes, and returns the old value.
    fn swap(cell: &Self::Cell, x: Self) -> Self;

    /// Writes `new` if the element has the bits of `old`; returns the previous value in either case. Must not fail
    /// spuriously.
    fn compare_exchange(cell: &Self::Cell, old: Self, new: Self) -> Result<Self, Self>;

    /// Adds to the element, and returns its old value.
    fn fetch_sum(cell: &Self::Cell, x: Self) -> Self;

    /// Applies bitwise and, and returns the old value. Not defined on floats, which this and the next two methods do
    /// not change.
    #[inline(always)]
    fn fetch_band(cell: &Self::Cell, _: Self) -> Self {
        Self::load(cell)
    }

    /// Applies bitwise or, and returns the old value.
    #[inline(always)]
    fn fetch_bor(cell: &Self::Cell, _: Self) -> Self {
        Self::load(cell)
    }

    /// Applies bitwise exclusive or, and returns the old value.
    #[inline(always)]
    fn fetch_bxor(cell: &Self::Cell, _: Self) -> Self {
        Self::load(cell)
    }

    /// Replaces the element by `f` of its value, and returns the old value; writes nothing if `f` changes no bit.
    #[inline(always)]
    fn fetch_with(cell: &Self::Cell, f: impl Fn(Self) -> Self) -> Self {
        let mut old = Self::load(cell);
        loop {
            let new = f(old);
            if new.same_bits(old) {
                return old;
            }
            match Self::compare_exchange(cell, old, new) {
                Ok(_) => return old,
                Err(now) => old = now,
            }
        }
    }
}

macro_rules! common {
    ($t:ty, $atomic:ty, $to:expr, $from:expr) => {
        type Cell = $atomic;

        #[inline(always)]
        unsafe fn cell<'a>(target: *mut Self) -> &'a $atomic {
            // SAFETY: by the caller's contract; the two types have the same size.
            unsafe { <$atomic>::from_ptr(target.cast()) }
        }
        #[inline(always)]
        fn load(cell: &$atomic) -> $t {
            // Acquire: pairs with the Release half of every update of this element by another origin.
            $from(cell.load(Acquire))
        }
        #[inline(always)]
        fn store(cell: &$atomic, x: $t) {
            // Release: pairs with `load`, and with the Acquire half of updates, by another origin.
            cell.store($to(x), Release);
        }
        #[inline(always)]
        fn swap(cell: &$atomic, x: $t) -> $t {
            // AcqRel: pairs with itself, and with the other updates of this element.
            $from(cell.swap($to(x), AcqRel))
        }
        #[inline(always)]
        fn compare_exchange(cell: &$atomic, old: $t, new: $t) -> Result<$t, $t> {
            // AcqRel: pairs with itself, and with the other updates of this element; on failure as `load`.
            match cell.compare_exchange($to(old), $to(new), AcqRel, Acquire) {
                Ok(old) => Ok($from(old)),
                Err(now) => Err($from(now)),
            }
        }
    };
}

macro_rules! integer {
    ($($t:ty, $atomic:ty;)*) => {$(
        impl AtomicScalar for $t {
            common!($t, $atomic, std::convert::identity, std::convert::identity);

            // AcqRel in all four: they pair with themselves and with the other updates of this element.
            #[inline(always)]
            fn fetch_sum(cell: &$atomic, x: $t) -> $t {
                cell.fetch_add(x, AcqRel)
            }
            #[inline(always)]
            fn fetch_band(cell: &$atomic, x: $t) -> $t {
                cell.fetch_and(x, AcqRel)
            }
            #[inline(always)]
            fn fetch_bor(cell: &$atomic, x: $t) -> $t {
                cell.fetch_or(x, AcqRel)
            }
            #[inline(always)]
            fn fetch_bxor(cell: &$atomic, x: $t) -> $t {
                cell.fetch_xor(x, AcqRel)
            }
        }
    )*};
}

integer! {
    i8, AtomicI8; i16, AtomicI16; i32, AtomicI32; i64, AtomicI64;
    u8, AtomicU8; u16, AtomicU16; u32, AtomicU32; u64, AtomicU64;
    isize, AtomicIsize; usize, AtomicUsize;
}

macro_rules! float {
    ($($t:ty, $atomic:ty;)*) => {$(
        impl AtomicScalar for $t {
            common!($t, $atomic, <$t>::to_bits, <$t>::from_bits);

            #[inline(always)]
            fn fetch_sum(cell: &$atomic, x: $t) -> $t {
                Self::fetch_with(cell, |t| t.sum(x))
            }
        }
    )*};
}

float! { f32, AtomicU32; f64, AtomicU64; }
