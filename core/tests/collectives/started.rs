#![allow(unsafe_code)]
//! Started calls: several at the same time, completed in every order, on several teams; persistent calls; dropped
//! calls.

use farside_core::coll::execute::{self, CallMode, Prepared};
use farside_core::coll::operation::Operation;
use farside_core::coll::table;
use farside_core::{ErrorKind, Job, Result, Team};

use super::model::{Case, Made};
use super::{every_size, some_sizes};

/// One call of every operation that has an algorithm.
fn cases(p: usize) -> Vec<Case> {
    let has = |o: &Operation| table::of(*o).next().is_some();
    let case = |(i, operation): (usize, Operation)| Case {
        root: i % p,
        elements: if i % 3 == 0 { 3000 } else { 3 },
        irregular: !operation.is_of_a_vector() && operation != Operation::Barrier && i % 2 == 0,
        ..Case::new(operation)
    };
    Operation::ALL.into_iter().filter(has).enumerate().map(case).collect()
}

/// A permutation of 0..n that depends on the seed.
fn shuffled(n: usize, seed: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    let mut x = seed as u64 + 1;
    for i in (1..n).rev() {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(i, (x >> 33) as usize % (i + 1));
    }
    order
}

#[test]
fn started_of_every_operation_complete_in_another_order_at_every_rank() {
    every_size(|job| {
        let team = job.world()?;
        for round in 0..4 {
            let mut made: Vec<Made> = cases(team.size()).into_iter().map(|case| Made::new(&team, case)).collect();
            let started: Vec<Prepared> = made.iter_mut().map(|m| m.start(&team, &[])).collect::<Result<_>>()?;
            for i in shuffled(started.len(), 10 * round + team.rank()) {
                if round % 2 == 0 {
                    started[i].wait()?;
                } else {
                    while !started[i].test()? {}
                }
                made[i].assert();
            }
        }
        team.barrier()
    });
}

/// Three calls of one kind, waited for in each of the six orders, in the reverse order at every other rank.
#[test]
fn started_three_at_once_complete_in_each_order() {
    every_size(|job| {
        let team = job.world()?;
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let case = Case { elements: 2000, ..Case::new(Operation::Allreduce) };
            let mut made: Vec<Made> = (0..3).map(|_| Made::new(&team, case)).collect();
            let started: Vec<Prepared> = made.iter_mut().map(|m| m.start(&team, &[])).collect::<Result<_>>()?;
            for i in order {
                let i = if team.rank() % 2 == 0 { i } else { 2 - i };
                started[i].wait()?;
                made[i].assert();
            }
        }
        team.barrier()
    });
}

#[test]
fn started_on_several_teams_do_not_mix() {
    every_size(|job| {
        let world = job.world()?;
        let backwards = world.split(Some(0), (world.size() - world.rank()) as u32)?.unwrap();
        let half = world.split(Some(world.rank() as u32 % 2), 0)?.unwrap();
        let teams = [&world, &backwards, &half];
        for round in 0..3 {
            let case = |team: &Team| Case { root: round % team.size(), ..Case::new(Operation::Broadcast) };
            let mut made: Vec<Made> = teams.iter().map(|team| Made::new(team, case(team))).collect();
            let started: Vec<Prepared> =
                made.iter_mut().zip(teams).map(|(m, team)| m.start(team, &[])).collect::<Result<_>>()?;
            for i in shuffled(3, round + 7 * world.rank()) {
                started[i].wait()?;
                made[i].assert();
            }
        }
        world.barrier()
    });
}

/// A call makes progress while its rank waits for another condition.
#[test]
fn started_call_continues_in_a_barrier() {
    every_size(|job| {
        let team = job.world()?;
        let mut made = Made::new(&team, Case { elements: 3000, ..Case::new(Operation::Allreduce) });
        let started = made.start(&team, &[])?;
        if team.rank() != 0 {
            started.wait()?;
            made.assert();
        }
        team.barrier()?;
        started.wait()?;
        made.assert();
        team.barrier()
    });
}

#[test]
fn persistent_of_every_operation_start_again_in_any_order() {
    every_size(|job| {
        let team = job.world()?;
        let mut made: Vec<Made> = cases(team.size()).into_iter().map(|case| Made::new(&team, case)).collect();
        let all: Vec<Prepared> = made
            .iter_mut()
            .map(|m| m.with(&[], |arguments| Prepared::new(&team, arguments, CallMode::Persistent)))
            .collect::<Result<_>>()?;
        for round in 0..5 {
            for m in &mut made {
                m.fill();
            }
            for i in shuffled(all.len(), round * 31 + team.rank()) {
                // SAFETY: the buffers outlive the calls.
                unsafe { all[i].start() }?;
            }
            for i in shuffled(all.len(), round * 17 + team.rank()) {
                all[i].wait()?;
                made[i].assert();
            }
        }
        team.barrier()
    });
}

/// A root may be many rounds ahead: messages of one round must not be confused with those of another.
#[test]
fn persistent_broadcast_of_a_root_that_runs_ahead_keeps_the_rounds_apart() {
    every_size(|job| {
        let team = job.world()?;
        let mut data = [0u64; 4];
        let arguments = execute::Arguments {
            shape: execute::Shape::Vector(4),
            element: 8,
            output: execute::Memory::Contiguous(data.as_mut_ptr().cast()),
            ..execute::Arguments::new(Operation::Broadcast)
        };
        let call = Prepared::new(&team, &arguments, CallMode::Persistent)?;
        for round in 0..200 {
            if team.rank() == 0 {
                // SAFETY: no call is in progress, and the memory is this rank's own.
                unsafe { std::ptr::write_volatile(&raw mut data, [round; 4]) };
            }
            // SAFETY: the buffer outlives the call.
            unsafe { call.start() }?;
            call.wait()?;
            // SAFETY: as above.
            assert_eq!(unsafe { std::ptr::read_volatile(&raw const data) }, [round; 4]);
        }
        team.barrier()
    });
}

/// A dropped call fails at the other ranks, which do not wait forever, unless they have taken the contribution before the
/// drop; the next call succeeds.
#[test]
fn dropped_call_fails_at_the_others_and_the_team_continues() {
    let mut failed = 0;
    for p in some_sizes() {
        let run = |job: &Job| {
            let (team, mut failed) = (job.world()?, 0);
            for elements in [3, 5000] {
                let case = Case { elements, ..Case::new(Operation::Allreduce) };
                let mut made = Made::new(&team, case);
                let started = made.start(&team, &[])?;
                if team.rank() == 1 {
                    drop(started);
                } else {
                    match started.wait() {
                        Ok(()) => made.assert(),
                        Err(e) => {
                            assert_eq!((e.kind(), e.blamed()), (ErrorKind::Aborted, Some(1)), "{e}");
                            failed += usize::from(elements > 3);
                        }
                    }
                }
                let mut made = Made::new(&team, case);
                made.start(&team, &[])?.wait()?;
                made.assert();
            }
            team.barrier()?;
            Ok(failed)
        };
        let all = Job::threads(p as usize, run).unwrap_or_else(|e| panic!("{p} ranks: {e}"));
        failed += all.iter().sum::<usize>();
    }
    assert!(failed > 0, "every rank had a long contribution before the drop");
}
