#![allow(unsafe_code)]
//! Invalid input: each kind yields an error that names the cause, and leaves the window unchanged.

use farside_rma::raw::{Options, RawWindow};
use farside_rma::{
    Assert, DynamicWindow, Error, ErrorKind, Job, LockKind, LockWindow, Op, Result, SharedWindow, Team, Window,
};

use crate::checks::config::{self, Config, Memory, everywhere_with, within};

const NONE: Assert = Assert::empty();

fn kind<R>(r: Result<R>) -> ErrorKind {
    r.map(|_| ()).expect_err("an error").kind()
}

fn window(team: &Team, config: &Config, len: usize) -> Result<Window<'static, u32>> {
    match config.memory {
        Memory::Allocated => Window::allocate(team, len),
        Memory::Vector => Window::from_vec(team, vec![0; len]),
    }
}

fn lock_window(team: &Team, config: &Config, len: usize) -> Result<LockWindow<u32>> {
    match config.memory {
        Memory::Allocated => LockWindow::allocate(team, len),
        Memory::Vector => LockWindow::from_vec(team, vec![0; len]),
    }
}

/// Runs `f` on an untyped window of 64 bytes per rank, on two ranks, mapped and posted.
fn raw(f: impl Fn(&RawWindow, &Team) -> Result<()> + Send + Sync + Copy + 'static) {
    for config in config::these(&[config::MAPPED, config::POSTED]) {
        let run = move || {
            config.run(2, |team| {
                let window = RawWindow::allocate(team, 64, Options::default())?;
                f(&window, team)?;
                team.barrier()?;
                window.free()
            })
        };
        within(30, config.name, run).unwrap_or_else(|e| panic!("{}: {e}", config.name));
    }
}

#[test]
fn every_operation_fence_out_of_range() {
    everywhere_with(&[3], |team, config| {
        // Rank r has 10 + r elements, since the length at the target is the one that is checked.
        let mut win = window(team, config, 10 + team.rank())?;
        let (two, mut old, mut one) = ([1, 2], [0; 2], 0);
        for t in 0..team.size() {
            let len = 10 + t;
            for at in [len - 1, len, len + 1, 1 << 40, usize::MAX / 4, usize::MAX / 4 + 1, usize::MAX] {
                win.fence(NONE, |e| {
                    assert_eq!(e.len_at(t)?, len);
                    let out = |r: Result<()>| {
                        let e = r.expect_err("out of range");
                        assert_eq!(e.kind(), ErrorKind::OutOfRange, "{e}");
                        assert!(e.to_string().contains(" element"), "{e}");
                        assert!(at > len + 1 || e.blamed() == Some(t), "{e}");
                    };
                    out(e.put(&two, t, at));
                    out(e.accumulate(Op::Sum, &two, t, at));
                    out(e.get_accumulate(Op::Sum, &two, &mut old, t, at));
                    if at >= len {
                        out(e.put_value(1, t, at));
                        out(e.fetch_and_op(Op::Sum, &two[0], &mut one, t, at));
                    }
                    Ok(())
                })?;
                win.fence(NONE, |e| {
                    if at >= len {
                        assert_eq!(kind(e.compare_and_swap(0, 1, &mut one, t, at)), ErrorKind::OutOfRange);
                    }
                    assert_eq!(kind(e.get(&mut old, t, at)), ErrorKind::OutOfRange);
                    Ok(())
                })?;
            }
        }
        assert!(win.local()?.iter().all(|x| *x == 0), "nothing was written");
        // The window is still usable, up to its last element.
        win.fence(NONE, |e| e.put(&two, team.rank(), 8 + team.rank()))?;
        assert_eq!(win.local()?[8 + team.rank()..], [1, 2]);
        assert_eq!(kind(win.len_at(3)), ErrorKind::NoSuchRank);
        win.free()
    });
}

