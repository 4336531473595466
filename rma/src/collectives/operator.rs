#![allow(unsafe_code)]
//! Operators of reductions: predefined operations and closures.

use farside_core::callback::{caught, operator_panicked};
use farside_core::coll::execute::Reduction;
pub use farside_core::coll::schedule::Side;
use farside_core::{Error, ErrorKind, Result};

use crate::op::{Element, Op, combine};

/// An associative operator on elements. All ranks of a call pass the same operator.
///
/// ```
/// use farside_rma::collectives::{Operator, Side};
/// use farside_rma::prelude::*;
///
/// /// A sum that stops at 255.
/// struct Saturating;
///
/// impl Operator<u8> for Saturating {
///     fn is_commutative(&self) -> bool {
///         true
///     }
///
///     fn reduce(&self, operand: &[u8], into: &mut [u8], _: Side) {
///         into.iter_mut().zip(operand).for_each(|(into, operand)| *into = into.saturating_add(*operand));
///     }
/// }
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let mut data = [100, 1];
///     team.allreduce(&mut data, Saturating)?;
///     assert_eq!(data, [255, 3]);
///     Ok(())
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an operator on elements of type `{T}`",
    label = "give an `Op`, or a closure as `Commutative(closure)` or `Ordered(closure)`",
    note = "the closure takes two elements and returns one: `Commutative(|a, b| ..)`"
)]
pub trait Operator<T> {
    /// Whether the operator is commutative. If not, contributions are combined in rank order, lower ranks on the left.
    fn is_commutative(&self) -> bool;

    /// Sets each element of `into` to `operand ∘ into` ([`Side::Left`]) or `into ∘ operand` ([`Side::Right`]). The
    /// slices have the same length. A panic makes the call fail at every rank, with the panic's message. It may run in
    /// any wait of the rank, so calls in it that communicate, wait or make progress get `InCallback`.
    fn reduce(&self, operand: &[T], into: &mut [T], side: Side);

    /// A number that identifies the operator, if it has one. Ranks that pass operators with different numbers to one
    /// call get `Mismatch`.
    fn code(&self) -> u32 {
        0
    }

    /// Checks that the operator is defined on the elements.
    ///
    /// # Errors
    /// `Unsupported`.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

impl<T: Element> Operator<T> for Op {
    fn is_commutative(&self) -> bool {
        !matches!(self, Op::Replace | Op::NoOp)
    }

    #[inline]
    fn reduce(&self, operand: &[T], into: &mut [T], side: Side) {
        match (self, side) {
            // `Replace` keeps the right operand and `NoOp` the left one; here `into` already holds that operand.
            (Op::Replace, Side::Left) | (Op::NoOp, Side::Right) => {}
            (Op::Replace, Side::Right) | (Op::NoOp, Side::Left) => into.copy_from_slice(operand),
            // Cannot fail: `check` has found the operation defined, and the lengths are equal.
            _ => _ = combine(*self, into, operand),
        }
    }

    fn code(&self) -> u32 {
        crate::op::code(*self, T::TYPE)
    }

    fn check(&self) -> Result<()> {
        Op::check(*self, T::TYPE, "reduce")
    }
}

/// An operator from an associative and commutative closure.
///
/// ```
/// use farside_rma::prelude::*;
///
/// fn gcd(a: u32, b: u32) -> u32 {
///     if b == 0 { a } else { gcd(b, a % b) }
/// }
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let mut data = [[12, 18, 30][team.rank()]];
///     team.allreduce(&mut data, Commutative(gcd))?;
///     assert_eq!(data, [6]);
///     Ok(())
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Commutative<F>(pub F);

impl<T: Copy, F: Fn(T, T) -> T> Operator<T> for Commutative<F> {
    fn is_commutative(&self) -> bool {
        true
    }

    #[inline]
    fn reduce(&self, operand: &[T], into: &mut [T], _: Side) {
        for (into, operand) in into.iter_mut().zip(operand) {
            *into = (self.0)(*into, *operand);
        }
    }
}

/// An operator from an associative closure that need not be commutative: its first argument is the contribution of
/// lower ranks.
///
/// ```
/// use farside_rma::prelude::*;
///
/// Job::threads(4, |job| {
///     let team = job.world()?;
///     // The last nonzero number of the ranks up to this one.
///     let mut data = [[0, 5, 0, 7][team.rank()]];
///     team.scan(&mut data, Ordered(|low, high| if high == 0 { low } else { high }))?;
///     assert_eq!(data, [[0, 5, 5, 7][team.rank()]]);
///     Ok(())
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ordered<F>(pub F);

impl<T: Copy, F: Fn(T, T) -> T> Operator<T> for Ordered<F> {
    fn is_commutative(&self) -> bool {
        false
    }

    #[inline]
    fn reduce(&self, operand: &[T], into: &mut [T], side: Side) {
        for (into, operand) in into.iter_mut().zip(operand) {
            *into = if side == Side::Left { (self.0)(*operand, *into) } else { (self.0)(*into, *operand) };
        }
    }
}

/// The operator type of calls that are not reductions.
///
/// ```
/// use farside_rma::collectives::NoOperator;
/// use farside_rma::prelude::*;
///
/// Job::threads(2, |job| {
///     let team = job.world()?;
///     let failed = team.allreduce(&mut [1], NoOperator);
///     assert_eq!(failed.unwrap_err().kind(), ErrorKind::BadArgument);
///     Ok(())
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NoOperator;

impl<T> Operator<T> for NoOperator {
    fn is_commutative(&self) -> bool {
        true
    }

    fn reduce(&self, _: &[T], _: &mut [T], _: Side) {}

    fn check(&self) -> Result<()> {
        Err(Error::new(ErrorKind::BadArgument, "reduce").cause("a reduction needs an operator, not `NoOperator`"))
    }
}

/// The operator as a function over memory. The operator must live as long as the call.
pub(super) fn reduction<T, O: Operator<T>>(operator: &O) -> Reduction {
    Reduction {
        function: reduce::<T, O>,
        context: std::ptr::from_ref(operator).cast(),
        code: operator.code(),
        commutative: operator.is_commutative(),
        align: align_of::<T>(),
    }
}

/// # Safety
/// The contract of [`farside_core::coll::execute::ReduceFn`], for elements of type `T`; the context is an `O`.
unsafe fn reduce<T, O: Operator<T>>(
    context: *const (),
    operand: *const u8,
    into: *mut u8,
    elements: usize,
    side: Side,
) -> Result<()> {
    // SAFETY: by the contract the pointers are aligned and valid for the elements, which do not overlap, and the
    // operator lives as long as the call.
    let (operator, operand, into) = unsafe {
        (
            &*context.cast::<O>(),
            std::slice::from_raw_parts(operand.cast::<T>(), elements),
            std::slice::from_raw_parts_mut(into.cast::<T>(), elements),
        )
    };
    caught(|| operator.reduce(operand, into, side)).map_err(|text| operator_panicked(&text))
}
