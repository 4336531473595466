//! Futures inside a runtime of the program: epochs with async bodies, messages, flags; other tasks and timers continue;
//! operations are dropped or leaked before completion; waiting futures are woken and do not poll.
#![cfg(feature = "async")]

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::checks::config::{Config, Memory, quick, table, verbs, within};
use farside_rma::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

/// Runs `f` with two ranks over every configuration, in a single-threaded and in a multi-threaded runtime.
fn everywhere(f: impl AsyncFn(&Team) -> Result<()> + Sync + Send + Copy + 'static) {
    let most = if verbs() && quick() { 1 } else { 12 };
    let allocated = |c: &&Config| c.memory == Memory::Allocated || c.device.is_some();
    // All ranks of a simulation are on one thread, which can run only one rank's runtime.
    for config in table().iter().filter(allocated).filter(|c| c.seed.is_none()).take(most) {
        for threads in [1, 3] {
            let run = move || run(config, threads, f);
            let result = within(60, &format!("{} with {threads} threads", config.name), run);
            result.unwrap_or_else(|e| panic!("{}, {threads} threads: {e}", config.name));
        }
    }
}

fn runtime(threads: usize) -> Runtime {
    let mut builder = if threads == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.worker_threads(threads).enable_all().build().unwrap()
}

fn run(config: &Config, threads: usize, f: impl AsyncFn(&Team) -> Result<()> + Sync) -> Result<()> {
    config.run(2, |team| runtime(threads).block_on(f(team))).map(drop)
}

/// Counts the polls of a future.
struct Counted<F>(F, Rc<Cell<u32>>);

impl<F: Future + Unpin> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.1.set(self.1.get() + 1);
        Pin::new(&mut self.0).poll(context)
    }
}

#[test]
fn epoch_with_an_async_body() {
    everywhere(async |team| {
        let (me, peer) = (team.rank() as u64, 1 - team.rank());
        let window = LockWindow::<u64>::allocate(team, 3000)?;
        for round in 0..5 {
            window
                .lock_all_async(Assert::default(), async |epoch| {
                    let put = epoch.rput(vec![me + round; 1500], peer, 0)?;
                    let sum = epoch.raccumulate(Op::Sum, [1, 2, 3], peer, 1500)?;
                    let (put, sum, ()) = tokio::join!(put, sum, sleep(Duration::from_micros(50)));
                    assert_eq!(sum?, [1, 2, 3]);
                    let got = epoch.rget(put?, peer, 0)?.await?;
                    assert!(got.iter().all(|x| *x == me + round), "{got:?}");
                    let old = epoch.rfetch_and_op(Op::Sum, 10, peer, 1600)?.await?;
                    assert_eq!(old, 10 * round);
                    assert_eq!(epoch.rcompare_and_swap(old, 0, peer, 1600)?.await?, 10 * (round + 1));
                    // A flush, or the end of the epoch, completes these operations.
                    drop(epoch.rput([round], peer, 1700)?);
                    epoch.flush(peer).await?;
                    drop(epoch.rput(vec![round; 500], peer, 2000)?);
                    epoch.flush_all().await?;
                    drop(epoch.rput(vec![round + 1; 500], peer, 2500)?);
                    Ok::<(), Error>(())
                })
                .await?;
        }
        team.barrier()?;
        window.with_local(|own| {
            assert_eq!((own[1500..1503].to_vec(), own[1700], own[2499], own[2999]), (vec![5, 10, 15], 4, 4, 5));
            Ok::<(), Error>(())
        })?;
        team.barrier()?;
        window.free()
    });
}

#[test]
fn exclusive_locks_wait_for_each_other_without_blocking_the_thread() {
    everywhere(async |team| {
        let window = LockWindow::<u64>::allocate(team, 2)?;
        let ticks = Rc::new(Cell::new(0));
        let counted = Rc::clone(&ticks);
        let ticking = async move {
            loop {
                sleep(Duration::from_millis(1)).await;
                counted.set(counted.get() + 1);
            }
        };
        let locking = async {
            for _ in 0..10 {
                let one = window.lock_async(LockKind::Exclusive, 0, Assert::default(), async |epoch| {
                    let value = epoch.rget([0], 0, 0)?.await?[0];
                    sleep(Duration::from_millis(1)).await;
                    epoch.rput([value + 1], 0, 0)?.await?;
                    Ok::<(), Error>(())
                });
                one.await?;
            }
            Ok::<(), Error>(())
        };
        tokio::select! {
            done = locking => done?,
            () = ticking => unreachable!(),
        }
        assert!(ticks.get() > 0, "timers must run during the wait");
        team.barrier()?;
        if team.rank() == 0 {
            window.with_local(|own| {
                assert_eq!(own[0], 20);
                Ok::<(), Error>(())
            })?;
        }
        team.barrier()?;
        window.free()
    });
}

