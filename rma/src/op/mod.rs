//! The predefined accumulate operations (MPI-4 §6.9.2 and §12.3.4) on the element types of a window.
//!
//! - [`accumulate`], [`fetch_accumulate`], [`apply`], [`fetch_apply`], [`compare_and_swap`]: on memory that other
//!   threads and processes update at the same time; atomic per element.
//! - [`combine`]: on private memory, for reductions.

mod bytes;
mod element;
pub(crate) mod kernel;
mod scalar;
mod wide;

use std::fmt;

use farside_core::device::code::{Effect, hint};
use farside_core::{Error, ErrorKind, Result};

pub use element::{CasElement, Element, ElementType};
pub use kernel::{accumulate, apply, combine, compare_and_swap, fetch_accumulate, fetch_apply};

/// The operation of an accumulate on the target element `t` with the operand `x`. The discriminants are the wire form.
///
/// Sums and products of integers wrap. Logical operations take nonzero as true and give 0 or 1. `Min` and `Max` of
/// floats are IEEE 754-2019 `minimum` and `maximum`: −0 is less than +0, and a NaN on either side gives the one
/// quiet NaN `f32::NAN` or `f64::NAN`. So the result does not depend on the order in which origins arrive, and a NaN
/// propagates; MPI specifies neither.
///
/// ```
/// use farside_rma::op::{ElementType, Op, combine};
///
/// let mut numbers = [1.5, -2.0, 3.0];
/// combine(Op::Max, &mut numbers, &[0.5, 4.0, f64::NAN])?;
/// assert_eq!(numbers[..2], [1.5, 4.0]);
/// assert!(numbers[2].is_nan());
/// assert!(Op::Bor.allowed(ElementType::U8) && !Op::Bor.allowed(ElementType::F64));
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// `t + x`
    Sum = 0,
    /// `t * x`
    Prod = 1,
    /// The lesser of `t` and `x`.
    Min = 2,
    /// The greater of `t` and `x`.
    Max = 3,
    /// 1 if `t` and `x` are both nonzero, otherwise 0.
    Land = 4,
    /// 1 if `t` or `x` is nonzero, otherwise 0.
    Lor = 5,
    /// 1 if exactly one of `t` and `x` is nonzero, otherwise 0.
    Lxor = 6,
    /// `t & x`
    Band = 7,
    /// `t | x`
    Bor = 8,
    /// `t ^ x`
    Bxor = 9,
    /// `x`
    Replace = 10,
    /// `t`: with a fetching call, an atomic read.
    NoOp = 11,
}

impl Op {
    /// Every operation, in the order of the wire form.
    pub const ALL: [Op; 12] = {
        use Op::*;
        [Sum, Prod, Min, Max, Land, Lor, Lxor, Band, Bor, Bxor, Replace, NoOp]
    };

    /// The name in messages: that of MPI in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        const NAMES: [&str; 12] =
            ["sum", "prod", "min", "max", "land", "lor", "lxor", "band", "bor", "bxor", "replace", "no_op"];
        NAMES[self as usize]
    }

    /// Whether the operation is defined on the type: logical and bitwise operations are defined on integers only, the
    /// others on all types.
    #[must_use]
    #[inline(always)]
    pub const fn allowed(self, ty: ElementType) -> bool {
        match self {
            Op::Land | Op::Lor | Op::Lxor | Op::Band | Op::Bor | Op::Bxor => ty.is_integer(),
            Op::Sum | Op::Prod | Op::Min | Op::Max | Op::Replace | Op::NoOp => true,
        }
    }

    /// Checks for the call `operation` that the operation is defined on the type.
    ///
    /// # Errors
    /// `Unsupported` if the operation is not defined on the type.
    #[inline(always)]
    pub fn check(self, ty: ElementType, operation: &'static str) -> Result<()> {
        if self.allowed(ty) { Ok(()) } else { Err(not_defined(self, ty, operation)) }
    }
}

#[cold]
fn not_defined(op: Op, ty: ElementType, operation: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, operation)
        .cause(format!("{op} is not defined on {ty}"))
        .remedy("use an integer type for logical and bitwise operations")
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl TryFrom<u8> for Op {
    type Error = Error;

    /// Reads the wire form; `Protocol` if no operation has this byte.
    fn try_from(byte: u8) -> Result<Self> {
        Op::ALL
            .get(usize::from(byte))
            .copied()
            .ok_or_else(|| Error::new(ErrorKind::Protocol, "accumulate").cause(format!("unknown operation {byte}")))
    }
}

/// The wire code: operation and type in one number, with hints from which a device recognizes the operations that it
/// can do itself.
#[must_use]
pub fn code(op: Op, ty: ElementType) -> u32 {
    let effect = match (op, ty) {
        (Op::NoOp, _) => Effect::Read,
        (Op::Sum, ElementType::I64 | ElementType::U64) => Effect::Add,
        _ => Effect::Other,
    };
    op as u32 | (ty as u32) << 8 | hint(ty.size(), effect)
}

pub(crate) use bytes::apply_alone;
pub use bytes::apply_bytes;
