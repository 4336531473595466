#![allow(unsafe_code)]
//! Elements of symmetric memory as atomics, with the names of `std::sync::atomic`.

use farside_core::{Located, Result, located};

use super::Symmetric;
use super::context::Context;
use crate::elements::bytes;
use crate::op::{CasElement, Element, Op};
use crate::pending::{Fetched, Pending};

/// One element at one rank. All its operations are atomic with each other and with accumulates, from every rank. Those
/// that return a value are complete on return; the others are complete with [`quiet`](Symmetric::quiet). Each of them is
/// ordered after the earlier ones of this rank on the same element.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(4, |job| {
///     let team = job.world()?;
///     let words = Symmetric::<u32>::allocate(&team, 2)?;
///     let (counter, leader) = (words.atomic(1, 0)?, words.atomic(1, 1)?);
///     counter.add(5)?;
///     // The first rank becomes the leader; the others learn which one it is.
///     let me = team.rank() as u32 + 1;
///     let leads = leader.compare_exchange(0, me)?.is_ok();
///     words.barrier()?;
///     assert_eq!((counter.load()?, leader.load()? == me), (20, leads));
///     words.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Debug)]
pub struct Atomic<'a, T: Element> {
    table: &'a Symmetric<T>,
    rank: usize,
    offset: usize,
}

impl<T: Element> Clone for Atomic<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Element> Copy for Atomic<'_, T> {}

/// Methods that fetch, and those that do not.
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
            self.table.raw().accumulate_value(Op::$op, value, self.rank, self.offset).located()
        }
    )*};
}

impl<'a, T: Element> Atomic<'a, T> {
    #[inline]
    pub(super) fn new(table: &'a Symmetric<T>, rank: usize, at: usize) -> Result<Self> {
        table.raw().check_element("atomic operation", rank, at, table.len())?;
        Ok(Self { table, rank, offset: bytes::<T>(at)? })
    }

    #[inline]
    #[track_caller]
    fn fetch(&self, op: Op, operand: T) -> Result<T> {
        let (raw, mut old) = (self.table.raw(), T::zeroed());
        let (from, into) = (&raw const operand, &raw mut old);
        // SAFETY: both are live during the call, and `now` completes or abandons the operation.
        unsafe {
            if !raw.try_accumulate(op, from, into, self.rank, self.offset) {
                raw.now(self.rank, |raw| raw.accumulate(op, from, into, 1, self.rank, self.offset)).located()?;
            }
        }
        Ok(old)
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
        let (raw, mut old) = (self.table.raw(), T::zeroed());
        let into = &raw mut old;
        // SAFETY: the result is live during the call, and `now` completes or abandons the operation.
        unsafe {
            if !raw.try_compare_and_swap(current, new, into, self.rank, self.offset) {
                raw.now(self.rank, |raw| raw.compare_and_swap(current, new, into, self.rank, self.offset)).located()?;
            }
        }
        Ok(if old == current { Ok(old) } else { Err(old) })
    }

    /// Reads the element and writes the result of `f`, and repeats this until no other rank has changed it meanwhile.
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

    /// Starts to apply `op`; the handle gives the previous value.
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
            Pending::fetch(&self.table.raw, op, value, (self.rank, self.offset), note)
        })
    }

    /// Starts a compare-and-swap; the handle gives the previous value.
    ///
    /// # Errors
    /// Those of [`swap`](Self::swap).
    #[track_caller]
    pub fn compare_exchange_nbi(&self, current: T, new: T) -> Result<Pending<Fetched<T>>>
    where
        T: CasElement,
    {
        located(|| Pending::compare_and_swap(&self.table.raw, (current, new), (self.rank, self.offset), |_| ()))
    }
}
