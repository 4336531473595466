//! Calls of few bytes that wait, which ranks that share memory make without messages.

use farside_core::coll::operation::Operation;
use farside_core::{Error, ErrorKind, Result, Team};

use crate::every_size;
use crate::misuse::{disagree_on, mismatch};
use crate::model::{Case, Made, Placing};

const OPERATIONS: [Operation; 6] = [
    Operation::Barrier,
    Operation::Broadcast,
    Operation::Gather,
    Operation::Allgather,
    Operation::Reduce,
    Operation::Allreduce,
];

/// Of up to three elements, with the algorithm that makes them in one round.
fn cases(p: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    for operation in OPERATIONS {
        let names = ["dissemination", "flat", "linear"];
        let algorithm = names.into_iter().find_map(|name| farside_core::coll::table::named(operation, name));
        for (elements, in_place) in [(1, false), (3, true)] {
            let in_place = in_place && operation != Operation::Barrier;
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

#[test]
fn short_of_every_operation_one_after_the_other_send_one_signal_each() {
    every_size(|job| {
        let team = job.world()?;
        if team.size() == 1 {
            return Ok(());
        }
        for round in 0..40 {
            for case in cases(team.size()) {
                let case = Case { root: (case.root + round) % team.size(), ..case };
                let mut made = Made::new(&team, case);
                let before = job.stats();
                made.run(&team, &parameters(&case, &team))?;
                assert_eq!((job.stats() - before).messages(), 1, "{case:?}");
                made.assert();
            }
            // What goes by messages in between lets ranks run ahead of each other.
            let mut long = Made::new(&team, Case { root: round % team.size(), elements: 9, ..Case::new(Operation::Broadcast) });
            long.run(&team, &[])?;
            long.assert();
        }
        team.barrier()
    });
}

fn call(team: &Team, operation: Operation, elements: u64, waits: bool) -> Result<()> {
    let algorithm = farside_core::coll::table::named(operation, "linear");
    let mut made = Made::new(team, Case { elements, algorithm, ..Case::new(operation) });
    if waits { made.run(team, &[]) } else { made.start(team, &[])?.wait() }
}

#[test]
fn short_and_something_else_is_a_mismatch() {
    use Operation::{Allgather, Allreduce};
    for p in [2, 3, 5] {
        for (operation, elements, waits) in
            [(Allreduce, 2, true), (Allreduce, 100, true), (Allreduce, 1, false), (Allgather, 1, true)]
        {
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

/// A rank whose reduction fails, or that makes a call that cannot be made, is heard of by the others.
#[test]
fn short_that_a_rank_cannot_make_fails_everywhere() {
    for p in [2, 3, 5] {
        let wrong = |team: &Team| match team.rank() {
            0 => {
                let mut made = Made::new(team, Case { root: team.size(), ..Case::new(Operation::Broadcast) });
                made.run(team, &[])
            }
            _ => call(team, Operation::Allreduce, 1, true),
        };
        disagree_on(false, p, wrong, |_| true, |_, e: Error| assert_eq!(e.kind(), ErrorKind::NoSuchRank, "{e}"));
    }
}
