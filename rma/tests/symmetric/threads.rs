//! Threads of a rank on symmetric memory, flags and lock windows.

use farside_rma::core::settings::Settings;
use farside_rma::core::stats::Kind;
use farside_rma::prelude::*;
use farside_rma::symmetric::ge;

const THREADS: usize = 8;

/// Runs ranks whose memory is mapped, whatever the device of the other tests.
fn mapped<R: Send>(ranks: usize, f: impl Fn(&Job) -> Result<R> + Sync) -> Result<Vec<R>> {
    let settings = Settings::from_lookup(|name| (name == "FARSIDE_DEVICE").then(|| "shm".to_owned()))?;
    Job::threads_with(ranks, &settings, f)
}

/// Threads of each of two ranks put to separate blocks and read them back, and increment common elements.
#[test]
fn put_get_and_atomics_of_threads() {
    const ROUNDS: u64 = 400;
    mapped(2, |job| {
        let team = job.world()?;
        let (me, peer) = (team.rank(), 1 - team.rank());
        let table = Symmetric::<u64>::allocate(&team, 8 * THREADS + 12)?;
        let (counter, swapped, sums) = (8 * THREADS, 8 * THREADS + 1, 8 * THREADS + 2);
        let before = job.stats();
        for threads in [2, THREADS] {
            table.barrier()?;
            let shared = table.shared()?;
            let work = |thread: usize| -> Result<()> {
                let mut found = [0; 8];
                let mut last = None;
                for round in 0..ROUNDS {
                    let data = [round + 1000 * thread as u64; 8];
                    shared.put(&data, peer, 8 * thread)?;
                    shared.get(&mut found, peer, 8 * thread)?;
                    assert_eq!(found, data);
                    let old = shared.atomic(0, counter)?.fetch_add(1)?;
                    assert!(last.is_none_or(|last| old > last));
                    last = Some(old);
                    shared.atomic(0, swapped)?.fetch_update(|old| Some(old + 2))?.expect("a new value");
                    shared.accumulate(Op::Sum, &[round; 10], peer, sums)?;
                }
                shared.quiet();
                Ok(())
            };
            std::thread::scope(|scope| {
                let all: Vec<_> = (0..threads)
                    .map(|thread| {
                        scope.spawn({
                            let work = &work;
                            move || work(thread)
                        })
                    })
                    .collect();
                all.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
            })?;
        }
        let used = job.stats() - before;
        let rounds = ROUNDS * (2 + THREADS as u64);
        assert_eq!((used.count(Kind::Write), used.bytes(Kind::Write)), (rounds, 64 * rounds));
        assert_eq!((used.count(Kind::Read), used.count(Kind::Send)), (rounds, 0));
        table.barrier()?;
        if me == 0 {
            assert_eq!((table.local().load(counter)?, table.local().load(swapped)?), (2 * rounds, 4 * rounds));
        }
        assert_eq!(table.local().load(sums + 9)?, (0..ROUNDS).sum::<u64>() * (2 + THREADS as u64));
        table.free()
    })
    .unwrap();
}

/// A thread signals a peer that sleeps.
#[test]
fn flags_set_by_threads_wake_a_rank() {
    mapped(2, |job| {
        let team = job.world()?;
        let (data, flags) = (Symmetric::<u64>::allocate(&team, THREADS)?, Flags::allocate(&team, 2)?);
        let (shared, signals) = (data.shared()?, flags.shared()?);
        for round in 1..=20 {
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (shared, signals) = (&shared, &signals);
                    scope.spawn(move || {
                        std::thread::sleep(std::time::Duration::from_micros(100 * thread as u64));
                        let peer = 1 - shared.rank();
                        shared.put_value(round, peer, thread)?;
                        signals.add(peer, 0, 1)
                    });
                }
                flags.wait_until(0, ge(round * THREADS as u64))
            })?;
            assert_eq!(data.local().to_vec()?, [round; THREADS]);
            std::thread::scope(|scope| {
                scope.spawn(|| signals.set(1 - shared.rank(), 1, round)).join().expect("no panic")
            })?;
            flags.wait_until(1, ge(round))?;
            assert!(signals.holds(1, ge(round))?);
        }
        drop((shared, signals));
        flags.free()?;
        data.free()
    })
    .unwrap();
}