#[test]
fn every_operation_lock_all_out_of_range() {
    everywhere_with(&[3], |team, config| {
        let win = lock_window(team, config, 10)?;
        let (two, mut old) = ([1, 2], [0; 2]);
        win.lock_all(NONE, |e| {
            for t in 0..team.size() {
                assert_eq!(kind(e.rput(&two, t, 9)), ErrorKind::OutOfRange);
                assert_eq!(kind(e.raccumulate(Op::Sum, &two, t, usize::MAX)), ErrorKind::OutOfRange);
                assert_eq!(kind(e.get_blocking(t, 10)), ErrorKind::OutOfRange);
                assert_eq!(kind(e.fetch_and_op_blocking(Op::Sum, 1, t, 10)), ErrorKind::OutOfRange);
                assert_eq!(kind(e.compare_and_swap_blocking(1, 2, t, usize::MAX / 2)), ErrorKind::OutOfRange);
            }
            assert_eq!(kind(e.rget(&mut old, 0, 9)), ErrorKind::OutOfRange);
            e.flush_all()
        })?;
        assert_eq!(old, [0, 0]);
        win.free()
    });
}

#[test]
fn every_operation_fence_no_such_rank() {
    everywhere_with(&[2], |team, config| {
        let mut win = window(team, config, 4)?;
        let (x, mut old, mut one, mut two) = ([1], [0], 0, 0);
        win.fence(NONE, |e| {
            for r in [
                e.put(&x, 2, 0),
                e.put_value(1, usize::MAX, 0),
                e.accumulate(Op::Sum, &x, 2, 0),
                e.get(&mut old, 2, 0),
                e.fetch_and_op(Op::Sum, &x[0], &mut one, 2, 0),
                e.compare_and_swap(1, 2, &mut two, 2, 0),
            ] {
                assert_eq!(kind(r), ErrorKind::NoSuchRank);
            }
            Ok(())
        })?;
        win.free()
    });
}

#[test]
fn accumulate_fence_operation_that_floats_do_not_have() {
    everywhere_with(&[2], |team, _| {
        let mut win = Window::<f64>::allocate(team, 4)?;
        let (x, mut old, mut short) = ([1.0, 2.0], 0.0, [0.0]);
        win.fence(NONE, |e| {
            for op in [Op::Land, Op::Lor, Op::Lxor, Op::Band, Op::Bor, Op::Bxor] {
                assert_eq!(kind(e.accumulate(op, &x, 0, 0)), ErrorKind::Unsupported);
            }
            assert_eq!(kind(e.fetch_and_op(Op::Bor, &x[0], &mut old, 0, 0)), ErrorKind::Unsupported);
            assert_eq!(kind(e.get_accumulate(Op::Sum, &x, &mut short, 0, 0)), ErrorKind::BadArgument);
            Ok(())
        })?;
        win.free()
    });
}

