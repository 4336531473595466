//! The element types of windows: an enum for the wire and the untyped layer, and a trait for Rust users.

use std::fmt::{self, Debug};

use bytemuck::Pod;
use farside_core::{Error, ErrorKind, Result};

use super::kernel::AtomicScalar;

/// Defines [`ElementType`] and the trait implementations from the list of Rust types.
macro_rules! elements {
    ($($t:ident = $variant:ident $number:literal,)*) => {
        /// The type of one element, as a value. The discriminants are the wire form.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum ElementType {
            $(#[doc = concat!("`", stringify!($t), "`")] $variant = $number,)*
        }

        impl ElementType {
            /// Every type, in the order of the wire form.
            pub const ALL: [ElementType; 10] = [$(ElementType::$variant),*];

            /// Bytes of one element; a target must be aligned to it.
            #[must_use]
            #[inline(always)]
            pub const fn size(self) -> usize {
                match self {
                    $(ElementType::$variant => size_of::<$t>(),)*
                }
            }

            /// The name of the type in Rust.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(ElementType::$variant => stringify!($t),)*
                }
            }
        }

        $(impl Element for $t {
            const TYPE: ElementType = ElementType::$variant;
        })*
    };
}

elements! {
    i8 = I8 0, i16 = I16 1, i32 = I32 2, i64 = I64 3,
    u8 = U8 4, u16 = U16 5, u32 = U32 6, u64 = U64 7,
    f32 = F32 8, f64 = F64 9,
}

impl ElementType {
    /// Whether logical and bitwise operations and compare-and-swap are defined on the type.
    #[must_use]
    #[inline(always)]
    pub const fn is_integer(self) -> bool {
        !matches!(self, ElementType::F32 | ElementType::F64)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl TryFrom<u8> for ElementType {
    type Error = Error;

    /// Reads the wire form; `Protocol` if no element type has this byte.
    fn try_from(byte: u8) -> Result<Self> {
        ElementType::ALL
            .get(usize::from(byte))
            .copied()
            .ok_or_else(|| Error::new(ErrorKind::Protocol, "accumulate").cause(format!("unknown element type {byte}")))
    }
}

impl Element for isize {
    const TYPE: ElementType = if size_of::<isize>() == 8 { ElementType::I64 } else { ElementType::I32 };
}

impl Element for usize {
    const TYPE: ElementType = if size_of::<usize>() == 8 { ElementType::U64 } else { ElementType::U32 };
}

/// A type on which accumulates and atomics work: the integers of 8 to 64 bits, `f32` and `f64`. Sealed, because each
/// type needs a wire code and an atomic of its size. Put and get take any [`Pod`] type.
///
/// ```
/// use farside_rma::op::Element;
/// use farside_rma::prelude::*;
///
/// /// The sum of a number of each rank, at every rank.
/// fn total<T: Element>(team: &Team, mine: T) -> Result<T> {
///     let sum = Symmetric::<T>::allocate(team, 1)?;
///     sum.atomic(0, 0)?.add(mine)?;
///     sum.barrier()?;
///     let total = sum.get_value(0, 0)?;
///     sum.free()?;
///     Ok(total)
/// }
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     assert_eq!((total(&team, 2u8)?, total(&team, 0.5)?), (6, 1.5));
///     Ok(())
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be accumulated",
    label = "accumulates and atomics take `i8` to `i64`, `u8` to `u64`, `isize`, `usize`, `f32` and `f64`",
    note = "put and get take any `bytemuck::Pod` type; create a window of one of these types to accumulate"
)]
pub trait Element: AtomicScalar + Pod + Send + Sync + PartialOrd + Debug + 'static {
    /// The type as a value.
    const TYPE: ElementType;
}

/// An element that can be compared and swapped: the integers. Floats are left out, as in MPI, because equality of
/// values and equality of bits differ for them (±0, NaN).
///
/// ```
/// use farside_rma::op::CasElement;
/// use farside_rma::prelude::*;
///
/// /// Writes to element 0 of rank 0 unless another rank has done so.
/// fn claim<T: CasElement>(table: &Symmetric<T>, mine: T) -> Result<bool> {
///     Ok(table.atomic(0, 0)?.compare_exchange(T::zeroed(), mine)?.is_ok())
/// }
///
/// Job::threads(3, |job| {
///     let team = job.world()?;
///     let table = Symmetric::<u16>::allocate(&team, 1)?;
///     let mut winners = [u32::from(claim(&table, 1 + team.rank() as u16)?)];
///     team.allreduce(&mut winners, Op::Sum)?;
///     assert_eq!(winners, [1]);
///     table.free()
/// })?;
/// # Ok::<(), farside_rma::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be compared and swapped",
    label = "compare and swap takes `i8` to `i64`, `u8` to `u64`, `isize` and `usize`",
    note = "for a float, create a window of `u32` or `u64` and use `to_bits` and `from_bits`"
)]
pub trait CasElement: Element {}

macro_rules! cas_elements {
    ($($t:ty),*) => { $(impl CasElement for $t {})* };
}

cas_elements!(i8, i16, i32, i64, isize, u8, u16, u32, u64, usize);

/// Evaluates `$body` with `$T` as the Rust type of `$ty`: one match per call, so that the loops are monomorphic.
macro_rules! with_type {
    ($ty:expr, $T:ident => $body:expr) => {
        with_type!(@ $ty, $T => $body; I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64, F32 f32, F64 f64)
    };
    (@ $ty:expr, $T:ident => $body:expr; $($variant:ident $t:ty),*) => {
        match $ty {
            $($crate::op::ElementType::$variant => { type $T = $t; $body })*
        }
    };
}

pub(super) use with_type;
