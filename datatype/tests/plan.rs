//! Plans against pack-then-unpack byte by byte, and the choice of schemes.

use crate::common::{Naive, Script, bytes, spread};
use farside_datatype::{
    CutOffs, Datatype, DatatypeErrorKind, Descriptor, Direction, Named, Plan, PlanLimits, Scheme, TypeMap,
};
use proptest::prelude::*;

const LIMITS: PlanLimits = PlanLimits { max_sge: 8, max_message: 1 << 30, mapped: false, target_helps: true };

const ALL: [Scheme; 8] = [
    Scheme::Empty,
    Scheme::Contiguous,
    Scheme::Mapped,
    Scheme::Generic,
    Scheme::WriteGather,
    Scheme::ReadScatter,
    Scheme::MultiW,
    Scheme::Sgrs,
];

/// The index of offset 0 in the buffers of the tests below.
fn base(map: &TypeMap) -> usize {
    map.true_lb().min(0).unsigned_abs() as usize + 5
}

fn buffer(map: &TypeMap, seed: u8) -> Vec<u8> {
    (0..base(map) + map.true_ub().max(0) as usize + 5).map(|i| (i as u8).wrapping_mul(37).wrapping_add(seed)).collect()
}

fn at(map: &TypeMap, offset: i64) -> usize {
    (base(map) as i64 + offset) as usize
}

/// The bytes of a message on one side, in packed order.
fn list(blocks: &[(i64, u64)]) -> Vec<i64> {
    blocks.iter().flat_map(|(offset, len)| *offset..offset + *len as i64).collect()
}

/// Executes the plan in the simplest way, from `from` into `to`.
fn carry_out(plan: &Plan<'_>, direction: Direction, origin: &TypeMap, target: &TypeMap, from: &[u8], to: &mut [u8]) {
    let (source, sink) = match direction {
        Direction::Put => (origin, target),
        Direction::Get => (target, origin),
    };
    if plan.scheme() == Scheme::Mapped {
        source.copy(from, base(source), sink, to, base(sink)).unwrap();
    }
    for (start, len) in plan.segments() {
        let mut piece = vec![0; len as usize];
        assert_eq!(source.pack(from, base(source), start, &mut piece), Ok(len as usize));
        assert_eq!(sink.unpack(&piece, start, to, base(sink)), Ok(len as usize));
    }
    for message in plan.descriptors() {
        let (o, t) = (list(&message.origin), list(&message.target));
        assert_eq!(o.len(), t.len());
        for (o, t) in o.into_iter().zip(t) {
            let (read, write) = if direction == Direction::Put { (o, t) } else { (t, o) };
            to[at(sink, write)] = from[at(source, read)];
        }
    }
}

fn check_limits(plan: &Plan<'_>, limits: &PlanLimits, size: u64) {
    let sge = limits.max_sge.max(1) as usize;
    let (most_origin, most_target) = match plan.scheme() {
        Scheme::Contiguous | Scheme::MultiW => (1, 1),
        Scheme::WriteGather | Scheme::ReadScatter => (sge, 1),
        _ => (sge, sge),
    };
    let mut packed = 0;
    for Descriptor { packed: start, len, origin, target } in plan.descriptors() {
        assert_eq!(start, packed);
        assert!(len > 0 && len <= limits.max_message.max(1));
        for (side, most) in [(&origin, most_origin), (&target, most_target)] {
            assert!(!side.is_empty() && side.len() <= most);
            assert!(side.iter().all(|block| block.1 > 0));
            assert_eq!(side.iter().map(|block| block.1).sum::<u64>(), len);
        }
        packed += len;
    }
    // A rank that continues where a message ends gets the same messages.
    let all: Vec<Descriptor> = plan.descriptors().collect();
    if let Some(middle) = all.get(all.len() / 2) {
        assert!(plan.descriptors_from(middle.packed).eq(all[all.len() / 2..].iter().cloned()));
        assert_eq!(plan.descriptors_from(packed).next(), None);
    }
    let by_segments: u64 = plan
        .segments()
        .map(|(start, len)| {
            assert!(len <= limits.max_message.max(1) && start < size);
            len
        })
        .sum();
    assert_eq!(packed + by_segments, if plan.scheme() == Scheme::Mapped { 0 } else { size });
}

