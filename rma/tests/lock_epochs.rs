#![allow(unsafe_code)]
//! Lock epochs on a simulated network: the number of round trips per epoch.

use farside_rma::core::sim::{Interface, Network, Simulation};
use farside_rma::raw::{Options, RawWindow};
use farside_rma::{Assert, LockKind, LockWindow, Op, Result};

/// The number of round trips of an epoch of rank 0 that locks rank 1 for `operations`.
fn round_trips(kind: LockKind, operations: impl Fn(&RawWindow) -> Result<()>) -> f64 {
    const LATENCY: f64 = 10_000.0;
    let network = Network { interface: Interface::log_p(LATENCY, 0.0, 0.0), ..Network::default() };
    let run = Simulation::new(2).network(network).run(|job| {
        let world = job.world()?;
        let window = RawWindow::allocate(&world, 16, Options::default())?;
        let begin = job.device().now();
        if job.rank() == 0 {
            window.lock(kind, 1, Assert::empty())?;
            operations(&window)?;
            window.unlock(1)?;
        }
        let time = job.device().now() - begin;
        world.barrier()?;
        // SAFETY: 8 bytes of this rank's memory, which no other rank writes concurrently.
        assert!(job.rank() == 0 || unsafe { window.base().cast::<u64>().read() } < 8);
        window.free()?;
        Ok(time.as_nanos() as f64 / (2.0 * LATENCY))
    });
    run.unwrap().results[0]
}

/// A release need not wait for writes, which it cannot overtake; it waits for reads.
#[test]
fn lock_put_unlock_takes_two_round_trips() {
    let puts = |count: u64| move |window: &RawWindow| (0..count).try_for_each(|i| window.put_value(i, 1, 0));
    for (count, expected) in [(0, 0.0), (1, 2.0), (8, 2.0)] {
        let found = round_trips(LockKind::Exclusive, puts(count));
        assert!((expected..expected + 0.1).contains(&found), "{count} puts: {found}");
    }
    // A reader first reads the lock word.
    let found = round_trips(LockKind::Shared, puts(1));
    assert!(found < 4.1, "{found}");
    let read = round_trips(LockKind::Exclusive, |window| {
        let mut old = 0u64;
        window.put_value(1u64, 1, 0)?;
        // SAFETY: the word is valid until the flush.
        unsafe { window.get((&raw mut old).cast(), 8, 1, 0) }?;
        window.flush(1)
    });
    assert!((3.0..3.1).contains(&read), "{read}");
}

/// Without atomics of the network, a target makes the updates of others while it is in the runtime: it may not repeat its own
/// operations on its memory without making them.
#[test]
fn rank_that_waits_by_its_own_atomics_makes_those_of_others() {
    for flushes in [false, true] {
        let network = Network { atomics: false, ..Network::default() };
        let run = Simulation::new(2).network(network).run(move |job| {
            let window = LockWindow::<u64>::allocate(&job.world()?, 1)?;
            let seen = window.lock_all(Assert::empty(), |e| {
                if job.rank() == 1 {
                    return e.fetch_and_op_blocking(Op::Sum, 7, 0, 0);
                }
                let mut turns = (0..1_000_000).map(|_| match flushes {
                    true => e.flush(0).and_then(|()| e.compare_and_swap_blocking(7, 8, 0, 0)),
                    false => e.compare_and_swap_blocking(7, 8, 0, 0),
                });
                turns.find(|seen| !matches!(seen, Ok(0))).unwrap_or(Ok(0))
            })?;
            window.free()?;
            Ok(seen)
        });
        assert_eq!(run.unwrap().results, [7, 0], "flushes: {flushes}");
    }
}
