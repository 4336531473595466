#![forbid(unsafe_code)]
//! Algorithms, operators, numbers and messages of a safe program cannot make the runtime access memory that the program
//! has not passed to it.

use std::cell::Cell;

use farside_rma::collectives::{Commutative, Operator, Side, call};
use farside_rma::core::am::{self, Counters, Delivery, HandlerId};
use farside_rma::core::coll::operation::{Algorithm, Call, Operation};
use farside_rma::core::coll::schedule::{self, Action, Buffer, Builder, Schedule, Sizes, Slice, Step};
use farside_rma::core::coll::selection::Choice;
use farside_rma::core::signal::SignalArray;
use farside_rma::datatype::{Datatype, Named};
use farside_rma::prelude::*;

const SCATTER: Algorithm = Algorithm {
    operation: Operation::Scatter,
    name: "own",
    source: "",
    build: |call| call.builder(0).done(),
    ..Algorithm::PLAIN
};

/// A scatter whose root copies its own block, and sends the other blocks.
fn scatter(call: &Call<'_>, tag: u32) -> Builder {
    let mut b = call.builder(0);
    if call.rank == call.root {
        b.copy(&[Slice::input(call.rank, 1)], &[Slice::output(0, 1)]);
        (0..call.size).filter(|to| *to != call.root).for_each(|to| b.send(to, tag, &[Slice::input(to, 1)]));
    } else {
        b.receive(call.root, tag, &[Slice::output(0, 1)]);
    }
    b
}

/// A schedule that writes two blocks of output, although the call has one.
fn long_output(call: &Call<'_>) -> Schedule {
    let input = if call.rank == call.root { Sizes::new(0, call.size) } else { Sizes::NONE };
    let mut b = Builder::new(call.rank, call.size, input, Sizes::new(0, 2));
    let scratch = b.scratch([0, 1]);
    b.copy(&[scratch], &[Slice::output(0, 2)]);
    b.done()
}

/// Steps that no builder has checked: they write to the input, or past the end of the output.
fn unchecked(call: &Call<'_>, into: Slice) -> Schedule {
    let mut b = call.builder(0);
    let from = [b.scratch([0])];
    b.done().with_steps([Step { action: Action::Copy, from: &from, into: &[into], after: &[] }])
}

static WRONG: [Algorithm; 9] = [
    Algorithm { build: long_output, ..SCATTER },
    Algorithm { build: |call| unchecked(call, Slice::input(0, 1)), ..SCATTER },
    Algorithm { build: |call| unchecked(call, Slice::new(Buffer::Output, 0, u32::MAX)), ..SCATTER },
    Algorithm { build: |call| Call { rank: (call.rank + 1) % call.size, ..*call }.builder(0).done(), ..SCATTER },
    Algorithm { build: |call| Call { size: call.size + 1, ..*call }.builder(0).done(), ..SCATTER },
    Algorithm { build: |call| scatter(call, u32::MAX).done(), ..SCATTER },
    Algorithm {
        build: |call| {
            let mut b = scatter(call, 0);
            b.scratch([u32::MAX]);
            b.done()
        },
        ..SCATTER
    },
    Algorithm {
        build: |call| {
            let (mut b, other) = (call.builder(0), u32::from(call.rank == 0));
            let scratch = b.scratch([call.rank, call.rank]);
            b.receive(other, 0, &[scratch.part(0, 1)]);
            b.receive(other, 0, &[scratch.part(1, 1)]);
            b.done()
        },
        ..SCATTER
    },
    Algorithm { operation: Operation::Gather, applies: |_| panic!("of a scatter"), ..SCATTER },
];

static RIGHT: [Algorithm; 2] = [
    Algorithm { build: |call| scatter(call, 7).done(), ..SCATTER },
    Algorithm { name: "flat", build: SWAP, ..BROADCAST },
];

