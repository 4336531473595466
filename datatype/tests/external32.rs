//! external32 against hand-written bytes and round trips.

use crate::common::{Naive, Script};
use farside_datatype::{Class, Datatype, DatatypeErrorKind, Named};
use proptest::prelude::*;

fn pack(t: &Datatype, count: u64, buffer: &[u8]) -> Vec<u8> {
    let mut out = vec![0; t.external_size(count).unwrap() as usize];
    assert_eq!(t.pack_external(count, buffer, 0, &mut out).unwrap(), out.len());
    out
}

#[test]
fn elements_big_endian_of_fixed_width() {
    assert_eq!(
        pack(&Named::Int.into(), 2, &[1_i32.to_ne_bytes(), (-2_i32).to_ne_bytes()].concat()),
        [0, 0, 0, 1, 0xff, 0xff, 0xff, 0xfe]
    );
    assert_eq!(pack(&Named::Long.into(), 1, &(-3_i64).to_ne_bytes()), [0xff, 0xff, 0xff, 0xfd]);
    assert_eq!(pack(&Named::LongLong.into(), 1, &5_i64.to_ne_bytes()), [0, 0, 0, 0, 0, 0, 0, 5]);
    assert_eq!(pack(&Named::Wchar.into(), 1, &0xe9_u32.to_ne_bytes()), [0, 0xe9]);
    assert_eq!(pack(&Named::Double.into(), 1, &1.5_f64.to_ne_bytes()), 1.5_f64.to_be_bytes());
    let complex = [1.0_f32.to_ne_bytes(), 2.0_f32.to_ne_bytes()].concat();
    assert_eq!(
        pack(&Named::CFloatComplex.into(), 1, &complex),
        [1.0_f32.to_be_bytes(), 2.0_f32.to_be_bytes()].concat()
    );
    // A pair is packed without its padding.
    let mut pair = [0xee; 8];
    pair[..2].copy_from_slice(&7_i16.to_ne_bytes());
    pair[4..].copy_from_slice(&9_i32.to_ne_bytes());
    assert_eq!(pack(&Named::ShortInt.into(), 1, &pair), [0, 7, 0, 0, 0, 9]);
    assert_eq!(pack(&Named::Byte.into(), 3, &[1, 2, 3]), [1, 2, 3]);
}

/// Sizes are computed without a walk over the elements: neither of a vector of 2^50 elements, nor of nested types with
/// 2^55 elements.
#[test]
fn sizes_are_products() {
    let mixed =
        Datatype::structure(&[1, 1, 3], &[0, 8, 16], &[Named::Int, Named::Double, Named::Long].map(Datatype::from));
    let mixed = mixed.unwrap();
    assert_eq!(mixed.external_size(1 << 50).unwrap(), 24 << 50);
    let rows = Datatype::hvector(1 << 20, 1 << 20, 1 << 30, &mixed).unwrap();
    assert_eq!(rows.external_size(4).unwrap(), 24 << 42);
    let mut nested: Datatype = Named::Long.into();
    for _ in 0..14 {
        nested = Datatype::structure(&[1 << 3, 1 << 3], &[0, nested.extent() << 3], &[nested.clone(), nested.clone()])
            .unwrap();
    }
    assert_eq!(nested.external_size(1).unwrap(), 4 << 56);
    assert_eq!(nested.external_size(1 << 8).unwrap_err().kind(), DatatypeErrorKind::Overflow);
    assert_eq!(mixed.external_size(0).unwrap(), 0);
}

#[test]
fn value_that_does_not_fit_is_an_error() {
    let mut no_integer_bit = vec![0; 16];
    no_integer_bit[9] = 0x3f;
    let cases: [(Named, Vec<u8>); 4] = [
        (Named::Long, (1_i64 << 31).to_ne_bytes().into()),
        (Named::Long, (-(1_i64 << 31) - 1).to_ne_bytes().into()),
        (Named::UnsignedLong, (1_u64 << 32).to_ne_bytes().into()),
        (Named::LongDouble, no_integer_bit),
    ];
    for (named, bytes) in cases {
        let error = Datatype::from(named).pack_external(1, &bytes, 0, &mut [0; 16]).unwrap_err();
        assert_eq!(error.kind(), DatatypeErrorKind::External, "{error}");
        assert!(error.to_string().contains(named.mpi_name()), "{error}");
    }
    assert_eq!(pack(&Named::Long.into(), 1, &(-(1_i64 << 31)).to_ne_bytes()), [0x80, 0, 0, 0]);
    assert_eq!(pack(&Named::UnsignedLong.into(), 1, &u64::from(u32::MAX).to_ne_bytes()), [0xff; 4]);
}

