//! Fetch-add and compare-swap: exact under contention, also with the target's own processor.

use std::sync::atomic::Ordering;

use farside_core::ErrorKind;

use crate::world::{RAGGED, World};

check! {
    fn fetch_add_is_exact_under_contention(job, setup) over 4 {
        let rounds = setup.rounds(250, 60);
        let world = World::new(job, setup, 8192)?;
        // A word before and a word after the ragged edge, at every rank.
        let words = [RAGGED - 8, RAGGED + 64];
        let mut seen = Vec::new();
        for _ in 0..rounds {
            for of in 0..4 {
                for at in words {
                    let old = world.fetch_add(of, at, 1)?;
                    if of == 2 && at == words[0] {
                        seen.push(old);
                    }
                }
            }
        }
        assert!(seen.is_sorted(), "former values that one rank saw go down");
        world.barrier()?;
        for at in words {
            assert_eq!(world.own_word(at).load(Ordering::SeqCst), 4 * rounds);
        }
        // Every previous value was seen by one rank, once.
        let mine: Vec<u8> = seen.iter().flat_map(|v| v.to_le_bytes()).collect();
        let all = farside_core::coll::allgather(&world.team, &mine)?.concat();
        let mut all: Vec<u64> = all.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..4 * rounds), "a former value was seen twice or never");
        world.barrier()
    }
}

check! {
    fn compare_swap_is_exact_under_contention(job, setup) over 4 {
        let rounds = setup.rounds(100, 40);
        let world = World::new(job, setup, 8192)?;
        for at in [0, RAGGED] {
            for _ in 0..rounds {
                let mut seen = 0;
                loop {
                    let old = world.compare_swap(1, at, seen, seen + 3)?;
                    if old == seen {
                        break;
                    }
                    seen = old;
                }
            }
        }
        world.barrier()?;
        if world.me() == 1 {
            for at in [0, RAGGED] {
                assert_eq!(world.own_word(at).load(Ordering::SeqCst), 4 * rounds * 3);
            }
        }
        world.barrier()
    }
}

check! {
    fn fetch_add_is_coherent_with_the_processor_of_the_target(job, setup) over 3 {
        if !job.device().capabilities().mapped {
            return setup.skip("no mapped memory, so atomics need not be coherent with the processor");
        }
        let world = World::new(job, setup, 64)?;
        for _ in 0..500 {
            if world.me() == 0 {
                world.own_word(8).fetch_add(1, Ordering::SeqCst);
                job.progress()?;
            } else {
                world.fetch_add(0, 8, 1 << 32)?;
            }
        }
        world.barrier()?;
        if world.me() == 0 {
            assert_eq!(world.own_word(8).load(Ordering::SeqCst), 500 | 1000 << 32);
        }
        world.barrier()
    }
}

check! {
    fn fetch_add_wraps_and_compare_swap_keeps_other_values(job, setup) over 2 {
        let world = World::new(job, setup, 64)?;
        if world.me() == 0 {
            assert_eq!(world.fetch_add(1, 16, u64::MAX)?, 0);
            assert_eq!(world.fetch_add(1, 16, 2)?, u64::MAX);
            assert_eq!(world.compare_swap(1, 16, 5, 9)?, 1);
            assert_eq!(world.compare_swap(1, 16, 1, u64::MAX)?, 1);
            assert_eq!(world.read(1, 16, 8)?, [0xFF; 8]);
            assert_eq!(world.read(1, 8, 8)?, [0; 8]);
            assert_eq!(world.read(1, 24, 8)?, [0; 8]);
        }
        world.barrier()
    }
}

check! {
    fn atomics_misaligned_or_out_of_range_are_refused(job, setup) over 2 {
        let world = World::new(job, setup, 8192)?;
        if world.me() == 0 {
            // Integers in the first bytes, across the ragged edge, and after it.
            for word in [0, RAGGED - 8, RAGGED, 4096] {
                for by in 1..8 {
                    let add = world.fetch_add(1, word + by, 1).unwrap_err();
                    let swap = world.compare_swap(1, word + by, 0, 1).unwrap_err();
                    assert_eq!((add.kind(), swap.kind()), (ErrorKind::Misaligned, ErrorKind::Misaligned), "{word}+{by}");
                }
            }
            for offset in [8185, 8192, usize::MAX - 7, usize::MAX] {
                let add = world.fetch_add(1, offset, 1).unwrap_err();
                let swap = world.compare_swap(1, offset, 0, 1).unwrap_err();
                assert_eq!((add.kind(), swap.kind()), (ErrorKind::OutOfRange, ErrorKind::OutOfRange), "{offset}");
            }
        }
        world.barrier()?;
        assert!(world.own_bytes().iter().all(|b| *b == 0), "a refused atomic changed memory");
        world.barrier()
    }
}
