#![allow(unsafe_code)]
//! Elements of symmetric memory as atomics, with the names of `std::sync::atomic`.

use std::marker::PhantomData;

use farside_core::{Located, Result, located};

use super::Symmetric;
use super::context::Context;
use crate::op::{CasElement, Element, Op};
use crate::pending::{Fetched, Pending};

/// One element at one rank. All its operations are atomic with respect to each other and to accumulates, from every
/// rank. Those that return a value are complete on return; the others are completed by [`quiet`](Symmetric::quiet).
/// Operations of one rank on the same element are ordered.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(4, |job| {
///     let team = job.world()?;
///     let words = Symmetric::<u32>::allocate(&team, 2)?;
///     let (counter, leader) = (words.atomic(1, 0)?, words.atomic(1, 1)?);
///     counter.add(5)?;
///     // The first rank to arrive becomes the leader; the others find its number.
///     let me = team.rank() as u32 + 1;
///     let leads = leader.compare_exchange(0, me)?.is_ok();
///     words.barrier()?;
///     assert_eq!((counter.load()?, leader.load()? == me), (20, leads));
///     words.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug)]
pub struct Atomic<'a, T: Element, M: AtomicMemory<T> = Symmetric<T>> {
    table: &'a M,
    rank: usize,
    at: usize,
    element: PhantomData<T>,
}

impl<T: Element, M: AtomicMemory<T>> Clone for Atomic<'_, T, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Element, M: AtomicMemory<T>> Copy for Atomic<'_, T, M> {}

/// Memory on which atomics operate: [`Symmetric`], or [`SharedElements`](crate::SharedElements) for several threads.
pub trait AtomicMemory<T: Element> {
    /// Checks that `rank` has an element `at`.
    ///
    /// # Errors
    /// `NoSuchRank`, `OutOfRange`.
    #[doc(hidden)]
    fn check_element(&self, name: &'static str, rank: usize, at: usize) -> Result<()>;

    /// Applies `op` to an element, and returns its previous value.
    ///
    /// # Errors
    /// Those of [`Atomic::swap`].
    #[doc(hidden)]
    fn fetch(&self, op: Op, operand: T, rank: usize, at: usize) -> Result<T>;

    /// Applies `op` to an element.
    ///
    /// # Errors
    /// Those of [`Atomic::swap`].
    #[doc(hidden)]
    fn update(&self, op: Op, operand: T, rank: usize, at: usize) -> Result<()>;

    /// Writes `new` if the element is `current`; returns its previous value.
    ///
    /// # Errors
    /// Those of [`Atomic::swap`].
    #[doc(hidden)]
    fn compare_and_swap(&self, current: T, new: T, rank: usize, at: usize) -> Result<T>
    where
        T: CasElement;
}

impl<T: Element> AtomicMemory<T> for Symmetric<T> {
    #[inline]
    fn check_element(&self, name: &'static str, rank: usize, at: usize) -> Result<()> {
        self.raw().check_element(name, rank, at, self.len())
    }

    #[inline]
    #[track_caller]
    fn fetch(&self, op: Op, operand: T, rank: usize, at: usize) -> Result<T> {
        let (raw, mut old, offset) = (self.raw(), T::zeroed(), at * size_of::<T>());
        let (from, into) = (&raw const operand, &raw mut old);
        // SAFETY: both are live during the call, and `blocking` completes or abandons the operation.
        unsafe {
            if !raw.try_accumulate(op, from, into, rank, offset) {
                raw.blocking(rank, |raw| raw.accumulate(op, from, into, 1, rank, offset)).located()?;
            }
        }
        Ok(old)
    }

    #[inline]
    #[track_caller]
    fn update(&self, op: Op, operand: T, rank: usize, at: usize) -> Result<()> {
        self.raw().accumulate_value(op, operand, rank, at * size_of::<T>()).located()
    }

    #[inline]
    #[track_caller]
    fn compare_and_swap(&self, current: T, new: T, rank: usize, at: usize) -> Result<T>
    where
        T: CasElement,
    {
        let (raw, mut old, offset) = (self.raw(), T::zeroed(), at * size_of::<T>());
        let into = &raw mut old;
        // SAFETY: the result is live during the call, and `blocking` completes or abandons the operation.
        unsafe {
            if !raw.try_compare_and_swap(current, new, into, rank, offset) {
                raw.blocking(rank, |raw| raw.compare_and_swap(current, new, into, rank, offset)).located()?;
            }
        }
        Ok(old)
    }
}

/// Defines a fetching and a non-fetching method for each operation.
macro_rules! operations {
    ($($fetch:ident, $update:ident: $op:ident, $what:literal;)*) => {$(
        #[doc = concat!($what, ", and returns the previous value.")]
        ///
        /// # Errors
        /// `WrongEpoch` inside [`exclusive`](Symmetric::exclusive); `Unsupported` for a bitwise operation on a float;
        /// `PeerLost`.
        #[inline]
        #[track_caller]
        pub fn $fetch(&self, value: T) -> Result<T> {
            self.fetch(Op::$op, value)
        }

        #[doc = concat!($what, "; complete with [`quiet`](Symmetric::quiet).")]
        ///
        /// # Errors
        #[doc = concat!("Those of [`", stringify!($fetch), "`](Self::", stringify!($fetch), ").")]
        #[inline]
        #[track_caller]
        pub fn $update(&self, value: T) -> Result<()> {
            self.table.update(Op::$op, value, self.rank, self.at)
        }
    )*};
}

impl<'a, T: Element, M: AtomicMemory<T>> Atomic<'a, T, M> {
    #[inline]
    pub(crate) fn new(table: &'a M, rank: usize, at: usize) -> Result<Self> {
        table.check_element("atomic operation", rank, at)?;
        Ok(Self { table, rank, at, element: PhantomData })
    }

