//! Memory of a rank that computes: its agent serves it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::world::{World, pattern};

check! {
    fn passive_memory_of_a_computing_rank_is_served(job, setup) over 3 {
        const LEN: usize = 300 << 10;
        if !job.device().capabilities().passive {
            return setup.skip("updates take effect while their target is inside the runtime");
        }
        let world = World::with(job, setup, LEN, true, None)?;
        if world.me() == 0 {
            // Pure computation, without progress, until both others say that they are done.
            let device = job.device();
            let start = device.now();
            while world.signals.get(1, 1) + world.signals.get(2, 1) < 2 {
                device.compute(Duration::from_micros(10));
                assert!(device.now() - start < Duration::from_secs(60), "no request is served");
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
            world.signals.set(0, 1, 1)?;
        }
        world.barrier()
    }
}
