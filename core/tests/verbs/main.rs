#![allow(unsafe_code)]
//! Tests specific to the verbs device: registered memory; in [`flood`] packets to a rank that does not poll; in
//! [`faults`] refusals that end a connection, and links that lose packets, go down or are cut; in [`restarts`] queue
//! pairs that fail and start again, and ports that come up again; in [`ports`] the choice of a port; in [`memlock`]
//! limits of locked memory; in [`adapters`] limits of real adapters, which a strict provider ([`strict`]) has. The tests run where
//! `FARSIDE_DEVICE=verbs`, as in the emulated machine of `ci/rxe`; otherwise each test is skipped, with a message.

mod adapters;
mod faults;
mod flood;
mod lists;
mod memlock;
mod ports;
#[path = "../../conformance/src/regions.rs"]
mod regions;
mod registration;
mod restarts;
mod strict;

use std::sync::mpsc;
use std::time::Duration;

use farside_core::device::{Block, Operation, Place, Region};
use farside_core::settings::Settings;
use farside_core::stats::Kind;
use farside_core::{Error, ErrorKind, Job, Result};
use regions::{exchange_regions, forget, release};

/// Exceeds the duration of any test; a hang becomes a failure.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Runs `body` as two ranks; returns the error of each. `None`, with a message, if the verbs device is not selected.
fn two(body: impl Fn(&Job) -> Result<()> + Send + Sync + 'static) -> Option<Vec<Option<Error>>> {
    two_with(&[], body)
}

/// Runs `body` as two ranks with the settings `set`.
fn two_with(
    set: &'static [(&'static str, &'static str)],
    body: impl Fn(&Job) -> Result<()> + Send + Sync + 'static,
) -> Option<Vec<Option<Error>>> {
    ranks(2, set, body)
}

/// Runs `body` as `n` ranks with the settings `set`. The error of a job that does not start is rank 0's.
fn ranks(
    n: u32,
    set: &'static [(&'static str, &'static str)],
    body: impl Fn(&Job) -> Result<()> + Send + Sync + 'static,
) -> Option<Vec<Option<Error>>> {
    if std::env::var("FARSIDE_DEVICE").is_ok_and(|d| d == "verbs") {
        let (done, result) = mpsc::channel();
        std::thread::spawn(move || {
            let errors = std::sync::Mutex::new((0..n).map(|_| None).collect::<Vec<_>>());
            let given = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
            let settings = Settings::from_lookup(|name| given(name).or_else(|| std::env::var(name).ok())).unwrap();
            let began = std::sync::atomic::AtomicBool::new(false);
            let ended = Job::threads_with(n as usize, &settings, |job| {
                began.store(true, std::sync::atomic::Ordering::SeqCst);
                let r = body(job);
                let failed = r.is_err();
                errors.lock().unwrap()[job.rank()] = r.err();
                if failed { Err(Error::new(ErrorKind::Aborted, "test")) } else { Ok(()) }
            });
            let mut errors = errors.into_inner().unwrap();
            if let (Err(e), false) = (ended, began.into_inner()) {
                errors[0] = Some(e);
            }
            let _ = done.send(errors);
        });
        return Some(result.recv_timeout(WATCHDOG).expect("a rank still waits"));
    }
    println!("skipped: FARSIDE_DEVICE is not verbs");
    None
}

fn region(base: *mut u8, len: usize) -> Region {
    Region::of(base, len)
}

fn well(errors: Option<Vec<Option<Error>>>) {
    for (rank, e) in errors.into_iter().flatten().enumerate() {
        assert!(e.is_none(), "rank {rank}: {}", e.unwrap());
    }
}

/// Registered memory is used in place, whatever the length; other memory is copied once, or registered.
#[test]
fn registered_memory_is_never_copied() {
    const LEN: usize = 1 << 20;
    well(two(|job| {
        let team = job.world()?;
        let own = job.device().allocate(Region::allocated(2 * LEN));
        let (own, remotes) = exchange_regions(&team, own, None)?;
        if job.rank_number() == 0 {
            let place = Place { region: remotes[1].handle, offset: 0 };
            let before = job.stats();
            for len in [8, 300, 4096, 65_536, 65_537, LEN] {
                let there = [Block { base: own.base, len }];
                let back = [Block { base: own.base.wrapping_add(LEN), len }];
                // SAFETY: memory of the region, which is valid until each operation is complete.
                unsafe {
                    own.base.write_bytes(len as u8 | 1, len);
                    job.complete("write", 1, Operation::write(&there, place))?;
                    job.complete("read", 1, Operation::read(&back, place))?;
                    assert_eq!(own.base.add(LEN + len - 1).read(), len as u8 | 1);
                }
            }
            let spent = job.stats() - before;
            assert_eq!(spent.count(Kind::Copy), 0, "{spent:?}");
            let mut other = vec![1u8; LEN];
            for (len, copies) in [(8, 0), (4096, 1), (LEN, 0)] {
                let before = job.stats();
                let from = [Block { base: other.as_mut_ptr(), len }];
                // SAFETY: the vector outlives the call.
                unsafe { job.complete("write", 1, Operation::write(&from, place)) }?;
                assert_eq!((job.stats() - before).count(Kind::Copy), copies, "{len} bytes that are not registered");
            }
        }
        team.barrier()?;
        remotes.iter().for_each(|r| forget(job, r.handle));
        release(job, own.handle)
    }));
}
