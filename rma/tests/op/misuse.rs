//! Undefined pairs of operation and type, lengths that differ, and bytes from the wire.

use farside_core::ErrorKind;
use farside_rma::op::{ElementType, Op, combine};

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
}

#[test]
fn combine_lengths_differ() {
    let mut acc = [1_u32, 2];
    assert_eq!(combine(Op::Sum, &mut acc, &[1]).unwrap_err().kind(), ErrorKind::BadArgument);
    assert_eq!(combine(Op::Replace, &mut acc, &[1, 2, 3]).unwrap_err().kind(), ErrorKind::BadArgument);
    assert_eq!(acc, [1, 2]);
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
