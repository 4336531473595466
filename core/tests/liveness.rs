//! A rank that ends in any phase: the others get `PeerLost` naming it, and no rank waits forever.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use farside_core::am::{self, Counters, Delivery, HandlerId, OnComplete, Sink};
use farside_core::device::Region;
use farside_core::job::WaitHook;
use farside_core::settings::Settings;
use farside_core::signal::SignalArray;
use farside_core::sim::Simulation;
use farside_core::{Error, ErrorKind, Job, Result, coll};
use regions::{exchange_regions, release};

#[path = "../conformance/src/regions.rs"]
mod regions;

const RANKS: u32 = 4;
const WATCHDOG: Duration = Duration::from_secs(30);
const ID: HandlerId = HandlerId(3);

#[derive(Clone, Copy, Debug)]
enum End {
    Panic,
    Error,
}

/// Ends the calling rank.
fn end(how: End) -> Result<()> {
    match how {
        End::Panic => std::panic::resume_unwind(Box::new("on purpose")),
        End::Error => Err(Error::new(ErrorKind::BadArgument, "end on purpose")),
    }
}

/// The settings `set`, with the device from the environment.
fn settings(set: &[(&str, &str)]) -> Settings {
    let find = |name: &str| {
        let given = set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let device = matches!(name, "FARSIDE_DEVICE" | "FARSIDE_DEVICES" | "FARSIDE_TEST_NODES")
            || name.starts_with("FARSIDE_VERBS_")
            || name.starts_with("FARSIDE_TCP_")
            || name.starts_with("FARSIDE_OFI_");
        given.or_else(|| device.then(|| std::env::var(name).ok()).flatten())
    };
    Settings::from_lookup(find).unwrap()
}

/// Runs `phase` at every rank; in it, rank `victim` ends itself, and the others must get `PeerLost`.
fn others_are_informed(
    name: &str,
    phase: impl Fn(&Job, &dyn Fn() -> Result<()>) -> Result<()> + Send + Sync + Copy + 'static,
) {
    const WAITS: [&str; 4] = ["auto", "park", "yield", "spin"];
    let quick = std::env::var_os("FARSIDE_TEST_QUICK").is_some();
    for (i, wait) in WAITS.into_iter().enumerate() {
        let ends = [(End::Panic, 0), (End::Error, 1), (End::Panic, RANKS - 1)];
        // A quick run tests one kind of end for each way of waiting.
        for (how, victim) in ends.into_iter().enumerate().filter(|(e, _)| !quick || i % 3 == *e).map(|(_, end)| end) {
            let case = format!("{name}, {how:?} of rank {victim}, waiting by {wait}");
            let (done, result) = mpsc::channel();
            std::thread::spawn(move || {
                let set = [("FARSIDE_WAIT", wait), ("FARSIDE_PEER_CHECK_MS", "5"), ("FARSIDE_SHM_RING", "8192")];
                let errors = std::sync::Mutex::new(vec![None; RANKS as usize]);
                let all = Job::threads_with(RANKS as usize, &settings(&set), |job| {
                    let r = phase(job, &|| if job.rank_number() == victim { end(how) } else { Ok(()) });
                    let r = r.and_then(|()| job.finalize());
                    errors.lock().unwrap()[job.rank()] = r.as_ref().err().map(|e| (e.kind(), e.blamed()));
                    r
                });
                let _ = done.send((all.map(drop), errors.into_inner().unwrap()));
            });
            let (all, errors) = result.recv_timeout(WATCHDOG).unwrap_or_else(|_| panic!("{case}: a rank still waits"));
            let own = if matches!(how, End::Panic) { ErrorKind::Aborted } else { ErrorKind::BadArgument };
            assert_eq!(all.unwrap_err().kind(), own, "{case}: the error of the one that failed by itself is reported");
            for (rank, error) in errors.into_iter().enumerate().filter(|(r, _)| *r != victim as usize) {
                let (kind, blamed) = error.unwrap_or_else(|| panic!("{case}: rank {rank} noticed nothing"));
                assert_eq!(kind, ErrorKind::PeerLost, "{case}: rank {rank}");
                // A rank that ends because of the victim is also lost to the others.
                assert!(blamed.is_some_and(|b| b != rank), "{case}: rank {rank} blames {blamed:?}");
            }
        }
    }
}

