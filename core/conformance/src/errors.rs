#![allow(unsafe_code)]
//! Invalid requests: each results in an error of the right kind, changes nothing, and leaves the device usable.

use crate::regions::{forget, release};
use farside_core::device::{Block, Operation, Place, Posted, Region, WorkRequest};
use farside_core::job::Track;
use farside_core::{Error, ErrorKind, Job, Result};

use crate::world::{World, pattern};

fn post(job: &Job, peer: u32, operation: Operation<'_>) -> Result<Posted> {
    // SAFETY: used with requests that are refused or done immediately, on live buffers.
    unsafe { job.device().post(&WorkRequest { peer, operation, notify: None, id: u64::MAX }) }
}

check! {
    fn out_of_range_is_refused(job, setup) over 2 {
        let world = World::new(job, setup, 5000)?;
        if world.me() == 0 {
            for (offset, len) in [(5000, 1), (4999, 2), (0, 5001), (6000, 0), (usize::MAX, 1), (usize::MAX - 3, 8)] {
                let e = [world.write(1, offset, &vec![1; len]).unwrap_err(), world.read(1, offset, len).unwrap_err()];
                assert_eq!(e.map(|e: Error| (e.kind(), e.blamed())), [(ErrorKind::OutOfRange, Some(1)); 2], "{len} at {offset}");
            }
            world.write(1, 5000, &[])?;
            assert!(world.read(1, 5000, 0)?.is_empty());
        }
        world.barrier()?;
        assert!(world.own_bytes().iter().all(|b| *b == 0), "a refused write changed memory");
        world.barrier()
    }
}

check! {
    fn unknown_region_is_a_bad_key(job, setup) over 2 {
        let world = World::new(job, setup, 64)?;
        let bytes = [1u8; 8];
        let from = [Block::of(bytes.as_ptr(), 8)];
        let mut old = 0u64;
        let forgotten = Place { region: world.remotes[1].handle, offset: 0 };
        world.barrier()?;
        forget(job, forgotten.region);
        for at in [Place { region: 0, offset: 0 }, Place { region: u64::MAX, offset: 0 }, forgotten] {
            let operations = [
                Operation::write(&from, at),
                Operation::read(&[], at),
                Operation::fetch_add(at, 1, &raw mut old),
                Operation::compare_swap(at, 8, [0, 1], (&raw mut old).cast()),
                Operation::accumulate(at, 0, from[0], std::ptr::null_mut()),
                Operation::Signal { at, value: 1 },
            ];
            for operation in operations {
                assert_eq!(post(job, 1, operation).unwrap_err().kind(), ErrorKind::BadKey, "{operation:?}");
            }
        }
        world.barrier()
    }
}

check! {
    fn region_of_another_peer_is_refused(job, setup) over 3 {
        let world = World::new(job, setup, 64)?;
        if world.me() == 0 {
            let bytes = [1u8; 8];
            let from = [Block::of(bytes.as_ptr(), 8)];
            let e = post(job, 1, Operation::write(&from, world.place(2, 0))).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::BadArgument, "{e}");
        }
        world.barrier()?;
        assert_eq!(world.own_bytes(), [0; 64]);
        world.barrier()
    }
}

check! {
    fn peers_packets_and_lengths_that_do_not_exist_are_refused(job, setup) over 2 {
        let world = World::new(job, setup, 64)?;
        let device = job.device();
        let e = post(job, 2, Operation::send(&[1], &[])).unwrap_err();
        assert_eq!((e.kind(), e.blamed()), (ErrorKind::NoSuchRank, Some(2)));
        let e = post(job, u32::MAX, Operation::Signal { at: world.signals.cell_at(1, 0, 1), value: 1 }).unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::NoSuchRank | ErrorKind::BadArgument), "{e}");
        let capabilities = device.capabilities();
        let long = vec![0u8; capabilities.max_packet.max(capabilities.max_lent_packet) + 1];
        let e = post(job, 1, Operation::send(&long, &[])).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::BadArgument, "{e}");
        assert_eq!(device.import(2, &world.own.key, None).unwrap_err().kind(), ErrorKind::NoSuchRank);
        for len in [usize::MAX, usize::MAX - 4094, isize::MAX as usize, 1 << 50] {
            let region = Region::allocated(len);
            let e = device.allocate(region).unwrap_err();
            assert!(matches!(e.kind(), ErrorKind::SharedMemoryFull | ErrorKind::Limit), "{len}: {e}");
        }
        assert_eq!(release(job, u64::MAX).unwrap_err().kind(), ErrorKind::Freed);
        forget(job, u64::MAX);
        device.sealed(u64::MAX);
        world.write(1 - world.me(), 0, &[9; 64])?;
        world.barrier()?;
        assert_eq!(world.own_bytes(), [9; 64]);
        world.barrier()
    }
}

