//! Undefined pairs of operation and type, lengths that differ, and bytes from the wire.

use farside_core::ErrorKind;
use farside_rma::op::{ElementType, Op, combine, combine_bytes, compare_and_swap_untyped};

#[test]
fn op_on_float_only_arithmetic_allowed() {
    let bits = [Op::Land, Op::Lor, Op::Lxor, Op::Band, Op::Bor, Op::Bxor];
    for ty in ElementType::ALL {
        for op in Op::ALL {
            let allowed = !(bits.contains(&op) && matches!(ty, ElementType::F32 | ElementType::F64));
            assert_eq!(op.allowed(ty), allowed, "{op} {ty}");
            assert_eq!(op.check(ty, "accumulate").is_ok(), allowed, "{op} {ty}");
        }
    }
}

#[test]
fn check_not_defined_error_names_both() {
    let error = Op::Band.check(ElementType::F32, "accumulate").unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Unsupported, "accumulate"));
    assert!(error.to_string().contains("band is not defined on f32"), "{error}");
}

#[test]
fn combine_not_defined_leaves_accumulator() {
    let mut acc = [1.0_f64, 2.0];
    assert_eq!(combine(Op::Lor, &mut acc, &[3.0, 4.0]).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(acc, [1.0, 2.0]);
    let mut bytes = [1; 4];
    let error = combine_bytes(Op::Bxor, ElementType::F32, &mut bytes, &[2; 4]).unwrap_err();
    assert_eq!((error.kind(), bytes), (ErrorKind::Unsupported, [1; 4]));
}

#[test]
fn combine_lengths_differ() {
    let mut acc = [1_u32, 2];
    assert_eq!(combine(Op::Sum, &mut acc, &[1]).unwrap_err().kind(), ErrorKind::BadArgument);
    assert_eq!(combine(Op::Replace, &mut acc, &[1, 2, 3]).unwrap_err().kind(), ErrorKind::BadArgument);
    assert_eq!(acc, [1, 2]);
}

#[test]
fn combine_bytes_part_of_an_element() {
    let mut acc = [1; 7];
    let error = combine_bytes(Op::Sum, ElementType::I16, &mut acc, &[1; 7]).unwrap_err();
    assert_eq!((error.kind(), acc), (ErrorKind::BadArgument, [1; 7]));
}

#[test]
fn compare_and_swap_untyped_float() {
    for ty in [ElementType::F32, ElementType::F64] {
        let (mut target, value, mut result) = (5_u64, 5_u64, 9_u64);
        let values = (&raw const value).cast();
        // SAFETY: every pointer is to a word that only this thread accesses.
        let error = unsafe {
            let (target, result) = ((&raw mut target).cast(), (&raw mut result).cast());
            compare_and_swap_untyped(ty, target, values, values, result).unwrap_err()
        };
        assert_eq!((error.kind(), target, result), (ErrorKind::Unsupported, 5, 9));
    }
}

#[test]
fn wire_byte_round_trip_or_protocol_error() {
    for byte in 0..=u8::MAX {
        match Op::try_from(byte) {
            Ok(op) => assert_eq!(op as u8, byte),
            Err(error) => assert!(byte >= 12 && error.kind() == ErrorKind::Protocol),
        }
        match ElementType::try_from(byte) {
            Ok(ty) => assert_eq!(ty as u8, byte),
            Err(error) => assert!(byte >= 10 && error.kind() == ErrorKind::Protocol),
        }
    }
    assert_eq!(Op::try_from(11).unwrap(), Op::NoOp);
    assert_eq!(ElementType::try_from(9).unwrap(), ElementType::F64);
}