#[test]
fn rank_lost_before_the_first_collective() {
    others_are_informed("at the start", |job, end| {
        end()?;
        job.world()?.barrier()
    });
}

#[test]
fn rank_lost_before_a_barrier() {
    others_are_informed("before a barrier", |job, end| {
        let team = job.world()?;
        (0..5).try_for_each(|_| team.barrier())?;
        end()?;
        team.barrier()
    });
}

#[test]
fn rank_lost_in_a_collective_with_data() {
    others_are_informed("in an allgather", |job, end| {
        let team = job.world()?;
        end()?;
        coll::allgather(&team, &[1; 5000]).map(drop)
    });
}

#[test]
fn rank_lost_in_an_exchange_of_regions() {
    others_are_informed("in an exchange of regions", |job, end| {
        let team = job.world()?;
        let region = Region::allocated(100);
        let own = job.device().allocate(region)?;
        let handle = own.handle;
        end()?;
        let e = exchange_regions(&team, Ok(own), None).map(drop).unwrap_err();
        // The region was released, since no other rank could release it any longer.
        assert_eq!(release(job, handle).unwrap_err().kind(), ErrorKind::Freed);
        Err(e)
    });
}

#[test]
fn rank_lost_in_a_split() {
    others_are_informed("in a split", |job, end| {
        let team = job.world()?;
        end()?;
        team.split(Some(job.rank_number() % 2), 0).map(drop)
    });
}

#[test]
fn rank_lost_before_it_signals() {
    others_are_informed("before it signals", |job, end| {
        let team = job.world()?;
        let signals = SignalArray::new(&team, 0)?;
        end()?;
        (0..team.size()).try_for_each(|to| signals.set(to, 0, 1))?;
        job.wait("signals", || Ok((0..team.size()).all(|r| signals.get(r, 0) == 1).then_some(())))
    });
}

#[test]
fn rank_lost_while_its_ring_is_full() {
    others_are_informed("with a full ring", |job, end| {
        job.active_messages().register(ID, |_| Delivery::Done)?;
        let team = job.world()?;
        team.barrier()?;
        end()?;
        // The loop ends only when a peer is lost.
        loop {
            for to in 0..RANKS {
                am::send(job, to, ID, &[], &[0; 1500], Counters::default())?;
            }
        }
    });
}

#[test]
fn rank_lost_while_others_keep_sending() {
    others_are_informed("amid traffic of others", |job, end| {
        job.active_messages().register(ID, |_| Delivery::Done)?;
        let team = job.world()?;
        let signals = SignalArray::new(&team, 0)?;
        team.barrier()?;
        end()?;
        if job.rank_number() == 2 {
            // This rank never waits; its traffic keeps the others busy.
            while job.check_peers().is_ok() {
                for to in 0..RANKS {
                    am::send(job, to, ID, &[], &[], Counters::default())?;
                }
            }
        }
        job.wait("a signal", || Ok((signals.get(0, 5) + signals.get(1, 5) + signals.get(3, 5) > 0).then_some(())))
    });
}

#[test]
fn rank_lost_in_its_completion_handler() {
    others_are_informed("in a completion handler", |job, end| {
        use am::{OnComplete, Sink};
        // The completion fails; the call that made progress returns its error.
        job.active_messages().register(ID, |_| {
            Delivery::Into(
                Sink::discard(),
                OnComplete::deferred(|_, _| Err(Error::new(ErrorKind::BadArgument, "handle"))),
            )
        })?;
        let team = job.world()?;
        team.barrier()?;
        if end().is_err() {
            am::send(job, job.rank_number(), ID, &[], &[], Counters::default())?;
            return job.wait("the handler", || Ok(None));
        }
        team.barrier()
    });
}

#[test]
fn rank_lost_at_the_end() {
    others_are_informed("at the end", |job, end| {
        job.world()?.barrier()?;
        end()
    });
}