/// Threads use the memory of the ranks that are locked, and no other.
#[test]
fn lock_epochs_of_threads() {
    mapped(2, |job| {
        let team = job.world()?;
        let window = LockWindow::<u64>::allocate(&team, 2)?;
        for _ in 0..50 {
            // A pair that changes together, by plain puts of threads under an exclusive lock.
            window.lock(LockKind::Exclusive, 0, Assert::empty(), |epoch| {
                let shared = epoch.shared()?;
                let refused = shared.put_value(1, 1, 0).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::WrongEpoch, "{refused}");
                std::thread::scope(|scope| {
                    let threads = [0, 1].map(|at| {
                        let shared = &shared;
                        scope.spawn(move || shared.put_value(shared.get_value(0, at)? + 1, 0, at))
                    });
                    threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
                })
            })?;
        }
        team.barrier()?;
        window.lock_all(Assert::empty(), |epoch| {
            let shared = epoch.shared()?;
            let both = std::thread::scope(|scope| {
                scope
                    .spawn(|| Ok::<_, Error>((shared.get_value(0, 0)?, shared.get_value(0, 1)?)))
                    .join()
                    .expect("no panic")
            })?;
            assert_eq!(both, (100, 100));
            shared.atomic(1, 0)?.add(1)
        })?;
        team.barrier()?;
        assert!(team.rank() == 0 || window.with_local(|own| Ok::<_, Error>(own[0]))? == 2);
        window.free()
    })
    .unwrap();
}

#[test]
fn handles_of_threads_refuse_what_the_array_refuses() {
    mapped(2, |job| {
        let team = job.world()?;
        let (table, floats) = (Symmetric::<u64>::allocate(&team, 4)?, Symmetric::<f64>::allocate(&team, 1)?);
        let shared = table.shared()?;
        let kind = |result: Result<()>| result.unwrap_err().kind();
        assert_eq!(kind(shared.put(&[1; 3], 1, 2)), ErrorKind::OutOfRange);
        assert_eq!(kind(shared.put(&[1], 2, 0)), ErrorKind::NoSuchRank);
        assert_eq!(kind(shared.get(&mut [0; 5], 0, 0)), ErrorKind::OutOfRange);
        assert_eq!(kind(shared.get_value(0, usize::MAX / 8 + 1).map(drop)), ErrorKind::OutOfRange);
        assert_eq!(kind(shared.atomic(0, 4).map(drop)), ErrorKind::OutOfRange);
        assert_eq!(kind(floats.shared()?.accumulate(Op::Bxor, &[1.0], 0, 0)), ErrorKind::Unsupported);
        // Exclusive access is granted only when no thread can access the memory.
        let lent = table.exclusive(|_| Ok::<_, Error>(())).unwrap_err();
        assert_eq!(lent.kind(), ErrorKind::WrongEpoch);
        assert!(lent.to_string().contains("still exists"), "{lent}");
        drop(shared);
        table.exclusive(|own| {
            own.fill(9);
            Ok::<_, Error>(())
        })?;
        let refused = table.exclusive(|_| table.shared().map(drop)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WrongEpoch);
        assert_eq!(table.shared()?.get_value(1 - team.rank(), 3)?, 9);
        let flags = Flags::allocate(&team, 1)?;
        assert_eq!(kind(flags.shared()?.set(0, 1, 1)), ErrorKind::OutOfRange);
        assert_eq!(kind(flags.shared()?.add(2, 0, 1)), ErrorKind::NoSuchRank);
        flags.free()?;
        floats.free()?;
        table.free()
    })
    .unwrap();
}

/// Unmapped memory has no handle, and the error names the remedy.
#[test]
fn unmapped_memory_has_no_handle_for_threads() {
    use farside_rma::core::sim::{Network, Simulation};
    let run = Simulation::new(2).network(Network::default()).run(|job| {
        let team = job.world()?;
        let (table, flags) = (Symmetric::<u64>::allocate(&team, 1)?, Flags::allocate(&team, 1)?);
        for refused in [table.shared().map(drop).unwrap_err(), flags.shared().map(drop).unwrap_err()] {
            assert_eq!(refused.kind(), ErrorKind::Unsupported);
            assert!(refused.to_string().contains("use a team of ranks of one node"), "{refused}");
        }
        flags.free()?;
        table.free()
    });
    run.unwrap();
}
