//! The operations on two plain values, shared by the atomic kernels and the reductions.

/// The operations on values. For floats, logical and bitwise operations return the value unchanged, but are never
/// called, because [`Op::check`](super::Op::check) precedes every kernel.
pub trait Scalar: Copy {
    /// See [`Op::Sum`](super::Op::Sum).
    fn sum(self, x: Self) -> Self;
    /// See [`Op::Prod`](super::Op::Prod).
    fn prod(self, x: Self) -> Self;
    /// See [`Op::Min`](super::Op::Min).
    fn lesser(self, x: Self) -> Self;
    /// See [`Op::Max`](super::Op::Max).
    fn greater(self, x: Self) -> Self;
    /// See [`Op::Land`](super::Op::Land).
    #[inline(always)]
    fn land(self, _: Self) -> Self {
        self
    }
    /// See [`Op::Lor`](super::Op::Lor).
    #[inline(always)]
    fn lor(self, _: Self) -> Self {
        self
    }
    /// See [`Op::Lxor`](super::Op::Lxor).
    #[inline(always)]
    fn lxor(self, _: Self) -> Self {
        self
    }
    /// See [`Op::Band`](super::Op::Band).
    #[inline(always)]
    fn band(self, _: Self) -> Self {
        self
    }
    /// See [`Op::Bor`](super::Op::Bor).
    #[inline(always)]
    fn bor(self, _: Self) -> Self {
        self
    }
    /// See [`Op::Bxor`](super::Op::Bxor).
    #[inline(always)]
    fn bxor(self, _: Self) -> Self {
        self
    }
    /// The value that subtracts this one when it is added.
    fn negated(self) -> Self;
    /// Whether both values have the same bits.
    fn same_bits(self, x: Self) -> bool;
}

/// Defines binary methods, each by one expression.
macro_rules! methods {
    ($self:ident $x:ident; $($name:ident: $result:ty = $body:expr;)*) => {$(
        #[inline(always)]
        fn $name($self, $x: Self) -> $result {
            $body
        }
    )*};
}

macro_rules! integer {
    ($($t:ty),*) => {$(
        impl Scalar for $t {
            #[inline(always)]
            fn negated(self) -> Self {
                self.wrapping_neg()
            }
            methods! { self x;
                sum: Self = self.wrapping_add(x);
                prod: Self = self.wrapping_mul(x);
                lesser: Self = self.min(x);
                greater: Self = self.max(x);
                land: Self = <$t>::from(self != 0 && x != 0);
                lor: Self = <$t>::from(self != 0 || x != 0);
                lxor: Self = <$t>::from((self != 0) != (x != 0));
                band: Self = self & x;
                bor: Self = self | x;
                bxor: Self = self ^ x;
                same_bits: bool = self == x;
            }
        }
    )*};
}

integer!(i8, i16, i32, i64, isize, u8, u16, u32, u64, usize);

macro_rules! float {
    ($($t:ty),*) => {$(
        impl Scalar for $t {
            #[inline(always)]
            fn negated(self) -> Self {
                -self
            }
            // Values that compare equal differ at most in the sign of zero; −0 is the lesser.
            methods! { self x;
                sum: Self = self + x;
                prod: Self = self * x;
                lesser: Self = if self < x {
                    self
                } else if x < self {
                    x
                } else if self == x {
                    <$t>::from_bits(self.to_bits() | x.to_bits())
                } else {
                    <$t>::NAN
                };
                greater: Self = if self > x {
                    self
                } else if x > self {
                    x
                } else if self == x {
                    <$t>::from_bits(self.to_bits() & x.to_bits())
                } else {
                    <$t>::NAN
                };
                same_bits: bool = self.to_bits() == x.to_bits();
            }
        }
    )*};
}

float!(f32, f64);
