#![allow(unsafe_code)]
//! Ranks that disagree, and calls that no rank can make: an error at every rank that waits, and the team goes on.

use farside_core::coll::execute::{Arguments, Collective, Memory, Reduction, Shape};
use farside_core::coll::operation::Operation;
use farside_core::coll::schedule::Side;
use farside_core::{Error, ErrorKind, Job, Result, Team};

use crate::model::{ADD, Case, Made, reduction};

/// Runs `call` at every rank, which must fail at every rank for which `fails` says so, and then calls that must not fail.
fn disagree(
    p: u32,
    call: impl Fn(&Team) -> Result<()> + Sync,
    fails: impl Fn(usize) -> bool + Sync,
    check: impl Fn(usize, Error) + Sync,
) {
    let run = |job: &Job| {
        let team = job.world()?;
        let own = team.split(Some(0), 0)?.unwrap();
        match call(&own) {
            Ok(()) => assert!(!fails(team.rank()), "rank {} of {p} heard nothing", team.rank()),
            Err(e) => check(team.rank(), e),
        }
        let mut made = Made::new(&team, Case::new(Operation::Allreduce));
        made.start(&team, &[])?.wait()?;
        made.assert();
        team.barrier()
    };
    Job::threads(p, run).unwrap_or_else(|e| panic!("{p} ranks: {e}"));
}

fn mismatch(_: usize, e: Error) {
    assert_eq!(e.kind(), ErrorKind::Mismatch, "{e}");
    assert!(e.blamed().is_some(), "{e}");
}

fn call(team: &Team, case: Case) -> Result<()> {
    Made::new(team, case).start(team, &[])?.wait()
}

#[test]
fn other_operations_are_a_mismatch_that_names_both() {
    for p in [2, 3, 5, 8] {
        let wrong = |team: &Team| {
            let operation = if team.rank() == 1 { Operation::Allgather } else { Operation::Allreduce };
            call(team, Case::new(operation))
        };
        disagree(
            p,
            wrong,
            |_| true,
            |rank, e| {
                let text = e.to_string();
                mismatch(rank, e);
                assert!(text.contains("allgather") && text.contains("allreduce"), "{text}");
            },
        );
    }
}

#[test]
fn other_counts_are_a_mismatch() {
    for operation in [Operation::Allreduce, Operation::Allgather, Operation::Alltoall] {
        for p in [2, 3, 5, 8] {
            let wrong = |team: &Team| {
                call(team, Case { elements: if team.rank() == 1 { 6 } else { 5 }, ..Case::new(operation) })
            };
            disagree(p, wrong, |_| true, mismatch);
        }
    }
}

#[test]
fn other_roots_are_a_mismatch() {
    // A rank that takes itself for the root of a gather sends nothing that could show it; one that names another does.
    for (operation, odd) in
        [(Operation::Broadcast, 1), (Operation::Scatter, 1), (Operation::Gather, 2), (Operation::Reduce, 2)]
    {
        for p in [2, 3, 5].into_iter().filter(|p| *p > odd as u32) {
            let wrong =
                |team: &Team| call(team, Case { root: usize::from(team.rank() == odd), ..Case::new(operation) });
            // Who only sends may be through; the next call on the team tells.
            let twice = |team: &Team| wrong(team).and_then(|()| call(team, Case::new(Operation::Allreduce)));
            disagree(
                p,
                twice,
                |_| true,
                |_, e| {
                    assert_eq!(e.kind(), ErrorKind::Mismatch, "{e}");
                },
            );
        }
    }
}

#[test]
fn other_reductions_are_a_mismatch() {
    for p in [2, 3, 5] {
        let wrong = |team: &Team| {
            let mut made = Made::new(team, Case { commutative: true, ..Case::new(Operation::Allreduce) });
            made.with(&[], |arguments| {
                let code = 1 + team.rank() as u32 % 2;
                let reduction = Some(Reduction { code, ..reduction(&ADD, true) });
                // SAFETY: the buffers outlive the call.
                unsafe { Collective::start(team, &Arguments { reduction, ..arguments.clone() }) }?.wait()
            })
        };
        disagree(p, wrong, |_| true, mismatch);
    }
}

#[test]
fn root_outside_of_the_team_is_an_error_everywhere() {
    for p in [1, 2, 5] {
        let wrong = |team: &Team| {
            let mut made = Made::new(team, Case::new(Operation::Broadcast));
            let root = if team.rank() == 0 { team.size() } else { 0 };
            // SAFETY: the buffers outlive the call.
            made.with(&[], |a| unsafe { Collective::start(team, &Arguments { root, ..a.clone() }) }?.wait())
        };
        disagree(p, wrong, |_| true, |_, e| assert_eq!(e.kind(), ErrorKind::NoSuchRank, "{e}"));
    }
}

/// # Safety
/// None is needed.
unsafe fn fails(_: *const (), _: *const u8, _: *mut u8, _: usize, _: Side) -> bool {
    false
}

#[test]
fn reduction_that_fails_is_an_error_everywhere() {
    for p in [2, 3, 5, 8] {
        let wrong = |team: &Team| {
            let mut made = Made::new(team, Case { commutative: true, ..Case::new(Operation::Allreduce) });
            made.with(&[], |arguments| {
                let reduction = Some(Reduction { function: fails, ..reduction(&ADD, true) });
                // SAFETY: the buffers outlive the call.
                unsafe { Collective::start(team, &Arguments { reduction, ..arguments.clone() }) }?.wait()
            })
        };
        disagree(
            p,
            wrong,
            |_| true,
            |_, e| {
                assert!(e.kind() == ErrorKind::Aborted && e.to_string().contains("the reduction has failed"), "{e}");
            },
        );
    }
}

#[test]
fn arguments_that_no_call_can_have_are_refused() {
    Job::threads(1, |job| {
        let team = job.world()?;
        let none = Memory::None;
        let refused = |arguments: &Arguments<'_>| {
            // SAFETY: the calls are refused.
            let e = unsafe { Collective::start(&team, arguments) }.unwrap_err();
            assert_eq!(e.kind(), ErrorKind::BadArgument, "{e}");
        };
        let of = Arguments::new;
        refused(&Arguments { shape: Shape::Equal(1), ..of(Operation::Broadcast) });
        refused(&Arguments { shape: Shape::Vector(1), ..of(Operation::Allgather) });
        refused(&Arguments { shape: Shape::Each(&[1, 2]), ..of(Operation::Allgather) });
        refused(&Arguments { shape: Shape::Own(1), ..of(Operation::Gather) });
        refused(&Arguments { shape: Shape::Equal(u64::MAX), element: 8, output: none, ..of(Operation::Allgather) });
        refused(&Arguments { in_place: true, ..of(Operation::Alltoall) });
        refused(&of(Operation::Allreduce));
        refused(&Arguments { reduction: Some(reduction(&ADD, true)), ..of(Operation::Broadcast) });
        Ok(())
    })
    .unwrap();
}

#[test]
fn call_after_the_end_of_the_job_is_an_error() {
    Job::threads(2, |job| {
        let team = job.world()?;
        job.finalize()?;
        let mut made = Made::new(&team, Case::new(Operation::Allreduce));
        assert_eq!(made.start(&team, &[]).unwrap_err().kind(), ErrorKind::Freed);
        Ok(())
    })
    .unwrap();
}