/// An epoch that needs the lock of a rank that waits for another task of this rank.
#[test]
fn epoch_that_closes_does_not_block_the_thread_for_its_lock() {
    everywhere(async |team| {
        let window = LockWindow::<u64>::allocate(team, 1)?;
        if team.rank() == 1 {
            let holding = window.lock_async(LockKind::Exclusive, 1, Assert::default(), async |epoch| {
                epoch.rput([1], 1, 0)?.await?;
                epoch.flush(1).await?;
                team.send(&[0u8], 0, 1)?;
                assert_eq!(team.recv_nbi([0u8], 0, 2)?.await?.0, [5]);
                Ok::<(), Error>(())
            });
            holding.await?;
        } else {
            team.recv(&mut [0u8], 1, 1)?;
            let (locked, sent) = tokio::join!(
                window.lock_async(LockKind::Exclusive, 1, Assert::default(), async |_| Ok::<(), Error>(())),
                async {
                    sleep(Duration::from_millis(1)).await;
                    team.send(&[5u8], 1, 2)
                }
            );
            locked?;
            sent?;
        }
        team.barrier()?;
        window.free()
    });
}

/// Another task of the same rank makes the condition true without a device event.
#[test]
fn futures_are_woken_by_their_own_rank() {
    everywhere(async |team| {
        let (flags, me) = (Flags::allocate(team, 3)?, team.rank());
        for round in 1..=3 {
            let (first, second, message, done) = tokio::join!(
                flags.until(0, ge(round)),
                flags.until(1, ge(round)),
                team.recv_nbi([0u64], me, 3)?,
                async {
                    sleep(Duration::from_millis(2)).await;
                    flags.set(me, 0, round)?;
                    sleep(Duration::from_millis(2)).await;
                    flags.reset(1, round)?;
                    sleep(Duration::from_millis(2)).await;
                    flags.add(me, 2, 1)?;
                    team.send(&[round], me, 3)
                }
            );
            done?;
            assert_eq!((first?, second?, message?.0), (round, round, [round]));
            flags.until(2, ge(round)).await?;
        }
        team.barrier()?;
        flags.free()
    });
}

#[test]
fn future_that_is_dropped_half_way_closes_its_epoch() {
    everywhere(async |team| {
        let peer = 1 - team.rank();
        let window = LockWindow::<u64>::allocate(team, 1000)?;
        for _ in 0..3 {
            let endless = window.lock_all_async(Assert::default(), async |epoch| {
                drop(epoch.rput(vec![3; 900], peer, 0)?);
                std::future::pending::<Result<()>>().await
            });
            assert!(timeout(Duration::from_millis(2), endless).await.is_err());
        }
        team.barrier()?;
        // The window is no longer locked, and the operation is complete.
        window.with_local(|own| {
            assert_eq!(own[..900], [3; 900]);
            Ok::<(), Error>(())
        })?;
        // Errors and panics close the epoch too.
        let failed = window.lock_all_async(Assert::default(), async |epoch| {
            drop(epoch.rput([1], 7, 0)?);
            Ok::<(), Error>(())
        });
        assert_eq!(failed.await.unwrap_err().kind(), ErrorKind::NoSuchRank);
        // Only one epoch may be open at a time.
        let nested = window.lock_all_async(Assert::default(), async |_| {
            let second = window.lock_all_async(Assert::default(), async |_| Ok::<(), Error>(()));
            assert_eq!(second.await.unwrap_err().kind(), ErrorKind::WrongEpoch);
            Ok::<(), Error>(())
        });
        nested.await?;
        team.barrier()?;
        window.free()
    });
}

#[test]
fn future_that_is_leaked_leaves_its_epoch_open() {
    everywhere(async |team| {
        let peer = 1 - team.rank();
        let window = Box::leak(Box::new(LockWindow::<u64>::allocate(team, 1000)?));
        let mut endless = Box::pin(window.lock_all_async(Assert::default(), async |epoch| {
            drop(epoch.rput(vec![3; 900], peer, 0)?);
            std::future::pending::<Result<()>>().await
        }));
        assert!(timeout(Duration::from_millis(1), &mut endless).await.is_err());
        std::mem::forget(endless);
        let refused = window.lock_all(Assert::default(), |_| Ok::<(), Error>(()));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::WrongEpoch);
        team.barrier()
    });
}

