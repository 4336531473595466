//! Released memory: peers get an error or reach pages that the owner no longer has; they never crash.

use std::time::{Duration, Instant};

use farside_core::ErrorKind;

use crate::Setup;
use crate::world::{RAGGED, World, pattern};

check! {
    fn released_memory_is_the_owners_again(job, setup) over 2 {
        const LEN: usize = 100 << 10;
        let mut world = World::new(job, setup, LEN)?;
        world.set_own(0, &pattern(4, LEN));
        world.barrier()?;
        if world.me() == 1 {
            world.write(0, 50, &[0xAA; 8])?;
        }
        world.barrier()?;
        if world.me() == 0 {
            world.release()?;
        }
        world.barrier()?;
        if world.me() == 1 {
            // The edges of user memory are never mapped; long pieces may travel in another way than short ones.
            for (offset, len) in [(0, 8), (RAGGED - 4, 30), (4096, 200), (0, LEN), (1, 64 << 10)] {
                for result in [world.write(0, offset, &vec![0xCC; len]), world.read(0, offset, len).map(drop)] {
                    match result {
                        // The buffer has pages of its own.
                        Ok(()) => assert!(may_be_mapped(setup, offset, len), "{len} bytes at {offset} were reached"),
                        Err(e) => assert_eq!((e.kind(), e.blamed()), (ErrorKind::BadKey, Some(0)), "{e}"),
                    }
                }
            }
            match world.fetch_add(0, 0, 1) {
                Ok(_) => assert!(may_be_mapped(setup, 0, 8)),
                Err(e) => assert_eq!((e.kind(), e.blamed()), (ErrorKind::BadKey, Some(0)), "{e}"),
            }
        }
        world.barrier()?;
        if world.me() == 0 && setup.user_memory {
            let mut want = pattern(4, LEN);
            want[50..58].fill(0xAA);
            assert!(world.own_bytes() == want, "a peer wrote memory that was taken back");
        }
        world.barrier()
    }
}

check! {
    fn released_memory_is_not_reached_by_a_transfer_that_had_begun(job, setup) over 2 {
        const LEN: usize = 256 << 10;
        for _ in 0..setup.rounds(20, 3) {
            let mut world = World::new(job, setup, LEN)?;
            world.barrier()?;
            if world.me() == 1 {
                let bytes = vec![0xEE; LEN];
                // Writes succeed until the key is removed, or reach pages that the owner no longer has.
                let _ = (0..150).try_for_each(|_| world.write(0, 0, &bytes));
            } else {
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(1) {
                    job.progress()?;
                }
                world.release()?;
                if setup.user_memory {
                    world.set_own(0, &[0x11; LEN]);
                }
            }
            world.barrier()?;
            if world.me() == 0 && setup.user_memory {
                assert!(world.own_bytes().iter().all(|b| *b == 0x11), "a peer wrote memory that was taken back");
            }
            world.barrier()?;
        }
        Ok(())
    }
}

/// Whether all of the range lies in pages that a peer may keep mapped.
fn may_be_mapped(setup: &Setup, offset: usize, len: usize) -> bool {
    setup.private_pages && (!setup.user_memory || (offset >= RAGGED && offset + len <= (100 << 10) - 4096))
}

check! {
    fn released_own_memory_is_a_bad_key_to_its_owner(job, setup) over 1 {
        let mut world = World::new(job, setup, 3 * 4096)?;
        world.write(0, 0, &[1; 100])?;
        world.release()?;
        assert_eq!(world.write(0, 0, &[2; 100]).unwrap_err().kind(), ErrorKind::BadKey);
        assert_eq!(world.read(0, 5000, 100).unwrap_err().kind(), ErrorKind::BadKey);
        assert_eq!(world.fetch_add(0, 8, 1).unwrap_err().kind(), ErrorKind::BadKey);
        assert_eq!(world.release().unwrap_err().kind(), ErrorKind::Freed);
        Ok(())
    }
}

check! {
    fn a_new_region_after_a_released_one_is_not_reached_by_the_old_key(job, setup) over 2 {
        let mut old = World::new(job, setup, 20_000)?;
        old.barrier()?;
        old.release()?;
        let new = World::new(job, setup, 20_000)?;
        let to = 1 - new.me();
        for (offset, len) in [(0, 8), (0, 20_000), (3, 19_000)] {
            // The result is an error, or the access reaches pages that the owner no longer has.
            let _ = old.write(to, offset, &vec![0xDD; len]);
        }
        new.barrier()?;
        assert!(new.own_bytes().iter().all(|b| *b == 0), "an old key reached a new region");
        new.barrier()
    }
}
