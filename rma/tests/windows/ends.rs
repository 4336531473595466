//! Ends of epochs: a body that fails, a panic inside an epoch, a rank that is lost inside an epoch.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use farside_rma::raw::{Options, RawWindow};
use farside_rma::{Assert, Error, ErrorKind, Job, LockKind, Result, Team};

use crate::checks::config::{self, everywhere_with, within};
use crate::checks::sync::{self, Sync, Win};

const NONE: Assert = Assert::empty();
const LEN: usize = 2001;

/// All ranks put to all ranks; rank 1 leaves the body early with `leave`. Its earlier operations are complete, the
/// epoch is closed at all ranks, and the window stays usable.
fn leaves_early(sync: Sync, leave: fn() -> Result<()>, left: fn(std::thread::Result<Result<()>>)) {
    everywhere_with(&[2, 3, 5], move |team: &Team, config| {
        let (p, me) = (team.size(), team.rank());
        let mut win = Win::<u64>::new(team, config, sync, LEN * p)?;
        let data = vec![me as u64 + 1; LEN];
        // The others know of the failed body when they close their epochs.
        if me + 1 == p && p > 2 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        // Under locks each target has its own epoch: the last one is left early.
        let last = (me + p - 1) % p;
        let r = catch_unwind(AssertUnwindSafe(|| {
            win.epoch(sync, |e, targets| {
                targets.iter().try_for_each(|t| e.put(&data, *t, me * LEN))?;
                if me == 1 && targets.contains(&last) { leave() } else { Ok(()) }
            })
        }));
        if me == 1 {
            left(r);
        } else {
            assert!(matches!(r, Ok(Ok(()))), "rank {me}: {r:?}");
        }
        win.local(|l| {
            for (i, x) in l.iter().enumerate() {
                assert_eq!(*x, (i / LEN) as u64 + 1, "element {i} of rank {me}");
            }
        })?;
        win.epoch(sync, |e, targets| targets.iter().try_for_each(|t| e.put_value(99, *t, me * LEN)))?;
        win.local(|l| assert!((0..p).all(|r| l[r * LEN] == 99)))?;
        win.free()
    });
}

macro_rules! early {
    ($($sync:ident: $panics:ident, $fails:ident;)*) => { $(
        #[test]
        fn $panics() {
            leaves_early(
                Sync::$sync,
                // `resume_unwind` skips the panic hook, which would print a message and a backtrace.
                || std::panic::resume_unwind(Box::new("on purpose")),
                |r| assert_eq!(*r.expect_err("the panic resumes").downcast::<&str>().unwrap(), "on purpose"),
            );
        }

        #[test]
        fn $fails() {
            leaves_early(
                Sync::$sync,
                || Err(Error::new(ErrorKind::BadArgument, "think").cause("on purpose")),
                |r| assert_eq!(r.unwrap().expect_err("the body's error").operation(), "think"),
            );
        }
    )* };
}

early! {
    Fence: panic_inside_fence, error_inside_fence;
    Fences: panic_inside_fences, error_inside_fences;
    Pscw: panic_inside_pscw, error_inside_pscw;
    LockShared: panic_inside_lock_shared, error_inside_lock_shared;
    LockExclusive: panic_inside_lock_exclusive, error_inside_lock_exclusive;
    LockAll: panic_inside_lock_all, error_inside_lock_all;
}

/// A panic inside exclusive local access releases the lock.
#[test]
fn panic_inside_local_access() {
    everywhere_with(&[3], |team, config| {
        let Win::Passive(win) = Win::<u64>::new(team, config, Sync::LockAll, LEN)? else { unreachable!() };
        let r = catch_unwind(AssertUnwindSafe(|| {
            win.with_local(|l| -> Result<()> {
                l[0] = 1;
                std::panic::resume_unwind(Box::new(()))
            })
        }));
        assert!(r.is_err());
        team.barrier()?;
        win.lock_all(NONE, |e| {
            (0..3).try_for_each(|t| e.fetch_and_op_blocking(farside_rma::Op::Sum, 1, t, 0).map(|_| ()))
        })?;
        team.barrier()?;
        win.with_local(|l| {
            assert_eq!(l[0], 4);
            Ok(())
        })?;
        win.free()
    });
}

