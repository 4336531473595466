#![allow(unsafe_code)]
//! Arithmetic on formats without a Rust type: half precision, x87 `long double`, quadruple precision.

/// Floating-point numbers, and integers, which pairs may have as values.
pub(super) trait Real: Copy {
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn less(self, other: Self) -> bool;
}

/// IEEE 754 binary16. The sum or product of two values is computed in single precision, so its rounding is correct.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct F16(u16);

impl F16 {
    fn wide(self) -> f32 {
        let (sign, exponent, fraction) =
            (u32::from(self.0 >> 15) << 31, u32::from(self.0 >> 10 & 31), u32::from(self.0 & 1023));
        match exponent {
            // A subnormal is its fraction times 2^-24.
            0 => f32::from_bits((fraction as f32 * f32::from_bits(103 << 23)).to_bits() | sign),
            31 => f32::from_bits(sign | 0xff << 23 | fraction << 13),
            _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
        }
    }

    fn narrow(value: f32) -> Self {
        let (sign, bits) = ((value.to_bits() >> 16 & 0x8000) as u16, value.to_bits() & 0x7fff_ffff);
        let magnitude = if bits > 0xff << 23 {
            0x7e00 // NaN
        } else if bits >= 0x477f_f000 {
            0x7c00 // rounds to infinity
        } else if bits < 113 << 23 {
            // Subnormal: adding 0.5 leaves the fraction rounded to even in the lowest bits.
            (f32::from_bits(bits) + 0.5).to_bits() - 0.5_f32.to_bits()
        } else {
            let odd = bits >> 13 & 1;
            (bits - (112 << 23) + 0xfff + odd) >> 13
        };
        Self(sign | magnitude as u16)
    }
}

impl Real for F16 {
    fn add(self, other: Self) -> Self {
        Self::narrow(self.wide() + other.wide())
    }
    fn sub(self, other: Self) -> Self {
        Self::narrow(self.wide() - other.wide())
    }
    fn mul(self, other: Self) -> Self {
        Self::narrow(self.wide() * other.wide())
    }
    fn less(self, other: Self) -> bool {
        self.wide() < other.wide()
    }
}

/// The `long double` of x86: the first 10 bytes of 16.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct X87([u8; 16]);

impl X87 {
    /// Whether the C compiler of this architecture supports the type.
    pub const EXISTS: bool = cfg!(target_arch = "x86_64");
}

#[cfg(target_arch = "x86_64")]
macro_rules! x87 {
    ($a:expr, $b:expr, $operation:literal) => {{
        let mut result = X87([0; 16]);
        // SAFETY: two values are loaded, combined into one and stored, so the register stack is unchanged; all three
        // addresses are of 16-byte values.
        unsafe {
            std::arch::asm!(
                "fld tbyte ptr [{a}]",
                "fld tbyte ptr [{b}]",
                $operation,
                "fstp tbyte ptr [{r}]",
                a = in(reg) &raw const $a,
                b = in(reg) &raw const $b,
                r = in(reg) &raw mut result,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack)
            );
        }
        result
    }};
}

#[cfg(not(target_arch = "x86_64"))]
macro_rules! x87 {
    ($a:expr, $b:expr, $operation:literal) => {
        $a
    };
}

impl Real for X87 {
    fn add(self, other: Self) -> Self {
        x87!(self, other, "faddp st(1), st")
    }
    fn sub(self, other: Self) -> Self {
        x87!(self, other, "fsubp st(1), st")
    }
    fn mul(self, other: Self) -> Self {
        x87!(self, other, "fmulp st(1), st")
    }
    fn less(self, other: Self) -> bool {
        // Compares by the sign of the difference; false if the difference is NaN, which is the case if an operand is
        // NaN and for equal infinities.
        let difference = self.sub(other);
        let number = |value: Self| {
            value.0[9] & 0x7f != 0x7f || value.0[8] != 0xff || value.0[..8] == [0, 0, 0, 0, 0, 0, 0, 0x80]
        };
        let zero = difference.0[..8] == [0; 8];
        difference.0[9] & 0x80 != 0 && !zero && number(difference)
    }
}

/// IEEE 754 binary128, computed by functions of the compiler's run-time library.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct F128(u128);

#[cfg(target_arch = "x86_64")]
mod quad {
    use std::arch::x86_64::__m128i;
    use std::ffi::c_int;

    unsafe extern "C" {
        fn __addtf3();
        fn __subtf3();
        fn __multf3();
        fn __lttf2();
    }

    fn register(bits: u128) -> __m128i {
        // SAFETY: both have 16 bytes, and all bit patterns are valid.
        unsafe { std::mem::transmute(bits) }
    }

    fn bits(register: __m128i) -> u128 {
        // SAFETY: as above.
        unsafe { std::mem::transmute(register) }
    }

    /// Calls a function of two numbers in vector registers, which Rust cannot declare.
    macro_rules! call {
        ($function:ident, $a:expr, $b:expr) => {{
            let (mut first, mut result) = (register($a), 0_u64);
            // SAFETY: a pure function of the System V ABI; all registers that it may change are declared as clobbered.
            unsafe {
                std::arch::asm!(
                    "call {f}",
                    f = sym $function,
                    inout("xmm0") first,
                    in("xmm1") register($b),
                    inout("rax") result,
                    clobber_abi("sysv64"),
                );
            }
            (bits(first), result as c_int)
        }};
    }

    pub fn add(a: u128, b: u128) -> u128 {
        call!(__addtf3, a, b).0
    }

    pub fn sub(a: u128, b: u128) -> u128 {
        call!(__subtf3, a, b).0
    }

    pub fn mul(a: u128, b: u128) -> u128 {
        call!(__multf3, a, b).0
    }

    pub fn less(a: u128, b: u128) -> bool {
        call!(__lttf2, a, b).1 < 0
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod quad {
    pub fn add(a: u128, _: u128) -> u128 {
        a
    }
    pub use add as sub;
    pub use add as mul;
    pub fn less(_: u128, _: u128) -> bool {
        false
    }
}

impl Real for F128 {
    fn add(self, other: Self) -> Self {
        Self(quad::add(self.0, other.0))
    }
    fn sub(self, other: Self) -> Self {
        Self(quad::sub(self.0, other.0))
    }
    fn mul(self, other: Self) -> Self {
        Self(quad::mul(self.0, other.0))
    }
    fn less(self, other: Self) -> bool {
        quad::less(self.0, other.0)
    }
}
