#![allow(unsafe_code)]
//! Stacks of ranks: one that is too small is rejected, an overflow names its rank, and other faults are passed to the
//! former handler.

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use farside_core::sim::Simulation;
use farside_core::{ErrorKind, Job, Result, coll};

/// The fault that a child of this test makes.
const FAULT: &str = "FARSIDE_TEST_STACK";

/// Runs the test of this program whose name ends with `name` in a separate process, which causes the fault.
fn child(name: &str, fault: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let (_, module) = module_path!().split_once("::").unwrap();
    command.args(["--exact", &format!("{module}::{name}"), "--nocapture", "--test-threads=1"]).env(FAULT, fault);
    // No core file is needed.
    command.env("RUST_BACKTRACE", "0").output().unwrap()
}

/// Uses `depth` KiB of stack and more.
#[allow(unconditional_recursion, reason = "the guard page ends it")]
fn recurse(depth: usize) -> usize {
    let room = black_box([depth as u8; 1024]);
    if depth == 0 { room[0].into() } else { recurse(depth - 1) + usize::from(room[depth % 1024]) }
}

/// Three ranks with stacks of 128 KiB, of which rank 1 calls `f` between two barriers.
fn simulate(seed: u64, f: impl Fn()) -> Result<()> {
    let barriers = |job: &Job| {
        job.world()?.barrier()?;
        if job.rank() == 1 {
            f();
        }
        job.world()?.barrier()
    };
    Simulation::new(3).seed(seed).stack(128 << 10).run(barriers).map(drop)
}

#[test]
fn overflow_names_rank_seed_and_setting() {
    let thread = |f: &'static (dyn Fn() + Sync)| drop(std::thread::spawn(f).join());
    match std::env::var(FAULT).as_deref() {
        // This is neither the first simulation of the process nor the only one.
        Ok("overflow") => {
            simulate(1, || {}).unwrap();
            return simulate(77, || thread(&|| simulate(2, || _ = black_box(recurse(20))).unwrap()))
                .and_then(|()| simulate(78, || _ = black_box(recurse(1000))))
                .unwrap();
        }
        Ok("null") => {
            // SAFETY: deliberately unsound, since the process is to end here by a fault.
            return simulate(3, || unsafe { black_box(std::ptr::null_mut::<u8>()).write_volatile(1) }).unwrap();
        }
        Ok("thread") => return simulate(4, || thread(&|| _ = black_box(recurse(100_000)))).unwrap(),
        Ok(other) => panic!("no fault {other}"),
        Err(_) => {}
    }
    let outcome = |fault: &str| {
        let output = child("overflow_names_rank_seed_and_setting", fault);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.signal(), text.lines().filter(|line| line.starts_with("farside:")).count(), text)
    };
    let (signal, lines, text) = outcome("overflow");
    assert_eq!((signal, lines), (Some(libc::SIGSEGV), 1), "{text}");
    for part in ["rank 1 of 3", "seed 78", "stack of 131072 bytes", "`stack=`"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    // A fault of another kind ends the process as it does without a simulation.
    let (signal, lines, text) = outcome("null");
    assert_eq!((signal, lines), (Some(libc::SIGSEGV), 0), "{text}");
    // The handler of Rust's threads reports the overflow of a thread, and aborts.
    let (signal, lines, text) = outcome("thread");
    assert_eq!((signal, lines), (Some(libc::SIGABRT), 0), "{text}");
    assert!(text.contains("has overflowed its stack"), "{text}");
}

#[test]
fn stack_that_is_too_small_is_refused() {
    for bytes in [0, 1, 4096, (64 << 10) - 1, usize::MAX] {
        let e = Simulation::new(2).seed(5).stack(bytes).run(|_| Ok(())).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::BadArgument, "{e}");
        assert!(e.to_string().contains(&format!("a stack of {bytes} bytes")), "{e}");
        assert!(e.to_string().contains("at least 65536 bytes"), "{e}");
    }
    // The smallest stack is enough for a rank that starts, communicates, and ends.
    let run = Simulation::new(5).stack(64 << 10).run(|job| {
        let world = job.world()?;
        world.barrier()?;
        let half = world.split(Some(job.rank_number() % 2), 0)?;
        let all = coll::allgather(&world, &[job.rank() as u8])?;
        half.map_or(Ok(()), |team| team.barrier())?;
        Ok(all.concat())
    });
    assert!(run.unwrap().results.iter().all(|all| *all == [0, 1, 2, 3, 4]));
}
