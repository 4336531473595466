//! Keys come from peers: any bytes must be rejected or lead to the region that they identify, and never to a panic.

use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;

use crate::regions::{forget, release};
use farside_core::wire::Writer;
use farside_core::{Error, ErrorKind, Job, Result, coll};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use crate::harness::{configs, settings};
use crate::world::{World, pattern};

fn allowed(e: &Error) -> bool {
    use ErrorKind::*;
    matches!(
        e.kind(),
        Protocol | PeerLost | Forbidden | BadKey | OutOfRange | BadArgument | Misaligned | System | Limit
    )
}

/// Imports `key` and uses the region, if it is accepted; the data read must be that of the region with the true key.
fn try_key(job: &Job, key: &[u8], want: &[u8], world: &mut World<'_>) {
    match job.device().import(1, key, None) {
        Err(e) => assert!(allowed(&e), "{e}"),
        Ok(remote) => {
            let true_one = std::mem::replace(&mut world.remotes[1], remote);
            for offset in [0, 1, 40, 4096, 4990, remote.len.saturating_sub(8)] {
                match world.read(1, offset, 8) {
                    Ok(bytes) if offset + 8 <= want.len() => {
                        assert_eq!(bytes, want[offset..offset + 8], "offset {offset} of {key:02x?}");
                    }
                    Ok(_) => {}
                    Err(e) => assert!(allowed(&e), "{e}"),
                }
            }
            forget(job, remote.handle);
            world.remotes[1] = true_one;
        }
    }
}

/// Rank 0 tries `cases` keys on rank 1, which serves.
fn hostile_keys(job: &Job, config: &crate::harness::Config, cases: u32) -> Result<()> {
    let world = World::new(job, &config.setup(), 5000)?;
    let want = pattern(3, 5000);
    world.set_own(0, &want);
    let keys = coll::allgather(&world.team, &world.own.key)?;
    if world.me() == 0 {
        let true_key = keys[1].clone();
        // The valid key with one byte changed, some of them truncated; and random bytes after every tag. Unchanged are
        // the address of user memory and the number by which requests name it: only the peer that issued them can check
        // these.
        let len = true_key.len();
        // A key of verbs has the address at the owner in all cases. A key of `route` begins with a byte that identifies the
        // device.
        let first = 1 + usize::from(job.device().capabilities().name == "route");
        let address = match (crate::harness::verbs(), config.user) {
            (true, _) => [first..first + 8, 0..0],
            (false, true) => [5..13, 21..22],
            (false, false) => [0..0, 0..0],
        };
        let mutated = (0..len, 1u8.., prop_oneof![3 => Just(len), 1 => 0..len]).prop_map(move |(at, bits, cut)| {
            let mut key = true_key.clone();
            if !address.iter().any(|bytes| bytes.contains(&at)) {
                key[at] ^= bits;
            }
            key.truncate(cut);
            key
        });
        let random = (0u8..4, prop::collection::vec(any::<u8>(), 0..100)).prop_map(|(tag, mut bytes)| {
            bytes.insert(0, tag);
            bytes
        });
        let mut runner = TestRunner::new_with_rng(
            ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() },
            TestRng::deterministic_rng(RngAlgorithm::ChaCha),
        );
        let world = std::cell::RefCell::new(world);
        for strategy in [mutated.boxed(), random.boxed()] {
            runner
                .run(&strategy, |key| {
                    try_key(job, &key, &want, &mut world.borrow_mut());
                    Ok(())
                })
                .unwrap();
        }
        world.into_inner().barrier()
    } else {
        world.barrier()
    }
}

#[test]
fn import_of_hostile_keys_is_refused_or_true() {
    for config in configs().iter().filter(|c| c.value("FARSIDE_WAIT").is_none()) {
        Job::threads_with(2, &config.settings(), |job| {
            hostile_keys(job, config, if crate::harness::quick() { 120 } else { 400 })
        })
        .unwrap_or_else(|e| panic!("{}: {e}", config.name));
    }
}

#[test]
fn import_of_an_address_at_the_end_of_the_address_space_is_refused() {
    if !crate::harness::shm() {
        println!("skipped: a key of shared memory");
        return;
    }
    Job::threads_with(2, &settings(&[("FARSIDE_SHM_USER_MEMORY", "vm")]), |job| {
        let pid = std::process::id();
        for (address, len) in [(u64::MAX - 10, 100), (u64::MAX, u64::MAX), (1 << 62, 1 << 63)] {
            let key = Writer::new().u8(2).u32(pid).u64(address).u64(len).u64(1).u64(0).u64(0).done();
            if let Ok(remote) = job.device().import(1 - job.rank_number(), &key, None) {
                panic!("{remote:?}");
            }
        }
        job.world()?.barrier()
    })
    .unwrap();
}

#[test]
fn import_never_maps_what_is_not_a_segment() {
    if !crate::harness::shm() {
        println!("skipped: only keys of shared memory name segments");
        return;
    }
    Job::threads_with(2, &settings(&[]), |job| {
        let team = job.world()?;
        let mut file = tempfile::tempfile().unwrap();
        file.seek(SeekFrom::Start(8191)).and_then(|_| file.write_all(&[7])).unwrap();
        let key = |pid: u32, fd: i32, len: u64| Writer::new().u8(1).u32(pid).u32(fd as u32).u64(len).u64(len).u64(len);
        // A plain file of the right length; then descriptors of other processes; then a length of 0.
        let me = std::process::id();
        let peer = 1 - job.rank_number();
        for (pid, fd, len) in [(me, file.as_raw_fd(), 8192), (1, 0, 4096), (u32::MAX, 0, 4096), (me, 0, 0)] {
            let e = job.device().import(peer, &key(pid, fd, len).done(), None).unwrap_err();
            assert!(matches!(e.kind(), ErrorKind::Protocol | ErrorKind::PeerLost), "{pid}/{fd}: {e}");
        }
        team.barrier()
    })
    .unwrap();
}

#[test]
fn import_of_a_key_whose_descriptor_was_used_again_is_refused() {
    if !crate::harness::shm() {
        println!("skipped: only keys of shared memory name descriptors");
        return;
    }
    use farside_core::device::Region;
    Job::threads_with(2, &settings(&[]), |job| {
        let team = job.world()?;
        if job.rank_number() == 1 {
            let region = Region::allocated(4096);
            let first = job.device().allocate(region)?;
            release(job, first.handle)?;
            // The second region usually gets the same descriptor.
            let second = job.device().allocate(region)?;
            coll::broadcast(&team, 1, &first.key)?;
            team.barrier()?;
            release(job, second.handle)?;
        } else {
            let stale = coll::broadcast(&team, 1, &[])?;
            let e = job.device().import(1, &stale, None).unwrap_err();
            assert!(matches!(e.kind(), ErrorKind::Protocol | ErrorKind::PeerLost), "{e}");
            team.barrier()?;
        }
        Ok(())
    })
    .unwrap();
}
