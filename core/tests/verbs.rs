#![allow(unsafe_code)]
//! What only the verbs device has: refusals that end a connection, links that are cut, registered memory. Runs where
//! `FARSIDE_DEVICE=verbs`, as in the emulated machine of `ci/rxe`; elsewhere each test is skipped, and says so.

use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use farside_core::am::{self, Counters, Delivery, HandlerId};
use farside_core::device::{Block, Operation, Place, Region};
use farside_core::job::Track;
use farside_core::settings::Settings;
use farside_core::signal::Board;
use farside_core::stats::Kind;
use farside_core::{Error, ErrorKind, Job, Result, coll};

/// Longer than any of them takes; a hang becomes a failure.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Runs `body` as two ranks; what each returned. `None`, with a word, where there is no such device.
fn two(body: impl Fn(&Job) -> Result<()> + Send + Sync + 'static) -> Option<Vec<Option<Error>>> {
    if std::env::var("FARSIDE_DEVICE").is_ok_and(|d| d == "verbs") {
        let (done, result) = mpsc::channel();
        std::thread::spawn(move || {
            let errors = std::sync::Mutex::new(vec![None, None]);
            let _ = Job::threads_with(2, &Settings::from_env().unwrap(), |job| {
                let r = body(job);
                let failed = r.is_err();
                errors.lock().unwrap()[job.rank() as usize] = r.err();
                if failed { Err(Error::new(ErrorKind::Aborted, "test")) } else { Ok(()) }
            });
            let _ = done.send(errors.into_inner().unwrap());
        });
        return Some(result.recv_timeout(WATCHDOG).expect("somebody still waits"));
    }
    println!("skipped: FARSIDE_DEVICE is not verbs");
    None
}

fn region(base: *mut u8, len: usize) -> Region {
    Region { base, len, accumulate: None, passive: false, revocable: false, one_node: false }
}

fn well(errors: Option<Vec<Option<Error>>>) {
    for (rank, e) in errors.into_iter().flatten().enumerate() {
        assert!(e.is_none(), "rank {rank}: {}", e.unwrap());
    }
}

/// Writes, signals and packets behind a write that is refused: they arrive, once and in order, and only the refused one
/// fails.
#[test]
fn refused_write_fails_alone_and_what_is_behind_it_arrives_in_order() {
    const ID: HandlerId = HandlerId(9);
    const PACKETS: u32 = 20;
    well(two(|job| {
        let team = job.world()?;
        let board = Board::new(&team, 0)?;
        let got = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let sink = got.clone();
        job.active_messages().register(ID, move |m| {
            sink.borrow_mut().push(u32::from_le_bytes(m.data.unwrap().try_into().unwrap()));
            Delivery::Done
        })?;
        let mut memory = vec![0u8; 100_000];
        // SAFETY: the memory is lent until it is released, and looked at after that.
        let own = unsafe { job.device().register(region(memory.as_mut_ptr(), memory.len())) };
        let (own, remotes) = coll::exchange_regions(&team, own, None)?;
        let good = job.device().allocate(4096, region(std::ptr::null_mut(), 4096));
        let (good, good_remotes) = coll::exchange_regions(&team, good, None)?;
        if job.rank() == 1 {
            // Taken back, while rank 0 still has the key.
            job.device().release(own.handle)?;
            team.barrier()?;
            job.wait("packets", || Ok((got.borrow().len() == PACKETS as usize).then_some(())))?;
            job.wait("signals", || Ok((board.get(0, 1) == u64::from(PACKETS)).then_some(())))?;
            assert_eq!(*got.borrow(), (0..PACKETS).collect::<Vec<_>>());
            assert!(memory.iter().all(|b| *b == 0), "memory that was taken back was written");
        } else {
            team.barrier()?;
            let bytes = vec![7u8; 50_000];
            let from = [Block::of(bytes.as_ptr(), bytes.len())];
            let word = 5u64.to_le_bytes();
            let short = [Block::of(word.as_ptr(), 8)];
            let (bad, fine) = (Track::new(), Track::new());
            // SAFETY: the buffers outlive the waits below.
            unsafe {
                let to = Place { region: remotes[1].handle, offset: 100 };
                job.post(1, Operation::Write { from: &from, to }, None, &[&bad])?;
                for i in 0..PACKETS {
                    am::send(job, 1, ID, &[], &i.to_le_bytes(), Counters::default())?;
                    board.set(1, 1, u64::from(i) + 1)?;
                    let to = Place { region: good_remotes[1].handle, offset: 8 * i as usize };
                    job.post(1, Operation::Write { from: &short, to }, None, &[&fine])?;
                }
            }
            job.wait("writes", || Ok((bad.open() + fine.open() == 0).then_some(())))?;
            let e = bad.check().unwrap_err();
            assert_eq!((e.kind(), e.blamed()), (ErrorKind::BadKey, Some(1)), "{e}");
            assert!(e.to_string().contains("REM_ACCESS_ERR"), "{e}");
            fine.check()?;
            job.device().release(own.handle)?;
        }
        team.barrier()?;
        if job.rank() == 1 {
            let mut words = vec![0u64; PACKETS as usize];
            // SAFETY: memory of this rank, of that length, that nobody writes any more.
            unsafe { std::ptr::copy_nonoverlapping(good.base, words.as_mut_ptr().cast(), 8 * words.len()) };
            assert_eq!(words, vec![5; PACKETS as usize]);
        }
        good_remotes.iter().for_each(|r| job.device().forget(r.handle));
        job.device().release(good.handle)?;
        drop(board);
        team.barrier()
    }));
}