/// The kind of epoch in which a rank is lost.
#[derive(Clone, Copy, Debug)]
enum Inside {
    Fence,
    FenceAfterOperations,
    Exposure,
    Access,
    LockExclusive,
    LockShared,
    LockAll,
    LockQueue,
}

/// Rank `p - 1` is lost; every other rank waits for it and must get an error that names it.
fn lost(inside: Inside) {
    for config in config::these(&[config::MAPPED, config::POSTED, config::TABLE[7], config::TABLE[8]]) {
        let ranks: &[u32] = if config::verbs() && config::quick() { &[3] } else { &[2, 3, 5] };
        for n in ranks.iter().copied() {
            let what = format!("{inside:?}, {}, {n} ranks", config.name);
            let errors = std::sync::Arc::new(Mutex::new(Vec::new()));
            let reported = errors.clone();
            let end = within(30, &what, move || {
                Job::threads_with(n as usize, &config.settings(&[]), |job| {
                    let team = job.world()?;
                    // A slow rank may get the error while the window is still being made.
                    let r = RawWindow::allocate(&team, 64, Options::default()).and_then(|w| one(inside, &w, &team));
                    if team.rank() + 1 < team.size() {
                        let e = r.as_ref().err().map(|e| (e.kind(), e.blamed(), e.to_string()));
                        reported.lock().unwrap().push(e);
                    }
                    r
                })
            });
            let e = end.map(|_| ()).expect_err("the job fails");
            assert_eq!(e.operation(), "be lost", "{what}: {e}");
            let errors = errors.lock().unwrap();
            assert_eq!(errors.len(), n as usize - 1, "{what}");
            let names_it = |e: &Option<(ErrorKind, Option<usize>, String)>| {
                e.as_ref().is_some_and(|e| (e.0, e.1) == (ErrorKind::PeerLost, Some(n as usize - 1)))
            };
            assert!(errors.iter().all(names_it), "{what}: {errors:?}");
        }
    }
}

fn one(inside: Inside, w: &RawWindow, team: &Team) -> Result<()> {
    let (p, me) = (team.size(), team.rank());
    let dead = p - 1;
    let end = || Err(Error::new(ErrorKind::Aborted, "be lost"));
    let others: Vec<usize> = (0..dead).collect();
    match inside {
        Inside::Fence | Inside::FenceAfterOperations => {
            w.fence(NONE)?;
            if matches!(inside, Inside::FenceAfterOperations) {
                (0..p).try_for_each(|t| w.put_value(1u64, t, 8))?;
            }
            if me == dead { end() } else { w.fence(NONE) }
        }
        Inside::Exposure => {
            // The origin never completes.
            if me == dead {
                return end();
            }
            w.post(&[dead], NONE)?;
            w.wait()
        }
        Inside::Access => {
            if me == dead {
                w.start(&others, NONE)?;
                return end();
            }
            // The target never posts.
            w.start(&[dead], NONE)?;
            w.put_value(1u64, dead, 0)?;
            w.complete()
        }
        Inside::LockExclusive | Inside::LockShared | Inside::LockAll | Inside::LockQueue => {
            if me == dead {
                match inside {
                    Inside::LockExclusive => w.lock(LockKind::Exclusive, 0, NONE)?,
                    Inside::LockShared => w.lock(LockKind::Shared, 0, NONE)?,
                    _ => w.lock_all(NONE)?,
                }
                w.put_value(1u64, 0, 0)?;
                w.flush(0)?;
            }
            team.barrier()?;
            if me == dead {
                return end();
            }
            // The ranks wait in the lock's queue, one behind the other.
            w.lock(LockKind::Exclusive, 0, NONE)?;
            w.put_value(1u64, 0, 0)?;
            w.flush(0)?;
            w.unlock(0)
        }
    }
}

macro_rules! lost {
    ($($name:ident: $inside:ident;)*) => { $(
        #[test]
        fn $name() {
            lost(Inside::$inside);
        }
    )* };
}

lost! {
    lost_inside_fence: Fence;
    lost_inside_fence_after_operations: FenceAfterOperations;
    lost_origin_of_an_exposure: Exposure;
    lost_target_of_an_access: Access;
    lost_holding_lock_exclusive: LockExclusive;
    lost_holding_lock_shared: LockShared;
    lost_inside_lock_all: LockAll;
    lost_with_a_queue_behind_it: LockQueue;
}