#[test]
fn messages_are_cancelled_by_a_drop_or_arrive() {
    everywhere(async |team| {
        let peer = 1 - team.rank();
        for len in [1, 300, 20_000, 300_000] {
            // No rank sends with this tag.
            let never = team.recv_nbi(vec![0u64; len], peer, 99)?;
            assert!(timeout(Duration::from_millis(1), never).await.is_err());
            let (sent, received) = tokio::join!(
                team.send_nbi(vec![len as u64; len], peer, 1)?,
                team.recv_nbi(vec![0u64; len].into_boxed_slice(), ANY_SOURCE, ANY_TAG)?
            );
            let (data, status) = received?;
            assert_eq!((sent?.len(), status.source, status.tag, status.count::<u64>()), (len, peer, 1, Some(len)));
            assert!(data.iter().all(|x| *x == len as u64));
            // A send whose handle was dropped still arrives.
            drop(team.send_nbi(vec![7u64; len], peer, 2)?);
            let (data, _) = team.recv_nbi(vec![0u64; len], peer, 2)?.await?;
            assert!(data.iter().all(|x| *x == 7));
            // The late message for the cancelled receive matches a new receive.
            drop(team.send_nbi([5u64], peer, 99)?);
            assert_eq!(team.recv_nbi([0u64], peer, 99)?.wait()?.0, [5]);
        }
        let mut early = team.recv_nbi([0u8; 2], peer, 3)?;
        team.barrier()?;
        assert!(early.test()?.is_none());
        team.barrier()?;
        let mut sent = team.send_nbi([1u8, 2], peer, 3)?;
        let got = loop {
            if let Some(got) = early.test()? {
                break got;
            }
        };
        assert_eq!(got.0, [1, 2]);
        while sent.test()?.is_none() {}
        assert_eq!(early.test().map(drop).unwrap_err().kind(), ErrorKind::BadArgument);
        assert_eq!(sent.test().map(drop).unwrap_err().kind(), ErrorKind::BadArgument);
        // The message is too long for its buffer.
        drop(team.send_nbi([1u8; 9], peer, 4)?);
        let e = team.recv_nbi([0u8; 8], peer, 4)?.await.map(drop).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::BadArgument, "{e}");
        team.barrier()
    });
}

/// Rank 1 is late. The futures of rank 0 are polled for a while, and then only after an event.
#[test]
fn waiting_futures_are_woken_and_do_not_poll() {
    everywhere(async |team| {
        let (flags, table) = (Flags::allocate(team, 2)?, Symmetric::<u64>::allocate(team, 1)?);
        for round in 1..=3 {
            if team.rank() == 1 {
                std::thread::sleep(Duration::from_millis(300));
                table.put_notify(&[round], 0, 0, &flags, 0, round)?;
                team.send(&[round], 0, 1)?;
                flags.until(1, ge(round)).await?;
                continue;
            }
            let polls = Rc::new(Cell::new(0));
            let (flag, message, ()) = tokio::join!(
                Counted(flags.until(0, ge(round)), Rc::clone(&polls)),
                Counted(team.recv_nbi([0u64], 1, 1)?, Rc::clone(&polls)),
                sleep(Duration::from_millis(1)),
            );
            assert_eq!((flag?, message?.0, table.local().load(0)?), (round, [round], round));
            // A progress call takes a microsecond or more, so polling for 300 milliseconds would make many more calls.
            assert!(polls.get() < 5_000, "{} polls", polls.get());
            flags.set(1, 1, round)?;
        }
        team.barrier()?;
        table.free()?;
        flags.free()
    });
}

/// Calls that block the thread, between and alongside waiting futures.
#[test]
fn blocking_calls_beside_waiting_futures() {
    everywhere(async |team| {
        let flags = Flags::allocate(team, 1)?;
        let waiting = flags.until(0, ge(20));
        let working = async {
            for _ in 0..20 {
                team.barrier()?;
                tokio::time::sleep(Duration::from_micros(300)).await;
                flags.add(1 - team.rank(), 0, 1)?;
            }
            Ok::<(), Error>(())
        };
        let (seen, worked) = tokio::join!(waiting, working);
        worked?;
        assert_eq!(seen?, 20);
        flags.free()
    });
}

#[test]
fn lost_rank_ends_a_wait() {
    let settings = farside_rma::core::settings::Settings::from_lookup(|_| None).unwrap();
    let e = Job::threads_with(2, &settings, |job| {
        let team = job.world()?;
        if team.rank() == 1 {
            return Err(Error::new(ErrorKind::BadArgument, "end early"));
        }
        runtime(1).block_on(async {
            let e = team.recv_nbi([0u8], 1, 0)?.await.map(drop).unwrap_err();
            assert!(matches!(e.kind(), ErrorKind::PeerLost | ErrorKind::Aborted), "{e}");
            Err::<(), _>(e)
        })
    })
    .unwrap_err();
    assert_eq!(e.kind(), ErrorKind::BadArgument, "{e}");
}
