#![allow(unsafe_code)]
//! Calls that their own rank refuses for their arguments count as not made: a retry is the call of the other ranks, and
//! another call in its place is a mismatch.

use std::time::{Duration, Instant};

use farside_core::coll::execute::{Arguments, CallMode, Prepared, Shape};
use farside_core::coll::operation::Operation;
use farside_core::{Error, ErrorKind, Job, Result, Team, coll};

use super::misuse::soon;
use super::model::{Case, Made};
use super::some_sizes;

/// A way to make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Blocking,
    Started,
    Persistent,
}

fn make(team: &Team, way: Way, arguments: &Arguments<'_>) -> Result<()> {
    // SAFETY: the buffers outlive the call.
    unsafe {
        match way {
            Way::Blocking => coll::execute::run(team, arguments),
            Way::Started => Prepared::started(team, arguments)?.wait(),
            Way::Persistent => {
                let call = Prepared::new(team, arguments, CallMode::Persistent)?;
                call.start()?;
                call.wait()
            }
        }
    }
}

/// Makes calls with wrong arguments, which are refused.
fn refused(team: &Team, case: Case, way: Way) {
    let mut made = Made::new(team, case);
    made.with(&[], |given| {
        let wrong = |arguments: &Arguments<'_>| {
            let e = make(team, way, arguments).expect_err("wrong arguments");
            assert!(matches!(e.kind(), ErrorKind::BadArgument | ErrorKind::NoSuchRank), "{e}");
        };
        let sizes = vec![1; 99];
        wrong(&Arguments { shape: Shape::Each(sizes[..].into()), ..given.clone() });
        wrong(&Arguments { shape: Shape::Own(1 << 63), ..given.clone() });
        if case.operation.is_rooted() {
            wrong(&Arguments { root: team.size(), ..given.clone() });
        }
        if case.operation.is_reduction() {
            wrong(&Arguments { reduction: None, ..given.clone() });
        }
    });
}

fn idle(job: &Job, time: Duration) -> Result<()> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        job.progress()?;
    }
    Ok(())
}

/// The call of a rank is refused before or after the others have made it, on a team whose short calls use signals and
/// on one without a signal array, and the rank makes it again. The next calls have the right data, too.
#[test]
fn retry_of_a_refused_call_is_the_call_of_the_others() {
    for p in some_sizes() {
        let run = |job: &Job| {
            let world = job.world()?;
            let other = world.split(Some(0), 0)?.expect("all are members");
            for (number, operation) in Operation::ALL.into_iter().enumerate() {
                let way = [Way::Blocking, Way::Started, Way::Persistent][number % 3];
                for (team, way, root) in [(&world, Way::Blocking, 0), (&other, way, 0), (&other, way, 1)] {
                    let case = Case { root, ..Case::new(operation) };
                    if team.rank() == (number + root) % team.size() {
                        idle(job, Duration::from_millis(2 * root as u64))?;
                        refused(team, case, way);
                    }
                    let mut made = Made::new(team, case);
                    made.with(&[], |arguments| make(team, way, arguments))?;
                    made.assert();
                }
            }
            world.barrier()
        };
        Job::threads_with(p as usize, &soon(), run).unwrap_or_else(|e| panic!("{p} ranks: {e}"));
    }
}

/// The rank makes the next call instead. All ranks whose call needs others get a mismatch, those that have continued
/// wait in the last call until the rank reaches the end, and no rank waits forever.
#[test]
fn another_call_in_place_of_a_refused_one_is_a_mismatch() {
    use Operation as O;
    let cases = [(O::Allreduce, O::Allgather), (O::Allgather, O::Allreduce), (O::Alltoall, O::Barrier)];
    for ((first, next), way) in cases.into_iter().flat_map(|case| [(case, Way::Blocking), (case, Way::Started)]) {
        for (p, split) in some_sizes().flat_map(|p| [(p, true), (p, false)]) {
            let run = |job: &Job| {
                let world = job.world()?;
                let team = if split { world.split(Some(0), 0)?.expect("all are members") } else { world.clone() };
                let by = |operation: Operation| {
                    let mut made = Made::new(&team, Case::new(operation));
                    made.with(&[], |arguments| make(&team, way, arguments))
                };
                if team.rank() == 1 {
                    refused(&team, Case::new(first), way);
                } else {
                    let e = by(first).expect_err("rank 1 makes another call");
                    assert_eq!(e.kind(), ErrorKind::Mismatch, "{first:?}, {next:?}: {e}");
                    assert!(p > 2 || e.to_string().contains("rank 1"), "{e}");
                }
                let e = by(next).expect_err("not all make it");
                if team.rank() == 1 {
                    assert_eq!(e.kind(), ErrorKind::Mismatch, "{e}");
                } else {
                    assert!(matches!(e.kind(), ErrorKind::PeerLost | ErrorKind::Mismatch), "{e}");
                }
                Ok(())
            };
            Job::threads_with(p as usize, &soon(), run).unwrap_or_else(|e| panic!("{p} ranks: {e}"));
        }
    }
}

/// A call with the same data as an internal exchange is not matched with it.
#[test]
fn data_of_a_program_is_not_taken_for_an_internal_exchange() {
    for p in some_sizes() {
        let run = |job: &Job| {
            let team = job.world()?.split(Some(0), 0)?.expect("all are members");
            let made = if team.rank() == 1 {
                assert_eq!(team.subteam(&[team.size()]).unwrap_err().kind(), ErrorKind::NoSuchRank);
                coll::allgather(&team, &[1; 13]).map(drop)
            } else {
                team.subteam(&[0, 1]).map(drop)
            };
            let e: Error = made.expect_err("an allgather of bytes beside a split");
            assert_eq!(e.kind(), ErrorKind::Mismatch, "{e}");
            assert!(e.to_string().contains("split a team"), "{e}");
            idle(job, Duration::from_millis(50))
        };
        Job::threads_with(p as usize, &soon(), run).unwrap_or_else(|e| panic!("{p} ranks: {e}"));
    }
}