/// Displacements of the untyped layer are bytes, so a target may be misaligned. This fails when the operation is issued
/// or, if the target detects it, when the operation is completed.
#[test]
fn atomics_lock_misaligned() {
    everywhere_with(&[2], |team, config| {
        let mut memory = vec![0u64; 3000];
        let raw = match config.memory {
            Memory::Allocated => RawWindow::allocate(team, 24_000, Options::default())?,
            // SAFETY: `memory` lives, and is not accessed otherwise, until the window is released.
            Memory::Vector => unsafe {
                RawWindow::create(team, memory.as_mut_ptr().cast(), 24_000, Options::default())?
            },
        };
        let target = 1 - team.rank();
        let x = [1u64, 2];
        let mut old = 0u64;
        for offset in [1, 4, 12_004, 23_980] {
            raw.lock(LockKind::Exclusive, target, NONE)?;
            // SAFETY: the buffers live until the flush.
            let accumulated = unsafe { raw.accumulate(Op::Sum, x.as_ptr(), std::ptr::null_mut(), 1, target, offset) };
            assert_eq!(kind(accumulated.and_then(|()| raw.flush(target))), ErrorKind::Misaligned, "sum at {offset}");
            // SAFETY: as above.
            let accumulated = unsafe { raw.accumulate(Op::Sum, x.as_ptr(), std::ptr::null_mut(), 2, target, offset) };
            assert_eq!(kind(accumulated.and_then(|()| raw.flush(target))), ErrorKind::Misaligned, "two at {offset}");
            // SAFETY: as above.
            let swapped = unsafe { raw.compare_and_swap(0u64, 5, &raw mut old, target, offset) };
            assert_eq!(kind(swapped.and_then(|()| raw.flush(target))), ErrorKind::Misaligned, "swap at {offset}");
            raw.unlock(target)?;
        }
        // SAFETY: as above. The length is not a multiple of the element.
        let ragged = unsafe {
            raw.lock(LockKind::Exclusive, target, NONE)?;
            let ty = farside_rma::op::ElementType::U64;
            raw.accumulate_bytes(Op::Sum, ty, x.as_ptr().cast(), std::ptr::null_mut(), 12, target, 0)
        };
        assert_eq!(kind(ragged), ErrorKind::BadArgument);
        raw.unlock(target)?;
        team.barrier()?;
        // SAFETY: the length is that of the window; no rank writes any more.
        let own = unsafe { std::slice::from_raw_parts(raw.base(), 24_000) };
        assert!(own.iter().all(|b| *b == 0), "nothing was written");
        raw.free()
    });
}

#[test]
fn every_call_outside_its_epoch() {
    use ErrorKind::WrongEpoch;
    raw(|w, team| {
        let (me, other) = (team.rank(), 1 - team.rank());
        let put = |t: usize| w.put_value(1u64, t, 0);
        // No epoch is open.
        assert_eq!(kind(put(other)), WrongEpoch);
        assert_eq!(kind(put(me)), WrongEpoch);
        // SAFETY: the operations are refused, so no memory is accessed.
        unsafe {
            let mut x = 0u64;
            let p = &raw mut x;
            assert_eq!(kind(w.put(p.cast(), 8, other, 0)), WrongEpoch);
            assert_eq!(kind(w.get(p.cast(), 8, other, 0)), WrongEpoch);
            assert_eq!(kind(w.accumulate(Op::Sum, p, std::ptr::null_mut(), 1, other, 0)), WrongEpoch);
            assert_eq!(kind(w.compare_and_swap(0, 1, p, other, 0)), WrongEpoch);
        }
        for r in [w.complete(), w.wait(), w.test().map(|_| ()), w.unlock(other), w.unlock_all()] {
            assert_eq!(kind(r), WrongEpoch);
        }
        for r in [w.flush(other), w.flush_all(), w.flush_local(other), w.flush_local_all()] {
            assert_eq!(kind(r), WrongEpoch);
        }
        // These calls are inside a start to one of two ranks.
        w.start(&[other], NONE)?;
        assert_eq!(kind(put(me)), WrongEpoch, "not in the group");
        for r in [w.start(&[me], NONE), w.lock(LockKind::Shared, me, NONE), w.lock_all(NONE), w.fence(NONE), w.free()] {
            assert_eq!(kind(r), WrongEpoch);
        }
        assert_eq!(kind(w.flush(other)), WrongEpoch);
        w.post(&[other], NONE)?;
        assert_eq!(kind(w.post(&[other], NONE)), WrongEpoch);
        w.complete()?;
        assert_eq!(kind(w.complete()), WrongEpoch);
        assert_eq!(kind(w.fence(NONE)), WrongEpoch, "an exposure is open");
        assert_eq!(kind(w.free()), WrongEpoch);
        w.wait()?;
        assert_eq!(kind(w.wait()), WrongEpoch);
        // These calls are inside a lock.
        w.lock(LockKind::Shared, other, NONE)?;
        assert_eq!(kind(w.lock(LockKind::Shared, other, NONE)), WrongEpoch, "twice");
        assert_eq!(kind(put(me)), WrongEpoch, "not locked");
        for r in [w.unlock(me), w.unlock_all(), w.lock_all(NONE), w.fence(NONE), w.start(&[me], NONE), w.free()] {
            assert_eq!(kind(r), WrongEpoch);
        }
        w.unlock(other)?;
        assert_eq!(kind(w.unlock(other)), WrongEpoch);
        // These calls are inside a lock_all.
        w.lock_all(NONE)?;
        for r in [w.lock_all(NONE), w.lock(LockKind::Shared, me, NONE), w.unlock(me), w.fence(NONE), w.lock_local()] {
            assert_eq!(kind(r), WrongEpoch);
        }
        w.unlock_all()?;
        assert_eq!(kind(w.unlock_all()), WrongEpoch);
        // Local access excludes this rank's own operations.
        w.lock_local()?;
        assert_eq!(kind(put(me)), WrongEpoch, "lent out");
        assert_eq!(kind(w.lock_local()), WrongEpoch);
        w.unlock(me)?;
        // These are errors of groups.
        assert_eq!(kind(w.start(&[0, 0], NONE)), ErrorKind::BadArgument);
        assert_eq!(kind(w.post(&[1, 0, 1], NONE)), ErrorKind::BadArgument);
        assert_eq!(kind(w.start(&[2], NONE)), ErrorKind::NoSuchRank);
        assert_eq!(kind(w.post(&[2], NONE)), ErrorKind::NoSuchRank);
        assert_eq!(kind(w.lock(LockKind::Shared, 2, NONE)), ErrorKind::NoSuchRank);
        assert_eq!(kind(w.len_at(2)), ErrorKind::NoSuchRank);
        assert_eq!(kind(w.mapped_base(2)), ErrorKind::NoSuchRank);
        // An epoch that a fence has opened ends when another kind of epoch starts, if it has no operations.
        w.fence(NONE)?;
        w.lock(LockKind::Shared, other, NONE)?;
        w.unlock(other)?;
        // The window is still usable after all of this.
        w.fence(NONE)?;
        put(other)?;
        w.fence(Assert::NOSUCCEED)?;
        assert_eq!(kind(put(other)), WrongEpoch, "after NOSUCCEED");
        Ok(())
    });
}

