#![allow(unsafe_code)]
//! A rank that waits sleeps, also where its message comes by another device than the one that it sleeps on.

use std::time::Duration;

use farside_core::am::{Sink, Source};
use farside_core::device::Block;
use farside_core::matching::Pattern;
use farside_core::two_sided::{Mode, Receive};
use farside_core::{Job, Result};
use rustix::time::{ClockId, clock_gettime};

use crate::harness::{ofi, settings};
use crate::processes::{self, Rank};

/// Ranks 0 and 2 are on one node, rank 1 on another.
const SET: [(&str, &str); 3] =
    [("FARSIDE_DEVICE", "route"), ("FARSIDE_DEVICES", "shm,ofi"), ("FARSIDE_TEST_NODES", "2")];
/// How long rank 1 lets rank 0 wait.
const WAIT: Duration = Duration::from_secs(1);

fn send(job: &Job, to: u32) -> Result<()> {
    // SAFETY: a message of no bytes.
    let sending =
        unsafe { job.start_message(to, 5, 0, Source::Bytes(Block { base: [].as_mut_ptr(), len: 0 }), Mode::Standard) }?;
    job.wait("a send", || sending.outcome())
}

fn receive(job: &Job, from: u32) -> Result<()> {
    let receive = Receive::new();
    // SAFETY: a message of no bytes.
    unsafe { job.start_receive(&receive, Pattern::new(5, Some(from), Some(0)), Sink::memory([].as_mut_ptr(), 0)) }?;
    job.wait("a receive", || receive.outcome()).map(drop)
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

#[test]
fn wait_beside_another_device_takes_little_processor_time() {
    if !ofi() {
        return println!("skipped: other devices have tests of their own");
    }
    let Some(rank) = Rank::from_env() else {
        let test = concat!(module_path!(), "::wait_beside_another_device_takes_little_processor_time");
        return processes::run(test, 0, 3).unwrap();
    };
    rank.run(&settings(&SET), |job| {
        let team = job.world()?;
        team.barrier()?;
        match job.rank_number() {
            0 => {
                // After this event a rank sleeps on shared memory.
                receive(job, 2)?;
                let before = processor_time();
                receive(job, 1)?;
                let used = processor_time() - before;
                println!("{used:?} of the processor");
                assert!(used < WAIT / 3, "{used:?} of the processor in a wait of {WAIT:?}");
            }
            1 => {
                std::thread::sleep(WAIT);
                send(job, 0)?;
            }
            _ => {
                send(job, 0)?;
                // Its own wait for the others is no event of rank 0.
                std::thread::sleep(WAIT + WAIT / 4);
            }
        }
        team.barrier()
    });
}
