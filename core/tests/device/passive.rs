//! Memory of a rank that computes can be accessed from the start.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farside_core::Job;
use farside_core::device::Block;
use farside_core::stats::Kind;

use crate::harness::{USER_MEMORY, settings};
use crate::regions::{forget, release};

/// The owner computes as soon as it has registered, without another wait in the runtime, so the origin must wake the
/// owner's agent even for the first request.
#[test]
#[allow(unsafe_code)]
fn passive_memory_is_served_right_after_registration() {
    use farside_core::device::{Operation, Place, Region};
    let key = Mutex::new(None);
    let done = AtomicBool::new(false);
    Job::threads_with(2, &settings(&[(USER_MEMORY, "ring")]), |job| {
        let team = job.world()?;
        if !job.device().capabilities().passive {
            println!("skipped: updates take effect while their target is inside the runtime");
            return Ok(());
        }
        if job.rank_number() == 0 {
            let mut buffer = vec![0u8; 100];
            let region = Region { passive: true, ..Region::of(buffer.as_mut_ptr(), 100) };
            // SAFETY: the buffer is not used before it is released.
            let own = unsafe { job.device().register(region) }?;
            let before = job.stats();
            *key.lock().unwrap() = Some(own.key);
            let start = Instant::now();
            while !done.load(Ordering::SeqCst) {
                assert!(start.elapsed() < Duration::from_secs(60), "no request is served");
                std::hint::spin_loop();
            }
            // This rank has not entered the runtime, so the agent has served the request. Over verbs the target is not
            // involved.
            let served = (job.stats() - before).count(Kind::Served) > 0;
            assert_eq!(served, !crate::harness::hca(), "by the agent");
            release(job, own.handle)?;
            assert_eq!(buffer, [[5; 50], [0; 50]].concat());
        } else {
            let key = loop {
                if let Some(key) = key.lock().unwrap().take() {
                    break key;
                }
                std::thread::yield_now();
            };
            let remote = job.device().import(0, &key, None)?;
            let bytes = [5u8; 50];
            let from = [Block::of(bytes.as_ptr(), 50)];
            let operation = Operation::write(&from, Place { region: remote.handle, offset: 0 });
            // SAFETY: `bytes` outlives the call.
            unsafe { job.complete("write", 0, operation) }?;
            done.store(true, Ordering::SeqCst);
            forget(job, remote.handle);
        }
        team.barrier()
    })
    .unwrap();
}