#[test]
fn long_double_is_binary128() {
    // -3.5 and 1.0 in the x87 format, with nonzero padding.
    let mut values = [0xee; 32];
    values[..10].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0xe0, 0x00, 0xc0]);
    values[16..26].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x3f]);
    let external = [&[0xc0, 0x00, 0xc0][..], &[0; 13], &[0x3f, 0xff], &[0; 14]].concat();
    assert_eq!(pack(&Named::LongDouble.into(), 2, &values), external);
    assert_eq!(pack(&Named::CLongDoubleComplex.into(), 1, &values), external);
    let mut back = [0xdd; 32];
    Datatype::from(Named::LongDouble).unpack_external(&external, 2, &mut back, 0).unwrap();
    values[10..16].fill(0);
    values[26..].fill(0);
    assert_eq!(back, values);
}

#[test]
fn short_buffers_are_errors() {
    let int = Datatype::from(Named::Int);
    for result in [
        int.pack_external(2, &[0; 7], 0, &mut [0; 8]),
        int.pack_external(2, &[0; 8], 0, &mut [0; 7]),
        int.unpack_external(&[0; 7], 2, &mut [0; 8], 0),
        int.unpack_external(&[0; 8], 2, &mut [0; 7], 0),
    ] {
        assert_eq!(result.unwrap_err().kind(), DatatypeErrorKind::Buffer);
    }
}

#[test]
fn more_than_a_piece() {
    let t = Datatype::vector(5000, 1, 3, &Named::Int.into()).unwrap();
    let ints: Vec<u8> = (0..15_000_i32).flat_map(i32::to_ne_bytes).collect();
    let expected: Vec<u8> = (0..5000_i32).flat_map(|i| (3 * i).to_be_bytes()).collect();
    assert_eq!(pack(&t, 1, &ints), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 500 }))]

    #[test]
    fn random_types_as_element_by_element(
        choices in proptest::collection::vec(any::<u32>(), 0..60),
        count in 0_u64..3,
    ) {
        let naive = Naive::random(&mut Script::new(&choices), 3);
        let elements = naive.message(count);
        let (t, map) = (&naive.datatype, naive.datatype.message(count).unwrap());
        let origin = map.true_lb().min(0).unsigned_abs() as usize;
        let buffer: Vec<u8> = (0..origin + map.true_ub().max(0) as usize).map(|i| (i * 7) as u8).collect();
        let mut out = vec![0; t.external_size(count).unwrap() as usize];
        let packed = t.pack_external(count, &buffer, origin, &mut out);
        if elements.iter().any(|(_, named)| named.class() == Class::LongDouble) {
            // Random bytes are rarely valid values throughout.
            if let Err(error) = packed {
                prop_assert_eq!(error.kind(), DatatypeErrorKind::External);
            }
            return Ok(());
        }
        let mut expected = Vec::new();
        for (at, named) in &elements {
            let start = (origin as i64 + at) as usize;
            let element = &buffer[start..start + named.size()];
            let scalar = match named {
                Named::CDoubleComplex => 8,
                Named::Byte => 1,
                other => other.size(),
            };
            expected.extend(element.chunks(scalar).flat_map(|scalar| scalar.iter().rev().copied()));
        }
        prop_assert_eq!(packed.unwrap(), expected.len());
        prop_assert_eq!(&out, &expected);
        // Unpacking writes exactly the bytes of the message.
        let mut target = vec![0; buffer.len()];
        let mut wanted = target.clone();
        for (at, named) in &elements {
            let start = (origin as i64 + at) as usize;
            wanted[start..start + named.size()].copy_from_slice(&buffer[start..start + named.size()]);
        }
        prop_assert_eq!(t.unpack_external(&out, count, &mut target, origin).unwrap(), out.len());
        prop_assert_eq!(target, wanted);
    }
}
