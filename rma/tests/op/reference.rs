//! A reference implementation of the operations: wide integers truncated to size, and total order for floats.

use farside_rma::op::{ElementType, Op};

/// Edge values of `ty`, as bits.
pub(crate) fn edges(ty: ElementType) -> Vec<u64> {
    match ty {
        ElementType::F32 => [
            0.0,
            -0.0,
            1.0,
            -1.0,
            2.5,
            -1e-30,
            f32::MIN_POSITIVE / 4.0,
            f32::MAX,
            f32::MIN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            f32::from_bits(0xffc0_1234),
        ]
        .map(|x| u64::from(x.to_bits()))
        .to_vec(),
        ElementType::F64 => [
            0.0,
            -0.0,
            1.0,
            -1.0,
            2.5,
            -1e-300,
            f64::MIN_POSITIVE / 4.0,
            f64::MAX,
            f64::MIN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            f64::from_bits(0xfff8_0000_0000_1234),
        ]
        .map(f64::to_bits)
        .to_vec(),
        _ => {
            let bits = 8 * ty.size() as u32;
            let (low, high) = (0, cut(u64::MAX, ty));
            let half = 1_u64 << (bits - 1);
            vec![low, 1, 2, 3, 100, half - 1, half, half + 1, high - 1, high, cut(0x55aa_33cc_0ff0_9669, ty)]
        }
    }
}

/// The element after `op`, as bits; `t` and `x` are bits too.
pub(crate) fn expected(op: Op, ty: ElementType, t: u64, x: u64) -> u64 {
    match (op, ty) {
        (Op::Replace, _) => return x,
        (Op::NoOp, _) => return t,
        (_, ElementType::F32) => {
            let result = float(
                op,
                wide(t),
                wide(x),
                |a, b| f64::from(a as f32 + b as f32),
                |a, b| f64::from(a as f32 * b as f32),
            );
            return u64::from((result as f32).to_bits());
        }
        (_, ElementType::F64) => {
            return float(op, f64::from_bits(t), f64::from_bits(x), |a, b| a + b, |a, b| a * b).to_bits();
        }
        _ => {}
    }
    let (a, b) = (number(t, ty), number(x, ty));
    let result = match op {
        // The low 64 bits of the exact result; `cut` then truncates them to the type.
        Op::Sum => a + b,
        Op::Prod => a.wrapping_mul(b),
        Op::Min => a.min(b),
        Op::Max => a.max(b),
        Op::Land => i128::from(a != 0 && b != 0),
        Op::Lor => i128::from(!(a == 0 && b == 0)),
        Op::Lxor => i128::from((a == 0) != (b == 0)),
        Op::Band => a & b,
        Op::Bor => a | b,
        Op::Bxor => a ^ b,
        Op::Replace | Op::NoOp => unreachable!("returned above"),
    };
    cut(result as u64, ty)
}

/// Whether `got` equals `expected` in all bits, except that a NaN from a sum or product may be any NaN.
pub(crate) fn agrees(op: Op, ty: ElementType, got: u64, expected: u64) -> bool {
    let nan = |bits: u64| match ty {
        ElementType::F32 => wide(bits).is_nan(),
        ElementType::F64 => f64::from_bits(bits).is_nan(),
        _ => false,
    };
    got == expected || (matches!(op, Op::Sum | Op::Prod) && nan(got) && nan(expected))
}

/// Appends one element to `bytes`.
pub(crate) fn push(bytes: &mut Vec<u8>, ty: ElementType, bits: u64) {
    bytes.extend_from_slice(&bits.to_ne_bytes()[..ty.size()]);
}

/// Element `i` of `bytes`.
pub(crate) fn element(bytes: &[u8], ty: ElementType, i: usize) -> u64 {
    let mut word = [0; 8];
    word[..ty.size()].copy_from_slice(&bytes[i * ty.size()..(i + 1) * ty.size()]);
    u64::from_ne_bytes(word)
}

/// The defined pairs of operation and type.
pub(crate) fn pairs() -> impl Iterator<Item = (Op, ElementType)> {
    Op::ALL.into_iter().flat_map(|op| ElementType::ALL.map(|ty| (op, ty))).filter(|(op, ty)| op.allowed(*ty))
}

fn float(op: Op, a: f64, b: f64, sum: fn(f64, f64) -> f64, prod: fn(f64, f64) -> f64) -> f64 {
    let ordered = || {
        let mut both = [a, b];
        both.sort_by(f64::total_cmp);
        if a.is_nan() || b.is_nan() { [f64::NAN; 2] } else { both }
    };
    match op {
        Op::Sum => sum(a, b),
        Op::Prod => prod(a, b),
        Op::Min => ordered()[0],
        Op::Max => ordered()[1],
        _ => unreachable!("not defined on floats"),
    }
}

fn wide(bits: u64) -> f64 {
    f64::from(f32::from_bits(bits as u32))
}

fn cut(bits: u64, ty: ElementType) -> u64 {
    bits & (u64::MAX >> (64 - 8 * ty.size()))
}

fn number(bits: u64, ty: ElementType) -> i128 {
    let signed = matches!(ty, ElementType::I8 | ElementType::I16 | ElementType::I32 | ElementType::I64);
    let width = 8 * ty.size() as u32;
    if signed && bits >> (width - 1) & 1 == 1 { i128::from(bits) - (1_i128 << width) } else { i128::from(bits) }
}
