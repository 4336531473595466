#![allow(unsafe_code)]
//! What reductions combine elements with: predefined operations and closures.

use std::panic::{AssertUnwindSafe, catch_unwind};

use farside_core::coll::execute::Reduction;
pub use farside_core::coll::schedule::Side;
use farside_core::{Error, ErrorKind, Result};

use crate::op::{Element, Op, combine};

/// An associative operator on elements. The same one at every rank.
pub trait Operator<T> {
    /// Whether operands may change places. Where not, the contribution of a lower rank stands left of that of a higher one.
    fn is_commutative(&self) -> bool;

    /// Sets each element of `into` to `operand ∘ into` ([`Side::Left`]) or `into ∘ operand` ([`Side::Right`]). The slices have
    /// the same length. A panic makes the call fail at every rank.
    fn reduce(&self, operand: &[T], into: &mut [T], side: Side);

    /// A number that is another one for other operators, where there is such a thing: ranks with different ones in one call
    /// get `Mismatch`.
    fn code(&self) -> u32 {
        0
    }

    /// Checks that it is defined on the elements.
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
            // The right operand, and the left one.
            (Op::Replace, Side::Left) | (Op::NoOp, Side::Right) => {}
            (Op::Replace, Side::Right) | (Op::NoOp, Side::Left) => into.copy_from_slice(operand),
            // `check` has said that it is defined.
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

/// A closure that is associative and commutative, as an operator.
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

/// A closure that is associative and need not be commutative, as an operator: its first argument is of lower ranks.
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

/// Of calls that reduce nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoOperator;

impl<T> Operator<T> for NoOperator {
    fn is_commutative(&self) -> bool {
        true
    }

    fn reduce(&self, _: &[T], _: &mut [T], _: Side) {}

    fn check(&self) -> Result<()> {
        Err(Error::new(ErrorKind::BadArgument, "reduce").cause("no operator is given"))
    }
}

/// The operator as a function over memory; it is to live as long as the call.
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
/// As [`farside_core::coll::execute::ReduceFn`] says, for elements of type `T`; the context is an `O`.
unsafe fn reduce<T, O: Operator<T>>(
    context: *const (),
    operand: *const u8,
    into: *mut u8,
    elements: usize,
    side: Side,
) -> bool {
    // SAFETY: the caller's promise: aligned, so many elements, no overlap; the operator lives as long as the call.
    let (operator, operand, into) = unsafe {
        (
            &*context.cast::<O>(),
            std::slice::from_raw_parts(operand.cast::<T>(), elements),
            std::slice::from_raw_parts_mut(into.cast::<T>(), elements),
        )
    };
    catch_unwind(AssertUnwindSafe(|| operator.reduce(operand, into, side))).is_ok()
}