    #[inline]
    #[track_caller]
    fn fetch(&self, op: Op, operand: T) -> Result<T> {
        self.table.fetch(op, operand, self.rank, self.at)
    }

    operations! {
        swap, store: Replace, "Writes `value`";
        fetch_add, add: Sum, "Adds `value`, wrapping around";
        fetch_and, and: Band, "Bitwise and with `value`";
        fetch_or, or: Bor, "Bitwise or with `value`";
        fetch_xor, xor: Bxor, "Bitwise exclusive or with `value`";
        fetch_min, min: Min, "Takes the minimum of the element and `value`";
        fetch_max, max: Max, "Takes the maximum of the element and `value`";
    }

    /// Reads the element.
    ///
    /// # Errors
    /// Those of [`swap`](Self::swap).
    #[inline]
    #[track_caller]
    pub fn load(&self) -> Result<T> {
        self.fetch(Op::NoOp, T::zeroed())
    }

    /// Subtracts `value`, wrapping around, and returns the previous value.
    ///
    /// # Errors
    /// Those of [`swap`](Self::swap).
    #[inline]
    #[track_caller]
    pub fn fetch_sub(&self, value: T) -> Result<T> {
        self.fetch(Op::Sum, value.negated())
    }

    /// Writes `new` if the element is `current`. Returns the previous value: `Ok` if it was `current`, otherwise `Err`.
    ///
    /// # Errors
    /// Those of [`swap`](Self::swap).
    #[inline]
    #[track_caller]
    pub fn compare_exchange(&self, current: T, new: T) -> Result<Result<T, T>>
    where
        T: CasElement,
    {
        let old = self.table.compare_and_swap(current, new, self.rank, self.at)?;
        Ok(if old == current { Ok(old) } else { Err(old) })
    }

    /// Reads the element and replaces it by the result of `f`, retrying if another rank has changed it in between.
    /// Returns the previous value: `Ok` if `f` returned a new one, `Err` if it returned `None`. One compare-and-swap
    /// for each attempt.
    ///
    /// ```
    /// use farside_rma::prelude::*;
    ///
    /// Job::threads(4, |job| {
    ///     let team = job.world()?;
    ///     let seats = Symmetric::<u32>::allocate(&team, 1)?;
    ///     // Two of the four ranks get a seat.
    ///     let got = seats.atomic(0, 0)?.fetch_update(|taken| (taken < 2).then_some(taken + 1))?;
    ///     let mut count = [u32::from(got.is_ok())];
    ///     team.allreduce(&mut count, Op::Sum)?;
    ///     assert_eq!((count, seats.get_value(0, 0)?), ([2], 2));
    ///     seats.free()
    /// })?;
    /// # Ok::<(), farside_rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`swap`](Self::swap).
    #[track_caller]
    pub fn fetch_update(&self, mut f: impl FnMut(T) -> Option<T>) -> Result<Result<T, T>>
    where
        T: CasElement,
    {
        located(|| {
            let mut current = self.load()?;
            while let Some(new) = f(current) {
                match self.compare_exchange(current, new)? {
                    Ok(former) => return Ok(Ok(former)),
                    Err(found) => current = found,
                }
            }
            Ok(Err(current))
        })
    }
}

impl<T: Element> Atomic<'_, T> {
    fn offset(&self) -> usize {
        self.at * size_of::<T>()
    }

    /// Starts to apply `op`; the handle returns the previous value.
    ///
    /// # Errors
    /// Those of [`swap`](Self::swap).
    #[track_caller]
    pub fn fetch_nbi(&self, op: Op, value: T) -> Result<Pending<Fetched<T>>> {
        self.fetch_within(op, value, None)
    }

    /// Starts to apply `op` in a context ([`fetch_nbi`](Self::fetch_nbi)).
    ///
    /// # Errors
    /// Those of [`swap`](Self::swap).
    #[track_caller]
    pub fn fetch_in(&self, context: &Context, op: Op, value: T) -> Result<Pending<Fetched<T>>> {
        self.fetch_within(op, value, Some(context))
    }

    #[track_caller]
    fn fetch_within(&self, op: Op, value: T, context: Option<&Context>) -> Result<Pending<Fetched<T>>> {
        located(|| {
            let note = Context::note(context, &self.table.raw, self.rank);
            Pending::fetch(&self.table.raw, op, value, (self.rank, self.offset()), note)
        })
    }

    /// Starts a compare-and-swap; the handle returns the previous value.
    ///
    /// # Errors
    /// Those of [`swap`](Self::swap).
    #[track_caller]
    pub fn compare_exchange_nbi(&self, current: T, new: T) -> Result<Pending<Fetched<T>>>
    where
        T: CasElement,
    {
        located(|| Pending::compare_and_swap(&self.table.raw, (current, new), (self.rank, self.offset()), |_| ()))
    }
}
