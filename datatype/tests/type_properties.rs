//! Random datatypes against lists of their elements.

use crate::common::{Naive, Script, bytes};
use farside_datatype::{Datatype, Overlap, TypeMap};
use proptest::prelude::*;

fn choices() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(any::<u32>(), 0..60)
}

fn random(choices: &[u32]) -> Naive {
    Naive::random(&mut Script::new(choices), 4)
}

fn expand(blocks: impl Iterator<Item = (i64, u64)>) -> Vec<i64> {
    blocks.flat_map(|(offset, len)| offset..offset + len as i64).collect()
}

fn expand_runs(map: &TypeMap, from: u64, len: u64) -> Vec<i64> {
    let runs = map.runs(from, len);
    expand(runs.flat_map(|run| (0..run.count as i64).map(move |i| (run.offset + i * run.stride, run.len))))
}

#[test]
fn overlap_of_interleaved_strides_of_any_count() {
    // Single bytes at 1000 i + 7 j + 5 k: two of them coincide if j can differ by 5 and k by 7.
    let far = |j, k, sign: i64| {
        let byte = farside_datatype::Named::Byte.into();
        let row = Datatype::hvector(k, 1, 5 * sign, &byte).unwrap();
        let plane = Datatype::hvector(j, 1, 7, &row).unwrap();
        Datatype::hvector(1 << 40, 1, 1000 * sign, &plane).unwrap().message(1).unwrap().overlap()
    };
    assert_eq!(far(5, 8, 1), Overlap::None);
    assert_eq!(far(6, 7, 1), Overlap::None);
    assert_eq!(far(6, 8, 1), Overlap::At(35));
    assert_eq!(far(6, 8, -1), Overlap::At(0));
    assert_eq!(far(5, 8, -1), Overlap::None);
    // Too many index differences, and too many blocks.
    let byte = farside_datatype::Named::Byte.into();
    let line = Datatype::hvector(1 << 30, 1, (1 << 31) + 1, &byte).unwrap();
    let lines = Datatype::hvector(1 << 30, 1, 1 << 31, &line).unwrap();
    assert_eq!(lines.message(1).unwrap().overlap(), Overlap::Undecided);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 1500 }))]

    #[test]
    fn bounds_as_defined(choices in choices()) {
        let naive = random(&choices);
        let t = &naive.datatype;
        let all = bytes(&naive.elements);
        prop_assert_eq!(t.size(), all.len() as u64);
        prop_assert_eq!((t.lb(), t.ub()), (naive.lb(), naive.ub()));
        prop_assert_eq!(t.extent(), naive.extent());
        let low = all.iter().min().copied().unwrap_or(0);
        prop_assert_eq!(t.true_lb(), low);
        prop_assert_eq!(t.true_extent() as i64, all.iter().max().map_or(0, |high| high + 1 - low));
        prop_assert_eq!(t.signature().elements(), naive.elements.len() as u64);
    }

    #[test]
    fn message_gives_every_byte_from_any_byte(choices in choices(), count in 0_u64..4, cut in any::<(u64, u64)>()) {
        let naive = random(&choices);
        let map = naive.datatype.message(count).unwrap();
        let all = bytes(&naive.message(count));
        prop_assert_eq!(map.size(), all.len() as u64);
        prop_assert_eq!(&expand(map.blocks(0)), &all);
        prop_assert!(map.blocks(0).count() as u64 <= map.block_count());
        let blocks: Vec<_> = map.blocks(0).collect();
        prop_assert!(blocks.windows(2).all(|pair| pair[0].0 + pair[0].1 as i64 != pair[1].0));
        let from = cut.0 % (map.size() + 2);
        let len = cut.1 % (map.size() + 2);
        let (start, end) = ((from as usize).min(all.len()), ((from + len) as usize).min(all.len()));
        prop_assert_eq!(&expand_runs(&map, from, len), &all[start..end]);
        prop_assert_eq!(&expand(map.blocks(from)), &all[start..]);
    }

    #[test]
    fn signature_equal_exactly_if_same_elements(a in choices(), b in choices(), count in 0_u64..4) {
        let (a, b) = (random(&a), random(&b));
        let names = |elements: &[(i64, _)]| elements.iter().map(|element| element.1).collect::<Vec<_>>();
        let same = names(&a.message(count)) == names(&b.elements);
        prop_assert_eq!(a.datatype.message(count).unwrap().signature() == b.datatype.signature(), same);
        // The same elements in another layout.
        let types: Vec<_> = a.elements.iter().map(|(_, named)| (*named).into()).collect();
        let at: Vec<i64> = (0..types.len() as i64).map(|i| i * 64).collect();
        let spread = farside_datatype::Datatype::structure(&vec![1; types.len()], &at, &types).unwrap();
        prop_assert_eq!(spread.signature(), a.datatype.signature());
    }

    #[test]
    fn overlap_exactly_if_a_byte_twice(choices in choices(), count in 0_u64..4) {
        let naive = random(&choices);
        let mut all = bytes(&naive.message(count));
        let map = naive.datatype.message(count).unwrap();
        let len = all.len();
        all.sort_unstable();
        let twice: Vec<i64> = all.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        all.dedup();
        match map.overlap() {
            Overlap::None => prop_assert_eq!(all.len(), len),
            Overlap::At(at) => prop_assert!(twice.contains(&at)),
            Overlap::Undecided => prop_assert!(false, "small enough to decide"),
        }
    }
}