/// Compares each allowed scheme, and the one that is chosen, with pack-then-unpack.
fn check_all(origin: &TypeMap, target: &TypeMap, direction: Direction, limits: PlanLimits, cut: &CutOffs) {
    let (source, sink) = if direction == Direction::Put { (origin, target) } else { (target, origin) };
    let from = buffer(source, 3);
    let untouched = buffer(sink, 170);
    let mut expected = untouched.clone();
    let offsets = |map: &TypeMap| map.blocks(0).flat_map(|(at, len)| at..at + len as i64).collect::<Vec<_>>();
    for (read, write) in offsets(source).into_iter().zip(offsets(sink)) {
        expected[at(sink, write)] = from[at(source, read)];
    }
    let mut plans = vec![Plan::new(origin, target, direction, limits, cut).unwrap()];
    for scheme in ALL {
        match Plan::with_scheme(scheme, origin, target, direction, limits, cut) {
            Ok(plan) => plans.push(plan),
            Err(error) => assert_eq!(error.kind(), DatatypeErrorKind::Scheme),
        }
    }
    // Multi-W is always possible.
    assert!(plans.iter().any(|plan| plan.scheme() == Scheme::MultiW));
    for plan in plans {
        let mut to = untouched.clone();
        carry_out(&plan, direction, origin, target, &from, &mut to);
        assert_eq!(to, expected, "{:?}", plan.scheme());
        check_limits(&plan, &limits, origin.size());
    }
}

fn limits() -> impl Strategy<Value = PlanLimits> {
    (0_u32..6, prop_oneof![0_u64..40, Just(1 << 30)], any::<bool>(), any::<bool>()).prop_map(
        |(max_sge, max_message, mapped, target_helps)| PlanLimits { max_sge, max_message, mapped, target_helps },
    )
}

fn cut_offs() -> impl Strategy<Value = CutOffs> {
    (0_u64..16, 0_u64..40, 0_u64..16, 0_u64..200, 0_u64..70).prop_map(
        |(gather_block, multi_w_block, sgrs_block, sgrs_bytes, segment)| CutOffs {
            gather_block,
            multi_w_block,
            sgrs_block,
            sgrs_bytes,
            segment,
        },
    )
}

