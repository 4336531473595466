//! Every byte that the raw calls copy goes through the caller's mover.
#![allow(unsafe_code)]

use farside_datatype::{Datatype, Mover, Named, TypeMap};

/// A mover that inverts the bytes that it copies.
struct Inverting;

impl Mover for Inverting {
    type Wide = Self;

    unsafe fn fixed<const N: usize>(from: *const u8, to: *mut u8) {
        assert!(N <= 64);
        // SAFETY: by the caller's contract.
        unsafe { Self::long(from, to, N) };
    }

    unsafe fn long(from: *const u8, to: *mut u8, len: usize) {
        for i in 0..len {
            // SAFETY: by the caller's contract.
            unsafe { to.add(i).write(!from.add(i).read()) };
        }
    }
}

fn check(map: &TypeMap, other: &TypeMap) {
    let (size, room) = (map.size() as usize, map.true_ub().max(other.true_ub()) as usize);
    let source: Vec<u8> = (0..room).map(|i| ((i * 7) >> 1) as u8).collect();
    let (mut plain, mut inverted) = (vec![0; size], vec![0; size]);
    map.pack(&source, 0, 0, &mut plain).unwrap();
    // SAFETY: the message lies in `source`, and `inverted` has its size.
    assert_eq!(unsafe { map.pack_raw::<Inverting>(source.as_ptr(), 0, inverted.as_mut_ptr(), size) }, size);
    assert!(plain.iter().zip(&inverted).all(|(a, b)| *a == !*b), "{map:?} packed");
    let (mut wanted, mut target) = (vec![9; room], vec![9; room]);
    other.unpack(&inverted, 0, &mut wanted, 0).unwrap();
    // SAFETY: the messages lie in separate buffers.
    let copied = unsafe { map.copy_raw::<Inverting>(source.as_ptr(), other, target.as_mut_ptr(), 0, u64::MAX) };
    assert_eq!(copied, Ok(size));
    assert_eq!(target, wanted, "{map:?} copied to {other:?}");
    target.fill(9);
    // SAFETY: the message lies in `target`, and `plain` has its size; in two pieces.
    unsafe {
        let cut = size / 3;
        other.unpack_raw::<Inverting>(plain.as_ptr(), 0, target.as_mut_ptr(), cut);
        other.unpack_raw::<Inverting>(plain[cut..].as_ptr(), cut as u64, target.as_mut_ptr(), size - cut);
    }
    assert_eq!(target, wanted, "{other:?} unpacked");
}

#[test]
fn raw_copies_of_every_length_use_the_mover() {
    let byte = Datatype::from(Named::Byte);
    let lengths = (1..70).chain([127, 128, 255, 256, 300, 1024]);
    for len in lengths.step_by(if cfg!(miri) { 12 } else { 1 }) {
        let step = len as i64 + 3;
        let pair = Datatype::hindexed(&[len, 3], &[0, step], &byte).unwrap();
        let pairs = |extent: i64| Datatype::hvector(20, 1, extent * step, &pair).unwrap();
        let list = |by: i64| Datatype::hindexed_block(len, &[0, 3 * by, by, 7 * by], &byte).unwrap();
        let vector = |count: u64, stride: i64| Datatype::hvector(count, len, stride, &byte).unwrap();
        let rows = |by: i64| Datatype::hvector(3, 1, 90 * by, &vector(5, by)).unwrap();
        let types = [
            [pairs(3), pairs(4)],
            [list(step), list(step + 1)],
            [vector(20, 2 * len as i64), vector(20, step)],
            [vector(1, 0), vector(1, 0)],
            [rows(step), rows(step + 5)],
            [vector(4, step), list(step)],
        ];
        for [a, b] in types.map(|pair| pair.map(|t| t.message(1).unwrap())) {
            check(&a, &b);
        }
    }
}
