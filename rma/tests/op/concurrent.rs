//! Four threads on the same element: no update is lost, and every returned old value is one that the element has had.

use std::sync::Barrier;

use farside_rma::op::{Element, ElementType, Op, accumulate, apply, compare_and_swap, fetch_accumulate, fetch_apply};

const THREADS: usize = 4;
const ROUNDS: usize = if cfg!(miri) { 50 } else { 50_000 };

/// An address that threads share.
#[derive(Clone, Copy)]
struct Shared<T>(*mut T);

// SAFETY: the tests access the memory by the atomic kernels only, while threads run.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    fn pointer(self) -> *mut T {
        self.0
    }
}

/// Runs `f(thread, target)` on all threads at the same time and returns their results and the final value of the
/// target.
fn contend<T: Element, R: Send, const N: usize>(
    mut target: [T; N],
    f: impl Fn(usize, *mut T) -> R + Sync,
) -> (Vec<R>, [T; N]) {
    let start = Barrier::new(THREADS);
    let shared = Shared(target.as_mut_ptr());
    let (start, f) = (&start, &f);
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    start.wait();
                    f(thread, shared.pointer())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    (results, target)
}

#[test]
fn fetch_sum_four_threads_old_values_are_a_permutation() {
    let (olds, [total]) = contend([0_u64], |_, target| {
        // SAFETY: the element lives until all threads are joined, and all use the kernels.
        (0..ROUNDS).map(|_| unsafe { fetch_apply(Op::Sum, target, 1) }).collect::<Vec<_>>()
    });
    assert_eq!(total, (THREADS * ROUNDS) as u64);
    assert!(olds.iter().all(|olds| olds.is_sorted()));
    let mut all: Vec<u64> = olds.concat();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..total));
}

#[test]
fn fetch_accumulate_sum_four_threads_vector() {
    const N: usize = 3;
    let (olds, totals) = contend([0_i32; N], |_, target| {
        let mut olds = vec![0_i32; N * ROUNDS];
        for old in olds.chunks_exact_mut(N) {
            let operand = [1_i32; N];
            // SAFETY: the elements live until all threads are joined, and all use the kernels.
            unsafe {
                let (target, operand) = (target.cast(), operand.as_ptr().cast());
                fetch_accumulate(Op::Sum, ElementType::I32, target, operand, old.as_mut_ptr().cast(), N);
            }
        }
        olds
    });
    let rounds = (THREADS * ROUNDS) as i32;
    assert_eq!(totals, [rounds; N]);
    for i in 0..N {
        let mut column: Vec<i32> = olds.iter().flat_map(|olds| olds.iter().skip(i).step_by(N)).copied().collect();
        column.sort_unstable();
        assert!(column.into_iter().eq(0..rounds));
    }
}

#[test]
fn sum_f64_four_threads_exact() {
    let (_, [total]) = contend([0.5_f64], |thread, target| {
        for _ in 0..ROUNDS {
            // SAFETY: the element lives until all threads are joined, and all use the kernels.
            unsafe { apply(Op::Sum, target, (thread + 1) as f64) };
        }
    });
    assert_eq!(total, 0.5 + (ROUNDS * (1 + 2 + 3 + 4)) as f64);
}

#[test]
fn prod_signs_four_threads_exact() {
    // The number of factors −1 is odd, so that one lost update changes the sign.
    let (_, [product]) = contend([7_i32], |thread, target| {
        for _ in 0..ROUNDS + usize::from(thread == 0) {
            // SAFETY: the element lives until all threads are joined, and all use the kernels.
            unsafe { apply(Op::Prod, target, -1) };
            // SAFETY: as above.
            unsafe { apply(Op::Prod, target, 1) };
        }
    });
    assert_eq!(product, -7);
}

#[test]
fn prod_wrapping_four_threads_exact() {
    let (_, [product]) = contend([1_u64], |_, target| {
        for _ in 0..ROUNDS {
            // SAFETY: the element lives until all threads are joined, and all use the kernels.
            unsafe { apply(Op::Prod, target, 3) };
        }
    });
    assert_eq!(product, 3_u64.wrapping_pow((THREADS * ROUNDS) as u32));
}