const BROADCAST: Algorithm = Algorithm { operation: Operation::Broadcast, ..SCATTER };
/// A schedule that differs from the algorithm of the same name in the table: it moves a third of each vector.
const SWAP: fn(&Call<'_>) -> Schedule = |call| {
    let mut b = call.builder(3);
    for other in (0..call.size).filter(|rank| *rank != call.rank) {
        if call.rank == call.root {
            b.send(other, 0, &[Slice::output(1, 1)]);
        } else if other == call.root {
            b.receive(other, 0, &[Slice::output(1, 1)]);
        }
    }
    b.done()
};

#[test]
fn schedule_that_does_not_fit_its_call_is_refused_at_every_rank() {
    Job::threads(2, |job| {
        let team = job.world()?;
        let from = [7u64; 2000];
        for (number, algorithm) in WRONG.iter().enumerate() {
            let mut both = vec![42u64; 2000];
            let (into, other) = both.split_at_mut(1000);
            let choice = Choice { algorithm, parameters: vec![1, 2, 3] };
            let e = team.make(call::scatter(&from, into, 0).by(&choice)).expect_err("it does not fit");
            assert_eq!(e.kind(), ErrorKind::BadArgument, "algorithm {number}: {e}");
            assert!(into.iter().chain(&*other).all(|x| *x == 42) && from == [7; 2000], "algorithm {number}");
        }
        team.barrier()
    })
    .unwrap();
}

/// Schedules for calls out of place, which read an input. A reduction of a safe program has none, since it is in place.
static OUT_OF_PLACE: [Algorithm; 2] = [
    Algorithm {
        operation: Operation::Allreduce,
        build: |call| {
            let mut b = Call { in_place: false, ..*call }.builder(1);
            b.reduce(&[Slice::input(0, 1)], schedule::Side::Left, &[Slice::output(0, 1)]);
            b.done()
        },
        ..SCATTER
    },
    Algorithm {
        operation: Operation::Scan,
        build: |call| {
            let mut b = Call { in_place: false, ..*call }.builder(1);
            b.copy(&[Slice::input(0, 1)], &[Slice::output(0, 1)]);
            b.done()
        },
        ..SCATTER
    },
];

#[test]
fn schedule_that_reads_an_input_is_refused_in_place() {
    for p in [1, 2] {
        Job::threads(p, |job| {
            let team = job.world()?;
            let mut data = [7u64; 400];
            let unused = || Commutative(|_, _| panic!("no operand exists"));
            let [allreduce, scan] =
                OUT_OF_PLACE.each_ref().map(|algorithm| Choice { algorithm, parameters: Vec::new() });
            let made = [
                team.make(call::allreduce(&mut data, unused()).by(&allreduce)),
                team.make(call::scan(&mut data, unused()).by(&scan)),
            ];
            for e in made.map(|made| made.expect_err("there is no input")) {
                assert_eq!(e.kind(), ErrorKind::BadArgument, "{e}");
                assert!(e.to_string().contains("reads the input of an in-place call"), "{e}");
            }
            assert_eq!(data, [7; 400]);
            team.barrier()
        })
        .unwrap();
    }
}

#[test]
fn own_algorithm_is_executed_whatever_its_name() {
    Job::threads(3, |job| {
        let team = job.world()?;
        let (from, mut into) = ([1u64, 2, 3, 4, 5, 6], [0; 2]);
        let own = |number: usize| Choice { algorithm: &RIGHT[number], parameters: vec![1] };
        team.make(call::scatter(&from, &mut into, 1).by(&own(0)))?;
        let me = team.rank() as u64;
        assert_eq!(into, [2 * me + 1, 2 * me + 2]);
        for _ in 0..6 {
            let mut data = [me; 3];
            team.make(call::broadcast(&mut data, 2).by(&own(1)))?;
            assert_eq!(data, [me, 2, me]);
        }
        Ok(())
    })
    .unwrap();
}

#[test]
#[should_panic(expected = "a block is reduced into itself")]
fn step_that_reduces_a_block_into_itself_is_a_mistake_of_the_algorithm() {
    let mut b = Builder::new(0, 1, Sizes::NONE, Sizes::new(0, 3));
    b.reduce(&[Slice::output(1, 2)], farside_rma::core::coll::schedule::Side::Left, &[Slice::output(0, 2)]);
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(256))]
struct Wide([u64; 32]);

