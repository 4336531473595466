#![allow(unsafe_code)]
//! Accumulates of many elements shorter than a word: one compare-and-swap updates all elements of an aligned word, and
//! is skipped if no bit changes.
//!
//! Other origins may concurrently update single elements by shorter atomics. An atomic of either length owns the cache
//! line exclusively, so a compare-and-swap of the word fails if one of its elements has changed.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use super::{Element, Op};

/// Length of a word in bytes.
const WORD: usize = 8;

/// Splits a run: the number of elements before the first aligned word, and the number of whole words.
fn split<T>(address: usize, count: usize) -> (usize, usize) {
    let head = (address.wrapping_neg() % WORD / size_of::<T>()).min(count);
    (head, (count - head) / (WORD / size_of::<T>()))
}

/// Sets each element of `word` to `f` of itself and the element of `operand` at the same place.
#[inline(always)]
fn lanes<T: Element>(word: u64, operand: u64, f: impl Fn(T, T) -> T) -> u64 {
    let (mut word, operand) = (word.to_ne_bytes(), operand.to_ne_bytes());
    for at in (0..WORD).step_by(size_of::<T>()) {
        let (t, x) = (word.as_mut_ptr().wrapping_add(at).cast::<T>(), operand.as_ptr().wrapping_add(at).cast::<T>());
        // SAFETY: an element inside each of the two words; every bit pattern is an element.
        unsafe { t.write_unaligned(f(t.read_unaligned(), x.read_unaligned())) };
    }
    u64::from_ne_bytes(word)
}

/// Accumulates `count` elements shorter than a word; the previous values go to `result` unless it is null.
///
/// # Safety
/// The contract of [`fetch_accumulate`](super::fetch_accumulate) for `T`, except that `result` may be null.
pub(super) unsafe fn update<T: Element>(op: Op, target: *mut T, operand: *const T, result: *mut T, count: usize) {
    let run = Run { target, operand, result, count };
    // SAFETY: the same contract, in all arms.
    unsafe {
        match op {
            Op::Sum => run.each(T::sum),
            Op::Prod => run.each(T::prod),
            Op::Min => run.each(T::lesser),
            Op::Max => run.each(T::greater),
            Op::Land => run.each(T::land),
            Op::Lor => run.each(T::lor),
            Op::Lxor => run.each(T::lxor),
            Op::Band => run.each(T::band),
            Op::Bor => run.each(T::bor),
            Op::Bxor => run.each(T::bxor),
            Op::Replace => run.each(|_, x| x),
            Op::NoOp => run.read(),
        }
    }
}

/// The arguments of an accumulate.
struct Run<T> {
    target: *mut T,
    operand: *const T,
    result: *mut T,
    count: usize,
}

impl<T: Element> Run<T> {
    /// Combines all elements.
    ///
    /// # Safety
    /// The contract of [`update`].
    #[inline(always)]
    unsafe fn each(&self, f: impl Fn(T, T) -> T + Copy) {
        let operand = self.operand;
        // SAFETY: the elements are inside the operand, which is valid by the contract.
        let one = |at: usize| unsafe { operand.add(at).read_unaligned() };
        // SAFETY: as above, for a word of elements.
        let word = |at: usize| unsafe { operand.add(at).cast::<u64>().read_unaligned() };
        let change = |cell: &AtomicU64, at: usize| {
            // Acquire: as the loads of single elements (`kernel`).
            let (x, mut old) = (word(at), cell.load(Acquire));
            loop {
                let new = lanes(old, x, f);
                if new == old {
                    return old;
                }
                // AcqRel, Acquire: as those of single elements.
                match cell.compare_exchange_weak(old, new, AcqRel, Acquire) {
                    Ok(old) => return old,
                    Err(now) => old = now,
                }
            }
        };
        // SAFETY: the same contract.
        unsafe { self.walk(|cell, at| T::fetch_with(cell, |t| f(t, one(at))), change) }
    }

    /// Reads all elements.
    ///
    /// # Safety
    /// The contract of [`update`].
    unsafe fn read(&self) {
        if !self.result.is_null() {
            // SAFETY: the same contract. Acquire: as above.
            unsafe { self.walk(|cell, _| T::load(cell), |cell, _| cell.load(Acquire)) }
        }
    }

    /// Calls `one` for single elements and `many` for words of them, with the index of the first element; the values
    /// that they return are written to the result.
    ///
    /// # Safety
    /// The contract of [`update`].
    #[inline(always)]
    unsafe fn walk(&self, one: impl Fn(&T::Cell, usize) -> T, many: impl Fn(&AtomicU64, usize) -> u64) {
        let Self { target, result, count, .. } = *self;
        let (head, words) = split::<T>(target.addr(), count);
        let per_word = WORD / size_of::<T>();
        let tail = head + words * per_word;
        let single = |at: usize| {
            // SAFETY: `at < count`, for which the caller guarantees both ranges; the result may be unaligned.
            unsafe {
                let old = one(T::cell(target.add(at)), at);
                if !result.is_null() {
                    result.add(at).write_unaligned(old);
                }
            }
        };
        (0..head).for_each(single);
        for at in (head..tail).step_by(per_word) {
            // SAFETY: an aligned word inside the target, which others access by atomics only; the result as above.
            unsafe {
                let old = many(AtomicU64::from_ptr(target.add(at).cast()), at);
                if !result.is_null() {
                    result.add(at).cast::<u64>().write_unaligned(old);
                }
            }
        }
        (tail..count).for_each(single);
    }
}