#[test]
fn lock_nested_typed_wrong_epoch() {
    everywhere_with(&[2], |team, config| {
        let win = lock_window(team, config, 4)?;
        win.lock(LockKind::Shared, 0, NONE, |e| {
            assert_eq!(kind(win.lock(LockKind::Shared, 0, NONE, |_| Ok(()))), ErrorKind::WrongEpoch);
            assert_eq!(kind(win.lock_all(NONE, |_| Ok(()))), ErrorKind::WrongEpoch);
            assert_eq!(kind(e.put_value(1, 1, 0)), ErrorKind::WrongEpoch);
            e.put_value(1, 0, team.rank())
        })?;
        win.lock_all(NONE, |_| {
            assert_eq!(kind(win.with_local(|_| Ok(()))), ErrorKind::WrongEpoch);
            Ok(())
        })?;
        team.barrier()?;
        win.with_local(|l| {
            assert_eq!(kind(win.with_local(|_| Ok(()))), ErrorKind::WrongEpoch, "lent twice");
            assert_eq!(l[..2], if team.rank() == 0 { [1, 1] } else { [0, 0] });
            Ok(())
        })?;
        win.free()
    });
}

#[test]
fn start_nested_typed_wrong_epoch() {
    everywhere_with(&[2], |team, config| {
        let mut win = window(team, config, 4)?;
        let all = [0, 1];
        win.expose(&all, NONE, |x| {
            x.start(&all, NONE, |e| {
                assert_eq!(kind(x.start(&all, NONE, |_| Ok(()))), ErrorKind::WrongEpoch);
                e.put_value(7, 1 - team.rank(), 0)
            })
        })?;
        assert_eq!(win.local()?[0], 7);
        win.start(&[0], Assert::NOCHECK, |e| {
            assert_eq!(kind(e.put_value(1, 1, 0)), ErrorKind::WrongEpoch, "not in the group");
            Ok(())
        })?;
        if team.rank() == 0 {
            win.expose(&all, Assert::NOCHECK, |_| Ok(()))?;
        }
        win.free()
    });
}