thread_local!(static CALLS: Cell<u32> = const { Cell::new(0) });

struct Add;

impl Operator<Wide> for Add {
    fn is_commutative(&self) -> bool {
        false
    }

    fn reduce(&self, operand: &[Wide], into: &mut [Wide], _: Side) {
        CALLS.set(CALLS.get() + 1);
        let aligned = |at: *const Wide| std::hint::black_box(at).addr().is_multiple_of(align_of::<Wide>());
        assert!(aligned(operand.as_ptr()) && aligned(into.as_ptr()));
        into.iter_mut().zip(operand).for_each(|(into, operand)| into.0[31] += operand.0[31]);
    }
}

#[test]
fn operators_get_slices_that_are_aligned_for_their_elements() {
    Job::threads(3, |job| {
        let team = job.world()?;
        for n in (1..40).chain([1000]) {
            let mut v = vec![Wide([1; 32]); n];
            team.allreduce(&mut v, Add)?;
            team.scan(&mut v, Add)?;
            assert!(v.iter().all(|x| x.0[31] == 3 * (team.rank() as u64 + 1)));
            team.allreduce(&mut v, Commutative(|a: Wide, _: Wide| a))?;
        }
        assert!(CALLS.get() > 40);
        Ok(())
    })
    .unwrap();
}

#[test]
fn sizes_that_no_memory_has_are_refused() {
    Job::threads(2, |job| {
        let team = job.world()?;
        for words in [usize::MAX, usize::MAX / 64, 1 << 58, 1 << 57] {
            let e = SignalArray::new(&team, words).expect_err("the address space is exceeded");
            assert_eq!(e.kind(), ErrorKind::BadArgument, "{e}");
        }
        // Only one rank has requested too much memory.
        let e = SignalArray::new(&team, if team.rank() == 0 { 1 << 58 } else { 1 })
            .expect_err("the address space is exceeded");
        assert!(matches!(e.kind(), ErrorKind::BadArgument | ErrorKind::Aborted), "{e}");
        assert_eq!((am::room(job, usize::MAX), am::room(job, 1 << 40)), (0, 0));
        team.barrier()
    })
    .unwrap();
}

/// Numbers from [`HandlerId::RUNTIME`] on belong to handlers that write to windows: a program can neither send to them,
/// nor register or remove one.
#[test]
fn handlers_of_the_runtime_are_out_of_a_programs_reach() {
    Job::threads(2, |job| {
        let team = job.world()?;
        let mut window = Window::<u64>::allocate(&team, 8)?;
        window.local_mut()?[0] = 77;
        let wire = Datatype::contiguous(8, &Named::Byte.into()).unwrap().message(1).unwrap().to_wire();
        // The format of a window's handler: offset, first packed byte, length of the layout, layout, bytes.
        let head = [0u64.to_le_bytes(), 0u64.to_le_bytes(), (wire.len() as u64).to_le_bytes()].concat();
        let piece = [head, wire, 0xdead_u64.to_le_bytes().to_vec()].concat();
        let am = job.active_messages();
        let refused = |result: Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::BadArgument);
        for id in (HandlerId::RUNTIME..=u16::MAX).map(HandlerId) {
            refused(am::send(job, 1, id, &[], &piece, Counters::default()));
            refused(am::try_send(job, 1, id, &[], &piece, Counters::default()).map(|_| ()));
            refused(am.register(id, |_| Delivery::Done));
            am.unregister(id);
        }
        team.barrier()?;
        assert_eq!(window.local()?[0], 77);
        let (one, next) = ([1], 1 - team.rank());
        window.fence(Assert::empty(), |epoch| epoch.put(&one, next, 0))?;
        assert_eq!(window.local()?[0], 1);
        team.barrier()
    })
    .unwrap();
}
