//! Pack, unpack and copies against byte-by-byte walks.

use crate::common::{Naive, Script, bytes};
use farside_datatype::{Datatype, DatatypeErrorKind, Named, TypeMap};
use proptest::prelude::*;

/// A buffer that holds the message, filled with a pattern, and the index of offset 0 in it.
fn buffer(map: &TypeMap, seed: u8) -> (Vec<u8>, usize) {
    let low = map.true_lb().min(0).unsigned_abs() as usize + 3;
    let len = low + map.true_ub().max(0) as usize + 3;
    ((0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect(), low)
}

fn naive_pack(offsets: &[i64], buffer: &[u8], origin: usize) -> Vec<u8> {
    offsets.iter().map(|at| buffer[(origin as i64 + at) as usize]).collect()
}

fn naive_unpack(offsets: &[i64], input: &[u8], buffer: &mut [u8], origin: usize) {
    for (at, byte) in offsets.iter().zip(input) {
        buffer[(origin as i64 + at) as usize] = *byte;
    }
}

fn offsets(map: &TypeMap) -> Vec<i64> {
    map.blocks(0).flat_map(|(at, len)| at..at + len as i64).collect()
}

/// Packs and unpacks in pieces of `piece` bytes, and compares with a byte-by-byte walk.
fn check(map: &TypeMap, piece: usize) {
    let offsets = offsets(map);
    let (source, origin) = buffer(map, 1);
    let packed = naive_pack(&offsets, &source, origin);
    let (mut got, mut part) = (Vec::new(), vec![0; piece]);
    loop {
        let len = map.pack(&source, origin, got.len() as u64, &mut part).unwrap();
        if len == 0 {
            break;
        }
        got.extend_from_slice(&part[..len]);
    }
    assert_eq!(got, packed);

    let (mut expected, _) = buffer(map, 99);
    let mut target = expected.clone();
    naive_unpack(&offsets, &packed, &mut expected, origin);
    for (i, part) in packed.chunks(piece).enumerate() {
        assert_eq!(map.unpack(part, (i * piece) as u64, &mut target, origin).unwrap(), part.len());
    }
    assert_eq!(target, expected);
}

/// Vectors of short blocks, with lengths around the classes of the loops, including vectors of every second element.
#[test]
fn many_short_blocks() {
    let byte = Datatype::from(Named::Byte);
    for len in [3, 4, 8, 16] {
        for count in [31, 32, 33, 37, 511, 512, 513, 519, 1027] {
            for stride in [1, 5, 8, 9, 16, 17, 31, 32, 33, 64, -5, -8, -9, -32, -33] {
                let map = Datatype::hvector(count, len, stride, &byte).unwrap().message(1).unwrap();
                check_ranges(&map, (count % 7) as usize);
            }
        }
    }
}

/// Blocks whose addresses share cache sets.
#[test]
fn blocks_at_distances_of_pages() {
    let byte = Datatype::from(Named::Byte);
    for len in [1, 3, 4, 8, 16, 33, 64, 100, 128, 200, 300, 512, 600] {
        for (count, stride) in
            [(97, 1024), (49, -2048), (101, 3072), (24, 4096), (33, -4096), (27, 16384), (200, 512), (600, 1024)]
        {
            let map = Datatype::hvector(count, len, stride, &byte).unwrap().message(1).unwrap();
            check_ranges(&map, count as usize % 7);
        }
    }
}

/// Rows that another level repeats.
#[test]
fn rows_in_another_level() {
    let byte = Datatype::from(Named::Byte);
    for len in [127_u64, 128, 129, 255, 256, 257, 1000, 1025] {
        for (rows, by) in [(2, 1), (5, 1), (6, -1), (9, 7)] {
            let step = by * (len as i64 + 9);
            let run = Datatype::hvector(rows, len, step, &byte).unwrap();
            for (count, apart) in [(3, 100), (4, -80)] {
                check_ranges(&Datatype::hvector(count, 1, apart * step + 1, &run).unwrap().message(1).unwrap(), 3);
            }
        }
    }
}

/// Messages larger than the caches: rows and lists of rows, from and to every alignment.
#[test]
fn large_messages_of_rows() {
    let byte = Datatype::from(Named::Byte);
    for (len, gap) in [(64, 64), (64, 1), (100, 28), (512, 512), (1000, 24), (4096, 64), (70_000, 1)] {
        let (count, step) = ((8 << 20) / len + 3, len + gap);
        let places: Vec<i64> = (0..count as i64).map(|i| i * step as i64 + i % 3 * gap as i64 / 3).collect();
        let list = Datatype::hindexed_block(len as u64, &places, &byte).unwrap();
        let rows = Datatype::hvector(count as u64, len as u64, step as i64, &byte).unwrap();
        for (t, at) in [(rows, 0), (list, 5)] {
            let map = t.message(1).unwrap();
            let extent = at + map.true_ub() as usize;
            let source: Vec<u8> = (0..extent).map(|i| ((i * 7) >> 3) as u8).collect();
            let place = |i: usize| at + if at == 0 { i * step } else { places[i] as usize };
            let mut expected = vec![0; map.size() as usize];
            for (i, row) in expected.chunks_mut(len).enumerate() {
                row.copy_from_slice(&source[place(i)..][..len]);
            }
            for shift in [0, 16, 33] {
                let mut packed = vec![1; shift + expected.len()];
                assert_eq!(map.pack(&source, at, 0, &mut packed[shift..]), Ok(expected.len()));
                assert!(packed[shift..] == expected && packed[..shift].iter().all(|b| *b == 1), "{len} + {gap}");
            }
            let mut wanted = vec![9; extent];
            for (i, row) in expected.chunks(len).enumerate() {
                wanted[place(i)..][..len].copy_from_slice(row);
            }
            let mut target = vec![9; extent];
            assert_eq!(map.unpack(&expected, 0, &mut target, at), Ok(expected.len()));
            assert!(target == wanted, "{len} + {gap} unpacked");
            target.fill(9);
            assert_eq!(map.copy(&source, at, &map, &mut target, at), Ok(expected.len()));
            assert!(target == wanted, "{len} + {gap} copied");
        }
    }
}

/// Large messages whose rows share bytes: the bytes that come later in packed order are kept.
#[test]
fn large_messages_of_rows_that_overlap() {
    let byte = Datatype::from(Named::Byte);
    let (len, count) = (128, (8 << 20) / 128 + 1);
    for step in [64_i64, 100, 0] {
        let rows = Datatype::hvector(count, len, step, &byte).unwrap();
        let places: Vec<i64> = (0..count as i64).map(|i| (i ^ 1) * step).collect();
        let list = Datatype::hindexed_block(len, &places, &byte).unwrap();
        for (t, swapped) in [(rows, 0), (list, 1)] {
            let map = t.message(1).unwrap();
            let packed: Vec<u8> = (0..map.size() as usize).map(|i| ((i * 11) >> 4) as u8).collect();
            let mut wanted = vec![9; map.true_ub() as usize];
            for (i, row) in packed.chunks(len as usize).enumerate() {
                wanted[(i ^ swapped) * step as usize..][..len as usize].copy_from_slice(row);
            }
            let mut target = vec![9; wanted.len()];
            assert_eq!(map.unpack(&packed, 0, &mut target, 0), Ok(packed.len()));
            assert!(target == wanted, "{step}");
        }
    }
}

#[test]
fn every_kernel_length_and_stride() {
    for len in (1..70).chain([127, 128, 191, 192, 300, 511, 512, 1000, 8191, 8192, 8193]) {
        for (count, gap) in [(1, 0), (7, 1), (8, 3), (9, len), (37, 5)] {
            for sign in [1, -1] {
                let byte = Named::Byte.into();
                let map =
                    Datatype::hvector(count, len, sign * (len as i64 + gap as i64), &byte).unwrap().message(1).unwrap();
                check(&map, 100_000);
                check(&map, 13);
            }
        }
    }
}

/// Like [`check`], between every two kinds of layouts, `at` bytes into memory of exactly the required size.
fn check_ranges(map: &TypeMap, at: usize) {
    let offsets = offsets(map);
    let origin = at + map.true_lb().min(0).unsigned_abs() as usize;
    let len = origin + map.true_ub().max(0) as usize;
    let source: Vec<u8> = (0..len).map(|i| ((i * 7) >> 1) as u8).collect();
    let packed = naive_pack(&offsets, &source, origin);
    let size = packed.len();
    let (mut target, mut expected) = (vec![9; source.len()], vec![9; source.len()]);
    naive_unpack(&offsets, &packed, &mut expected, origin);
    assert_eq!(map.copy(&source, origin, map, &mut target, origin), Ok(size));
    assert_eq!(target, expected, "{map:?} copied");
    target.fill(9);
    assert_eq!(map.copy(&source, origin, &map.clone(), &mut target, origin), Ok(size));
    assert_eq!(target, expected, "{map:?} copied to an equal one");
    for from in [0, 1, size / 3, size / 2, size.saturating_sub(9)] {
        let from = from.min(size);
        for len in [size, size / 2, size / 3 + 1, 17, 1] {
            let len = len.min(size - from);
            let mut got = vec![0; len];
            assert_eq!(map.pack(&source, origin, from as u64, &mut got), Ok(len));
            assert_eq!(got, packed[from..][..len], "{map:?} from {from}");
            let (mut target, mut expected) = (vec![9; source.len()], vec![9; source.len()]);
            naive_unpack(&offsets[from..][..len], &got, &mut expected, origin);
            assert_eq!(map.unpack(&got, from as u64, &mut target, origin), Ok(len));
            assert_eq!(target, expected, "{map:?} from {from}");
        }
    }
}

/// Every kernel in every kind of level: lists, blocks of several lengths, parts, nested strides, each repeated with
/// gaps, interleaved and backwards.
#[test]
fn every_kernel_in_every_level() {
    let byte = Datatype::from(Named::Byte);
    for len in 0..70_u64 {
        let step = len as i64 + 3;
        let block = Datatype::contiguous(len, &byte).unwrap();
        let list = Datatype::hindexed_block(len, &[7 * step, 0, 2 * step, -3 * step, step], &byte).unwrap();
        let blocks = Datatype::hindexed(&[len, 1, len + 1, 2], &[step, 0, 3 * step, -2], &byte).unwrap();
        let strided = Datatype::hvector(5, len, step, &byte).unwrap();
        let parts = [(&strided, 0), (&block, -step), (&list, 20 * step)];
        let parts = Datatype::structure(
            &[1, 1, 2],
            &parts.map(|(_, at)| at),
            &parts.map(|(t, _)| Datatype::resized(t, 0, 11 * step).unwrap()),
        )
        .unwrap();
        let twice = Datatype::hvector(3, 1, 6 * step, &strided).unwrap();
        for (i, t) in [&strided, &list, &blocks, &parts, &twice].into_iter().enumerate() {
            let at = (len as usize + i) % 17;
            check_ranges(&t.message(1).unwrap(), at);
            for (count, stride) in [(2, 50), (9, 80), (33, 60), (9, -70), (6, 1), (5, 0)] {
                let repeated = Datatype::hvector(count, 1, stride * step + 1, t).unwrap();
                check_ranges(&repeated.message(1).unwrap(), at);
            }
        }
    }
}

/// Pairs of blocks, repeated once, a few times, many times, and always at the same address; and few blocks inside
/// another level.
#[test]
fn structures_of_two_and_vectors_of_few() {
    let byte = Datatype::from(Named::Byte);
    for first in 1..40_u64 {
        for second in [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40] {
            let gap = first as i64 + 3;
            for (at, extent) in [(gap, gap + 50), (-(second as i64) - 2, gap + 50), (gap, -gap - 50), (gap, 0)] {
                let two = Datatype::hindexed(&[first, second], &[0, at], &byte).unwrap();
                for count in [1, 2, 3, 9, 14] {
                    check_ranges(&Datatype::hvector(count, 1, extent, &two).unwrap().message(1).unwrap(), 1);
                }
            }
        }
        for inner in 2..6 {
            let few = Datatype::hvector(inner, first, first as i64 + 5, &byte).unwrap();
            for count in [2, 3, 9] {
                check_ranges(&Datatype::hvector(count, 1, 6 * 45, &few).unwrap().message(1).unwrap(), 1);
            }
        }
    }
}

/// Structures of a few short blocks in any order, repeated with gaps, interleaved and backwards.
#[test]
fn small_structures_in_any_order() {
    let byte = Datatype::from(Named::Byte);
    let mut state = 7_u32;
    let mut random = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % below
    };
    for _ in 0..400 {
        let (mut at, mut places, mut lens) = (i64::from(random(40)) - 20, Vec::new(), Vec::new());
        for _ in 0..2 + random(4) {
            let len = 1 + random(14);
            places.push(at);
            lens.push(u64::from(len));
            at += i64::from(len + 1 + random(9));
        }
        for i in (1..places.len()).rev() {
            let other = random(i as u32 + 1) as usize;
            places.swap(i, other);
            lens.swap(i, other);
        }
        let one = Datatype::hindexed(&lens, &places, &byte).unwrap();
        let span = at - places.iter().min().unwrap();
        for stride in [span, span + i64::from(random(30)), -span - 1, 1, 1 << 13] {
            let count = 1 + u64::from(random(20));
            let map = Datatype::hvector(count, 1, stride, &one).unwrap().message(1).unwrap();
            check_ranges(&map, random(13) as usize);
        }
    }
}

