//! Hand-written datatype tests: predefined types, normal form, bounds, limits, errors, contents.

use farside_datatype::{
    Darray, Datatype, DatatypeErrorKind, Distribution, MAX_DEPTH, Named, Order, Overlap, Run, Subarray, TypeMap,
};

fn t(named: Named) -> Datatype {
    named.into()
}

fn runs(map: &TypeMap) -> Vec<Run> {
    map.runs(0, u64::MAX).collect()
}

fn one_run(offset: i64, count: u64, stride: i64, len: u64) -> Vec<Run> {
    vec![Run { offset, count, stride, len }]
}

/// This holds even if the hash of a signature is 0 for every element type, as for 2^60 - 1 equal elements.
#[test]
fn element_of_overlapping_vector_is_known_for_every_count() {
    let of = |named, count| Datatype::vector(count, 1, 0, &t(named)).unwrap().message(1).unwrap();
    for count in [1, 7, u64::MAX / 64, u64::MAX / 16] {
        for named in [Named::Uint64, Named::Double] {
            let map = of(named, count);
            assert_eq!(map.element(), Some(named), "{count}");
            assert_eq!(TypeMap::from_wire(&map.to_wire()).unwrap(), map, "{count}");
        }
        assert!(of(Named::Uint64, count).check_elements(&of(Named::Double, count)).is_err(), "{count}");
    }
    let mixed = Datatype::structure(&[1, 1], &[0, 4], &[t(Named::Int), t(Named::Float)]).unwrap();
    assert_eq!(mixed.message(1).unwrap().element(), None);
    assert_eq!(t(Named::TwoInt).message(2).unwrap().element(), Some(Named::Int));
}

#[test]
fn predefined_sizes_are_those_of_c() {
    #[repr(C)]
    struct Pair<T>(T, i32);
    let pairs = [
        (Named::FloatInt, 8, size_of::<Pair<f32>>()),
        (Named::DoubleInt, 12, size_of::<Pair<f64>>()),
        (Named::LongInt, 12, size_of::<Pair<i64>>()),
        (Named::TwoInt, 8, size_of::<Pair<i32>>()),
        (Named::ShortInt, 6, size_of::<Pair<i16>>()),
        (Named::LongDoubleInt, 20, 32),
    ];
    for (named, size, extent) in pairs {
        assert_eq!((named.size(), named.extent()), (size, extent), "{}", named.mpi_name());
    }
    assert_eq!((Named::CDoubleComplex.size(), Named::CDoubleComplex.align()), (16, 8));
    assert_eq!((Named::LongDouble.size(), Named::Long.external_size(), Named::DoubleInt.external_size()), (16, 4, 12));
    let names: std::collections::HashSet<_> = Named::ALL.iter().map(|named| named.mpi_name()).collect();
    assert_eq!(names.len(), Named::ALL.len());
    for named in Named::ALL {
        let (t, message) = (t(*named), t(*named).message(3).unwrap());
        assert_eq!((t.size(), t.extent()), (named.size() as u64, named.extent() as i64));
        assert_eq!(message.size(), 3 * t.size());
        assert_eq!(message.true_ub(), 2 * t.extent() + t.true_extent() as i64, "{}", named.mpi_name());
    }
}

#[test]
fn subarray_of_full_rows_is_one_block() {
    let array = |subsizes: &[u64], starts: &[u64], order| {
        let (subsizes, starts) = (subsizes.to_vec(), starts.to_vec());
        Datatype::subarray(&Subarray { sizes: vec![4, 5, 6], subsizes, starts, order, old: t(Named::Int) })
            .unwrap()
            .message(1)
            .unwrap()
    };
    assert_eq!(runs(&array(&[2, 5, 6], &[1, 0, 0], Order::C)), one_run(120, 1, 0, 240));
    assert_eq!(runs(&array(&[4, 2, 6], &[0, 1, 0], Order::C)), one_run(24, 4, 120, 48));
    // A face of one element per row: rows of all planes continue each other.
    assert_eq!(runs(&array(&[4, 5, 1], &[0, 0, 2], Order::C)), one_run(8, 20, 24, 4));
    assert_eq!(runs(&array(&[1, 5, 6], &[2, 0, 0], Order::Fortran)), one_run(8, 30, 16, 4));
}

#[test]
fn equal_neighbours_merge() {
    let int = t(Named::Int);
    let pair = Datatype::structure(&[1, 1], &[0, 4], &[int.clone(), t(Named::Float)]).unwrap();
    assert_eq!(runs(&pair.message(1000).unwrap()), one_run(0, 1, 0, 8000));
    let indexed = Datatype::indexed(&[2, 3, 1], &[0, 2, 5], &int).unwrap();
    assert!(indexed.message(1).unwrap().is_contiguous());
    let regular = Datatype::indexed_block(1, &[0, 5, 10, 15], &int).unwrap();
    assert_eq!(runs(&regular.message(1).unwrap()), one_run(0, 4, 20, 4));
    let vector = Datatype::vector(3, 1, 5, &int).unwrap();
    let two = Datatype::hindexed(&[1, 1], &[0, 60], &vector).unwrap();
    assert_eq!(two.message(1).unwrap(), Datatype::vector(6, 1, 5, &int).unwrap().message(1).unwrap());
    let resized = Datatype::resized(&int, 0, 16).unwrap();
    assert_eq!(runs(&resized.message(9).unwrap()), one_run(0, 9, 16, 4));
}