/// `n` ints as nested vectors with strides of either sign: (divisor index, gap, backwards) for each level.
fn vectors(n: u64, levels: &[(prop::sample::Index, i64, bool)]) -> TypeMap {
    let mut left = n;
    let mut t = Datatype::from(Named::Int);
    for (choice, gap, backwards) in levels {
        let divisors: Vec<u64> = (1..=left).filter(|d| left.is_multiple_of(*d)).collect();
        let count = *choice.get(&divisors);
        left /= count;
        let stride = t.true_extent() as i64 + gap;
        t = Datatype::hvector(count, 1, if *backwards { -stride } else { stride }, &t).unwrap();
    }
    let stride = t.true_extent() as i64 + 4;
    Datatype::hvector(left, 1, stride, &t).unwrap().message(1).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 1000 }))]

    #[test]
    fn any_type_to_spread_elements(
        choices in proptest::collection::vec(any::<u32>(), 0..60),
        count in 0_u64..4,
        gaps in proptest::collection::vec(0_i64..20, 1..8),
        limits in limits(),
        cut in cut_offs(),
    ) {
        let naive = Naive::random(&mut Script::new(&choices), 3);
        let map = naive.datatype.message(count).unwrap();
        let other = spread(&naive.message(count), &gaps).message(1).unwrap();
        check_all(&map, &other, Direction::Put, limits, &cut);
        check_all(&other, &map, Direction::Get, limits, &cut);
        // In the other direction the random type receives, and its blocks may overlap.
        let mut all = bytes(&naive.message(count));
        all.sort_unstable();
        if all.windows(2).all(|pair| pair[0] != pair[1]) {
            check_all(&other, &map, Direction::Put, limits, &cut);
            check_all(&map, &other, Direction::Get, limits, &cut);
        } else {
            let error = Plan::new(&map, &other, Direction::Get, limits, &cut).unwrap_err();
            prop_assert_eq!(error.kind(), DatatypeErrorKind::Overlap);
            let put = Plan::new(&other, &map, Direction::Put, limits, &cut).unwrap();
            prop_assert_eq!(put.scheme() == Scheme::Generic, limits.target_helps && !limits.mapped);
        }
    }

    #[test]
    fn vectors_of_either_direction(
        n in 1_u64..150,
        a in proptest::collection::vec((any::<prop::sample::Index>(), 0_i64..9, any::<bool>()), 0..4),
        b in proptest::collection::vec((any::<prop::sample::Index>(), 0_i64..9, any::<bool>()), 0..4),
        limits in limits(),
        cut in cut_offs(),
    ) {
        let (a, b) = (vectors(n, &a), vectors(n, &b));
        check_all(&a, &b, Direction::Put, limits, &cut);
        check_all(&a, &b, Direction::Get, limits, &cut);
    }

    #[test]
    fn multi_w_one_message_a_piece(
        n in 1_u64..150,
        a in proptest::collection::vec((any::<prop::sample::Index>(), 0_i64..9, any::<bool>()), 0..4),
        b in proptest::collection::vec((any::<prop::sample::Index>(), 0_i64..9, any::<bool>()), 0..4),
    ) {
        let (a, b) = (vectors(n, &a), vectors(n, &b));
        let every = |map: &TypeMap| map.blocks(0).flat_map(|(at, len)| at..at + len as i64).collect::<Vec<_>>();
        let (left, right) = (every(&a), every(&b));
        let cuts = (1..left.len()).filter(|i| left[*i] != left[i - 1] + 1 || right[*i] != right[i - 1] + 1).count();
        let plan = Plan::with_scheme(Scheme::MultiW, &a, &b, Direction::Put, LIMITS, &CutOffs::default()).unwrap();
        prop_assert_eq!(plan.descriptors().count(), cuts + 1);
    }
}

fn columns(rows: u64, cols: u64) -> TypeMap {
    Datatype::vector(rows, cols, 4096, &Named::Int.into()).unwrap().message(1).unwrap()
}

fn contiguous(ints: u64) -> TypeMap {
    Datatype::from(Named::Int).message(ints).unwrap()
}

fn scheme(origin: &TypeMap, target: &TypeMap, direction: Direction, limits: PlanLimits) -> Scheme {
    Plan::new(origin, target, direction, limits, &CutOffs::default()).unwrap().scheme()
}

#[test]
fn sgrs_sends_blocks_by_max_sge() {
    // The paper's columns: one message for `max_sge` rows, where Multi-W sends one message per row.
    for (rows, sge) in [(64, 8), (128, 30), (128, 64), (7, 30)] {
        let map = columns(rows, 512);
        let limits = PlanLimits { max_sge: sge, ..LIMITS };
        let count = |scheme| {
            let plan = Plan::with_scheme(scheme, &map, &map, Direction::Put, limits, &CutOffs::default()).unwrap();
            plan.descriptors().count() as u64
        };
        assert_eq!(count(Scheme::Sgrs), rows.div_ceil(u64::from(sge)));
        assert_eq!(count(Scheme::MultiW), rows);
    }
}

