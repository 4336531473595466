//! Every operation on every type, through every entry point, over all pairs of edge values and over random values.

use farside_rma::op::{
    CasElement, Element, ElementType, Op, accumulate, apply, combine, compare_and_swap, fetch_accumulate, fetch_apply,
};
use proptest::prelude::*;

use super::reference::{agrees, edges, element, expected, pairs, push};

const CANARY: u8 = 0xa5;

/// A target like that of a window: aligned, followed by a canary element.
struct Target(Vec<u64>);

impl Target {
    fn new(elements: &[u8]) -> Self {
        let mut words = vec![u64::from_ne_bytes([CANARY; 8]); elements.len().div_ceil(8) + 1];
        bytemuck::cast_slice_mut(&mut words)[..elements.len()].copy_from_slice(elements);
        Self(words)
    }

    fn pointer(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }

    fn bytes(&self, len: usize) -> &[u8] {
        let (elements, canary) = bytemuck::cast_slice(&self.0).split_at(len);
        assert!(canary.iter().all(|byte| *byte == CANARY), "written past the end of the target");
        elements
    }
}

/// `bytes` moved to an address that is `shift` past an 8-byte boundary.
fn shifted(bytes: &[u8], shift: usize) -> (Vec<u64>, std::ops::Range<usize>) {
    let mut words = vec![0; (bytes.len() + shift).div_ceil(8)];
    bytemuck::cast_slice_mut(&mut words)[shift..shift + bytes.len()].copy_from_slice(bytes);
    (words, shift..shift + bytes.len())
}

fn assert_elements(op: Op, ty: ElementType, entry: &str, got: &[u8], targets: &[u64], operands: &[u64]) {
    assert_eq!(got.len(), targets.len() * ty.size());
    for (i, (&t, &x)) in targets.iter().zip(operands).enumerate() {
        let (got, want) = (element(got, ty, i), expected(op, ty, t, x));
        assert!(agrees(op, ty, got, want), "{entry} {op} {ty}: {t:#x}, {x:#x} gave {got:#x}, expected {want:#x}");
    }
}

/// Tests one vector with the untyped functions, with operand and result `shift` bytes off alignment.
fn untyped(op: Op, ty: ElementType, targets: &[u64], operands: &[u64], shift: usize) {
    let (mut old, mut operand) = (Vec::new(), Vec::new());
    targets.iter().for_each(|bits| push(&mut old, ty, *bits));
    operands.iter().for_each(|bits| push(&mut operand, ty, *bits));
    let (words, place) = shifted(&operand, shift);
    let operand = &bytemuck::cast_slice::<_, u8>(&words)[place];

    let mut target = Target::new(&old);
    // SAFETY: the target is aligned and private to this thread; the operand has the same number of elements.
    unsafe { accumulate(op, ty, target.pointer(), operand.as_ptr(), targets.len()) };
    assert_elements(op, ty, "accumulate", target.bytes(old.len()), targets, operands);

    let mut target = Target::new(&old);
    let mut result = vec![CANARY; shift + old.len() + 8];
    // SAFETY: as above; the result has room for the elements after `shift`.
    unsafe {
        let result = result.as_mut_ptr().add(shift);
        fetch_accumulate(op, ty, target.pointer(), operand.as_ptr(), result, targets.len());
    }
    assert_elements(op, ty, "fetch_accumulate", target.bytes(old.len()), targets, operands);
    assert_eq!(result[shift..shift + old.len()], old, "fetch_accumulate {op} {ty}: the old values");
    assert!(result[..shift].iter().chain(&result[shift + old.len()..]).all(|byte| *byte == CANARY));
}

/// Tests one vector with the typed functions, element by element.
fn typed<T: Element>(op: Op, targets: &[u64], operands: &[u64]) {
    let ty = T::TYPE;
    let values = |bits: &[u64]| -> Vec<T> {
        bits.iter().map(|b| bytemuck::pod_read_unaligned(&b.to_ne_bytes()[..ty.size()])).collect()
    };
    let (old, operand) = (values(targets), values(operands));

    let mut applied = old.clone();
    let mut fetched = old.clone();
    for (i, x) in operand.iter().enumerate() {
        // SAFETY: references to elements that only this thread accesses.
        let before = unsafe {
            apply(op, &raw mut applied[i], *x);
            fetch_apply(op, &raw mut fetched[i], *x)
        };
        assert_eq!(bytemuck::bytes_of(&before), bytemuck::bytes_of(&old[i]), "fetch_apply {op} {ty}: the old value");
    }
    assert_elements(op, ty, "apply", bytemuck::cast_slice(&applied), targets, operands);
    assert_elements(op, ty, "fetch_apply", bytemuck::cast_slice(&fetched), targets, operands);

    let mut acc = old;
    combine(op, &mut acc, &operand).unwrap();
    assert_elements(op, ty, "combine", bytemuck::cast_slice(&acc), targets, operands);
}

