//! Blocking calls of few bytes, which ranks that share memory make without messages.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use farside_core::coll::operation::Operation;
use farside_core::{Error, ErrorKind, Job, Result, Team};

use super::misuse::{disagree_on, mismatch};
use super::model::{Case, Made, Placing};
use super::{every_size, some_sizes, verbs};

const OPERATIONS: [Operation; 11] = [
    Operation::Barrier,
    Operation::Broadcast,
    Operation::Scatter,
    Operation::Gather,
    Operation::Allgather,
    Operation::Reduce,
    Operation::Allreduce,
    Operation::Alltoall,
    Operation::ReduceScatter,
    Operation::Scan,
    Operation::Exscan,
];

/// Calls of up to a page for each rank, with the algorithm that makes them in one round.
fn cases(p: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    for operation in OPERATIONS {
        let names = ["dissemination", "flat", "linear", "pairwise"];
        let algorithm = names.into_iter().find_map(|name| farside_core::coll::table::named(operation, name));
        let has_block_for_each =
            matches!(operation, Operation::Scatter | Operation::Alltoall | Operation::ReduceScatter);
        // Longer calls use signals only if ranks share processors.
        let most = if has_block_for_each { 71 / p as u64 } else { 71 };
        for (elements, in_place) in [(1, false), (3, true), (most / 3, false), (most, false)] {
            let in_place = in_place
                && operation != Operation::Barrier
                && !matches!(operation, Operation::Alltoall | Operation::ReduceScatter);
            let case = Case { algorithm, elements, in_place, root: elements as usize % p, ..Case::new(operation) };
            cases.extend([case, Case { commutative: true, ..case }]);
            if !operation.is_reduction() {
                cases.push(Case { placing: Placing::Gaps, ..case });
            }
        }
    }
    cases
}

fn parameters(case: &Case, team: &Team) -> Vec<u32> {
    match case.operation {
        Operation::Barrier => vec![team.size() as u32 - 1],
        _ => case.algorithm.map_or(Vec::new(), |a| a.defaults()),
    }
}

fn one_after_the_other(job: &Job, rounds: usize) -> Result<()> {
    let team = job.world()?;
    let signals = (2..=16).contains(&team.size()) && !verbs();
    for round in 0..rounds {
        for case in cases(team.size()) {
            let case = Case { root: (case.root + round) % team.size(), ..case };
            let mut made = Made::new(&team, case);
            let before = job.stats();
            made.run(&team, &parameters(&case, &team))?;
            // The root of a scatter does not wait for ranks with which it shares processors.
            let by_signal = signals && (case.operation != Operation::Scatter || team.size() == 2);
            assert!(!by_signal || (job.stats() - before).messages() == 1, "{case:?}");
            made.assert();
        }
        // Calls that use messages in between permit ranks to run ahead of each other.
        let mut long =
            Made::new(&team, Case { root: round % team.size(), elements: 9, ..Case::new(Operation::Broadcast) });
        long.run(&team, &[])?;
        long.assert();
    }
    team.barrier()
}

#[test]
fn short_of_every_operation_one_after_the_other_send_one_signal_each() {
    every_size(|job| one_after_the_other(job, if verbs() { 3 } else { 20 }));
    // The maximum number of ranks that exchange signals, and one more.
    if !verbs() {
        for p in [16, 17] {
            Job::threads(p as usize, |job| one_after_the_other(job, 4)).unwrap_or_else(|e| panic!("{p} ranks: {e}"));
        }
    }
}

/// A team without a signal array gets one after some collectives, also if one of them was refused at one rank first.
#[test]
fn short_of_a_new_team_sends_one_signal_after_some_calls() {
    let sum = |team: &Team| {
        let before = team.job().stats();
        call(team, Operation::Allreduce, 1, true)?;
        Ok::<_, Error>((team.job().stats() - before).messages())
    };
    for p in some_sizes() {
        for refused in [None, Some(2), Some(4)] {
            let ranks = move |job: &Job| {
                let world = job.world()?;
                let team = world.split(Some(1), 0)?.expect("all are members");
                for i in 0..8 {
                    if refused == Some(i) && team.rank() == 0 {
                        let mut made = Made::new(&team, Case { root: p as usize, ..Case::new(Operation::Broadcast) });
                        assert_eq!(made.run(&team, &[]).unwrap_err().kind(), ErrorKind::NoSuchRank);
                    }
                    sum(&team)?;
                    world.barrier()?;
                }
                for _ in 0..20 {
                    let messages = sum(&team)?;
                    assert!(verbs() || messages == 1, "{messages} messages");
                }
                world.barrier()
            };
            Job::threads(p as usize, ranks).unwrap_or_else(|e| panic!("{p} ranks: {e}"));
        }
    }
}