#[test]
fn compare_and_swap_four_threads_counts_every_success() {
    const ROUNDS: usize = 4 * super::concurrent::ROUNDS;
    let (tries, [total]) = contend([0_u32], |_, target| {
        let (mut seen, mut tries) = (0, 0_usize);
        for _ in 0..ROUNDS {
            loop {
                tries += 1;
                // SAFETY: the element lives until all threads are joined, and all use the kernels.
                let old = unsafe { compare_and_swap(target, seen, seen + 1) };
                if old == seen {
                    seen += 1;
                    break;
                }
                assert!(old > seen, "the element decreased from {seen} to {old}");
                seen = old;
            }
        }
        tries
    });
    assert_eq!(total as usize, THREADS * ROUNDS);
    assert!(tries.into_iter().all(|tries| tries >= ROUNDS));
}

#[test]
fn bitwise_four_threads_own_bits_kept() {
    // Each thread owns one bit of the byte, which the updates of other threads must not change.
    let (_, [left]) = contend([0xf0_u8], |thread, target| {
        let bit = 1_u8 << thread;
        // SAFETY: the element lives until all threads are joined, and all use the kernels.
        let update = |op, operand| unsafe { fetch_apply(op, target, operand) & bit };
        for _ in 0..ROUNDS {
            assert_eq!(update(Op::Bor, bit), 0);
            assert_eq!(update(Op::Bxor, bit), bit);
            assert_eq!(update(Op::Bxor, bit), 0);
            assert_eq!(update(Op::Band, !bit), bit);
        }
    });
    assert_eq!(left, 0xf0);
}

#[test]
fn every_update_four_threads_neighbours_untouched() {
    // Bytes of one word, each updated by all threads with another operation; the first and the last are not updated.
    let (_, target) = contend([0x11_u8; 8], |thread, target| {
        for round in 0..ROUNDS {
            let bit = 1_u8 << thread;
            // SAFETY: the elements live until all threads are joined, and all use the kernels.
            unsafe {
                apply(Op::Bor, target.add(1), bit);
                apply(Op::Band, target.add(2), !bit);
                apply(Op::Bxor, target.add(3), bit);
                apply(Op::Max, target.add(4), (thread * 40 + round % 40) as u8);
                apply(Op::Lxor, target.add(5), 1);
                apply(Op::Sum, target.add(6), 1);
            }
        }
    });
    let max = (3 * 40 + (ROUNDS - 1).min(39)) as u8;
    let sum = 0x11_u8.wrapping_add((THREADS * ROUNDS % 256) as u8);
    // The number of updates is even, so the xors give the initial value, the logical one as 1.
    assert_eq!(target, [0x11, 0x1f, 0x10, 0x11, max, 1, sum, 0x11]);
}

#[test]
fn min_f64_four_threads_order_does_not_matter() {
    let (_, [low, high]) = contend([0.0_f64; 2], |thread, target| {
        for round in 0..ROUNDS {
            let x = [-((thread * ROUNDS + round) as f64)];
            // SAFETY: the elements live until all threads are joined, and all use the kernels.
            unsafe {
                accumulate(Op::Min, ElementType::F64, target.cast(), x.as_ptr().cast(), 1);
                accumulate(Op::Max, ElementType::F64, target.add(1).cast(), x.as_ptr().cast(), 1);
            }
        }
    });
    assert_eq!((low, high), (-((THREADS * ROUNDS - 1) as f64), 0.0));
    assert_eq!(high.to_bits(), 0.0_f64.to_bits());
}

#[test]
fn swap_four_threads_every_value_seen_once() {
    // Every written value is returned once, or is the final value.
    let (olds, [left]) = contend([u64::MAX], |thread, target| {
        (0..ROUNDS)
            // SAFETY: the element lives until all threads are joined, and all use the kernels.
            .map(|round| unsafe { fetch_apply(Op::Replace, target, (thread * ROUNDS + round) as u64) })
            .collect::<Vec<_>>()
    });
    let mut all = olds.concat();
    all.push(left);
    all.sort_unstable();
    let count = (THREADS * ROUNDS) as u64;
    assert!(all.into_iter().eq((0..count).chain([u64::MAX])));
}

#[test]
fn replace_f64_four_threads_never_torn() {
    // The threads write patterns with matching halves, and read while the others write.
    let pattern = |n: u32| f64::from_bits(u64::from(n) << 32 | u64::from(!n));
    contend([pattern(0)], |thread, target| {
        for round in 0..ROUNDS {
            // SAFETY: the element lives until all threads are joined, and all use the kernels.
            let seen = unsafe {
                apply(Op::Replace, target, pattern((thread * ROUNDS + round) as u32));
                fetch_apply(Op::NoOp, target, 0.0)
            };
            let bits = seen.to_bits();
            assert_eq!((bits >> 32) as u32, !(bits as u32));
        }
    });
}
