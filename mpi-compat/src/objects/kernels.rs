#![allow(unsafe_code)]
//! Kernels of the predefined operators (MPI-5.0 sections 6.9.2 and 6.9.4).

use farside_datatype::{Class, Named};

use super::wide::{F16, F128, Real, X87};

/// A predefined operator of reductions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predefined {
    Sum,
    Prod,
    Min,
    Max,
    Land,
    Lor,
    Lxor,
    Band,
    Bor,
    Bxor,
    Minloc,
    Maxloc,
}

use Predefined as P;

/// A group of predefined types with the same operators.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Integer,
    Float,
    Complex,
    Logical,
    Byte,
    Pair,
    /// Characters that are not numbers, and packed data.
    None,
}

fn kind_of(named: Named) -> Kind {
    use Named as N;
    match named {
        N::Wchar | N::Character | N::Packed => Kind::None,
        N::Byte => Kind::Byte,
        N::CBool | N::CxxBool | N::Logical => Kind::Logical,
        N::Logical1 | N::Logical2 | N::Logical4 | N::Logical8 | N::Logical16 => Kind::Logical,
        _ if named.pair().is_some() => Kind::Pair,
        _ if named.is_complex() => Kind::Complex,
        _ => match named.class() {
            Class::Signed | Class::Unsigned => Kind::Integer,
            Class::Float | Class::LongDouble => Kind::Float,
            Class::Opaque | Class::Pair => Kind::None,
        },
    }
}

/// Whether compare-and-swap is defined on a type (section 12.3.4), or accepted by other libraries (`MPI_CHAR`).
pub fn is_swapped(named: Named) -> bool {
    matches!(kind_of(named), Kind::Integer | Kind::Logical | Kind::Byte)
}

impl Predefined {
    /// Whether the operator is defined on a type, by the table of section 6.9.2. `MPI_CHAR`, which is not in the table,
    /// is treated as `MPI_SIGNED_CHAR`, since programs use it in this way and other libraries accept it.
    pub fn allowed(self, named: Named) -> bool {
        if named.class() == Class::LongDouble && !X87::EXISTS {
            return false;
        }
        let kind = kind_of(named);
        match self {
            P::Min | P::Max => matches!(kind, Kind::Integer | Kind::Float),
            P::Sum | P::Prod => matches!(kind, Kind::Integer | Kind::Float | Kind::Complex),
            P::Land | P::Lor | P::Lxor => matches!(kind, Kind::Integer | Kind::Logical),
            P::Band | P::Bor | P::Bxor => matches!(kind, Kind::Integer | Kind::Byte),
            P::Minloc | P::Maxloc => kind == Kind::Pair,
        }
    }

    /// Sets `inout[i]` to `input[i] op inout[i]`; does nothing on types for which the operator is not defined.
    ///
    /// # Safety
    /// `input` is readable and `inout` readable and writable for `n` elements, and the two do not overlap.
    pub unsafe fn apply(self, named: Named, input: *const u8, inout: *mut u8, n: usize) {
        use Named as N;
        // SAFETY: the caller guarantees the elements; each arm has the Rust type of the size and format of the MPI
        // type.
        unsafe {
            match (kind_of(named), named.class(), named.size()) {
                (Kind::Integer | Kind::Byte | Kind::Logical, Class::Signed, 1) => self.integers::<i8>(input, inout, n),
                (Kind::Integer, Class::Signed, 2) => self.integers::<i16>(input, inout, n),
                (Kind::Integer, Class::Signed, 4) => self.integers::<i32>(input, inout, n),
                (Kind::Integer, Class::Signed, 8) => self.integers::<i64>(input, inout, n),
                (Kind::Integer, Class::Signed, 16) => self.integers::<i128>(input, inout, n),
                (Kind::Integer | Kind::Byte | Kind::Logical, _, 1) => self.integers::<u8>(input, inout, n),
                (Kind::Integer | Kind::Logical, _, 2) => self.integers::<u16>(input, inout, n),
                (Kind::Integer | Kind::Logical, _, 4) => self.integers::<u32>(input, inout, n),
                (Kind::Integer | Kind::Logical, _, 8) => self.integers::<u64>(input, inout, n),
                (Kind::Integer | Kind::Logical, _, 16) => self.integers::<u128>(input, inout, n),
                (Kind::Float, Class::LongDouble, _) => self.floats::<X87>(input, inout, n),
                (Kind::Float, _, 2) => self.floats::<F16>(input, inout, n),
                (Kind::Float, _, 4) => self.floats::<f32>(input, inout, n),
                (Kind::Float, _, 8) => self.floats::<f64>(input, inout, n),
                (Kind::Float, _, 16) => self.floats::<F128>(input, inout, n),
                (Kind::Complex, Class::LongDouble, _) => self.complex::<X87>(input, inout, n),
                (Kind::Complex, _, 4) => self.complex::<F16>(input, inout, n),
                (Kind::Complex, _, 8) => self.complex::<f32>(input, inout, n),
                (Kind::Complex, _, 16) => self.complex::<f64>(input, inout, n),
                (Kind::Complex, _, 32) => self.complex::<F128>(input, inout, n),
                _ => match named {
                    N::FloatInt => self.pairs::<f32, i32>(input, inout, n),
                    N::DoubleInt => self.pairs::<f64, i32>(input, inout, n),
                    N::LongInt => self.pairs::<i64, i32>(input, inout, n),
                    N::TwoInt | N::TwoInteger => self.pairs::<i32, i32>(input, inout, n),
                    N::ShortInt => self.pairs::<i16, i32>(input, inout, n),
                    N::LongDoubleInt => self.pairs::<X87, i32>(input, inout, n),
                    N::TwoReal => self.pairs::<f32, f32>(input, inout, n),
                    N::TwoDoublePrecision => self.pairs::<f64, f64>(input, inout, n),
                    _ => {}
                },
            }
        }
    }

