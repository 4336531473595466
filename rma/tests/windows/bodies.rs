//! Bodies that fail at one rank, by an error or a panic, while other ranks wait for it: those ranks get an error that
//! names it, and no rank waits forever.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use farside_rma::collectives::call;
use farside_rma::prelude::*;

use crate::checks::config::{self, Config, within};

const CONFIGS: [Config; 5] = [config::MAPPED, config::POSTED, config::RING, config::TABLE[10], config::TABLE[12]];

/// Runs `f` over some devices, each with a function that makes the body of rank 1 fail.
fn over_devices(ranks: &[u32], f: impl Fn(&Team, fn() -> Result<()>) -> Result<()> + Sync + Send + Copy + 'static) {
    let failing_bodies: [fn() -> Result<()>; 2] = [
        || Err(Error::new(ErrorKind::BadArgument, "think").cause("on purpose")),
        // `resume_unwind` skips the panic hook, which would print a message and a backtrace.
        || resume_unwind(Box::new("on purpose")),
    ];
    for config in config::these(&CONFIGS) {
        for n in ranks.iter().copied() {
            for fail in failing_bodies {
                let what = format!("{}, {n} ranks", config.name);
                let run = move || config.run(n, |team| f(team, fail)).map(drop);
                within(60, &what, run).unwrap_or_else(|e| panic!("{what}: {e}"));
            }
        }
    }
}

/// Checks at rank 1 that its own body has failed, and at the other ranks that the error names rank 1.
fn names_rank_1(team: &Team, what: &str, ended: std::thread::Result<Result<()>>) {
    match (team.rank(), ended) {
        (1, Ok(ended)) => assert_eq!(ended.expect_err("the body failed").operation(), "think"),
        (1, Err(panic)) => assert_eq!(*panic.downcast::<&str>().unwrap(), "on purpose"),
        (me, ended) => {
            let e = ended.unwrap().expect_err(&format!("{what}: rank {me} must get an error"));
            assert_eq!((e.kind(), e.blamed()), (ErrorKind::Mismatch, Some(1)), "{what}, rank {me}: {e}");
            assert!(e.to_string().contains("body of"), "{what}, rank {me}: {e}");
        }
    }
}

/// Runs `body`, which may panic.
fn caught(body: impl FnOnce() -> Result<()>) -> std::thread::Result<Result<()>> {
    catch_unwind(AssertUnwindSafe(body))
}

type Body<'a> = dyn Fn(&mut Window<'_, u64>) -> Result<()> + 'a;

