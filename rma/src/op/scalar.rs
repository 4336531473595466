//! What each operation means on two plain values. The atomic kernels and the reductions both rest on this.

/// The operations on values. Logical and bitwise ones leave a float as it is: no caller gets there, because
/// [`Op::check`](super::Op::check) stands before every kernel.
pub trait Scalar: Copy {
    /// See [`Op::Sum`](super::Op::Sum).
    fn sum(self, x: Self) -> Self;
    /// See [`Op::Prod`](super::Op::Prod).
    fn prod(self, x: Self) -> Self;
    /// See [`Op::Min`](super::Op::Min).
    fn least(self, x: Self) -> Self;
    /// See [`Op::Max`](super::Op::Max).
    fn greatest(self, x: Self) -> Self;
    /// See [`Op::Land`](super::Op::Land).
    fn land(self, x: Self) -> Self;
    /// See [`Op::Lor`](super::Op::Lor).
    fn lor(self, x: Self) -> Self;
    /// See [`Op::Lxor`](super::Op::Lxor).
    fn lxor(self, x: Self) -> Self;
    /// See [`Op::Band`](super::Op::Band).
    fn band(self, x: Self) -> Self;
    /// See [`Op::Bor`](super::Op::Bor).
    fn bor(self, x: Self) -> Self;
    /// See [`Op::Bxor`](super::Op::Bxor).
    fn bxor(self, x: Self) -> Self;
    /// Whether both have the same bits.
    fn same_bits(self, x: Self) -> bool;
}

macro_rules! integer {
    ($($t:ty),*) => {$(
        impl Scalar for $t {
            #[inline(always)]
            fn sum(self, x: Self) -> Self {
                self.wrapping_add(x)
            }
            #[inline(always)]
            fn prod(self, x: Self) -> Self {
                self.wrapping_mul(x)
            }
            #[inline(always)]
            fn least(self, x: Self) -> Self {
                self.min(x)
            }
            #[inline(always)]
            fn greatest(self, x: Self) -> Self {
                self.max(x)
            }
            #[inline(always)]
            fn land(self, x: Self) -> Self {
                <$t>::from(self != 0 && x != 0)
            }
            #[inline(always)]
            fn lor(self, x: Self) -> Self {
                <$t>::from(self != 0 || x != 0)
            }
            #[inline(always)]
            fn lxor(self, x: Self) -> Self {
                <$t>::from((self != 0) != (x != 0))
            }
            #[inline(always)]
            fn band(self, x: Self) -> Self {
                self & x
            }
            #[inline(always)]
            fn bor(self, x: Self) -> Self {
                self | x
            }
            #[inline(always)]
            fn bxor(self, x: Self) -> Self {
                self ^ x
            }
            #[inline(always)]
            fn same_bits(self, x: Self) -> bool {
                self == x
            }
        }
    )*};
}

integer!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! float {
    ($($t:ty),*) => {$(
        impl Scalar for $t {
            #[inline(always)]
            fn sum(self, x: Self) -> Self {
                self + x
            }
            #[inline(always)]
            fn prod(self, x: Self) -> Self {
                self * x
            }
            #[inline(always)]
            fn least(self, x: Self) -> Self {
                if self < x {
                    self
                } else if x < self {
                    x
                } else if self == x {
                    // Equal values differ at most in the sign of zero; −0 is the lesser.
                    <$t>::from_bits(self.to_bits() | x.to_bits())
                } else {
                    <$t>::NAN
                }
            }
            #[inline(always)]
            fn greatest(self, x: Self) -> Self {
                if self > x {
                    self
                } else if x > self {
                    x
                } else if self == x {
                    <$t>::from_bits(self.to_bits() & x.to_bits())
                } else {
                    <$t>::NAN
                }
            }
            #[inline(always)]
            fn land(self, _: Self) -> Self {
                self
            }
            #[inline(always)]
            fn lor(self, _: Self) -> Self {
                self
            }
            #[inline(always)]
            fn lxor(self, _: Self) -> Self {
                self
            }
            #[inline(always)]
            fn band(self, _: Self) -> Self {
                self
            }
            #[inline(always)]
            fn bor(self, _: Self) -> Self {
                self
            }
            #[inline(always)]
            fn bxor(self, _: Self) -> Self {
                self
            }
            #[inline(always)]
            fn same_bits(self, x: Self) -> bool {
                self.to_bits() == x.to_bits()
            }
        }
    )*};
}

float!(f32, f64);
