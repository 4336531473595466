#![allow(unsafe_code)]
//! Ranks that disagree, and calls that no rank can make: every waiting rank gets an error, and the team remains usable.

use std::time::{Duration, Instant};

use farside_core::coll::execute::{self, Arguments, CallMode, Memory, Prepared, Reduction, Shape};
use farside_core::coll::operation::Operation;
use farside_core::coll::schedule::Side;
use farside_core::coll::table;
use farside_core::settings::Settings;
use farside_core::signal::{Pace, SignalArray};
use farside_core::{Error, ErrorKind, Job, Result, Team};

use super::model::{ADD, Case, Made, reduction};
use super::some_sizes;

/// Runs `call` at every rank, which must fail at every rank for which `fails` returns `true`, and then calls that must
/// not fail, on a team without a signal array.
fn disagree(
    p: u32,
    call: impl Fn(&Team) -> Result<()> + Sync,
    fails: impl Fn(usize) -> bool + Sync,
    check: impl Fn(usize, Error) + Sync,
) {
    disagree_on(true, p, call, fails, check);
}

/// Like `disagree`, on a team without a signal array if `split`, otherwise on the world team.
pub(crate) fn disagree_on(
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
    Job::threads_with(p as usize, &soon(), run).unwrap_or_else(|e| panic!("{p} ranks: {e}"));
}

pub(crate) fn mismatch(_: usize, e: Error) {
    assert_eq!(e.kind(), ErrorKind::Mismatch, "{e}");
    assert!(e.blamed().is_some(), "{e}");
}