/// A list of equal blocks, some of which are adjacent and form a block of twice the length, and one slightly longer
/// block.
#[test]
fn lists_of_almost_equal_blocks() {
    let byte = Datatype::from(Named::Byte);
    let place = |i: i64| 24 * i + i % 5 * 3;
    for touching in [0, 1, 2, 3, 50] {
        let follows = |i: i64| i % 2 == 1 && i / 2 < touching;
        let at: Vec<i64> = (0..200).map(|i| if follows(i) { place(i - 1) + 8 } else { place(i) }).collect();
        let map = Datatype::hindexed_block(8, &at, &byte).unwrap().message(1).unwrap();
        check_ranges(&map, 0);
        assert_eq!(map.blocks(0).count(), 200 - touching as usize, "blocks that touch are one");
        let mut lens = vec![8; 200];
        lens[199] = 12;
        check_ranges(&Datatype::hindexed(&lens, &at, &byte).unwrap().message(1).unwrap(), 0);
    }
}

/// Copies of lists, blocks and parts to layouts of the same lengths at other offsets, and to some of other lengths.
#[test]
fn copy_between_lists_of_the_same_lengths() {
    let byte = Datatype::from(Named::Byte);
    let lists = |len: u64, step: i64| {
        let equal = Datatype::hindexed_block(len, &[3 * step, 0, step, 7 * step, 5 * step], &byte).unwrap();
        let lens = [len, 1, len, len, len + 1, 2];
        let blocks = Datatype::hindexed(&lens, &[2 * step, 0, 4 * step, 8 * step, 10 * step, 6 * step], &byte).unwrap();
        let strided = Datatype::hvector(5, len, step, &byte).unwrap();
        let parts = Datatype::structure(&[1, 1], &[0, 20 * step], &[strided.clone(), equal.clone()]).unwrap();
        [equal, blocks, strided, parts]
    };
    for len in 1..70_u64 {
        let (near, far) = (lists(len, len as i64 + 2), lists(len, len as i64 + 9));
        for (a, b) in near.iter().zip(&far).chain(near.iter().zip(far.iter().rev())) {
            for (count, stride) in [(1, 0), (3, 40), (40, 33)] {
                let message = |t: &Datatype, step: i64| {
                    Datatype::hvector(count, 1, stride * (len as i64 + step), t).unwrap().message(1).unwrap()
                };
                let (from, to) = (message(a, 2), message(b, 9));
                if from.size() != to.size() {
                    continue;
                }
                let (source, at) = buffer(&from, 5);
                let (mut expected, to_at) = buffer(&to, 77);
                let mut got = expected.clone();
                naive_unpack(&offsets(&to), &naive_pack(&offsets(&from), &source, at), &mut expected, to_at);
                assert_eq!(from.copy(&source, at, &to, &mut got, to_at).unwrap() as u64, from.size());
                assert_eq!(got, expected, "{from:?} to {to:?}");
            }
        }
    }
}