/// A rank that fails while it ends, here because of a malformed packet, is lost to the others.
#[test]
fn rank_that_fails_to_end_is_lost() {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || {
        let settings = settings(&[("FARSIDE_PEER_CHECK_MS", "5")]);
        let errors = std::sync::Mutex::new(Vec::new());
        let _ = Job::threads_with(3, &settings, |job| {
            let team = job.world()?;
            let signals = SignalArray::new(&team, 0)?;
            team.barrier()?;
            // A rank may leave a barrier before others do: rank 1 must not receive the packet while it is in the
            // barrier.
            if job.rank_number() == 1 {
                signals.set(0, 1, 1)?;
            } else if job.rank_number() == 0 {
                job.wait("rank 1", || Ok((signals.get(1, 1) == 1).then_some(())))?;
            }
            if job.rank_number() == 0 {
                // Rank 1 has no handler with this number.
                am::send(job, 1, HandlerId(77), &[], &[], Counters::default())?;
                signals.set(1, 0, 1)?;
            } else if job.rank_number() == 1 {
                while signals.get(0, 0) == 0 {
                    job.check_peers()?;
                    std::thread::yield_now();
                }
            }
            // The others end only after rank 1 has failed to end, so that its signals of the barrier are missing.
            while job.rank_number() != 1 && job.check_peers().is_ok() {
                std::thread::yield_now();
            }
            drop((signals, team));
            let r = job.finalize();
            errors.lock().unwrap().push((job.rank_number(), r.as_ref().err().map(Error::kind)));
            r
        });
        let _ = done.send(errors.into_inner().unwrap());
    });
    let mut errors = result.recv_timeout(WATCHDOG).expect("a rank still waits");
    errors.sort_unstable_by_key(|e| e.0);
    use ErrorKind::{PeerLost, Protocol};
    assert_eq!(errors[..2], [(0, Some(PeerLost)), (1, Some(Protocol))]);
    // Rank 2 may have received all messages that it needs for its own end, or may detect a loss while in the barrier:
    // the last signal to it may still be in transit on one device when another reports its sender as lost.
    assert!(matches!(errors[2..], [] | [(2, None | Some(PeerLost))]), "{errors:?}");
}

/// A rank that never calls `finalize`.
#[test]
fn finalize_waits_no_longer_than_its_limit() {
    let settings = settings(&[("FARSIDE_TIMEOUT_S", "1")]);
    let (notified, failed) = (AtomicBool::new(false), AtomicBool::new(false));
    let end = Job::threads_with(2, &settings, |job| {
        job.world()?;
        if job.rank_number() == 1 {
            while !notified.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            return Ok(());
        }
        let e = job.finalize().expect_err("rank 1 does not come");
        failed.store(e.kind() == ErrorKind::Timeout, Ordering::SeqCst);
        notified.store(true, Ordering::SeqCst);
        Err(e)
    });
    assert_eq!(end.unwrap_err().kind(), ErrorKind::Timeout);
    assert!(failed.load(Ordering::SeqCst));
}

/// A rank that computes for long before it calls `finalize`, in virtual time.
#[test]
fn finalize_waits_for_ranks_that_run() {
    let run = Simulation::new(3).run(|job| {
        job.world()?;
        if job.rank_number() == 1 {
            job.device().compute(Duration::from_secs(1000));
        }
        job.finalize()
    });
    run.unwrap();
}

#[test]
fn finalized_job_makes_no_teams_and_no_signal_arrays_and_waits_for_no_rank() {
    Job::threads_with(2, &settings(&[]), |job| {
        let team = job.world()?;
        job.finalize()?;
        let freed = |e: Error| assert_eq!(e.kind(), ErrorKind::Freed, "{e}");
        freed(job.world().map(drop).unwrap_err());
        freed(SignalArray::new(&team, 0).map(drop).unwrap_err());
        freed(team.split(Some(0), 0).map(drop).unwrap_err());
        freed(job.wait("nobody", || Ok(None::<()>)).unwrap_err());
        Ok(())
    })
    .unwrap();
}

/// After `retire` ranks still communicate, if some of them stay.
#[test]
fn retired_job_is_used_until_its_end() {
    Job::threads_with(3, &settings(&[]), |job| {
        let world = job.world()?;
        job.retire(job.rank_number() == 1)?;
        let sum = coll::allreduce(&world, &[1], &mut |into, from| into[0] += from[0])?;
        assert_eq!(sum, [3]);
        job.leave()?;
        // The call has no effect, like the `finalize` that follows, since this rank has left.
        job.leave()
    })
    .unwrap();
}