#[test]
fn body_of_a_borrowed_window_fails_while_others_wait_in_theirs() {
    over_devices(&[2, 5], |team, fail| {
        let flags = Flags::allocate(team, 1)?;
        let waits: [(&str, &Body<'_>); 5] = [
            ("for nothing", &|_| Ok(())),
            ("in a fence", &|w| w.fence(Assert::empty(), |e| e.put_value(7, 0, 1))),
            ("in a run of fences", &|w| w.fences(|f| f.epoch(Assert::empty(), |e| e.put_value(7, 0, 1)))),
            ("in a receive", &|_| team.recv_vec::<u8>(1, 5).map(drop)),
            ("for a flag", &|_| flags.wait_until(0, eq(1)).map(drop)),
        ];
        for (what, wait) in waits {
            let mut mine = vec![0u64; 2000];
            let ended = caught(|| {
                Window::over(team, &mut mine, |window| {
                    window.fence(Assert::empty(), |e| e.put_value(1, (team.rank() + 1) % team.size(), 0))?;
                    if team.rank() == 1 { fail() } else { wait(window) }
                })
            });
            names_rank_1(team, what, ended);
            assert_eq!(mine[0], 1, "the epoch before is complete");
        }
        // No rank has missed a call on the team, so the team is still usable.
        team.barrier()?;
        flags.free()
    });
}

/// The body has caught the error, so the end of the body returns it again.
#[test]
fn end_of_a_borrowed_window_has_the_error_that_its_body_has_caught() {
    over_devices(&[3], |team, fail| {
        let mut mine = [0u64; 4];
        let ended = caught(|| {
            Window::over(team, &mut mine, |window| match team.rank() {
                1 => fail(),
                _ => {
                    assert!(window.fence(Assert::empty(), |e| e.put_value(7, 0, 1)).is_err());
                    Ok(())
                }
            })
        });
        names_rank_1(team, "at the end", ended);
        Ok(())
    });
}

/// The ranks wait for rank 1 inside their bodies; afterwards all epochs are closed, and the window is usable.
#[test]
fn body_of_an_epoch_fails_while_others_wait_in_theirs() {
    over_devices(&[2, 3], |team, fail| {
        let (me, p) = (team.rank(), team.size());
        let mut window = Window::<u64>::allocate(team, 4)?;
        let turn = |tag: i32| if me == 1 { fail() } else { team.recv_vec::<u8>(1, tag).map(drop) };
        let ended = caught(|| window.fence(Assert::empty(), |_| turn(1)));
        names_rank_1(team, "a fence", ended);
        let ended = caught(|| window.fences(|_| turn(2)));
        names_rank_1(team, "a run of fences", ended);
        let ended = caught(|| window.fences(|fences| fences.epoch(Assert::empty(), |_| turn(3))));
        names_rank_1(team, "an epoch of a run", ended);
        // Rank 1 exposes its memory, and rank 0 waits in its access epoch; then they swap roles.
        if me < 2 {
            let ended = match me {
                1 => caught(|| window.expose(&[0], Assert::empty(), |_| turn(4))),
                _ => caught(|| window.start(&[1], Assert::empty(), |e| e.put_value(8, 1, 0).and_then(|()| turn(4)))),
            };
            names_rank_1(team, "an exposure", ended);
            let ended = match me {
                1 => caught(|| window.start(&[0], Assert::empty(), |e| e.put_value(9, 0, 1).and_then(|()| turn(5)))),
                _ => caught(|| window.expose(&[1], Assert::empty(), |_| turn(5))),
            };
            names_rank_1(team, "an access", ended);
        }
        window.fence(Assert::empty(), |e| e.put_value(10 + me as u64, (me + 1) % p, 2))?;
        let expected = [if me == 1 { 8 } else { 0 }, if me == 0 { 9 } else { 0 }, 10 + ((me + p - 1) % p) as u64];
        assert_eq!(window.local()?[..3], expected);
        window.free()?;

        let table = Symmetric::<u64>::allocate(team, 2)?;
        let ended = caught(|| table.exclusive(|_| turn(6)));
        names_rank_1(team, "exclusive access", ended);
        table.put_value(5, (me + 1) % p, 1)?;
        table.barrier()?;
        assert_eq!(table.local().load(1)?, 5);
        table.free()
    });
}

/// A run of fences that ends early at one rank causes a mismatch, and the error names that rank.
#[test]
fn run_of_fences_that_ends_early_is_named() {
    over_devices(&[3], |team, fail| {
        let mut window = Window::<u64>::allocate(team, 4)?;
        let ended = caught(|| {
            window.fences(|fences| {
                fences.epoch(Assert::empty(), |e| e.put_value(1, 0, 0))?;
                if team.rank() == 1 {
                    return fail();
                }
                fences.epoch(Assert::empty(), |e| e.put_value(2, 0, 0))
            })
        });
        names_rank_1(team, "a run", ended);
        window.free()
    });
}

/// Bodies in which no other rank participates: no rank waits, and the other ranks are not affected.
#[test]
fn body_under_a_lock_or_of_an_overlap_fails_alone() {
    over_devices(&[3], |team, fail| {
        let (me, p) = (team.rank(), team.size());
        let window = LockWindow::<u64>::allocate(team, 4)?;
        let array = GlobalArray::<u64, 1>::new(team, [6])?;
        for turn in 0..4 {
            let body = || if me == 1 { fail() } else { Ok(()) };
            let ended = match turn {
                0 => caught(|| window.lock(LockKind::Exclusive, 0, Assert::empty(), |_| body())),
                1 => caught(|| {
                    window.lock_all(Assert::empty(), |e| e.put_blocking(&[1], (me + 1) % p, 0).and_then(|()| body()))
                }),
                2 => caught(|| array.with_local(|_| body())),
                _ => caught(|| team.overlap(|_| body())),
            };
            assert_eq!(matches!(ended, Ok(Ok(()))), me != 1, "turn {turn}");
            team.barrier()?;
        }
        assert_eq!(window.local_shared().load(0)?, 1);
        // A started call that rank 1 cancels fails at the other ranks, with an error that names rank 1.
        let mut sums = [1u64; 3000];
        let ended = caught(|| {
            team.overlap(|scope| {
                let started = scope.start(call::allreduce(&mut sums, Op::Sum))?;
                if me == 1 { fail() } else { started.wait().map(drop) }
            })
        });
        if me != 1
            && let Err(e) = ended.unwrap()
        {
            assert_eq!(e.blamed(), Some(1), "{e}");
        }
        window.free()?;
        array.free()
    });
}