/// Blocks that share bytes: the last one in packed order is kept, also where pieces of repetitions are moved one by
/// one.
#[test]
fn shared_bytes_last_wins() {
    let ints = Datatype::hindexed(&[1, 2, 1], &[0, 6, 1], &Named::Int.into()).unwrap();
    for stride in [-9, -1, 0, 1, 3, 8, 13, 14, 15] {
        check_ranges(&Datatype::hvector(40, 1, stride, &ints).unwrap().message(1).unwrap(), 1);
    }
}

#[test]
fn buffer_too_small_is_an_error() {
    let map = Datatype::hvector(3, 1, -8, &Named::Int.into()).unwrap().message(1).unwrap();
    assert_eq!((map.true_lb(), map.true_ub()), (-16, 4));
    let mut out = [0; 12];
    assert!(map.pack(&[0; 20], 16, 0, &mut out).is_ok());
    for (len, origin) in [(19, 16), (20, 15), (20, 17), (20, usize::MAX), (0, 0)] {
        let error = map.pack(&vec![0; len], origin, 0, &mut out).unwrap_err();
        assert_eq!(error.kind(), DatatypeErrorKind::Buffer);
        assert_eq!(map.unpack(&out, 0, &mut vec![0; len], origin).unwrap_err().kind(), DatatypeErrorKind::Buffer);
    }
    assert_eq!(TypeMap::EMPTY.pack(&[], 0, 0, &mut out), Ok(0));
    assert_eq!(map.pack(&[0; 20], 16, u64::MAX, &mut out), Ok(0));
}

