//! Memory of a rank that computes: its agent serves it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farside_core::Job;
use farside_core::device::Block;
use farside_core::stats::Kind;

use crate::harness::{USER_MEMORY, settings};
use crate::world::{World, pattern};

every_config! {
    fn passive_memory_of_a_computing_rank_is_served(job, config) over 3 {
        const LEN: usize = 300 << 10;
        let world = World::with(job, config, LEN, true, None)?;
        if world.me() == 0 {
            // Pure computation, no call into the runtime, until both others say that they are done.
            let start = Instant::now();
            let mut x = 1u64;
            while world.board.get(1, 1) + world.board.get(2, 1) < 2 {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                assert!(!x.is_multiple_of(1 << 16) || start.elapsed() < Duration::from_secs(60), "nobody is served");
            }
            assert!(world.own_bytes()[64..128 << 10] == pattern(1, (128 << 10) - 64));
            assert_eq!(world.own_word(8).load(Ordering::SeqCst), 200);
        } else {
            let at = 64 + (world.me() - 1) * (128 << 10);
            let bytes = pattern(world.me(), (128 << 10) - 64);
            world.write(0, at, &bytes)?;
            for i in 0..100 {
                world.fetch_add(0, 8, 1)?;
                assert!(world.read(0, at + i, 200)? == bytes[i..i + 200]);
            }
            assert!(world.read(0, at, bytes.len())? == bytes);
            world.board.set(0, 1, 1)?;
        }
        world.barrier()
    }
}

/// The owner computes as soon as it has registered, without another wait in the runtime, so its agent must hear
/// of requests from the start: the origin rings the agent's bell.
#[test]
#[allow(unsafe_code)]
fn passive_memory_is_served_right_after_registration() {
    use farside_core::device::{Operation, Place, Region};
    let key = Mutex::new(None);
    let done = AtomicBool::new(false);
    Job::threads_with(2, &settings(&[(USER_MEMORY, "ring")]), |job| {
        let team = job.world()?;
        if job.rank() == 0 {
            let mut buffer = vec![0u8; 100];
            let region = Region {
                base: buffer.as_mut_ptr(),
                len: 100,
                accumulate: None,
                passive: true,
                revocable: false,
                one_node: false,
            };
            // SAFETY: the buffer is not used before it is released.
            let own = unsafe { job.device().register(region) }?;
            *key.lock().unwrap() = Some(own.key);
            let start = Instant::now();
            while !done.load(Ordering::SeqCst) {
                assert!(start.elapsed() < Duration::from_secs(60), "nobody is served");
                std::hint::spin_loop();
            }
            // SAFETY: nobody uses it here any more.
            unsafe { job.device().release(own.handle) }?;
            assert_eq!(buffer, [[5; 50], [0; 50]].concat());
        } else {
            let key = loop {
                if let Some(key) = key.lock().unwrap().take() {
                    break key;
                }
                std::thread::yield_now();
            };
            let remote = job.device().import(0, &key, None)?;
            let before = job.stats();
            let bytes = [5u8; 50];
            let from = [Block::of(bytes.as_ptr(), 50)];
            let operation = Operation::Write { from: &from, to: Place { region: remote.handle, offset: 0 } };
            // SAFETY: `bytes` outlives the call.
            unsafe { job.complete("write", 0, operation) }?;
            done.store(true, Ordering::SeqCst);
            // Over verbs nobody at the target takes part.
            let woken = (job.stats() - before).count(Kind::Wake) > 0;
            assert_eq!(woken, !crate::harness::verbs(), "the agent at the target");
            // SAFETY: nobody uses it here any more.
            unsafe { job.device().forget(remote.handle) };
        }
        team.barrier()
    })
    .unwrap();
}