check! {
    fn notify_at_a_bad_place_is_an_error(job, setup) over 2 {
        let world = World::new(job, setup, 4096)?;
        if world.me() == 0 {
            let bytes = pattern(1, 4000);
            let from = [Block::of(bytes.as_ptr(), bytes.len())];
            let good = world.signals.cell_at(1, 0, 1);
            let bad = [
                (Place { region: u64::MAX, offset: 0 }, ErrorKind::BadKey),
                (Place { offset: 1 << 20, ..good }, ErrorKind::OutOfRange),
                (Place { offset: good.offset + 4, ..good }, ErrorKind::Misaligned),
            ];
            for (at, kind) in bad {
                let track = Track::new();
                let operation = Operation::write(&from, world.place(1, 0));
                // SAFETY: `bytes` lives until the request is complete.
                let posted = unsafe { job.post(1, operation, Some((at, 1)), &[&track]) };
                let result = posted.and_then(|_| {
                    job.wait("write", || Ok((track.open() == 0).then_some(())))?;
                    track.check()
                });
                assert_eq!(result.unwrap_err().kind(), kind, "{at:?}");
            }
        }
        world.barrier()
    }
}

check! {
    fn cancel_leaves_local_memory_alone(job, setup) over 2 {
        // A read long enough to wait for buffers, then fetch-and-adds on single words; the target serves requests only
        // after the cancel.
        const LEN: usize = 600 << 10;
        let world = World::new(job, setup, LEN)?;
        world.set_own(0, &pattern(5, LEN));
        world.barrier()?;
        if world.me() == 0 {
            let mut long = vec![0u8; LEN];
            let mut words = [0u64; 8];
            let track = Track::new();
            let into = [Block { base: long.as_mut_ptr(), len: LEN }];
            let read = Operation::read(&into, world.place(1, 0));
            // SAFETY: the buffers live until after the cancel.
            let mut done = unsafe { job.post(1, read, None, &[&track]) }?;
            for (i, old) in words.iter_mut().enumerate() {
                let at = world.place(1, 8 * i);
                // SAFETY: as above.
                done |= unsafe { job.post(1, Operation::fetch_add(at, 0, old), None, &[&track]) }?;
            }
            job.cancel(&track);
            assert_eq!(track.open(), 0);
            if !done {
                // Bytes that arrived before the cancel may be there; from now on this test owns them.
                long.fill(0xAB);
                words.fill(0xABAB);
                world.signals.set(1, 1, 1)?;
                job.wait("the target", || Ok((world.signals.get(1, 1) == 1).then_some(())))?;
                // Ten longer reads use the same buffers as the cancelled read.
                for _ in 0..10 {
                    assert!(world.read(1, 0, LEN)? == pattern(5, LEN), "a read after the cancel");
                }
                assert!(long.iter().all(|b| *b == 0xAB) && words.iter().all(|w| *w == 0xABAB), "cancelled, yet written");
            } else {
                world.signals.set(1, 1, 1)?;
            }
        } else {
            // No progress is made here, so that nothing is served before the cancel.
            while world.signals.get(0, 1) == 0 {
                job.check_peers()?;
                std::thread::yield_now();
            }
            world.signals.set(0, 1, 1)?;
        }
        world.barrier()
    }
}