#[test]
fn every_call_on_a_freed_window() {
    use ErrorKind::Freed;
    for config in config::these(&[config::MAPPED, config::POSTED]) {
        config
            .run(2, |team| {
                let w = RawWindow::allocate(team, 64, Options::default())?;
                w.free()?;
                assert!(w.is_released());
                w.release()?;
                for r in [
                    w.free(),
                    w.fence(NONE),
                    w.start(&[0], NONE),
                    w.post(&[0], NONE),
                    w.complete(),
                    w.wait(),
                    w.test().map(|_| ()),
                    w.lock(LockKind::Shared, 0, NONE),
                    w.lock_all(NONE),
                    w.unlock(0),
                    w.unlock_all(),
                    w.lock_local(),
                    w.flush(0),
                    w.flush_all(),
                    w.flush_local(0),
                    w.flush_local_all(),
                    w.sync(),
                    w.put_value(1u64, 0, 0),
                ] {
                    assert_eq!(kind(r), Freed);
                }
                Ok(())
            })
            .unwrap_or_else(|e| panic!("{}: {e}", config.name));
    }
}

#[test]
fn lock_family_on_a_window_without_locks() {
    for config in config::these(&[config::MAPPED, config::POSTED]) {
        config
            .run(2, |team| {
                let w = RawWindow::allocate(team, 64, Options { locks: false })?;
                for r in [w.lock(LockKind::Shared, 0, NONE), w.lock_all(NONE), w.lock_local()] {
                    assert_eq!(kind(r), ErrorKind::Unsupported);
                }
                w.fence(NONE)?;
                w.put_value(3u64, 1 - team.rank(), 0)?;
                w.fence(Assert::NOSUCCEED)?;
                w.free()
            })
            .unwrap_or_else(|e| panic!("{}: {e}", config.name));
    }
}

/// A fence that asserts an empty epoch opens no exposure: operations fail, so that memory that its owner uses locally
/// is not written.
#[test]
fn put_fence_noprecede_refused() {
    everywhere_with(&[2, 5], |team, config| {
        let mut win = window(team, config, 4)?;
        let other = (team.rank() + 1) % team.size();
        win.fence(Assert::NOPRECEDE, |e| {
            assert_eq!(kind(e.put_value(1, other, 0)), ErrorKind::WrongEpoch);
            Ok(())
        })?;
        win.fence(NONE, |e| e.put_value(2, other, 1))?;
        assert_eq!(win.local()?[..2], [0, 2]);
        win.free()
    });
}

/// The untyped layer detects the false assertion if operations are queued; the window can still be freed.
#[test]
fn put_fence_noprecede_false_promise() {
    config::POSTED
        .run(2, |team| {
            let w = RawWindow::allocate(team, 64, Options::default())?;
            w.fence(NONE)?;
            w.put_value(1u64, 1 - team.rank(), 0)?;
            assert_eq!(kind(w.fence(Assert::NOPRECEDE)), ErrorKind::WrongEpoch);
            w.abandon();
            assert_eq!(kind(w.fence(NONE)), ErrorKind::WrongEpoch);
            w.free()
        })
        .unwrap();
}