fn call(team: &Team, case: Case) -> Result<()> {
    Made::new(team, case).start(team, &[])?.wait()
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

/// In long and short calls the error names what differs, both values and both ranks.
#[test]
fn other_counts_are_a_mismatch() {
    for (operation, split) in [Operation::Allreduce, Operation::Allgather, Operation::Alltoall]
        .into_iter()
        .flat_map(|operation| [(operation, true), (operation, false)])
    {
        for (p, elements) in some_sizes().flat_map(|p| [(p, 1), (p, 50)]) {
            let wrong = |team: &Team| {
                (0..6).try_for_each(|_| team.barrier())?;
                let case = Case { elements: elements + u64::from(team.rank() == 1), ..Case::new(operation) };
                let mut made = Made::new(team, case);
                // SAFETY: the buffers outlive the call.
                made.with(&[], |arguments| unsafe { execute::run(team, arguments) })
            };
            let named = |rank: usize, e: Error| {
                let text = e.to_string();
                mismatch(rank, e);
                let (odd, other) =
                    (format!("{} bytes at rank 1", 8 * elements + 8), format!("{} bytes at rank", 8 * elements));
                let names = text.contains("data: ") && text.contains(&odd) && text.contains(&other);
                assert!(operation == Operation::Alltoall || names, "{text}");
            };
            disagree_on(split, p, wrong, |_| true, named);
        }
    }
}

#[test]
fn other_algorithms_are_a_mismatch_that_names_both() {
    for p in some_sizes() {
        let wrong = |team: &Team| {
            let name = if team.rank() == 1 { "ring" } else { "bruck" };
            let algorithm = table::named(Operation::Allgather, name).unwrap();
            let mut made = Made::new(team, Case::new(Operation::Allgather));
            made.with(&[], |arguments| {
                let arguments = Arguments { algorithm: Some((algorithm, &[])), ..arguments.clone() };
                // SAFETY: the buffers outlive the call.
                unsafe { execute::run(team, &arguments) }
            })
        };
        let named = |rank: usize, e: Error| {
            let text = e.to_string();
            mismatch(rank, e);
            assert!(
                text.contains("algorithm: ") && text.contains("ring at rank 1") && text.contains("bruck at"),
                "{text}"
            );
        };
        disagree(p, wrong, |_| true, named);
    }
}

#[test]
fn other_roots_are_a_mismatch() {
    // The odd rank passes itself, or another rank, as the root.
    let cases = Operation::ALL.into_iter().filter(|o| o.is_rooted()).flat_map(|o| [(o, 1), (o, 2)]);
    for (operation, odd) in cases {
        for p in some_sizes().filter(|p| *p > odd as u32) {
            let wrong =
                |team: &Team| call(team, Case { root: usize::from(team.rank() == odd), ..Case::new(operation) });
            // A root that waits for messages that no rank sends.
            let waits = matches!(operation, Operation::Gather | Operation::Reduce);
            disagree(p, wrong, |rank| waits && rank == 0, mismatch);
        }
    }
}

/// A rank that only sends has completed the call when the root detects the disagreement. Its later calls must not fail
/// because of it.
#[test]
fn mismatch_that_is_found_after_the_end_of_a_call_is_no_error_of_the_next() {
    let cases = [Operation::Gather, Operation::Reduce].into_iter().flat_map(|o| [(o, true), (o, false)]);
    for ((operation, split), late) in cases.flat_map(|case| [(case, 0), (case, 1)]) {
        // Either rank 0 differs from the root, or every rank does.
        for (p, several) in some_sizes().flat_map(|p| [(p, false), (p, true)]) {
            let wrong = |team: &Team| {
                let differs = team.rank() == 0 || several && team.rank() != 1;
                let elements = if differs { 20 } else { 10 };
                let result = call(team, Case { root: 1, elements, ..Case::new(operation) });
                if team.rank() == late {
                    std::thread::sleep(Duration::from_millis(5));
                }
                result
            };
            let named = |rank: usize, e: Error| {
                let text = e.to_string();
                mismatch(rank, e);
                // In a tree, a rank other than the root may be the first to detect it.
                let names =
                    ["data: ", "160 bytes at rank ", "80 bytes at rank "].iter().all(|part| text.contains(part));
                assert!(rank != 1 || names, "{text}");
            };
            disagree_on(split, p, wrong, |rank| rank == 1, named);
        }
    }
}

/// The block is empty for its sender, which sends no message for it, or for its receiver.
#[test]
fn block_that_is_empty_for_one_side_is_a_mismatch() {
    for (p, empty) in some_sizes().flat_map(|p| [(p, 0), (p, 1)]) {
        let wrong = |team: &Team| {
            let (me, size) = (team.rank(), team.size());
            // Block from rank 0 to rank 1: among the sizes that rank 0 sends, or that rank 1 receives.
            let mut sizes = vec![3u64; 2 * size];
            if me == empty {
                sizes[if me == 0 { 1 } else { size }] = 0;
            }
            let (input, mut output) = (vec![me as u64; 3 * size], vec![0u64; 3 * size]);
            let arguments = Arguments {
                shape: Shape::Each(sizes[..].into()),
                element: 8,
                input: Memory::Contiguous(input.as_ptr().cast_mut().cast()),
                output: Memory::Contiguous(output.as_mut_ptr().cast()),
                ..Arguments::new(Operation::Alltoall)
            };
            // SAFETY: the buffers outlive the call.
            unsafe { Prepared::started(team, &arguments) }?.wait()
        };
        // A message for which its receiver does not wait may arrive after the call has ended.
        disagree(p, wrong, |rank| empty == 0 && rank == 1, mismatch);
    }
}

#[test]
fn other_roots_of_a_persistent_call_are_a_mismatch() {
    for (p, odd) in some_sizes().flat_map(|p| [(p, 0), (p, 1)]) {
        let wrong = |team: &Team| {
            let mut made =
                Made::new(team, Case { root: usize::from(team.rank() == odd), ..Case::new(Operation::Gather) });
            let persistent = made.with(&[], |arguments| Prepared::new(team, arguments, CallMode::Persistent))?;
            // SAFETY: the buffers outlive the call.
            unsafe { persistent.start() }?;
            persistent.wait()
        };
        // Ranks that act as the root wait for each other; if no rank does, all ranks only send.
        disagree(p, wrong, |rank| odd == 1 && rank < 2, mismatch);
    }
}

/// The others ask a late rank for its messages, and then it makes the call: no rank fails.
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
                let persistent = made.with(&[], |arguments| Prepared::new(team, arguments, CallMode::Persistent))?;
                for round in 0..3 {
                    made.fill();
                    answer(round % 2)?;
                    // SAFETY: the buffers outlive the call.
                    unsafe { persistent.start() }?;
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
fn differing_reductions_are_a_mismatch() {
    for p in some_sizes() {
        let wrong = |team: &Team| {
            let mut made = Made::new(team, Case { commutative: true, ..Case::new(Operation::Allreduce) });
            made.with(&[], |arguments| {
                let code = 1 + team.rank() as u32 % 2;
                let reduction = Some(Reduction { code, ..reduction(&ADD, true) });
                // SAFETY: the buffers outlive the call.
                unsafe { Prepared::started(team, &Arguments { reduction, ..arguments.clone() }) }?.wait()
            })
        };
        disagree(p, wrong, |_| true, mismatch);
    }
}

/// # Safety
/// Accesses no memory.
unsafe fn fails(_: *const (), _: *const u8, _: *mut u8, _: usize, _: Side) -> Result<()> {
    Err(Error::new(ErrorKind::Aborted, "reduce").cause("no sum of these"))
}

#[test]
fn reduction_that_fails_is_an_error_everywhere() {
    for p in some_sizes() {
        let wrong = |team: &Team| {
            let mut made = Made::new(team, Case { commutative: true, ..Case::new(Operation::Allreduce) });
            made.with(&[], |arguments| {
                let reduction = Some(Reduction { function: fails, ..reduction(&ADD, true) });
                // SAFETY: the buffers outlive the call.
                unsafe { Prepared::started(team, &Arguments { reduction, ..arguments.clone() }) }?.wait()
            })
        };
        disagree(
            p,
            wrong,
            |_| true,
            |_, e| {
                assert!(e.kind() == ErrorKind::Aborted && e.to_string().contains("no sum of these"), "{e}");
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
            let e = unsafe { Prepared::started(&team, arguments) }.unwrap_err();
            assert_eq!(e.kind(), ErrorKind::BadArgument, "{e}");
        };
        let of = Arguments::new;
        refused(&Arguments { shape: Shape::Equal(1), ..of(Operation::Broadcast) });
        refused(&Arguments { shape: Shape::Vector(1), ..of(Operation::Allgather) });
        refused(&Arguments { shape: Shape::Each(vec![1, 2].into()), ..of(Operation::Allgather) });
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

/// Settings with frequent checks of the peers, so that a rank soon requests missing messages that show a disagreement.
pub(crate) fn soon() -> Settings {
    let find =
        |name: &str| if name == "FARSIDE_PEER_CHECK_MS" { Some("5".to_owned()) } else { std::env::var(name).ok() };
    Settings::from_lookup(find).unwrap()
}

/// Signals of a barrier have no messages that could be compared with those of other calls.
#[test]
fn collective_where_others_call_a_barrier_is_a_mismatch() {
    // A root that only sends reaches its next barrier; a root that waits is still in its call.
    for (operation, odd) in [(Operation::Broadcast, 0), (Operation::Broadcast, 1), (Operation::Allreduce, 1)] {
        for (p, elements) in some_sizes().flat_map(|p| [(p, 1), (p, 1000)]) {
            let wrong = |job: &Job| {
                let team = job.world()?;
                let result = match team.rank() == odd {
                    true => call(&team, Case { elements, ..Case::new(operation) }).and_then(|()| team.barrier()),
                    false => team.barrier(),
                };
                let e = result.expect_err("ranks have called different things");
                assert_eq!(e.kind(), ErrorKind::Mismatch, "{operation:?} at {odd} of {p}: {e}");
                // Other ranks may still be in the barrier, which needs this rank.
                let until = Instant::now() + Duration::from_millis(200);
                while Instant::now() < until {
                    job.progress()?;
                }
                Ok(())
            };
            Job::threads_with(p as usize, &soon(), wrong).unwrap_or_else(|e| panic!("{p} ranks: {e}"));
        }
    }
}

/// A rank that reaches the end of the job is named in the errors of the ranks that wait for it.
#[test]
fn rank_that_ends_is_named_to_those_that_wait_for_it() {
    type Wait = fn(&Team, &SignalArray) -> Result<()>;
    let waits: [Wait; 4] = [
        |team, _| team.barrier(),
        |team, _| call(team, Case::new(Operation::Allreduce)),
        |team, _| team.split(Some(0), 0).map(|_| ()),
        |team, signals| signals.wait("wait", team.size() - 1, 3, 1, Pace::EXCHANGE),
    ];
    for (p, wait) in some_sizes().flat_map(|p| waits.map(|wait| (p, wait))) {
        let run = |job: &Job| {
            let team = job.world()?;
            let signals = SignalArray::new(&team, 0)?;
            if team.rank() == team.size() - 1 {
                return Ok(());
            }
            let e = wait(&team, &signals).expect_err("a rank has ended");
            // A rank that got the error may itself reach the end before another rank has asked.
            let blamed = e.blamed_number().filter(|rank| *rank != job.rank_number() && (p > 2 || *rank == 1));
            assert!(e.kind() == ErrorKind::PeerLost && blamed.is_some(), "{e}");
            assert!(e.to_string().contains("has finalized"), "{e}");
            Ok(())
        };
        let begun = Instant::now();
        Job::threads_with(p as usize, &soon(), run).unwrap_or_else(|e| panic!("{p} ranks: {e}"));
        assert!(begun.elapsed() < Duration::from_secs(50), "not by a time-out");
    }
}

/// The job fails before a device is opened: the folder of shared memory does not exist.
#[test]
fn a_job_whose_setting_names_no_algorithm_does_not_start() {
    let set = |name: &str| match name {
        "FARSIDE_COLL" => Some("broadcast:scatter-rong".to_owned()),
        "FARSIDE_SHM_DIR" => Some("/nonexistent".to_owned()),
        _ => None,
    };
    let e = Job::threads_with(1, &Settings::from_lookup(set).unwrap(), |_| Ok(())).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Setting);
    let shown = e.to_string();
    assert!(shown.contains("FARSIDE_COLL=\"broadcast:scatter-rong\": ") && shown.contains("allowed are "), "{shown}");
}
