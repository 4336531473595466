#![allow(unsafe_code)]
//! Limits of locked memory. The limit applies to a process, so each test runs again in its own process.

use std::process::Command;

use crate::regions::{exchange_regions, forget, release};
use farside_core::device::{Block, Operation, Place};
use farside_core::job::Track;
use farside_core::settings::Settings;
use farside_core::signal::SignalArray;
use farside_core::stats::Kind;
use farside_core::{ErrorKind, Job, Result};

use crate::{region, two, well};

/// Runs the test `name` of this file again with a limit of `kib`; returns whether this is that process.
fn is_limited(kib: u32, name: &str) -> bool {
    const CHILD: &str = "FARSIDE_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let mut limited = Command::new("rxe-memlock");
    limited.arg(kib.to_string()).arg(std::env::current_exe().unwrap()).env(CHILD, "1");
    match limited.args(["--exact", &format!("memlock::{name}")]).output() {
        Err(_) => println!("skipped: rxe-memlock is not there, as in the machine of ci/rxe"),
        Ok(o) => {
            let text = String::from_utf8_lossy(&o.stdout).into_owned() + &String::from_utf8_lossy(&o.stderr);
            assert!(o.status.success() && text.contains("1 passed"), "{text}");
        }
    }
    false
}

/// Memory beyond the limit is an error with the command that raises the limit, and the job continues.
#[test]
fn memory_beyond_the_limit_of_locked_memory_is_an_error_with_a_remedy() {
    if !is_limited(49152, "memory_beyond_the_limit_of_locked_memory_is_an_error_with_a_remedy") {
        return;
    }
    well(two(|job| {
        let team = job.world()?;
        let e = job.device().allocate(farside_core::device::Region::allocated(64 << 20)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Limit, "{e}");
        let text = e.to_string();
        assert!(["ulimit -l unlimited", "67108864 bytes", "50331648 bytes"].iter().all(|t| text.contains(t)), "{e}");
        let own = job.device().allocate(farside_core::device::Region::allocated(4096))?;
        team.barrier()?;
        release(job, own.handle)
    }));
}

/// The error of a job that cannot start states how much memory it needs, and how much it may lock.
#[test]
fn start_beyond_the_limit_of_locked_memory_names_the_bytes_and_the_limit() {
    if !is_limited(1024, "start_beyond_the_limit_of_locked_memory_names_the_bytes_and_the_limit") {
        return;
    }
    let settings = Settings::from_lookup(|name| std::env::var(name).ok()).unwrap();
    let text = Job::threads_with(1, &settings, |_| Ok(())).unwrap_err().to_string();
    assert!(["ulimit -l unlimited", "must be locked", "1048576 bytes"].iter().all(|t| text.contains(t)), "{text}");
}

/// Posts an operation and waits until it is complete.
fn complete(job: &Job, operation: Operation<'_>, notify: Option<(Place, u64)>) -> Result<()> {
    let track = Track::new();
    // SAFETY: the callers' buffers outlive the wait.
    unsafe { job.post(1 - job.rank_number(), operation, notify, &[&track]) }?;
    job.wait("an operation", || Ok((track.open() == 0).then_some(())))?;
    track.check()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i / 1000) ^ i) as u8).collect()
}

/// Buffers that can no longer be registered are copied in segments: every byte arrives, before the notification; lists
/// use one chunk; a refused operation is an error, and later operations are executed.
#[test]
fn buffers_beyond_the_limit_of_locked_memory_are_copied_in_pieces() {
    const LEN: usize = 8 << 20;
    const LIST: usize = 60_000;
    if !is_limited(20480, "buffers_beyond_the_limit_of_locked_memory_are_copied_in_pieces") {
        return;
    }
    well(two(|job| {
        let team = job.world()?;
        let signals = SignalArray::new(&team, 0)?;
        let me = job.rank_number();
        let bytes = pattern(LEN);
        let mut memory = vec![0u8; if me == 1 { LEN } else { 64 }];
        // SAFETY: the memory is valid until it is released.
        let own = unsafe { job.device().register(region(memory.as_mut_ptr(), memory.len())) };
        let (own, remotes) = exchange_regions(&team, own, None)?;
        let mut spare = Vec::new();
        if me == 0 {
            // This memory uses up the limit, so that neither rank can register more.
            while let Ok(r) = job.device().allocate(farside_core::device::Region::allocated(4096)) {
                spare.push(r.handle);
            }
            let (a, b) = bytes.split_at(LEN / 3);
            let from = [Block::of(a.as_ptr(), a.len()), Block::of(b.as_ptr(), b.len())];
            let to = Place { region: remotes[1].handle, offset: 0 };
            let before = job.stats();
            complete(job, Operation::write(&from, to), Some((signals.cell_at(1, 1, 1), 1)))?;
            let mut back = vec![0u8; LEN];
            let into = [Block { base: back.as_mut_ptr(), len: LEN }];
            complete(job, Operation::read(&into, to), None)?;
            assert!(back == bytes, "other bytes came back");
            let spent = job.stats() - before;
            assert_eq!((spent.bytes(Kind::Copy), spent.count(Kind::Register)), (2 * LEN as u64, 0));
            team.barrier()?;
            complete(job, Operation::gather(&[Block::of(bytes.as_ptr(), LIST)]), None)?;
            team.barrier()?;
            let e = complete(job, Operation::write(&from, to), None).unwrap_err();
            assert_eq!((e.kind(), e.blamed()), (ErrorKind::BadKey, Some(1)), "{e}");
            signals.set(1, 2, 1)?;
        } else {
            job.wait("the notification", || Ok((signals.get(0, 1) == 1).then_some(())))?;
            // SAFETY: the registered memory; rank 0 only reads it from now on.
            let got = unsafe { std::slice::from_raw_parts(own.base, LEN) };
            assert!(got == bytes, "other bytes came");
            let mut list = vec![0u8; LIST];
            let received = Track::new();
            let (a, b) = list.split_at_mut(1000);
            let into = [a, b].map(|part| Block { base: part.as_mut_ptr(), len: part.len() });
            // SAFETY: the list outlives the wait.
            unsafe { job.post(0, Operation::scatter(&into), None, &[&received]) }?;
            team.barrier()?;
            job.wait("a list", || Ok((received.open() == 0).then_some(())))?;
            received.check()?;
            assert!(list == bytes[..LIST], "other bytes came in the list");
            release(job, own.handle)?;
            team.barrier()?;
            job.wait("the signal", || Ok((signals.get(0, 2) == 1).then_some(())))?;
        }
        team.barrier()?;
        remotes.iter().for_each(|r| forget(job, r.handle));
        spare.into_iter().try_for_each(|handle| release(job, handle))?;
        if me == 0 { release(job, own.handle) } else { Ok(()) }
    }));
}