/// A rank that needs no data of the others has made three calls before the root begins, in each repetition.
#[test]
fn short_call_of_ranks_that_need_nothing_completes_before_the_others() {
    if verbs() {
        return;
    }
    for p in some_sizes() {
        let ahead = AtomicU32::new(0);
        let ranks = |job: &Job| {
            let team = job.world()?;
            (0..8).try_for_each(|_| call(&team, Operation::Allreduce, 1, true))?;
            for round in 1..10 {
                while team.rank() == 0 && ahead.load(SeqCst) < round * (p - 1) {
                    std::thread::yield_now();
                }
                for operation in [Operation::Reduce, Operation::Gather, Operation::Reduce] {
                    let algorithm = farside_core::coll::table::named(operation, "flat");
                    let mut made =
                        Made::new(&team, Case { elements: u64::from(round), algorithm, ..Case::new(operation) });
                    made.run(&team, &[])?;
                    made.assert();
                }
                ahead.fetch_add(u32::from(team.rank() != 0), SeqCst);
                team.barrier()?;
            }
            Ok(())
        };
        Job::threads(p as usize, ranks).unwrap_or_else(|e| panic!("{p} ranks: {e}"));
    }
}

/// A root, or the lowest rank of a scan, has made as many calls as it has slots but one before the others begin.
#[test]
fn short_calls_of_a_rank_that_only_gives_complete_before_the_others() {
    if verbs() {
        return;
    }
    for p in some_sizes() {
        let ahead = AtomicU32::new(0);
        let ranks = |job: &Job| {
            let team = job.world()?;
            (0..8).try_for_each(|_| call(&team, Operation::Allreduce, 1, true))?;
            for round in 1..8 {
                let operations = [Operation::Broadcast, Operation::Scan, Operation::Scatter, Operation::Exscan];
                for (place, operation) in (0..).zip(operations) {
                    while team.rank() != 0 && ahead.load(SeqCst) < 4 * (round - 1) + place + 1 {
                        std::thread::yield_now();
                    }
                    // Ranks that share processors have four slots, others sixteen.
                    for number in 0..if job.is_on_oversubscribed_node() { 3 } else { 15 } {
                        one_way(&team, operation, 1 + number % 7)?;
                    }
                    ahead.fetch_add(u32::from(team.rank() == 0), SeqCst);
                    call(&team, Operation::Allreduce, 1, true)?;
                }
            }
            Ok(())
        };
        Job::threads(p as usize, ranks).unwrap_or_else(|e| panic!("{p} ranks: {e}"));
    }
}

/// Rank 0 is ahead of the others, which are late from time to time, in many calls of different lengths.
#[test]
fn short_calls_of_a_rank_that_is_ahead_keep_data_that_is_not_read() {
    if verbs() {
        return;
    }
    for p in some_sizes() {
        let ranks = |job: &Job| {
            let team = job.world()?;
            (0..8).try_for_each(|_| call(&team, Operation::Allreduce, 1, true))?;
            for number in 0..1000 {
                if team.rank() > 0 && number % (30 + team.rank() as u64) == 0 {
                    std::thread::sleep(std::time::Duration::from_micros(300));
                }
                let operation = [Operation::Broadcast, Operation::Scan, Operation::Exscan][number as usize / 100 % 3];
                one_way(&team, operation, 1 + number % 70)?;
            }
            team.barrier()
        };
        Job::threads(p as usize, ranks).unwrap_or_else(|e| panic!("{p} ranks: {e}"));
    }
}

/// A call in which rank 0 waits for no data, by one signal of each rank unless ranks share processors.
fn one_way(team: &Team, operation: Operation, elements: u64) -> Result<()> {
    let names = ["flat", "linear"];
    let algorithm = names.into_iter().find_map(|name| farside_core::coll::table::named(operation, name));
    let mut made = Made::new(team, Case { elements, algorithm, ..Case::new(operation) });
    let before = team.job().stats();
    made.run(team, &algorithm.map_or(Vec::new(), |algorithm| algorithm.defaults()))?;
    let is_short = operation != Operation::Scatter || !team.job().is_on_oversubscribed_node();
    assert!(!is_short || (team.job().stats() - before).messages() == 1, "{operation:?} of {elements}");
    made.assert();
    Ok(())
}

fn call(team: &Team, operation: Operation, elements: u64, waits: bool) -> Result<()> {
    let algorithm = farside_core::coll::table::named(operation, "linear");
    let mut made = Made::new(team, Case { elements, algorithm, ..Case::new(operation) });
    if waits { made.run(team, &[]) } else { made.start(team, &[])?.wait() }
}

#[test]
fn short_and_something_else_is_a_mismatch() {
    use Operation::{Allgather, Allreduce};
    for p in some_sizes() {
        for (operation, elements, waits) in
            [(Allreduce, 2, true), (Allreduce, 100, true), (Allreduce, 1, false), (Allgather, 1, true)]
        {
            // Over messages, blocking and started calls are the same.
            if !waits && verbs() {
                continue;
            }
            for odd in [0, 1] {
                let wrong = |team: &Team| match team.rank() == odd {
                    true => call(team, operation, elements, waits),
                    false => call(team, Allreduce, 1, true),
                };
                disagree_on(false, p, wrong, |_| true, mismatch);
            }
        }
    }
}