/// A run of fences: the fence fails while an operation is in progress, whose buffer could be reused after the fence.
#[test]
fn get_fences_noprecede_false_promise() {
    for config in config::these(&[config::MAPPED, config::POSTED]) {
        let run = move || {
            config.run(3, |team| {
                let mut win = Window::<u32>::from_vec(team, vec![7; 4])?;
                let mut into = [0; 4];
                let run = win.fences(|f| {
                    f.epoch(NONE, |_| Ok(()))?;
                    f.epoch(Assert::NOPRECEDE, |e| e.get(&mut into, (team.rank() + 1) % 3, 0))
                });
                match run {
                    Ok(()) => assert!(into == [7; 4] && config.name == config::MAPPED.name),
                    Err(e) => assert_eq!(e.kind(), ErrorKind::WrongEpoch, "{e}"),
                }
                win.free()
            })
        };
        within(30, config.name, run).unwrap_or_else(|e| panic!("{}: {e}", config.name));
    }
}

/// Every rank gets an error that names the rank that failed; the job stays usable.
#[test]
fn creation_that_fails_on_one_rank() {
    for config in config::these(&[config::MAPPED, config::POSTED]) {
        let run = move || {
            config.run(3, |team| {
                let failed = |len: usize, what: &str, r: std::result::Result<(), Error>| {
                    let e = r.expect_err(what);
                    if team.rank() == 1 {
                        let own = [ErrorKind::SharedMemoryFull, ErrorKind::OutOfRange, ErrorKind::Limit];
                        assert!(own.contains(&e.kind()), "{what} of {len}: {e}");
                    } else {
                        assert_eq!(e.blamed(), Some(1), "{what} of {len}: {e}");
                    }
                };
                for huge in [1 << 44, usize::MAX / 8, usize::MAX] {
                    let len = if team.rank() == 1 { huge } else { 10 };
                    failed(len, "window", Window::<u64>::allocate(team, len).map(|_| ()));
                    failed(len, "lock window", LockWindow::<u64>::allocate(team, len).map(|_| ()));
                    failed(len, "raw window", RawWindow::allocate(team, len, Options::default()).map(|_| ()));
                    if config.name == "mapped" {
                        failed(len, "shared window", SharedWindow::<u64>::allocate(team, len).map(|_| ()));
                    }
                }
                let mut win = Window::<u64>::allocate(team, 3)?;
                win.fence(NONE, |e| (0..3).try_for_each(|t| e.put_value(1, t, team.rank())))?;
                assert_eq!(win.local()?, [1; 3]);
                win.free()
            })
        };
        within(60, config.name, run).unwrap_or_else(|e| panic!("{}: {e}", config.name));
    }
}

/// Element types differ, also with equal sizes, and if some ranks have no elements.
#[test]
fn creation_with_element_types_that_differ() {
    everywhere_with(&[2, 3, 5], |team, config| {
        let odd = team.rank() == team.size() - 1;
        let made =
            if odd { LockWindow::<f32>::allocate(team, 0).map(drop) } else { lock_window(team, config, 9).map(drop) };
        let e = made.unwrap_err();
        assert_eq!((e.kind(), e.operation()), (ErrorKind::Mismatch, "create a window"), "{e}");
        let made =
            if odd { DynamicWindow::<u8>::new(team).map(drop) } else { DynamicWindow::<u64>::new(team).map(drop) };
        assert_eq!(kind(made), ErrorKind::Mismatch);
        lock_window(team, config, 9)?.free()
    });
}

#[test]
fn creation_after_the_end_of_the_job() {
    let settings = config::MAPPED.settings(&[]);
    let made = Job::threads_with(2, &settings, |job| {
        let team = job.world()?;
        job.finalize()?;
        Ok([kind(Window::<u8>::allocate(&team, 1)), kind(Window::from_vec(&team, vec![1u8])), kind(job.world())])
    });
    assert_eq!(made.unwrap(), [[ErrorKind::Freed; 3]; 2]);
}