/// A rank is lost inside a typed epoch of any kind: other ranks in the same kind of epoch get an error, and local
/// access to their windows is refused afterwards, since a peer might still write.
#[test]
fn lost_inside_a_typed_epoch_leaves_memory_refused() {
    for kind in sync::ALL.iter().copied().filter(|s| matches!(s, Sync::Fence | Sync::Fences | Sync::Pscw)) {
        for config in config::these(&[config::MAPPED, config::POSTED, config::RING, config::REMAP]) {
            let end = within(30, config.name, move || {
                config.run(3, |team| {
                    let Win::Active(mut win) = Win::<u64>::new(team, &config, kind, LEN)? else { unreachable!() };
                    if team.rank() == 2 {
                        return Err(Error::new(ErrorKind::Aborted, "be lost"));
                    }
                    let none = NONE;
                    let all = [0, 1, 2];
                    let r = match kind {
                        Sync::Fence => win.fence(none, |e| e.put_value(1, 1 - team.rank(), 0)),
                        Sync::Fences => win.fences(|f| f.epoch(none, |e| e.put_value(1, 1 - team.rank(), 0))),
                        _ => win.expose(&all, none, |x| x.start(&[1 - team.rank()], none, |_| Ok(()))),
                    };
                    let e = r.expect_err("a rank is gone");
                    assert_eq!((e.kind(), e.blamed()), (ErrorKind::PeerLost, Some(2)), "{e}");
                    assert_eq!(win.local().map(|_| ()).expect_err("refused").kind(), ErrorKind::WrongEpoch);
                    assert_eq!(win.local_mut().map(|_| ()).expect_err("refused").kind(), ErrorKind::WrongEpoch);
                    Ok(())
                })
            });
            assert_eq!(end.map(|_| ()).expect_err("the job fails").operation(), "be lost", "{kind:?}, {}", config.name);
        }
    }
}

/// One rank's run of fence epochs is longer than that of the others: all ranks get an error from the first fence at
/// which the others end, and no rank hangs.
#[test]
fn runs_of_different_lengths_are_a_mismatch() {
    everywhere_with(&[2, 3, 5, 8], |team, config| {
        let (p, me) = (team.size(), team.rank());
        let Win::Active(mut win) = Win::<u64>::new(team, config, Sync::Fences, p)? else { unreachable!() };
        let epochs = if me == p - 1 { 6 } else { 2 };
        let mut closed = 0;
        let run = win.fences(|fences| -> Result<()> {
            for epoch in 1..=epochs {
                fences.epoch(NONE, |e| (0..p).try_for_each(|t| e.put_value(epoch, t, me)))?;
                closed = epoch;
            }
            Ok(())
        });
        let e = run.unwrap_err();
        assert_eq!((e.kind(), e.operation(), closed), (ErrorKind::Mismatch, "fence", 2), "{e}");
        assert_eq!(win.local().map(|_| ()).expect_err("refused").kind(), ErrorKind::WrongEpoch);
        win.free()
    });
}

/// Some ranks are in a run of fence epochs that continues, others have closed a single epoch: all ranks get an error
/// before local access is allowed, since the former could still write the memory.
#[test]
fn fence_beside_a_run_of_fences_is_a_mismatch() {
    everywhere_with(&[2, 3, 5, 8], |team, config| {
        let (p, me) = (team.size(), team.rank());
        let Win::Active(mut win) = Win::<u64>::new(team, config, Sync::Fence, p)? else { unreachable!() };
        let closed = if me % 2 == 0 {
            win.fences(|f| {
                f.epoch(NONE, |e| (0..p).try_for_each(|t| e.put_value(1, t, me)))?;
                f.epoch(NONE, |e| (0..p).try_for_each(|t| e.put_value(2, t, me)))
            })
        } else {
            win.fence(NONE, |_| Ok(()))
        };
        let e = closed.unwrap_err();
        assert_eq!((e.kind(), e.operation()), (ErrorKind::Mismatch, "fence"), "{e}");
        assert_eq!(win.local_mut().map(|_| ()).expect_err("refused").kind(), ErrorKind::WrongEpoch);
        win.free()
    });
}