/// Registered memory is used where it lies, whatever the length; what is not is copied once, or registered.
#[test]
fn registered_memory_is_never_copied() {
    const LEN: usize = 1 << 20;
    well(two(|job| {
        let team = job.world()?;
        let own = job.device().allocate(2 * LEN, region(std::ptr::null_mut(), 2 * LEN));
        let (own, remotes) = coll::exchange_regions(&team, own, None)?;
        if job.rank() == 0 {
            let place = Place { region: remotes[1].handle, offset: 0 };
            let before = job.stats();
            for len in [8, 300, 4096, 65_536, 65_537, LEN] {
                let there = [Block { base: own.base, len }];
                let back = [Block { base: own.base.wrapping_add(LEN), len }];
                // SAFETY: the region's own memory, until each is complete.
                unsafe {
                    own.base.write_bytes(len as u8 | 1, len);
                    job.complete("write", 1, Operation::Write { from: &there, to: place })?;
                    job.complete("read", 1, Operation::Read { into: &back, from: place })?;
                    assert_eq!(own.base.add(LEN + len - 1).read(), len as u8 | 1);
                }
            }
            let spent = job.stats() - before;
            assert_eq!(spent.count(Kind::Copy), 0, "{spent:?}");
            let mut other = vec![1u8; LEN];
            for (len, copies) in [(8, 0), (4096, 1), (LEN, 0)] {
                let before = job.stats();
                let from = [Block { base: other.as_mut_ptr(), len }];
                // SAFETY: the vector lives.
                unsafe { job.complete("write", 1, Operation::Write { from: &from, to: place }) }?;
                assert_eq!((job.stats() - before).count(Kind::Copy), copies, "{len} bytes that are not registered");
            }
        }
        team.barrier()?;
        remotes.iter().for_each(|r| job.device().forget(r.handle));
        job.device().release(own.handle)
    }));
}

/// The network interfaces below the RDMA devices, if this process may change them.
fn interfaces() -> Vec<String> {
    let devices = std::env::var("FARSIDE_VERBS_DEVICE").unwrap_or_default();
    let parent = |d: &str| std::fs::read_to_string(format!("/sys/class/infiniband/{d}/parent")).ok();
    devices.split(',').filter_map(parent).map(|p| p.trim().to_owned()).collect()
}

fn lose_packets(interface: &str, all: bool) -> bool {
    let what: &[&str] = if all {
        &["replace", "dev", interface, "root", "netem", "loss", "100%"]
    } else {
        &["del", "dev", interface, "root"]
    };
    Command::new("tc").arg("qdisc").args(what).status().is_ok_and(|s| s.success())
}

/// From some time on nothing arrives any more: both ranks hear that the other is lost.
#[test]
fn link_cut_for_good_is_a_lost_peer_at_both_ends() {
    let cut = interfaces();
    if cut.len() != 2 {
        println!("skipped: FARSIDE_VERBS_DEVICE does not name two software devices");
        return;
    }
    let cables = cut.clone();
    let errors = two(move |job| {
        let team = job.world()?;
        team.barrier()?;
        if job.rank() == 0 {
            assert!(cables.iter().all(|i| lose_packets(i, true)), "the link cannot be cut here");
        }
        loop {
            team.barrier()?;
        }
    });
    let mended = cut.iter().filter(|i| lose_packets(i, false)).count();
    assert!(errors.is_none() || mended == 2, "the link stays cut");
    for (rank, e) in errors.into_iter().flatten().enumerate() {
        let e = e.expect("a barrier over a link that is cut");
        assert_eq!((e.kind(), e.blamed()), (ErrorKind::PeerLost, Some(1 - rank as u32)), "{e}");
    }
}

/// Under a limit of locked memory: what does not fit is an error with the command that lifts the limit, and the job goes
/// on.
#[test]
fn memory_beyond_the_limit_of_locked_memory_is_an_error_with_a_remedy() {
    const CHILD: &str = "FARSIDE_TEST_CHILD";
    if std::env::var_os(CHILD).is_none() {
        // The limit is that of a process.
        let mut limited = Command::new("rxe-memlock");
        limited.arg("49152").arg(std::env::current_exe().unwrap()).env(CHILD, "1");
        limited.args(["--exact", "memory_beyond_the_limit_of_locked_memory_is_an_error_with_a_remedy"]);
        match limited.output() {
            Err(_) => println!("skipped: rxe-memlock is not there, as in the machine of ci/rxe"),
            Ok(o) => {
                let text = String::from_utf8_lossy(&o.stdout);
                assert!(
                    o.status.success() && text.contains("1 passed"),
                    "{text}{}",
                    String::from_utf8_lossy(&o.stderr)
                );
            }
        }
        return;
    }
    well(two(|job| {
        let team = job.world()?;
        let e = job.device().allocate(64 << 20, region(std::ptr::null_mut(), 64 << 20)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Limit, "{e}");
        assert!(e.to_string().contains("ulimit -l unlimited"), "{e}");
        let own = job.device().allocate(4096, region(std::ptr::null_mut(), 4096))?;
        team.barrier()?;
        job.device().release(own.handle)
    }));
}
