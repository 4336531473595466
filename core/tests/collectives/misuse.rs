#![allow(unsafe_code)]
//! Ranks that disagree, and calls that no rank can make: an error at every rank that waits, and the team goes on.

use std::time::{Duration, Instant};

use farside_core::coll::execute::{Arguments, Collective, Memory, Reduction, Shape};
use farside_core::coll::operation::Operation;
use farside_core::coll::schedule::Side;
use farside_core::settings::Settings;
use farside_core::{Error, ErrorKind, Job, Result, Team};

use crate::model::{ADD, Case, Made, reduction};
use crate::some_sizes;

/// Runs `call` at every rank, which must fail at every rank for which `fails` says so, and then calls that must not fail, on a
/// team without a signal array.
fn disagree(
    p: u32,
    call: impl Fn(&Team) -> Result<()> + Sync,
    fails: impl Fn(usize) -> bool + Sync,
    check: impl Fn(usize, Error) + Sync,
) {
    disagree_on(true, p, call, fails, check);
}

/// The same on such a team, or on that of all ranks.
pub fn disagree_on(
    split: bool,
    p: u32,
    call: impl Fn(&Team) -> Result<()> + Sync,
    fails: impl Fn(usize) -> bool + Sync,
    check: impl Fn(usize, Error) + Sync,
) {
    let run = |job: &Job| {
        let team = job.world()?;
        let own = if split { team.split(Some(0), 0)?.unwrap() } else { team.clone() };
        match call(&own) {
            Ok(()) => assert!(!fails(team.rank()), "rank {} of {p} heard nothing", team.rank()),
            Err(e) => check(team.rank(), e),
        }
        let mut made = Made::new(&team, Case::new(Operation::Allreduce));
        made.start(&team, &[])?.wait()?;
        made.assert();
        team.barrier()
    };
    // Where no message shows it, a rank asks after some checks of its peers.
    let find =
        |name: &str| if name == "FARSIDE_PEER_CHECK_MS" { Some("5".to_owned()) } else { std::env::var(name).ok() };
    let settings = Settings::from_lookup(find).unwrap();
    Job::threads_with(p, &settings, run).unwrap_or_else(|e| panic!("{p} ranks: {e}"));
}

pub fn mismatch(_: usize, e: Error) {
    assert_eq!(e.kind(), ErrorKind::Mismatch, "{e}");
    assert!(e.blamed().is_some(), "{e}");
}

fn call(team: &Team, case: Case) -> Result<()> {
    Made::new(team, case).start(team, &[])?.wait()
}

/// Calls until the team tells of a disagreement in a call that is over here, as it may be at a rank that only sends.
fn call_until_told(team: &Team) -> Result<()> {
    loop {
        call(team, Case::new(Operation::Allreduce))?;
    }
}

#[test]
fn other_operations_are_a_mismatch_that_names_both() {
    for p in some_sizes() {
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
        for p in some_sizes() {
            let wrong = |team: &Team| {
                call(team, Case { elements: if team.rank() == 1 { 6 } else { 5 }, ..Case::new(operation) })
            };
            disagree(p, wrong, |_| true, mismatch);
        }
    }
}

#[test]
fn other_roots_are_a_mismatch() {
    // The odd rank takes itself for the root, or another.
    let cases = Operation::ALL.into_iter().filter(|o| o.is_rooted()).flat_map(|o| [(o, 1), (o, 2)]);
    for (operation, odd) in cases {
        for p in some_sizes().filter(|p| *p > odd as u32) {
            let wrong =
                |team: &Team| call(team, Case { root: usize::from(team.rank() == odd), ..Case::new(operation) });
            disagree(p, |team| wrong(team).and_then(|()| call_until_told(team)), |_| true, mismatch);
        }
    }
}

/// The block is none for its sender, which sends no message of it, or for its receiver.
#[test]
fn block_that_is_empty_for_one_side_is_a_mismatch() {
    for (p, empty) in some_sizes().flat_map(|p| [(p, 0), (p, 1)]) {
        let wrong = |team: &Team| {
            let (me, size) = (team.rank(), team.size());
            // Block from rank 0 to rank 1: in the sizes of what goes at 0, of what comes at 1.
            let mut sizes = vec![3u64; 2 * size];
            if me == empty {
                sizes[if me == 0 { 1 } else { size }] = 0;
            }
            let (input, mut output) = (vec![me as u64; 3 * size], vec![0u64; 3 * size]);
            let arguments = Arguments {
                shape: Shape::Each(&sizes),
                element: 8,
                input: Memory::Contiguous(input.as_ptr().cast_mut().cast()),
                output: Memory::Contiguous(output.as_mut_ptr().cast()),
                ..Arguments::new(Operation::Alltoall)
            };
            // SAFETY: the buffers outlive the call.
            unsafe { Collective::start(team, &arguments) }?.wait()
        };
        disagree(p, |team| wrong(team).and_then(|()| call_until_told(team)), |_| true, mismatch);
    }
}

#[test]
fn other_roots_of_a_persistent_call_are_a_mismatch() {
    for (p, odd) in some_sizes().flat_map(|p| [(p, 0), (p, 1)]) {
        let wrong = |team: &Team| {
            let mut made =
                Made::new(team, Case { root: usize::from(team.rank() == odd), ..Case::new(Operation::Gather) });
            let persistent = made.with(&[], |arguments| Collective::persistent(team, arguments))?;
            // SAFETY: the buffers outlive the call.
            unsafe { persistent.start_again() }?;
            persistent.wait()?;
            call_until_told(team)
        };
        disagree(p, wrong, |_| true, mismatch);
    }
}

/// A rank that comes late is asked after its messages, and comes all the same: no rank fails.
#[test]
fn late_rank_that_is_asked_is_waited_for() {
    for p in some_sizes() {
        let late = |team: &Team| {
            let answer = |rank: usize| {
                let until = Instant::now() + Duration::from_millis(60);
                while team.rank() == rank && Instant::now() < until {
                    team.job().progress()?;
                }
                Ok::<(), Error>(())
            };
            for operation in Operation::ALL.into_iter().step_by(3) {
                let mut made = Made::new(team, Case::new(operation));
                let persistent = made.with(&[], |arguments| Collective::persistent(team, arguments))?;
                for round in 0..3 {
                    made.fill();
                    answer(round % 2)?;
                    // SAFETY: the buffers outlive the call.
                    unsafe { persistent.start_again() }?;
                    persistent.wait()?;
                    made.assert();
                }
                answer(team.size() - 1)?;
                call(team, Case::new(operation))?;
            }
            Ok(())
        };
        disagree(p, late, |_| false, |rank, e| panic!("rank {rank}: {e}"));
    }
}

#[test]
fn other_reductions_are_a_mismatch() {
    for p in some_sizes() {
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
    for p in some_sizes() {
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
    for p in some_sizes() {
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
