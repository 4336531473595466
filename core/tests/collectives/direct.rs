#![allow(unsafe_code)]
//! Direct algorithms on a device: messages, bytes and copies of each rank are those of the schedule; memory that cannot
//! be lent is copied through memory of the device; a call that one rank abandons fails at all ranks.

use farside_core::coll::execute::{self, Arguments, Memory, Shape};
use farside_core::coll::operation::Operation as O;
use farside_core::coll::table;
use farside_core::device::{Region, Registration};
use farside_core::settings::Settings;
use farside_core::stats::Kind;
use farside_core::{ErrorKind, Job, Result, Team};

use super::model::{COMPOSE, Case, Made, Placing, compose, reduction, value};
use super::some_sizes;

/// Elements of a vector or block: more than are sent without a request to the receiver.
const ELEMENTS: u64 = 30_000;
const OPERATIONS: [O; 10] = [
    O::Broadcast,
    O::Scatter,
    O::Gather,
    O::Allgather,
    O::Alltoall,
    O::Reduce,
    O::Allreduce,
    O::ReduceScatter,
    O::Scan,
    O::Exscan,
];

fn case(operation: O, elements: u64) -> Case {
    Case { algorithm: table::named(operation, "direct"), elements, ..Case::new(operation) }
}

/// The settings of the environment, with this one changed.
fn with(name: &str, value: &str) -> Settings {
    let lookup = |of: &str| if of == name { Some(value.to_owned()) } else { std::env::var(of).ok() };
    Settings::from_lookup(lookup).unwrap()
}

/// Bytes that rank `me` of `p` reads and writes in memory of others, for blocks of `block` bytes, root 0.
fn moved(operation: O, me: u64, p: u64, block: u64) -> [u64; 2] {
    let (others, part, is_root) = (p - 1, block / p, me == 0);
    match operation {
        O::Broadcast if is_root => [0, others * part],
        O::Broadcast => [block - part, 0],
        O::Scatter => [if is_root { 0 } else { block }, 0],
        O::Gather => [0, if is_root { 0 } else { block }],
        O::Allgather | O::Alltoall | O::ReduceScatter => [others * block, 0],
        O::Reduce => [others * part, if is_root { 0 } else { part }],
        O::Allreduce | O::Scan => [others * part, others * part],
        // The vector of the last rank is not moved, and the first rank has no result.
        O::Exscan => [(others - u64::from(me < others)) * part, (others - u64::from(me > 0)) * part],
        _ => unreachable!(),
    }
}

/// Messages of loans and returns that rank `me` of `p` sends.
fn messages(operation: O, me: u64, p: u64) -> u64 {
    match operation {
        O::Scatter | O::Gather if me > 0 => 1,
        O::Scatter | O::Gather => p - 1,
        O::Broadcast if me > 0 => 2,
        _ => 2 * (p - 1),
    }
}

fn counted(team: &Team, operation: O, in_place: bool) -> Result<()> {
    let (me, p) = (team.rank() as u64, team.size() as u64);
    // The number is a multiple of every number of ranks, so all parts are equal.
    let mut made = Made::new(team, Case { in_place, ..case(operation, ELEMENTS) });
    team.barrier()?;
    let before = team.job().stats();
    made.run(team, &[])?;
    made.assert();
    let stats = team.job().stats() - before;
    let what = format!("{} at rank {me} of {p}, in place {in_place}: {stats:?}", operation.name());
    assert_eq!(stats.count(Kind::Send), messages(operation, me, p), "{what}");
    assert_eq!(
        [Kind::Read, Kind::Write].map(|kind| stats.bytes(kind)),
        moved(operation, me, p, 8 * ELEMENTS),
        "{what}"
    );
    // Each byte is copied once for its transfer.
    assert!(stats.bytes(Kind::Copy) <= stats.bytes(Kind::Read) + stats.bytes(Kind::Write) + (1 << 10), "{what}");
    Ok(())
}

#[test]
fn messages_bytes_and_copies_of_direct_algorithms() {
    // Ranks that wait for long would send each other messages.
    let settings = with("FARSIDE_PEER_CHECK_MS", "2000");
    for p in some_sizes() {
        Job::threads_with(p as usize, &settings, |job| {
            let team = job.world()?;
            if !team.is_on_one_node() {
                return Ok(());
            }
            for operation in OPERATIONS {
                counted(&team, operation, false)?;
                if matches!(operation, O::Allreduce | O::Scan | O::Reduce | O::Allgather) {
                    counted(&team, operation, true)?;
                }
            }
            team.barrier()
        })
        .unwrap();
    }
}

