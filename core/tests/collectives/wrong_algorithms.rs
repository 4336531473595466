//! Algorithms of a program whose schedules cannot be executed: each is an error at every rank, no memory is accessed,
//! and the team remains usable.

use farside_core::coll::execute::{Arguments, CallMode, Prepared};
use farside_core::coll::operation::{Algorithm, Call, Operation};
use farside_core::coll::schedule::{Builder, Schedule, Side, Sizes, Slice};
use farside_core::{Error, ErrorKind, Job, Result, Team};

use super::misuse::soon;
use super::model::{Case, Made};
use super::some_sizes;

const OWN: Algorithm = Algorithm {
    operation: Operation::Allreduce,
    name: "own",
    source: "",
    build: |call| call.builder(1).done(),
    ..Algorithm::PLAIN
};

const IN: Slice = Slice::input(0, 1);
const OUT: Slice = Slice::output(0, 1);

/// A schedule that `steps` fills.
fn schedule(call: &Call<'_>, parts: u32, steps: impl FnOnce(&mut Builder)) -> Schedule {
    let mut b = call.builder(parts);
    steps(&mut b);
    b.done()
}

/// The other rank of a pair.
fn other(call: &Call<'_>) -> u32 {
    u32::from(call.rank == 0)
}

macro_rules! wrong {
    ($($operation:ident, $in_place:literal, $says:literal, $build:expr;)*) => {
        &[$((
            Algorithm { operation: Operation::$operation, build: $build, ..OWN }, $in_place, $says,
        )),*]
    };
}

