//! The wire form: round trips, sizes, and malformed bytes.

use crate::common::{Naive, Script};
use farside_datatype::{Datatype, DatatypeErrorKind, MAX_DEPTH, Named, TypeMap};
use proptest::prelude::*;

/// Checks invariants that every type map has, however it was created. Walks a bounded part of it.
fn walk(map: &TypeMap) {
    let mut left = 0;
    for from in [0, map.size() / 2, map.size().saturating_sub(1)] {
        for (offset, len) in map.runs(from, u64::MAX).take(50).map(|run| (run.offset, run.len)) {
            assert!(len > 0 && offset >= map.true_lb() && offset + len as i64 <= map.true_ub());
            left += len;
        }
    }
    assert_eq!(left == 0, map.size() == 0);
    let reparsed = TypeMap::from_wire(&map.to_wire());
    assert_eq!(reparsed.as_ref(), Ok(map));
}

fn wire(choices: &[u32], count: u64) -> (TypeMap, Vec<u8>) {
    let map = Naive::random(&mut Script::new(choices), 4).datatype.message(count).unwrap();
    let wire = map.to_wire();
    (map, wire)
}

#[test]
fn vector_of_any_count_in_30_bytes() {
    let vector = Datatype::vector(1 << 40, 2, 5, &Named::Double.into()).unwrap().message(1).unwrap();
    assert!(vector.to_wire().len() <= 30, "{}", vector.to_wire().len());
    walk(&vector);
    walk(&TypeMap::EMPTY);
}

#[test]
fn truncated_or_extended_is_an_error() {
    let lens = [1, 2, 3, 1];
    let types = [Named::Int, Named::Double, Named::Char, Named::Short].map(Datatype::from);
    let t = Datatype::structure(&lens, &[0, 40, 90, 300], &types).unwrap();
    let wire = Datatype::hvector(3, 1, 1000, &t).unwrap().message(1).unwrap().to_wire();
    for len in 0..wire.len() {
        assert_eq!(TypeMap::from_wire(&wire[..len]).unwrap_err().kind(), DatatypeErrorKind::Wire, "{len}");
    }
    let longer = [&wire[..], &[0]].concat();
    assert_eq!(TypeMap::from_wire(&longer).unwrap_err().kind(), DatatypeErrorKind::Wire);
}

#[test]
fn hostile_forms_are_errors() {
    let head = [2, 4, 5, 1, 0];
    let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let forms: [(&[u8], Vec<u8>); 11] = [
        (&[1, 4, 5, 1, 0], vec![1, 8]),
        // An element code that contradicts the hash, and the code of an empty signature.
        (&[2, 3, 5, 1, 0], vec![1, 8]),
        (&[2, 4, 0, 0, 0], vec![0]),
        (&head, vec![9]),
        (&head, vec![1, 0]),
        (&head, [&[1], &most[..]].concat()),
        (&head, [&[2], &most[..], &[4, 1]].concat()),
        (&head, [&[5], &most[..], &[0, 2]].concat()),
        (&head, vec![3; 3 * MAX_DEPTH + 9]),
        (&[2, 255, 5, 9, 0], vec![1, 8]),
        (&head, vec![1, 0x88, 0]),
    ];
    for (head, body) in forms {
        let error = TypeMap::from_wire(&[head, &body].concat()).expect_err(&format!("{body:?}"));
        use DatatypeErrorKind::{Overflow, TooDeep, Wire};
        assert!(matches!(error.kind(), Wire | Overflow | TooDeep), "{error}");
    }
    assert!(TypeMap::from_wire(&[&head[..], &[1, 8]].concat()).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 3000 }))]

    #[test]
    fn round_trip_is_the_same(choices in proptest::collection::vec(any::<u32>(), 0..60), count in 0_u64..4) {
        let (map, wire) = wire(&choices, count);
        prop_assert_eq!(TypeMap::from_wire(&wire), Ok(map));
    }

    #[test]
    fn arbitrary_bytes_give_an_error_or_a_map(bytes in proptest::collection::vec(any::<u8>(), 0..80), tame in any::<bool>()) {
        // Small numbers reach the deeper checks more often.
        let body: Vec<u8> = bytes.iter().map(|byte| if tame { byte % 8 } else { *byte }).collect();
        for form in [body.clone(), [&[2, 0, 1, 1, 0], &body[..]].concat()] {
            if let Ok(map) = TypeMap::from_wire(&form) {
                walk(&map);
            }
        }
    }

    #[test]
    fn mutated_forms_give_an_error_or_a_map(
        choices in proptest::collection::vec(any::<u32>(), 0..60),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>(), 0_u8..3), 1..5),
    ) {
        let (_, mut wire) = wire(&choices, 2);
        for (index, byte, how) in changes {
            let at = index.index(wire.len());
            match how {
                0 => wire[at] = byte,
                1 => wire.insert(at, byte),
                _ => drop((wire.len() > 1).then(|| wire.remove(at))),
            }
        }
        if let Ok(map) = TypeMap::from_wire(&wire) {
            walk(&map);
        }
    }
}