#[test]
fn vectors_that_continue_merge_only_at_one_stride() {
    let int = t(Named::Int);
    let vector = |count, stride| Datatype::vector(count, 1, stride, &int).unwrap();
    let two = |first: Datatype, second: Datatype, at: i64| {
        Datatype::structure(&[1, 1], &[0, at], &[first, second]).unwrap().message(1).unwrap()
    };
    assert_eq!(runs(&two(vector(2, 3), vector(3, 3), 24)), one_run(0, 5, 12, 4));
    assert_eq!(runs(&two(vector(2, 3), int.clone(), 24)), one_run(0, 3, 12, 4));
    assert_eq!(runs(&two(int.clone(), vector(2, 3), 12)), one_run(0, 3, 12, 4));
    let apart = [one_run(0, 2, 12, 4), one_run(24, 2, 16, 4)].concat();
    assert_eq!(runs(&two(vector(2, 3), vector(2, 4), 24)), apart);
    let apart = [one_run(0, 2, 12, 4), one_run(24, 1, 0, 8)].concat();
    assert_eq!(runs(&two(vector(2, 3), Datatype::contiguous(2, &int).unwrap(), 24)), apart);
}

#[test]
fn struct_extent_is_padded_unless_resized() {
    let types = [t(Named::Double), t(Named::Char)];
    let plain = Datatype::structure(&[1, 1], &[0, 8], &types).unwrap();
    assert_eq!((plain.size(), plain.extent(), plain.true_extent(), plain.align()), (9, 16, 9, 8));
    let resized = Datatype::resized(&t(Named::Double), -2, 9).unwrap();
    let marked = Datatype::structure(&[1, 1], &[0, 8], &[resized, t(Named::Char)]).unwrap();
    assert_eq!((marked.lb(), marked.ub(), marked.true_extent()), (-2, 7, 9));
}

#[test]
fn zero_counts_have_no_bytes_and_no_extent() {
    let int = t(Named::Int);
    let empty = [
        Datatype::contiguous(0, &int).unwrap(),
        Datatype::vector(0, 3, i64::MAX, &int).unwrap(),
        Datatype::vector(1, 0, 5, &int).unwrap(),
        Datatype::indexed(&[], &[], &int).unwrap(),
        Datatype::hindexed(&[0, 0], &[-8, 90], &int).unwrap(),
        Datatype::structure(&[0], &[7], std::slice::from_ref(&int)).unwrap(),
        Datatype::contiguous(u64::MAX, &Datatype::contiguous(0, &int).unwrap()).unwrap(),
    ];
    for t in empty {
        assert_eq!((t.size(), t.lb(), t.ub(), t.true_lb(), t.true_extent()), (0, 0, 0, 0, 0), "{t:?}");
        assert_eq!(t.message(u64::MAX).unwrap(), TypeMap::EMPTY);
        assert_eq!(t.signature().elements(), 0);
    }
    // The type has no bytes, but its bounds count.
    let gap = Datatype::resized(&Datatype::contiguous(0, &int).unwrap(), 0, 10).unwrap();
    let three = Datatype::contiguous(3, &gap).unwrap();
    assert_eq!((three.size(), three.extent()), (0, 30));
}

#[test]
fn counts_of_2_to_the_40() {
    let t40 = Datatype::vector(1 << 40, 1, 2, &t(Named::Int)).unwrap();
    assert_eq!((t40.size(), t40.extent()), (1 << 42, (1 << 43) - 4));
    let message = t40.message(3).unwrap();
    let at = (1_u64 << 42) * 2 + 4 * 1000 + 1;
    // The first element of the third block: the extent ends with the last element.
    assert_eq!(message.blocks(at).next(), Some((2 * ((1 << 43) - 4) + 8000 + 1, 3)));
    let longs = Datatype::contiguous(1 << 40, &t(Named::Int64)).unwrap();
    assert_eq!(longs.signature(), Datatype::vector(1 << 20, 1 << 20, 1 << 21, &t(Named::Int64)).unwrap().signature());
}