/// In memory that all ranks map, operands are reduced in place, without a copy or a system call.
#[test]
fn mapped_operands_are_reduced_in_place() {
    for p in some_sizes() {
        Job::threads_with(p as usize, &with("FARSIDE_PEER_CHECK_MS", "2000"), |job| {
            let team = job.world()?;
            if !team.is_on_one_node() {
                return Ok(());
            }
            let allocated =
                || job.device().allocate(Region { one_node: true, ..Region::allocated(8 * ELEMENTS as usize) });
            let (input, output) = (allocated()?, allocated()?);
            // SAFETY: memory of the device with this many words, which no other rank accesses outside the call.
            let words =
                |of: &Registration| unsafe { std::slice::from_raw_parts_mut(of.base.cast::<u64>(), ELEMENTS as usize) };
            let content = |rank: usize, i: usize| value(rank, 0, i as u64);
            words(&input).iter_mut().enumerate().for_each(|(i, word)| *word = content(team.rank(), i));
            let arguments = Arguments {
                shape: Shape::Vector(ELEMENTS),
                element: 8,
                input: Memory::Contiguous(input.base),
                output: Memory::Contiguous(output.base),
                reduction: Some(reduction(&COMPOSE, false)),
                algorithm: table::named(O::Allreduce, "direct").map(|a| (a, &[][..])),
                ..Arguments::new(O::Allreduce)
            };
            team.barrier()?;
            let before = job.stats();
            // SAFETY: the buffers outlive the call.
            unsafe { execute::run(&team, &arguments) }?;
            let stats = job.stats() - before;
            let want = |i: usize| (0..team.size()).map(|rank| content(rank, i)).reduce(compose).unwrap();
            assert!(words(&output).iter().enumerate().all(|(i, word)| *word == want(i)));
            let [read, written] = moved(O::Allreduce, team.rank() as u64, team.size() as u64, 8 * ELEMENTS);
            assert_eq!([Kind::Read, Kind::Write].map(|kind| stats.bytes(kind)), [read, written], "{stats:?}");
            // The first operand is copied into the result, if it is of another rank.
            let first = if team.rank() == 0 { 0 } else { read / (team.size() as u64 - 1) };
            assert!((written + first..written + first + (1 << 10)).contains(&stats.bytes(Kind::Copy)), "{stats:?}");
            assert_eq!(stats.count(Kind::SystemCall), 0, "{stats:?}");
            team.barrier()?;
            for memory in [input, output] {
                // SAFETY: registrations of this device, which are no longer used.
                unsafe { job.device().release(memory.handle) }?;
            }
            team.barrier()
        })
        .unwrap();
    }
}

/// The rows of the table for long data on one node use these algorithms.
#[test]
fn long_calls_on_one_node_are_direct() {
    let settings = with("FARSIDE_PEER_CHECK_MS", "2000");
    Job::threads_with(2, &settings, |job| {
        let team = job.world()?;
        if !team.is_on_one_node() {
            return Ok(());
        }
        for operation in OPERATIONS {
            let mut made = Made::new(&team, Case { algorithm: None, ..case(operation, ELEMENTS) });
            team.barrier()?;
            let before = team.job().stats();
            made.run(&team, &[])?;
            made.assert();
            let stats = team.job().stats() - before;
            assert_eq!(stats.count(Kind::Send), messages(operation, team.rank() as u64, 2), "{}", operation.name());
        }
        team.barrier()
    })
    .unwrap();
}

/// Settings, and layouts, with which blocks go through memory of the device.
#[test]
fn memory_that_cannot_be_lent_is_copied() {
    let settings = with("FARSIDE_SHM_USER_MEMORY", "ring");
    for p in some_sizes() {
        let run = |job: &Job| {
            let team = job.world()?;
            for operation in OPERATIONS.into_iter().filter(|_| team.is_on_one_node()) {
                for elements in [0, 1, 7, ELEMENTS] {
                    let mut made = Made::new(&team, case(operation, elements));
                    made.run(&team, &[])?;
                    made.assert();
                }
                if !operation.is_reduction() {
                    let mut made = Made::new(&team, Case { placing: Placing::Gaps, ..case(operation, ELEMENTS) });
                    made.run(&team, &[])?;
                    made.assert();
                }
            }
            team.barrier()
        };
        Job::threads_with(p as usize, &settings, run).unwrap();
    }
}

/// A rank drops a call while others access its memory: the call fails at all ranks, and the buffers are reusable.
#[test]
fn a_call_that_one_rank_drops_fails_at_all() {
    for p in some_sizes() {
        Job::threads(p as usize, |job| {
            let team = job.world()?;
            for operation in [O::Allgather, O::Allreduce, O::Alltoall].into_iter().filter(|_| team.is_on_one_node()) {
                let mut made = Made::new(&team, case(operation, ELEMENTS));
                let call = made.start(&team, &[])?;
                if team.rank() == 0 {
                    drop(call);
                } else {
                    // Rank 0 may have done its part already.
                    match call.wait() {
                        Ok(()) => made.assert(),
                        Err(e) => {
                            assert_eq!((e.kind(), e.blamed()), (ErrorKind::Aborted, Some(0)), "{operation:?}: {e}")
                        }
                    }
                }
                drop(made);
                let mut again = Made::new(&team, case(operation, ELEMENTS));
                again.run(&team, &[])?;
                again.assert();
            }
            team.barrier()
        })
        .unwrap();
    }
}

/// Blocks of an alltoall whose ranks disagree about their length.
#[test]
fn lengths_that_differ_are_a_mismatch() {
    Job::threads(3, |job| {
        let team = job.world()?;
        if !team.is_on_one_node() {
            return Ok(());
        }
        let elements = ELEMENTS + u64::from(team.rank() == 1);
        let mut made = Made::new(&team, case(O::Alltoall, elements));
        let e = made.run(&team, &[]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Mismatch, "{e}");
        team.barrier()
    })
    .unwrap();
}