/// A rank that leaves alone ends normally: the others continue without it.
#[test]
fn rank_that_leaves_is_not_lost() {
    let left = AtomicBool::new(false);
    Job::threads_with(3, &settings(&[("FARSIDE_VERBS_SILENCE_S", "3")]), |job| {
        let others = job.world()?.split((job.rank_number() > 0).then_some(0), 0)?;
        let Some(others) = others else {
            job.leave()?;
            left.store(true, Ordering::SeqCst);
            return Ok(());
        };
        while !left.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        // Over a network the rounds take longer than the limit of a rank's silence.
        let rounds = if job.device().capabilities().mapped { 50 } else { 90 };
        for _ in 0..rounds {
            if job.rank_number() == 1 && rounds > 50 {
                std::thread::sleep(Duration::from_millis(50));
            }
            others.barrier()?;
        }
        job.leave()
    })
    .unwrap();
}

/// Waits through checks of the deadline; fails at the first one if it has passed.
fn wait_a_while(job: &Job) -> Result<()> {
    wait_through(job, Duration::from_millis(100))
}

fn wait_through(job: &Job, time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    job.wait("nobody", || Ok((Instant::now() > end).then_some(())))
}

fn is_timeout(waited: Result<()>) -> bool {
    waited.is_err_and(|e| e.kind() == ErrorKind::Timeout)
}

/// Runs one rank for each way of waiting, with frequent checks of the deadline.
fn alone(run: impl Fn(&Job) -> Result<()> + Sync) {
    for wait in ["auto", "park", "yield", "spin"] {
        let set = [("FARSIDE_WAIT", wait), ("FARSIDE_PEER_CHECK_MS", "5"), ("FARSIDE_TIMEOUT_S", "1")];
        Job::threads_with(1, &settings(&set), &run).unwrap_or_else(|e| panic!("{wait}: {e}"));
    }
}

#[test]
fn limit_of_a_wait_is_the_nearest_and_ends_with_its_call() {
    alone(|job| {
        for limit in [Duration::MAX, Duration::from_secs(3600)] {
            job.within(limit, || wait_a_while(job))?;
            let nested = || job.within(limit, || wait_through(job, WATCHDOG));
            assert!(is_timeout(job.within(Duration::ZERO, nested)), "{limit:?}");
            job.within(limit, || {
                assert!(is_timeout(job.within(Duration::ZERO, || wait_through(job, WATCHDOG))), "{limit:?}");
                wait_a_while(job)
            })?;
        }
        let panics =
            || job.within(Duration::ZERO, || -> Result<()> { std::panic::resume_unwind(Box::new("on purpose")) });
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).expect_err("the panic goes on");
        wait_a_while(job)
    });
}

std::thread_local! {
    /// The job for the next call of the wait hook, and whether a wait in the hook has ended without an error.
    static HOOKED: Cell<Option<Job>> = const { Cell::new(None) };
    static WAITED: Cell<bool> = const { Cell::new(false) };
}

#[test]
fn limit_of_a_wait_does_not_concern_the_wait_hook_and_completions_that_run_in_it() {
    alone(|job| {
        let completed = Rc::new(Cell::new(false));
        let done = completed.clone();
        job.active_messages().register(ID, move |_| {
            let done = done.clone();
            let hangs = Rc::clone(&done);
            Delivery::Into(
                Sink::buffer(Vec::new()),
                OnComplete::deferred(move |messenger, _| {
                    let end = Instant::now() + Duration::from_millis(100);
                    // The second completion waits for an event that never happens.
                    let is_over = || !hangs.get() && Instant::now() > end;
                    messenger.wait("nobody", || Ok(is_over().then_some(())))?;
                    done.set(true);
                    Ok(())
                }),
            )
        })?;
        let pause = || {
            if let Some(job) = HOOKED.take() {
                WAITED.set(wait_a_while(&job).is_ok());
            }
        };
        job.set_wait_hook(WaitHook { is_wanted: || true, pause });
        HOOKED.set(Some(job.clone()));
        WAITED.set(false);
        let times_out = || is_timeout(job.within(Duration::ZERO, || wait_through(job, WATCHDOG)));
        assert!(times_out() && WAITED.get());
        am::send(job, 0, ID, &[], &[], Counters::default())?;
        assert!(times_out() && completed.get());
        // The end of the job has a limit, whatever waits in it.
        am::send(job, 0, ID, &[], &[], Counters::default())?;
        assert!(is_timeout(job.finalize()));
        Ok(())
    });
}