#[test]
fn blocks_are_split_where_the_sides_differ() {
    let (a, b) = (columns(3, 4), Datatype::vector(4, 3, 10, &Named::Int.into()).unwrap().message(1).unwrap());
    let limits = PlanLimits { max_sge: 2, ..LIMITS };
    let plan = Plan::with_scheme(Scheme::Sgrs, &a, &b, Direction::Put, limits, &CutOffs::default()).unwrap();
    let messages: Vec<_> = plan.descriptors().map(|m| (m.origin.to_vec(), m.target.to_vec())).collect();
    let row = 4096 * 4;
    assert_eq!(
        messages,
        [
            (vec![(0, 16), (row, 8)], vec![(0, 12), (40, 12)]),
            (vec![(row + 8, 8), (2 * row, 16)], vec![(80, 12), (120, 12)]),
        ]
    );
}

#[test]
fn choice_by_layout_and_device() {
    use Direction::{Get, Put};
    let narrow = columns(64, 2);
    let middle = columns(64, 512);
    let wide = Datatype::vector(64, 16384, 20000, &Named::Int.into()).unwrap().message(1).unwrap();
    let flat = |map: &TypeMap| contiguous(map.size() / 4);
    assert_eq!(scheme(&TypeMap::EMPTY, &TypeMap::EMPTY, Put, LIMITS), Scheme::Empty);
    assert_eq!(scheme(&flat(&middle), &flat(&middle), Put, LIMITS), Scheme::Contiguous);
    assert_eq!(scheme(&middle, &middle, Put, PlanLimits { mapped: true, ..LIMITS }), Scheme::Mapped);
    assert_eq!(scheme(&narrow, &narrow, Put, LIMITS), Scheme::Generic);
    assert_eq!(scheme(&middle, &middle, Put, LIMITS), Scheme::Sgrs);
    assert_eq!(scheme(&wide, &wide, Get, LIMITS), Scheme::MultiW);
    assert_eq!(scheme(&middle, &flat(&middle), Put, LIMITS), Scheme::WriteGather);
    assert_eq!(scheme(&middle, &flat(&middle), Get, LIMITS), Scheme::ReadScatter);
    // If the target does not participate, the origin can execute the chosen scheme alone.
    let alone = PlanLimits { target_helps: false, ..LIMITS };
    assert_eq!(scheme(&narrow, &narrow, Put, alone), Scheme::MultiW);
    assert_eq!(scheme(&narrow, &flat(&narrow), Put, alone), Scheme::WriteGather);
    assert_eq!(scheme(&narrow, &flat(&narrow), Put, PlanLimits { max_sge: 1, ..alone }), Scheme::MultiW);
}

#[test]
fn unequal_signatures_are_an_error() {
    let floats = Datatype::from(Named::Float).message(4).unwrap();
    for other in [contiguous(3), contiguous(4)] {
        let error = Plan::new(&floats, &other, Direction::Put, LIMITS, &CutOffs::default()).unwrap_err();
        assert_eq!(error.kind(), DatatypeErrorKind::Signature);
    }
}

#[test]
fn scheme_that_the_device_lacks_is_an_error() {
    let (map, flat) = (columns(4, 2), contiguous(8));
    let alone = PlanLimits { target_helps: false, ..LIMITS };
    for (scheme, direction) in [
        (Scheme::Mapped, Direction::Put),
        (Scheme::Generic, Direction::Put),
        (Scheme::Sgrs, Direction::Put),
        (Scheme::WriteGather, Direction::Get),
        (Scheme::ReadScatter, Direction::Put),
        (Scheme::Contiguous, Direction::Put),
        (Scheme::Empty, Direction::Put),
    ] {
        let error = Plan::with_scheme(scheme, &map, &flat, direction, alone, &CutOffs::default()).unwrap_err();
        assert_eq!(error.kind(), DatatypeErrorKind::Scheme, "{scheme:?}");
        assert!(error.to_string().contains("let the planner choose the scheme"));
    }
}
