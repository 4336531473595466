#![allow(unsafe_code)]
//! Accumulates with the region's own function: values, previous values, contention, refusals.

use std::sync::atomic::{AtomicU64, Ordering};

use farside_core::device::{Block, Operation, code};
use farside_core::{ErrorKind, Result};

use crate::world::{RAGGED, World};

const ADD: u32 = 7;

/// Adds words; `code` must be [`ADD`].
unsafe fn add(code: u32, target: *mut u8, operand: *const u8, result: *mut u8, bytes: usize) -> bool {
    if code != ADD || !bytes.is_multiple_of(8) || !target.addr().is_multiple_of(8) {
        return false;
    }
    for at in (0..bytes).step_by(8) {
        // SAFETY: three valid ranges by the contract of `AccumulateFn`, the target's aligned.
        unsafe {
            let word = AtomicU64::from_ptr(target.wrapping_add(at).cast());
            let old = word.fetch_add(operand.wrapping_add(at).cast::<u64>().read_unaligned(), Ordering::SeqCst);
            if !result.is_null() {
                result.wrapping_add(at).cast::<u64>().write_unaligned(old);
            }
        }
    }
    true
}

fn accumulate(world: &World<'_>, to: usize, offset: usize, code: u32, operand: &[u64], old: &mut [u64]) -> Result<()> {
    assert!(old.is_empty() || old.len() == operand.len());
    let old = if old.is_empty() { std::ptr::null_mut() } else { old.as_mut_ptr().cast() };
    let operand = Block::of(operand.as_ptr().cast(), size_of_val(operand));
    world.complete(to, Operation::accumulate(world.place(to, offset), code, operand, old))
}

check! {
    fn accumulate_adds_exactly_under_contention(job, setup) over 4 {
        const WORDS: usize = 1500;
        let all = setup.rounds(20, 8);
        let world = World::with(job, setup, WORDS * 8, false, Some(add))?;
        let mine: Vec<u64> = (0..WORDS as u64).map(|i| i + 1000 * world.me() as u64).collect();
        for round in 0..all {
            for to in 0..4 {
                // One word, some words across the ragged edge, and all words.
                let (first, count) = [(0, 1), (RAGGED / 8 - 1, 3), (0, WORDS)][round as usize % 3];
                accumulate(&world, to, first * 8, ADD, &mine[first..first + count], &mut [])?;
            }
        }
        world.barrier()?;
        let rounds = |kind: u64| (all + 2 - kind) / 3;
        for i in 0..WORDS {
            let edge = (RAGGED / 8 - 1..RAGGED / 8 + 2).contains(&i);
            let times = rounds(2) + if i == 0 { rounds(0) } else { 0 } + if edge { rounds(1) } else { 0 };
            let want = times * (4 * i as u64 + 6000);
            assert_eq!(world.own_word(i * 8).load(Ordering::SeqCst), want, "word {i}");
        }
        world.barrier()
    }
}

check! {
    fn accumulate_gives_former_values(job, setup) over 2 {
        let world = World::with(job, setup, 20_000 * 8, false, Some(add))?;
        if world.me() == 0 {
            for count in [1, 3, 4, 600, 20_000] {
                let operand: Vec<u64> = (1..=count as u64).collect();
                let before = world.read(1, 0, count * 8)?;
                let mut old = vec![0; count];
                accumulate(&world, 1, 0, ADD, &operand, &mut old)?;
                assert!(old.iter().flat_map(|v| v.to_ne_bytes()).eq(before), "former values of {count}");
                let after: Vec<u8> = old.iter().zip(&operand).flat_map(|(a, b)| (a + b).to_ne_bytes()).collect();
                assert!(world.read(1, 0, count * 8)? == after, "values of {count}");
            }
        }
        world.barrier()
    }
}

check! {
    fn accumulate_misaligned_unknown_or_unsupported_is_refused(job, setup) over 2 {
        let world = World::with(job, setup, 9000, false, Some(add))?;
        let plain = World::new(job, setup, 9000)?;
        if world.me() == 0 {
            let kind = |r: Result<()>| r.unwrap_err().kind();
            assert_eq!(kind(accumulate(&world, 1, 4, ADD, &[1], &mut [])), ErrorKind::Misaligned);
            assert_eq!(kind(accumulate(&world, 1, 8, ADD + 1, &[1], &mut [])), ErrorKind::Misaligned);
            // The code that marks a compare-and-swap inside the library is not an accumulate code.
            assert_eq!(kind(accumulate(&world, 1, 8, code::COMPARE_SWAP, &[0], &mut [])), ErrorKind::Misaligned);
            assert_eq!(kind(accumulate(&world, 1, 8, code::COMPARE_SWAP, &[0], &mut [0])), ErrorKind::Misaligned);
            assert_eq!(kind(accumulate(&world, 1, 8996, ADD, &[1], &mut [])), ErrorKind::OutOfRange);
            assert_eq!(kind(accumulate(&plain, 1, 8, ADD, &[1], &mut [])), ErrorKind::Unsupported);
        }
        world.barrier()?;
        assert!(world.own_bytes().iter().chain(&plain.own_bytes()).all(|b| *b == 0), "a refused accumulate changed memory");
        world.barrier()
    }
}