    /// # Safety
    /// The contract of [`Predefined::apply`].
    unsafe fn integers<T: Integer>(self, input: *const u8, inout: *mut u8, n: usize) {
        let truth = |value: bool| if value { T::ONE } else { T::ZERO };
        let is = |value: T| value != T::ZERO;
        // SAFETY: the caller guarantees the elements.
        unsafe {
            match self {
                P::Sum => each(input, inout, n, T::sum),
                P::Prod => each(input, inout, n, T::prod),
                P::Min => each(input, inout, n, |a: T, b| if a < b { a } else { b }),
                P::Max => each(input, inout, n, |a: T, b| if a > b { a } else { b }),
                P::Land => each(input, inout, n, |a, b| truth(is(a) && is(b))),
                P::Lor => each(input, inout, n, |a, b| truth(is(a) || is(b))),
                P::Lxor => each(input, inout, n, |a, b| truth(is(a) != is(b))),
                P::Band => each(input, inout, n, |a: T, b| a & b),
                P::Bor => each(input, inout, n, |a: T, b| a | b),
                P::Bxor => each(input, inout, n, |a: T, b| a ^ b),
                P::Minloc | P::Maxloc => {}
            }
        }
    }

    /// # Safety
    /// The contract of [`Predefined::apply`].
    unsafe fn floats<T: Real>(self, input: *const u8, inout: *mut u8, n: usize) {
        // SAFETY: the caller guarantees the elements.
        unsafe {
            match self {
                P::Sum => each(input, inout, n, T::add),
                P::Prod => each(input, inout, n, T::mul),
                P::Min => each(input, inout, n, |a: T, b| if a.less(b) { a } else { b }),
                P::Max => each(input, inout, n, |a: T, b| if b.less(a) { a } else { b }),
                _ => {}
            }
        }
    }

    /// # Safety
    /// The contract of [`Predefined::apply`].
    unsafe fn complex<T: Real>(self, input: *const u8, inout: *mut u8, n: usize) {
        // SAFETY: the caller guarantees the elements.
        unsafe {
            match self {
                P::Sum => each(input, inout, n, |a: [T; 2], b: [T; 2]| [a[0].add(b[0]), a[1].add(b[1])]),
                P::Prod => each(input, inout, n, |a: [T; 2], b: [T; 2]| {
                    [a[0].mul(b[0]).sub(a[1].mul(b[1])), a[0].mul(b[1]).add(a[1].mul(b[0]))]
                }),
                _ => {}
            }
        }
    }

    /// The lesser or greater value with its index; if the values are equal, the lesser index.
    ///
    /// # Safety
    /// The contract of [`Predefined::apply`].
    unsafe fn pairs<T: Real, I: PartialOrd + Copy>(self, input: *const u8, inout: *mut u8, n: usize) {
        let first = |a: &Pair<T, I>, b: &Pair<T, I>| {
            let (less, more) = (a.value.less(b.value), b.value.less(a.value));
            let better = if self == P::Minloc { less } else { more };
            better || (!less && !more && a.index < b.index)
        };
        // SAFETY: the caller guarantees the elements; `Pair` has the layout of the C struct.
        unsafe { each(input, inout, n, |a: Pair<T, I>, b| if first(&a, &b) { a } else { b }) }
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Pair<T, I> {
    value: T,
    index: I,
}

/// # Safety
/// `input` is readable and `inout` readable and writable for `n` of `T`, at any alignment, and the two do not overlap.
#[inline(always)]
unsafe fn each<T: Copy>(input: *const u8, inout: *mut u8, n: usize, f: impl Fn(T, T) -> T) {
    let (input, inout) = (input.cast::<T>(), inout.cast::<T>());
    for i in 0..n {
        // SAFETY: `i < n`, and the caller guarantees `n` elements.
        unsafe {
            let to = inout.add(i);
            to.write_unaligned(f(input.add(i).read_unaligned(), to.read_unaligned()));
        }
    }
}

use std::ops::{BitAnd, BitOr, BitXor};

/// Integers; their sums and products wrap.
trait Integer: Copy + PartialOrd + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> {
    const ZERO: Self;
    const ONE: Self;
    fn sum(self, other: Self) -> Self;
    fn prod(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl Integer for $t {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn prod(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
        }
    )*};
}

macro_rules! reals {
    ($($t:ty: $add:ident, $sub:ident, $mul:ident;)*) => {$(
        impl Real for $t {
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                <$t>::$add(self, other)
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                <$t>::$sub(self, other)
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                <$t>::$mul(self, other)
            }
            #[inline(always)]
            fn less(self, other: Self) -> bool {
                self < other
            }
        }
    )*};
}

integers!(i8, i16, i32, i64, i128, u8, u16, u32, u64, u128);
reals! {
    i16: wrapping_add, wrapping_sub, wrapping_mul;
    i32: wrapping_add, wrapping_sub, wrapping_mul;
    i64: wrapping_add, wrapping_sub, wrapping_mul;
}

macro_rules! floats {
    ($($t:ty),*) => {$(
        impl Real for $t {
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self - other
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn less(self, other: Self) -> bool {
                self < other
            }
        }
    )*};
}

floats!(f32, f64);