/// Algorithms, whether their call is in place, and the text of the error.
static WRONG: &[(Algorithm, bool, &str)] = wrong! {
    // In an in-place call there is no input.
    Allreduce, true, "reads the input of an in-place call", |call| {
        schedule(&Call { in_place: false, ..*call }, 1, |b| b.reduce(&[IN], Side::Left, &[OUT]))
    };
    Scan, true, "reads the input of an in-place call", |call| {
        schedule(&Call { in_place: false, ..*call }, 1, |b| b.copy(&[IN], &[OUT]))
    };
    Exscan, true, "reads the input of an in-place call", |call| {
        schedule(&Call { in_place: false, ..*call }, 1, |b| {
            let scratch = b.scratch([0]);
            b.copy(&[IN], &[scratch]);
        })
    };
    Allgather, true, "reads the input of an in-place call", |call| {
        let (input, output) = (Sizes::new(call.rank, 1), Sizes::new(0, call.size));
        let mut b = Builder::new(call.rank, call.size, input, output);
        b.send(other(call), 0, &[IN]);
        b.done()
    };
    Allreduce, true, "reads the input of an in-place call", |call| {
        schedule(&Call { in_place: false, ..*call }, 1, |b| {
            b.lend(other(call), 0, &[IN], &[]);
            b.reclaim(other(call), 0);
        })
    };
    // Rank 0 has no result of an exclusive scan.
    Exscan, false, "writes the output, which the call does not write", |call| {
        schedule(call, 1, |b| if call.rank == 0 { b.copy(&[IN], &[OUT]) } else { b.copy(&[IN, IN], &[OUT]) })
    };
    // Buffers, ranks, and sizes.
    Allreduce, false, "input and output of the schedule", |call| {
        Builder::new(call.rank, call.size, Sizes::new(0, 1), Sizes::new(1, 1)).done()
    };
    Allreduce, false, "input and output of the schedule", |call| schedule(call, 0, |_| ());
    Allreduce, false, "the schedule is for rank", |call| {
        schedule(&Call { rank: (call.rank + 1) % call.size, ..*call }, 1, |_| ())
    };
    Allreduce, false, "the schedule is for rank", |call| schedule(&Call { size: call.size + 1, ..*call }, 1, |_| ());
    Allreduce, false, "a block without a size", |call| schedule(call, 1, |b| _ = b.scratch([7]));
    Allgather, false, "not made by a Builder", |call| {
        let made = call.builder(0).done();
        made.with_steps(made.steps())
    };
    Alltoall, false, "input and output of the schedule", |call| {
        Builder::new(call.rank, call.size, Sizes::NONE, Sizes::NONE).done()
    };
    NeighborAllgather, false, "input and output of the schedule", |call| {
        Builder::new(call.rank, call.size, Sizes::new(0, 1), Sizes::new(1, 9)).done()
    };
    // Slices, and the steps that a builder permits on them.
    Allreduce, false, "blocks 0 to 2 of 1 of the Input", |call| {
        schedule(call, 1, |b| b.send(other(call), 0, &[Slice::input(0, 2)]))
    };
    Allreduce, false, "the input is written", |call| schedule(call, 1, |b| b.receive(other(call), 0, &[IN]));
    Allreduce, false, "a block is reduced into itself", |call| {
        schedule(call, 1, |b| b.reduce(&[OUT], Side::Left, &[OUT]))
    };
    Allreduce, true, "a block is reduced into itself", |call| {
        schedule(call, 1, |b| b.reduce(&[IN], Side::Left, &[OUT]))
    };
    // Peers and tags.
    Allreduce, false, "names rank 99", |call| schedule(call, 1, |b| b.send(99, 0, &[IN]));
    Allreduce, false, "names rank", |call| schedule(call, 1, |b| b.signal(call.rank, 0));
    Allreduce, false, "has the tag 536870912", |call| schedule(call, 1, |b| b.send(other(call), 1 << 29, &[IN]));
    Allreduce, false, "has the tag 4294967295", |call| schedule(call, 1, |b| b.wait(other(call), u32::MAX));
    Allreduce, false, "with tag 3", |call| {
        schedule(call, 1, |b| (0..2).for_each(|_| b.send(other(call), 3, &[IN])))
    };
    Allreduce, false, "with tag 4", |call| {
        schedule(call, 1, |b| {
            b.receive(other(call), 4, &[OUT]);
            b.receive_reduce(other(call), 4, Side::Left, &[OUT]);
        })
    };
    // Lengths.
    Allreduce, false, "into a block of", |call| schedule(call, 1, |b| b.copy(&[IN, IN], &[OUT]));
    Allreduce, false, "into a block of", |call| {
        schedule(call, 2, |b| b.reduce(&[IN], Side::Right, &[Slice::output(0, 2)]))
    };
    // Operations.
    Allgather, false, "reduces, but the operation is not a reduction", |call| {
        schedule(call, 0, |b| b.receive_reduce(other(call), 0, Side::Left, &[OUT]))
    };
    Allgather, false, "reduces, but the operation is not a reduction", |call| {
        schedule(call, 0, |b| b.reduce(&[IN], Side::Left, &[OUT]))
    };
    // Loans.
    Allreduce, false, "a loan does not end", |call| schedule(call, 1, |b| b.borrow(other(call), 0));
    Allreduce, false, "a loan that was not borrowed is used", |call| {
        schedule(call, 1, |b| b.read_lent(other(call), 0, 0, &[OUT]))
    };
    Allreduce, false, "a lent block is written", |call| {
        schedule(call, 1, |b| {
            b.lend(other(call), 0, &[OUT], &[]);
            b.copy(&[IN], &[OUT]);
        })
    };
    // Panics.
    Allreduce, false, "function build of the algorithm panicked: on purpose", |_| panic!("on purpose");
    Allreduce, false, "function build of the algorithm panicked: no message", |_| std::panic::panic_any(PanicsAgain);
};

struct PanicsAgain;

impl Drop for PanicsAgain {
    fn drop(&mut self) {
        panic!("again");
    }
}

static PANICS_BEFORE: Algorithm = Algorithm { applies: |_| panic!("before"), ..OWN };

/// Makes a call with an algorithm; it must be rejected.
fn refused(team: &Team, case: Case, algorithm: &'static Algorithm) -> Error {
    Made::new(team, case).with(&[], |arguments| {
        let arguments = Arguments { algorithm: Some((algorithm, &[])), ..arguments.clone() };
        Prepared::new(team, &arguments, CallMode::Persistent).expect_err("its schedule does not fit")
    })
}