/// Replaces `count` elements shorter than a word, by a store of each word.
///
/// # Safety
/// The contract of [`accumulate`](super::accumulate) for `T`.
pub(super) unsafe fn store<T: Element>(target: *mut T, operand: *const T, count: usize) {
    let run = Run { target, operand, result: std::ptr::null_mut(), count };
    // SAFETY: by the contract; elements are read from inside the operand. Release: as the stores of single elements.
    unsafe {
        run.walk(
            |cell, at| {
                let x = operand.add(at).read_unaligned();
                T::store(cell, x);
                x
            },
            |cell, at| {
                let x = operand.add(at).cast::<u64>().read_unaligned();
                cell.store(x, Release);
                x
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{accumulate, combine, fetch_accumulate, fetch_apply};

    /// A mebibyte takes one atomic per word, whatever the element type.
    #[test]
    fn run_of_short_elements_takes_one_atomic_a_word() {
        const BYTES: usize = 1 << 20;
        assert_eq!(
            [split::<i8>(64, BYTES), split::<u16>(64, BYTES / 2), split::<f32>(64, BYTES / 4)],
            [(0, BYTES / 8); 3]
        );
        assert_eq!([split::<i8>(61, 30), split::<i16>(62, 4), split::<i32>(60, 1)], [(3, 3), (1, 0), (1, 0)]);
        assert_eq!([split::<i8>(61, 2), split::<i8>(61, 0), split::<u32>(64, 3)], [(2, 0), (0, 0), (0, 1)]);
    }

    fn at_every_place<T: Element + PartialEq + std::fmt::Debug>(number: impl Fn(usize) -> T) {
        const LEN: usize = 40;
        let values: Vec<T> = (0..LEN).map(|i| number(i * 37 % 23)).collect();
        let operands: Vec<T> = (0..LEN).map(|i| number(i * 11 % 7)).collect();
        for op in Op::ALL.into_iter().filter(|op| op.allowed(T::TYPE)) {
            for (from, count) in (0..9).flat_map(|from| [0, 1, 2, 7, 8, 20, 31].map(|count| (from, count))) {
                // Memory aligned to a word.
                let mut memory = [0u64; LEN];
                let target = memory.as_mut_ptr().cast::<T>();
                let mut old = vec![number(0); count];
                let (operand, place) = (&operands[..count], target.wrapping_add(from).cast::<u8>());
                let run = |fetch: bool, old: &mut [T]| {
                    let (x, former) = (operand.as_ptr().cast(), old.as_mut_ptr().cast());
                    // SAFETY: `LEN` elements at `target`, of which those from `from` on are accessed; no other access.
                    unsafe {
                        (0..LEN).for_each(|i| target.add(i).write(values[i]));
                        match fetch {
                            true => fetch_accumulate(op, T::TYPE, place, x, former, count),
                            false => accumulate(op, T::TYPE, place, x, count),
                        }
                        std::slice::from_raw_parts(target, LEN).to_vec()
                    }
                };
                let mut expected = values.clone();
                combine(op, &mut expected[from..from + count], operand).unwrap();
                assert_eq!(run(false, &mut old), expected, "{op} of {count} from {from}");
                assert_eq!(run(true, &mut old), expected, "{op} of {count} from {from}");
                assert_eq!(old, values[from..from + count], "{op} of {count} from {from}");
            }
        }
    }

    #[test]
    fn runs_of_short_elements_are_those_of_single_ones_at_every_place() {
        at_every_place(|i| i as i8 - 5);
        at_every_place(|i| i as u8);
        at_every_place(|i| i as i16 * 1000 - 3);
        at_every_place(|i| i as u16 * 2000);
        at_every_place(|i| i as i32 * 90_000_000);
        at_every_place(|i| i as u32);
        at_every_place(|i| i as f32 / 4.0 - 2.0);
    }

    /// Accumulates of runs and of single elements by several origins lose no update.
    #[cfg(not(miri))]
    #[test]
    fn runs_lose_no_addition_of_a_single_element_meanwhile() {
        const ROUNDS: u32 = 20_000;
        const LEN: usize = 11;
        let mut memory = [0u64; 2];
        let target = memory.as_mut_ptr().cast::<u8>().expose_provenance();
        let at = move |i: usize| std::ptr::with_exposed_provenance_mut::<u8>(target + i);
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(move || {
                    for _ in 0..ROUNDS {
                        // SAFETY: all accesses are atomic.
                        unsafe { accumulate(Op::Sum, u8::TYPE, at(1), [1u8; LEN].as_ptr(), LEN) };
                    }
                });
            }
            for round in 0..ROUNDS as usize {
                // SAFETY: as above.
                unsafe { fetch_apply(Op::Sum, at(1 + round % LEN), 1u8) };
            }
        });
        for i in 0..LEN {
            let singles = (0..ROUNDS as usize).filter(|round| round % LEN == i).count();
            // SAFETY: all threads have ended.
            assert_eq!(unsafe { at(1 + i).read() }, (2 * ROUNDS as usize + singles) as u8, "element {i}");
        }
        let bytes: Vec<u8> = memory.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert!(bytes[0] == 0 && bytes[1 + LEN..].iter().all(|byte| *byte == 0), "{bytes:?}");
    }
}