#[test]
fn overflow_is_an_error() {
    let double = t(Named::Double);
    let big = Datatype::resized(&double, 0, i64::MAX).unwrap();
    let results = [
        Datatype::contiguous(1 << 60, &double),
        Datatype::contiguous(u64::MAX, &double),
        Datatype::vector(2, 1, i64::MAX, &double),
        Datatype::vector(3, 1, i64::MIN / 8, &double),
        Datatype::hvector(2, 1, i64::MIN, &double),
        Datatype::hvector(u64::MAX, 1, 0, &double),
        Datatype::indexed(&[1], &[i64::MAX], &double),
        Datatype::hindexed(&[1], &[i64::MAX], &double),
        Datatype::hindexed(&[1, 1], &[i64::MIN, 0], &double),
        Datatype::structure(&[2], &[8], std::slice::from_ref(&big)),
        Datatype::contiguous(2, &big),
        Datatype::resized(&double, 1, i64::MAX),
        Datatype::subarray(&Subarray {
            sizes: vec![1 << 40, 1 << 40],
            subsizes: vec![1, 1],
            starts: vec![0, 0],
            order: Order::C,
            old: double.clone(),
        }),
    ];
    for (index, result) in results.into_iter().enumerate() {
        let error = result.expect_err(&index.to_string());
        assert_eq!(error.kind(), DatatypeErrorKind::Overflow, "{index}");
        assert!(error.to_string().contains("64 bits; keep sizes"), "{error}");
    }
    assert_eq!(double.message(1 << 61).unwrap_err().kind(), DatatypeErrorKind::Overflow);
    // Both ends fit 64 bits, but the distance between them does not.
    let far = Datatype::resized(&double, 0, -i64::MAX).unwrap();
    assert_eq!(far.message(2).unwrap_err().kind(), DatatypeErrorKind::Overflow);
}

#[test]
fn bad_arguments_are_errors() {
    let int = t(Named::Int);
    let part = |subsizes: &[u64], starts: &[u64]| {
        let (subsizes, starts) = (subsizes.to_vec(), starts.to_vec());
        Datatype::subarray(&Subarray { sizes: vec![4, 4], subsizes, starts, order: Order::C, old: int.clone() })
    };
    let deal = |size, rank, how, p| {
        let (distributions, psizes) = (vec![how], vec![p]);
        let (gsizes, order) = (vec![10], Order::C);
        Datatype::darray(&Darray { size, rank, gsizes, distributions, psizes, order, old: int.clone() })
    };
    let results = [
        Datatype::indexed(&[1], &[], &int),
        Datatype::structure(&[1], &[1], &[]),
        part(&[2], &[0, 0]),
        part(&[0, 2], &[0, 0]),
        part(&[2, 3], &[0, 2]),
        part(&[2, 3], &[0, u64::MAX]),
        deal(2, 0, Distribution::Block(None), 3),
        deal(3, 3, Distribution::Block(None), 3),
        deal(0, 0, Distribution::Block(None), 0),
        deal(2, 0, Distribution::None, 2),
        deal(2, 0, Distribution::Block(Some(4)), 2),
        deal(2, 0, Distribution::Cyclic(Some(0)), 2),
    ];
    for (index, result) in results.into_iter().enumerate() {
        assert_eq!(result.expect_err(&index.to_string()).kind(), DatatypeErrorKind::BadArgument, "{index}");
    }
}

#[test]
fn nesting_beyond_the_limit_is_an_error() {
    let mut deep = t(Named::Int);
    for _ in 0..MAX_DEPTH {
        deep = Datatype::contiguous(1, &deep).unwrap();
    }
    assert_eq!(Datatype::contiguous(1, &deep).unwrap_err().kind(), DatatypeErrorKind::TooDeep);
    // Overlapping strides never merge, and deeper nesting does not increase their span.
    let mut levels = Ok(t(Named::Int));
    for _ in 0..MAX_DEPTH {
        levels = levels.and_then(|t| Datatype::hvector(2, 2, 1, &t));
    }
    assert!(matches!(levels.unwrap_err().kind(), DatatypeErrorKind::TooDeep | DatatypeErrorKind::Overflow));
}

#[test]
fn overlap_of_transposed_columns_is_decided_at_once() {
    let column = Datatype::resized(&Datatype::vector(4_000_000, 1, 1000, &t(Named::Int)).unwrap(), 0, 4).unwrap();
    let transposed = column.message(1000).unwrap();
    assert_eq!(transposed.block_count(), 4_000_000_000);
    assert_eq!(transposed.overlap(), Overlap::None);
    let twice = Datatype::hvector(2, 1, 2, &t(Named::Int)).unwrap().message(1).unwrap();
    assert_eq!(twice.overlap(), Overlap::At(2));
    let backwards = Datatype::hvector(1 << 30, 1, -8, &t(Named::Int)).unwrap().message(1).unwrap();
    assert_eq!(backwards.overlap(), Overlap::None);
}

#[test]
fn parts_are_the_component_types() {
    let names = |of: &Datatype| of.parts().iter().map(|(count, part)| (*count, part.named())).collect::<Vec<_>>();
    let (int, double) = (t(Named::Int), t(Named::Double));
    let types = [int.clone(), double, int.clone()];
    let structure = Datatype::structure(&[1, 2, 0], &[0, 8, 0], &types).unwrap();
    assert_eq!(names(&structure), [(1, Some(Named::Int)), (2, Some(Named::Double))]);
    assert_eq!(names(&Datatype::contiguous(3, &structure).unwrap()), [(3, None)]);
    assert_eq!(names(&Datatype::hvector(2, 3, 19, &int).unwrap()), [(6, Some(Named::Int))]);
    assert_eq!(names(&Datatype::hvector(0, 3, 19, &int).unwrap()), []);
    assert_eq!(names(&t(Named::DoubleInt)), [(1, Some(Named::Double)), (1, Some(Named::Int))]);
    assert_eq!(names(&int), []);
}