fn typed_of(op: Op, ty: ElementType, targets: &[u64], operands: &[u64]) {
    match ty {
        ElementType::I8 => typed::<i8>(op, targets, operands),
        ElementType::I16 => typed::<i16>(op, targets, operands),
        ElementType::I32 => typed::<i32>(op, targets, operands),
        ElementType::I64 => typed::<i64>(op, targets, operands),
        ElementType::U8 => typed::<u8>(op, targets, operands),
        ElementType::U16 => typed::<u16>(op, targets, operands),
        ElementType::U32 => typed::<u32>(op, targets, operands),
        ElementType::U64 => typed::<u64>(op, targets, operands),
        ElementType::F32 => typed::<f32>(op, targets, operands),
        ElementType::F64 => typed::<f64>(op, targets, operands),
    }
}

#[test]
fn every_entry_edge_values() {
    for (op, ty) in pairs() {
        let (targets, operands): (Vec<u64>, Vec<u64>) =
            edges(ty).iter().flat_map(|&t| edges(ty).into_iter().map(move |x| (t, x))).unzip();
        for shift in 0..8 {
            untyped(op, ty, &targets, &operands, shift);
        }
        typed_of(op, ty, &targets, &operands);
    }
}

#[test]
fn every_entry_no_elements() {
    for (op, ty) in pairs() {
        untyped(op, ty, &[], &[], 1);
    }
}

#[test]
fn fetch_accumulate_no_op_null_operand() {
    let (mut target, mut result) = ([7_u64, 8], [0_u64; 2]);
    let operand = std::ptr::null();
    // SAFETY: the target is aligned and private to this thread; a no-op does not read the operand.
    unsafe {
        let result = result.as_mut_ptr().cast();
        fetch_accumulate(Op::NoOp, ElementType::U64, target.as_mut_ptr().cast(), operand, result, 2);
    }
    assert_eq!((target, result), ([7, 8], [7, 8]));
}

#[test]
fn min_max_of_zeros_and_nan() {
    let (mut low, mut high) = ([0.0, -0.0, 1.0, f64::NAN], [0.0, -0.0, 1.0, f64::NAN]);
    let operand = [-0.0, 0.0, f64::NAN, 1.0];
    combine(Op::Min, &mut low, &operand).unwrap();
    combine(Op::Max, &mut high, &operand).unwrap();
    assert_eq!(low.map(f64::to_bits), [-0.0, -0.0, f64::NAN, f64::NAN].map(f64::to_bits));
    assert_eq!(high.map(f64::to_bits), [0.0, 0.0, f64::NAN, f64::NAN].map(f64::to_bits));
}

fn cas<T: CasElement>() {
    let ty = T::TYPE;
    let value = |bits: u64| -> T { bytemuck::pod_read_unaligned(&bits.to_ne_bytes()[..ty.size()]) };
    for (t, e, d) in edges(ty)
        .iter()
        .flat_map(|&t| edges(ty).into_iter().flat_map(move |e| edges(ty).into_iter().map(move |d| (t, e, d))))
    {
        let after = if t == e { value(d) } else { value(t) };
        let mut element = value(t);
        // SAFETY: a reference to an element that only this thread accesses.
        let old = unsafe { compare_and_swap(&raw mut element, value(e), value(d)) };
        assert_eq!((old, element), (value(t), after), "{ty}");
    }
}

#[test]
fn compare_and_swap_edge_values() {
    cas::<i8>();
    cas::<i16>();
    cas::<i32>();
    cas::<i64>();
    cas::<u8>();
    cas::<u16>();
    cas::<u32>();
    cas::<u64>();
}

proptest! {
    #[test]
    fn every_entry_random_values(
        op in proptest::sample::select(Op::ALL.to_vec()),
        ty in proptest::sample::select(ElementType::ALL.to_vec()),
        values in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..200),
        shift in 0_usize..8,
    ) {
        prop_assume!(op.allowed(ty));
        let mask = u64::MAX >> (64 - 8 * ty.size());
        let (targets, operands): (Vec<u64>, Vec<u64>) =
            values.into_iter().map(|(t, x)| (t & mask, x & mask)).unzip();
        untyped(op, ty, &targets, &operands, shift);
        typed_of(op, ty, &targets, &operands);
    }
}