/// Makes a correct call.
fn goes_on(team: &Team) -> Result<()> {
    let mut sum = Made::new(team, Case::new(Operation::Allreduce));
    sum.run(team, &[])?;
    sum.assert();
    team.barrier()
}

#[test]
fn schedules_that_do_not_fit_their_call_are_errors_at_every_rank() {
    let panics = (&PANICS_BEFORE, false, "function applies of the algorithm panicked: before");
    let all = WRONG.iter().map(|(algorithm, in_place, says)| (algorithm, *in_place, *says)).chain([panics]);
    let all: Vec<(&'static Algorithm, bool, &str)> = all.collect();
    for p in some_sizes() {
        let run = |job: &Job| {
            let team = job.world()?;
            for (number, (algorithm, in_place, says)) in all.iter().enumerate() {
                let case = Case { in_place: *in_place, ..Case::new(algorithm.operation) };
                let e = refused(&team, case, algorithm);
                assert_eq!(e.kind(), ErrorKind::BadArgument, "{e}");
                let of_rank_0 = algorithm.operation == Operation::Exscan && !in_place;
                let says_it = e.to_string().contains(says) || of_rank_0 && team.rank() > 0;
                assert!(says_it, "algorithm {number}, {says}: {e}");
            }
            goes_on(&team)
        };
        Job::threads_with(p as usize, &soon(), run).unwrap_or_else(|e| panic!("{p} ranks: {e}"));
    }
}

/// The last rank's schedule copies too much, and the others wait for that rank.
static WRONG_AT_ONE: Algorithm = Algorithm {
    build: |call| {
        if call.rank + 1 == call.size {
            return schedule(call, 1, |b| b.copy(&[IN, IN], &[OUT]));
        }
        schedule(call, 1, |b| b.receive(call.size - 1, 0, &[OUT]))
    },
    ..OWN
};

#[test]
fn schedule_that_does_not_fit_at_one_rank_is_an_error_at_every_rank() {
    for p in some_sizes() {
        let run = |job: &Job| {
            let team = job.world()?;
            let e = by(&team, &WRONG_AT_ONE).expect_err("one rank cannot make it");
            assert_eq!(e.kind(), ErrorKind::BadArgument, "{e}");
            assert!(job.rank_number() == p - 1 || e.blamed_number() == Some(p - 1), "{e}");
            goes_on(&team)
        };
        Job::threads_with(p as usize, &soon(), run).unwrap_or_else(|e| panic!("{p} ranks: {e}"));
    }
}

fn by(team: &Team, algorithm: &'static Algorithm) -> Result<()> {
    let mut made = Made::new(team, Case { algorithm: Some(algorithm), ..Case::new(Operation::Allreduce) });
    made.run(team, &[])
}

/// Rank 0 sends data of the program in place of a loan for which rank 1 waits, with a message that names memory of rank
/// 0.
static FORGED: Algorithm = Algorithm {
    build: |call| {
        schedule(call, 1, |b| match call.rank {
            0 => b.send(1, 5, &[IN]),
            1 => {
                b.borrow(0, 5);
                b.read_lent(0, 5, 0, &[OUT]);
                b.give_back(0, 5);
            }
            _ => {}
        })
    },
    ..OWN
};

#[test]
fn data_of_a_program_is_not_taken_for_a_loan() {
    for p in some_sizes() {
        let run = |job: &Job| {
            let team = job.world()?;
            let made = by(&team, &FORGED);
            let mismatch = made.as_ref().is_err_and(|e| e.kind() == ErrorKind::Mismatch);
            assert!(mismatch || team.rank() != 1 && made.is_ok(), "rank {}: {made:?}", team.rank());
            goes_on(&team)
        };
        Job::threads_with(p as usize, &soon(), run).unwrap_or_else(|e| panic!("{p} ranks: {e}"));
    }
}