#[test]
fn copy_of_other_elements_is_an_error() {
    let message = |named: Named, count| Datatype::from(named).message(count).unwrap();
    let (ints, floats) = (message(Named::Int, 2), message(Named::Float, 2));
    let error = ints.copy(&[0; 8], 0, &floats, &mut [0; 8], 0).unwrap_err();
    assert_eq!(error.kind(), DatatypeErrorKind::Signature);
    assert!(error.to_string().contains("2 elements on both sides, but with different types"), "{error}");
    let error = ints.copy(&[0; 8], 0, &message(Named::Int, 3), &mut [0; 12], 0).unwrap_err();
    assert!(error.to_string().contains("2 elements (8 bytes) at the origin, but 3 elements (12 bytes)"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 1000 }))]

    #[test]
    fn pack_in_pieces_as_byte_by_byte(
        choices in proptest::collection::vec(any::<u32>(), 0..60),
        count in 0_u64..4,
        piece in 1_usize..200,
    ) {
        let naive = Naive::random(&mut Script::new(&choices), 4);
        let map = naive.datatype.message(count).unwrap();
        prop_assert_eq!(offsets(&map), bytes(&naive.message(count)));
        check(&map, piece);
    }

    #[test]
    fn copy_as_pack_then_unpack(
        choices in proptest::collection::vec(any::<u32>(), 0..60),
        count in 0_u64..4,
        gaps in proptest::collection::vec(0_i64..40, 1..8),
        skip in any::<proptest::sample::Index>(),
    ) {
        let naive = Naive::random(&mut Script::new(&choices), 4);
        let origin = naive.datatype.message(count).unwrap();
        let target = crate::common::spread(&naive.message(count), &gaps).message(1).unwrap();
        let (source, at) = buffer(&origin, 7);
        let (mut expected, to_at) = buffer(&target, 200);
        let mut got = expected.clone();
        naive_unpack(&offsets(&target), &naive_pack(&offsets(&origin), &source, at), &mut expected, to_at);
        prop_assert_eq!(origin.copy(&source, at, &target, &mut got, to_at).unwrap() as u64, origin.size());
        prop_assert_eq!(got, expected);
        // Copies to the same layout with larger gaps, starting at any byte: packed order is the same on both sides.
        let wide = Datatype::resized(&naive.datatype, naive.lb() - 5, naive.extent() + 40).unwrap();
        let wide = wide.message(count).unwrap();
        let (mut expected, wide_at) = buffer(&wide, 3);
        let mut got = expected.clone();
        naive_unpack(&offsets(&wide), &naive_pack(&offsets(&origin), &source, at), &mut expected, wide_at);
        prop_assert_eq!(origin.copy(&source, at, &wide, &mut got, wide_at).unwrap() as u64, origin.size());
        prop_assert_eq!(got, expected);
        let cut = skip.index(origin.size() as usize + 1) as u64;
        let (a, b): (Vec<_>, Vec<_>) = (origin.blocks(cut).collect(), target.blocks(cut).collect());
        prop_assert_eq!(a.iter().map(|block| block.1).sum::<u64>(), b.iter().map(|block| block.1).sum::<u64>());
    }
}