#[test]
fn creation_on_a_full_file_system() {
    if config::verbs() {
        println!("skipped: over verbs windows have no files");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mount = |args: &[&str]| std::process::Command::new("mount").args(args).arg(dir.path()).output();
    match mount(&["-t", "tmpfs", "-o", "size=24m", "tmpfs"]) {
        Ok(o) if o.status.success() => {}
        _ => return println!("skipped: this user may not mount a tmpfs"),
    }
    let path = dir.path().to_str().unwrap().to_owned();
    let result = within(60, "a full file system", move || {
        let settings = config::MAPPED.settings(&[("FARSIDE_SHM_DIR", &path)]);
        farside_rma::Job::threads_with(3, &settings, |job| {
            let team = job.world()?;
            // Short windows are made until the file system is full; long ones do not use a file system.
            let mut short = Vec::new();
            for _ in 0..20 {
                let e = loop {
                    let len = if team.rank() == 2 { 64 << 10 } else { 100 };
                    match Window::<u8>::allocate(&team, len) {
                        Ok(window) => short.push(window),
                        Err(e) => break e,
                    }
                };
                // Any rank may be the first that needs another segment.
                assert!(e.blamed().is_some() || e.kind() == ErrorKind::SharedMemoryFull, "{e}");
            }
            assert!(short.len() > 100, "{} windows", short.len());
            short.into_iter().try_for_each(Window::free)?;
            // The failed windows hold no memory: a window that fits can still be made.
            let mut win = Window::<u8>::allocate(&team, 2 << 20)?;
            win.local_mut()?.fill(1);
            win.free()
        })
    });
    let _ = std::process::Command::new("umount").arg(dir.path()).output();
    result.unwrap();
}

#[test]
fn shared_window_where_memory_is_not_mapped() {
    config::POSTED
        .run(2, |team| {
            assert_eq!(kind(SharedWindow::<u64>::allocate(team, 4)), ErrorKind::Unsupported);
            Ok(())
        })
        .unwrap();
}

/// A rank drops its window without a collective free: peers get an error at the request and at the epoch, or access
/// memory that is no longer used.
#[test]
fn rget_lock_all_target_has_dropped_its_window() {
    config::RING
        .run(2, |team| {
            let win = LockWindow::from_vec(team, vec![5u64; 100])?;
            if team.rank() == 1 {
                drop(win);
                return team.barrier().and_then(|()| team.barrier());
            }
            team.barrier()?;
            let mut into = [0u64; 10];
            let r = win.lock_all(Assert::NOCHECK, |e| {
                assert_eq!(kind(e.rget(&mut into, 1, 0)?.wait()), ErrorKind::BadKey, "the request's own error");
                Ok(())
            });
            assert_eq!(kind(r), ErrorKind::BadKey, "the epoch's first error");
            assert_eq!(into, [0; 10]);
            drop(win);
            team.barrier()
        })
        .unwrap();
}

/// An operation of an inner epoch on the target of an outer one is complete when the inner epoch is closed, since its
/// buffers are borrowed only until then.
#[test]
fn operations_lock_nested_on_the_outer_target() {
    everywhere_with(&[3], |team, config| {
        const LEN: usize = 100_000;
        let win = match config.memory {
            Memory::Allocated => LockWindow::<u64>::allocate(team, LEN)?,
            Memory::Vector => LockWindow::from_vec(team, vec![0; LEN])?,
        };
        if team.rank() == 0 {
            let mut data = vec![7u64; LEN];
            let mut got = vec![0u64; LEN];
            win.lock(LockKind::Exclusive, 1, NONE, |_| {
                win.lock(LockKind::Exclusive, 2, NONE, |inner| inner.put(&data, 1, 0))?;
                data.fill(9);
                win.lock(LockKind::Exclusive, 2, NONE, |inner| inner.get(&mut got, 1, 0))?;
                assert!(got.iter().all(|x| *x == 7), "the get of the inner epoch");
                got.fill(8);
                Ok(())
            })?;
            assert!(got.iter().all(|x| *x == 8), "the buffer is not written afterwards");
        }
        team.barrier()?;
        win.with_local(|l| {
            let expected = if team.rank() == 1 { 7 } else { 0 };
            assert!(l.iter().all(|x| *x == expected), "the value put before the buffer was modified");
            Ok(())
        })?;
        win.free()
    });
}
