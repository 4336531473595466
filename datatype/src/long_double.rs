//! `long double` in external32 (MPI-4.1 §14.5.2): IEEE 754 binary128, from and to the x87 format of 80 bits that C
//! compilers use on x86, in 16 bytes of which 6 are padding.
//!
//! Both have 15 bits of exponent with the same bias. x87 stores the integer bit explicitly, as one of 64 bits; in
//! binary128 it is implicit, before 112 fraction bits. So packing is exact, and unpacking rounds to nearest, ties to
//! even.

const FRACTION_BITS: u32 = 112;
/// Number of binary128 fraction bits that do not fit the x87 format.
const EXTRA_BITS: u32 = FRACTION_BITS - 63;
const INTEGER: u64 = 1 << 63;
const SPECIAL: u16 = 0x7fff;

/// The bits of a binary128 from the first ten bytes of an x87 value; `None` if they are not a valid value (the integer
/// bit is missing).
pub(crate) fn widen(bytes: [u8; 10]) -> Option<u128> {
    let [significand @ .., low, high] = bytes;
    let significand = u64::from_le_bytes(significand);
    let (sign, exponent) = ((high >> 7) & 1, u16::from_le_bytes([low, high & 0x7f]));
    let exponent = match (exponent, significand & INTEGER != 0) {
        (0, true) => 1, // as large as the smallest normal number
        (0, false) => 0,
        (exponent, true) => exponent,
        (_, false) => return None,
    };
    let fraction = u128::from(significand & !INTEGER) << EXTRA_BITS;
    Some(u128::from(sign) << 127 | u128::from(exponent) << FRACTION_BITS | fraction)
}

/// The ten bytes of the x87 value that is nearest to a binary128.
pub(crate) fn narrow(bits: u128) -> [u8; 10] {
    let sign = (bits >> 127) as u16;
    let mut exponent = (bits >> FRACTION_BITS) as u16 & SPECIAL;
    let fraction = bits & ((1 << FRACTION_BITS) - 1);
    let mut significand = (fraction >> EXTRA_BITS) as u64;
    if exponent == SPECIAL {
        // NaN stays NaN: if rounding drops the bits that distinguish it from infinity, it becomes a quiet NaN.
        if significand == 0 && fraction != 0 {
            significand = 1 << 62;
        }
        significand |= INTEGER;
    } else {
        if exponent > 0 {
            significand |= INTEGER;
        }
        let (rest, half) = (fraction & ((1 << EXTRA_BITS) - 1), 1 << (EXTRA_BITS - 1));
        if rest > half || (rest == half && significand & 1 == 1) {
            let (sum, carried) = significand.overflowing_add(1);
            significand = if carried { INTEGER } else { sum };
            // Rounding carries into the next power of two: between normal numbers, from subnormal to normal, and from
            // the largest number to infinity.
            exponent += u16::from(carried || (exponent == 0 && sum & INTEGER != 0));
        }
    }
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&significand.to_le_bytes());
    bytes[8..].copy_from_slice(&(sign << 15 | exponent).to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x87(sign_exponent: u16, significand: u64) -> [u8; 10] {
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&significand.to_le_bytes());
        bytes[8..].copy_from_slice(&sign_exponent.to_le_bytes());
        bytes
    }

    /// Numbers in both formats, as converted by a C compiler.
    const SAME: [(u16, u64, u128); 8] = [
        (0x0000, 0, 0),
        (0x8000, 0, 0x8000 << 112),
        (0x3fff, 0x8000_0000_0000_0000, 0x3fff << 112),
        (0xc000, 0xc90f_daa2_2168_c235, 0xc000_921f_b544_42d1_846a_0000_0000_0000),
        (0x0000, 1, 0x2_0000_0000_0000),
        (0x0001, 0x8000_0000_0000_0000, 1 << 112),
        (0x7ffe, u64::MAX, 0x7ffe_ffff_ffff_ffff_fffe_0000_0000_0000),
        (0x7fff, 0x8000_0000_0000_0000, 0x7fff << 112),
    ];

    #[test]
    fn numbers_there_and_back() {
        for (head, significand, bits) in SAME {
            assert_eq!(widen(x87(head, significand)), Some(bits), "{head:x} {significand:x}");
            assert_eq!(narrow(bits), x87(head, significand), "{bits:x}");
        }
    }

    #[test]
    fn numbers_of_no_value() {
        for (head, significand) in [(0x3fff, 1), (0x7fff, 0), (0x0001, INTEGER - 1)] {
            assert_eq!(widen(x87(head, significand)), None);
        }
        // NaN stays NaN, and keeps the payload bits that fit.
        let quiet = 0x7fff_8000_0000_0000_0000_0000_0000_0000;
        assert_eq!(narrow(quiet), x87(0x7fff, 0xc000_0000_0000_0000));
        assert_eq!(widen(x87(0xffff, 0xc000_0000_0000_0007)), Some(1 << 127 | quiet | 7 << EXTRA_BITS));
        assert_eq!(narrow((0x7fff << 112) | 1), x87(0x7fff, 0xc000_0000_0000_0000));
        // The smallest normal number, encoded as a pseudo-denormal.
        assert_eq!(widen(x87(0, INTEGER)), Some(1 << 112));
    }

    #[test]
    fn rounding_to_nearest_even() {
        let one = 0x3fff << 112_u128;
        let (step, half) = (1_u128 << EXTRA_BITS, 1_u128 << (EXTRA_BITS - 1));
        for (bits, significand) in [
            (one + half - 1, INTEGER),
            (one + half, INTEGER),
            (one + half + 1, INTEGER + 1),
            (one + step + half, INTEGER + 2),
            (one + step + half - 1, INTEGER + 1),
        ] {
            assert_eq!(narrow(bits), x87(0x3fff, significand), "{bits:x}");
        }
        assert_eq!(narrow((0x4000 << 112) - 1), x87(0x4000, INTEGER));
        assert_eq!(narrow((1 << 112) - 1), x87(1, INTEGER));
        assert_eq!(narrow((0x7fff << 112) - 1), x87(0x7fff, INTEGER));
        assert_eq!(narrow(half), x87(0, 0));
        assert_eq!(narrow(half + 1), x87(0, 1));
    }

    #[test]
    fn all_exponents_and_bits_there_and_back() {
        for exponent in 1..SPECIAL {
            let significand = INTEGER | u64::from(exponent).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1;
            let bytes = x87(exponent | (exponent << 15), significand);
            assert_eq!(narrow(widen(bytes).unwrap()), bytes);
        }
        for bit in 0..63 {
            for exponent in [0, 1, 0x3fff, 0x7ffe] {
                let integer = if exponent == 0 { 0 } else { INTEGER };
                let bytes = x87(exponent, integer | 1 << bit);
                assert_eq!(narrow(widen(bytes).unwrap()), bytes);
            }
        }
    }
}
