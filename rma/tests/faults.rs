//! Calls that end with a panic, for example in an active message handler while they wait: none of their operations
//! accesses memory afterwards, and later calls on the window fail.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use farside_rma::core::am::{self, Counters, HandlerId};
use farside_rma::core::coll;
use farside_rma::core::settings::Settings;
use farside_rma::prelude::*;
use farside_rma::{DynamicWindow, ErrorKind};

const NONE: Assert = Assert::empty();
const LEN: usize = 100_000;
const PANICS: HandlerId = HandlerId(5);

const USER_MEMORY: &str = "FARSIDE_SHM_USER_MEMORY";
const FAULT: &str = "FARSIDE_TEST_FAULT";

/// The step that the ranks have reached; ranks are threads.
#[derive(Default)]
struct Stage(AtomicU32);

impl Stage {
    fn reach(&self, stage: u32) {
        self.0.store(stage, Ordering::SeqCst);
    }

    fn wait(&self, stage: u32) {
        let start = Instant::now();
        while self.0.load(Ordering::SeqCst) < stage {
            assert!(start.elapsed() < Duration::from_secs(60), "the other rank does not reach stage {stage}");
            std::thread::yield_now();
        }
    }
}

/// Rank 0 runs `panics`, in which the handler of a message from rank 1 panics. Rank 1 participates only through
/// `beside`. Then rank 0 reuses its buffer, and `after` checks the window.
fn left_by_a_panic<W>(
    settings: &[(&str, &str)],
    make: impl Fn(&Team) -> Result<W> + Sync,
    panics: impl Fn(&mut W, &mut [u64]) -> Result<()> + Sync,
    beside: impl Fn(&W, &mut dyn FnMut()) -> Result<()> + Sync,
    after: impl Fn(&mut W) + Sync,
) {
    let given = |name: &str| settings.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    let of_the_machine = |name: &str| {
        let device = matches!(name, "FARSIDE_DEVICE" | "FARSIDE_TEST_NODES") || name.starts_with("FARSIDE_VERBS_");
        device.then(|| std::env::var(name).ok()).flatten()
    };
    let settings = Settings::from_lookup(|name| given(name).or_else(|| of_the_machine(name))).unwrap();
    let stage = Stage::default();
    Job::threads_with(2, &settings, |job| {
        let team = job.world()?;
        // `resume_unwind` skips the panic hook, which would print a message and a backtrace.
        job.active_messages().register(PANICS, |_| resume_unwind(Box::new("on purpose")))?;
        team.barrier()?;
        let mut window = make(&team)?;
        team.barrier()?;
        if team.rank() == 1 {
            return beside(&window, &mut || {
                // Rank 0 may still be in the barrier, and must not handle the message there.
                stage.wait(1);
                am::send(job, 0, PANICS, b"x", b"", Counters::default()).unwrap();
                stage.reach(2);
                stage.wait(3);
            })
            .map(|()| stage.reach(4));
        }
        stage.reach(1);
        stage.wait(2);
        let mut buffer = vec![0; LEN];
        let left = catch_unwind(AssertUnwindSafe(|| panics(&mut window, &mut buffer)));
        assert_eq!(*left.expect_err("the panic resumes").downcast::<&str>().unwrap(), "on purpose");
        buffer.fill(42);
        stage.reach(3);
        // Operations still in progress would become visible now.
        while stage.0.load(Ordering::SeqCst) < 4 {
            job.progress()?;
        }
        after(&mut window);
        assert!(buffer.iter().all(|x| *x == 42), "memory was written after it had been returned");
        Ok(())
    })
    .unwrap_or_else(|e| panic!("{e}"));
}

fn refused<R>(r: Result<R>) {
    assert_eq!(r.map(|_| ()).expect_err("refused").kind(), ErrorKind::WrongEpoch);
}

/// Closing calls of windows with local access between epochs.
fn active(panics: impl Fn(&mut Window<'static, u64>, &mut [u64]) -> Result<()> + Sync + Copy) {
    for settings in [&[][..], &[(FAULT, "unmapped")]] {
        left_by_a_panic(
            settings,
            |team| Window::allocate(team, LEN),
            panics,
            |_, meet| {
                meet();
                Ok(())
            },
            |w| {
                refused(w.local());
                refused(w.local_mut());
                refused(w.fence(NONE, |_| Ok(())));
            },
        );
    }
}

#[test]
fn panic_in_the_closing_call_of_a_fence() {
    active(|w, buffer| w.fence(NONE, |e| e.get(buffer, 1, 0)));
}

#[test]
fn panic_in_the_closing_call_of_a_run_of_fences() {
    active(|w, buffer| w.fences(|f| f.epoch(NONE, |e| e.get(buffer, 1, 0))));
}

#[test]
fn panic_in_the_closing_call_of_an_access() {
    active(|w, buffer| w.start(&[1], NONE, |e| e.get(buffer, 1, 0)));
}

#[test]
fn panic_in_the_closing_call_of_an_exposure() {
    active(|w, _| w.expose(&[1], NONE, |_| Ok(())));
}

/// Closing calls under locks, while rank 1 holds the lock of its memory.
fn passive(panics: impl Fn(&mut LockWindow<u64>, &mut [u64]) -> Result<()> + Sync + Copy) {
    for settings in [&[][..], &[(FAULT, "unmapped")]] {
        left_by_a_panic(
            settings,
            |team| LockWindow::allocate(team, LEN),
            panics,
            |w, meet| {
                w.with_local(|_| {
                    meet();
                    Ok(())
                })
            },
            |w| {
                refused(w.lock_all(NONE, |_| Ok(())));
                refused(w.lock(LockKind::Shared, 0, NONE, |e| e.flush_all()));
            },
        );
    }
}

#[test]
fn panic_in_unlock() {
    passive(|w, buffer| w.lock(LockKind::Shared, 1, NONE, |e| e.get(buffer, 1, 0)));
    passive(|w, buffer| w.lock(LockKind::Exclusive, 1, NONE, |e| e.get(buffer, 1, 0)));
}

#[test]
fn panic_in_unlock_all() {
    passive(|w, buffer| w.lock_all(NONE, |e| e.get(buffer, 1, 0)));
}

#[test]
fn panic_in_an_operation_that_is_complete_when_it_returns() {
    passive(|w, _| w.lock_all(NONE, |e| e.get_blocking(1, 0).map(|_| ())));
    passive(|w, _| w.lock_all(NONE, |e| e.fetch_and_op_blocking(Op::Sum, 1, 1, 0).map(|_| ())));
    passive(|w, _| w.lock_all(NONE, |e| e.compare_and_swap_blocking(1, 2, 1, 0).map(|_| ())));
}

/// A get that its target's agent serves in pieces.
#[test]
fn panic_in_a_get_of_a_dynamic_window() {
    left_by_a_panic(
        &[(USER_MEMORY, "ring")],
        |team| {
            let w = DynamicWindow::<u64>::new(team)?;
            let mine = w.attach(vec![7; LEN])?;
            let all = coll::allgather(team, bytemuck::bytes_of(&mine))?;
            Ok((w, bytemuck::pod_read_unaligned(&all[1])))
        },
        |(w, attachment), buffer| w.get(buffer, 1, *attachment, 0),
        |_, meet| {
            meet();
            Ok(())
        },
        |_| (),
    );
}
