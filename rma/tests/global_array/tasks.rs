//! Whole arrays between tasks.

use farside_rma::core::stats::{Kind, Snapshot};
use farside_rma::global_array::{Format, Link, Strategy};
use farside_rma::prelude::*;

use super::{as_processes, distributed_pairs, everywhere};
use crate::checks::config::{MAPPED, quick, verbs};

/// Splits the ranks into two tasks, which exchange arrays in every pair of formats, in both directions, repeatedly,
/// with each strategy.
#[test]
fn arrays_travel_between_tasks() {
    let all = distributed_pairs(&[Format::Block, Format::Cyclic(1), Format::Cyclic(2), Format::Whole]);
    let sides: &[(usize, usize)] = if quick() { &[(1, 2)] } else { &[(1, 1), (2, 1), (1, 3), (2, 4), (3, 3)] };
    for (first, second) in sides.iter().copied() {
        Job::threads(first + second, |job| {
            let world = job.world()?;
            let in_first = world.rank() < first;
            let Some(task) = world.split(Some(u32::from(in_first)), 0)? else { unreachable!() };
            let other = if in_first { first } else { 0 };
            for (i, own) in all.iter().enumerate() {
                for (j, theirs) in all.iter().enumerate().filter(|(j, _)| (i + j) % if quick() { 5 } else { 2 } == 0) {
                    let array = GlobalArray::distributed(&task, [9, 6], if in_first { *own } else { *theirs })?;
                    for strategy in [None, Some(Strategy::Parallel), Some(Strategy::Centralized)] {
                        // Only one of the tasks requests the strategy, or neither does.
                        let link = match strategy.filter(|_| (j % 2 == 0) == in_first) {
                            Some(strategy) => array.link_with(&world, other, (i * 20 + j) as i32, strategy)?,
                            None => array.link(&world, other, (i * 20 + j) as i32)?,
                        };
                        assert!(strategy.is_none_or(|strategy| link.strategy() == strategy));
                        there_and_back(&array, &link, in_first)?;
                    }
                    array.free()?;
                }
            }
            Ok(())
        })
        .unwrap();
    }
}

fn there_and_back(array: &GlobalArray<u64, 2>, link: &Link<'_, u64, 2>, in_first: bool) -> Result<()> {
    for (round, forth) in (1..=3u64).flat_map(|round| [true, false].map(|forth| (round, forth))) {
        let value = |[i, j]: [usize; 2]| 10_000 * round + (100 * i + j) as u64 + u64::from(forth);
        if forth == in_first {
            array.map(|index, _| value(index))?;
            let transfer = link.start_send()?;
            assert_eq!(array.gather(&[[0, 0]]).unwrap_err().kind(), ErrorKind::WrongEpoch);
            assert!(link.start_send().is_err());
            transfer.wait()?;
            // The elements may be modified now.
            array.map(|_, _| 0)?;
        } else {
            let transfer = link.start_recv()?;
            while !transfer.test()? {}
            drop(transfer);
            array.for_each(|index, x| assert_eq!(*x, value(index), "{:?} {link:?}", array.formats()))?;
        }
    }
    Ok(())
}

#[test]
fn tasks_that_do_not_fit() {
    Job::threads(3, |job| {
        let world = job.world()?;
        let first = world.rank() < 2;
        let Some(task) = world.split(Some(u32::from(first)), 0)? else { unreachable!() };
        let other = if first { 2 } else { 0 };
        let array = GlobalArray::<f32, 1>::new(&task, [if first { 7 } else { 8 }])?;
        assert_eq!(array.link(&world, other, 1).map(drop).unwrap_err().kind(), ErrorKind::Mismatch);
        assert_eq!(array.link(&world, 3, 1).map(drop).unwrap_err().kind(), ErrorKind::NoSuchRank);
        assert_eq!(array.link(&world, world.rank(), 1).map(drop).unwrap_err().kind(), ErrorKind::BadArgument);
        // Both tasks send. A message of the program with the link's tag is not accepted as a descriptor.
        let fits = GlobalArray::<f32, 1>::new(&task, [5])?;
        let e = fits.send_to(&world, other, 3).unwrap_err();
        assert!(e.kind() == ErrorKind::Mismatch && e.to_string().contains("both tasks send"), "{e}");
        if task.rank() == 0 {
            world.send(&[0.5f32; 5], other, 3)?;
        }
        let e = fits.link(&world, other, 3).unwrap_err();
        assert!(e.kind() == ErrorKind::Mismatch && e.to_string().contains("tag"), "{e}");
        if task.rank() == 0 {
            // The descriptor of the other task.
            world.recv_vec::<u8>(other, 3)?;
        }
        fits.free()?;
        if first {
            let ints = GlobalArray::<i32, 1>::new(&task, [8])?;
            assert_eq!(ints.recv_from(&world, other, 2).unwrap_err().kind(), ErrorKind::Mismatch);
            ints.free()?;
        } else {
            assert_eq!(array.send_to(&world, other, 2).unwrap_err().kind(), ErrorKind::Mismatch);
        }
        // A leaked transfer keeps the elements locked until the array is dropped.
        for (tag, strategy) in [(3, Strategy::Parallel), (4, Strategy::Centralized)] {
            let array2 = GlobalArray::<u8, 1>::new(&task, [6])?;
            let link = array2.link_with(&world, other, tag, strategy)?;
            std::mem::forget(if first { link.start_send()? } else { link.start_recv()? });
            assert_eq!(array2.with_local(|_| Ok::<(), Error>(())).unwrap_err().kind(), ErrorKind::WrongEpoch);
            drop(link);
            drop(array2);
        }
        let array3 = GlobalArray::<u8, 1>::new(&task, [600_000])?;
        let link = array3.link(&world, other, 5)?;
        std::mem::forget(if first { link.start_send()? } else { link.start_recv()? });
        drop(link);
        assert_eq!(array3.free().unwrap_err().kind(), ErrorKind::WrongEpoch);
        world.barrier()?;
        array.free()
    })
    .unwrap();
}

/// Two tasks, the first of `first` ranks with rows and the second with columns: runs `f` with the array, the link, and
/// whether this rank is in the first.
fn linked<R>(
    world: &Team,
    first: usize,
    shape: [usize; 2],
    strategy: Option<Strategy>,
    f: impl FnOnce(&GlobalArray<u64, 2>, &Link<'_, u64, 2>, bool) -> Result<R>,
) -> Result<R> {
    let in_first = world.rank() < first;
    let Some(task) = world.split(Some(u32::from(in_first)), 0)? else { unreachable!() };
    let formats = if in_first { [Format::Block, Format::Whole] } else { [Format::Whole, Format::Block] };
    let array = GlobalArray::<u64, 2>::distributed(&task, shape, formats)?;
    let other = if in_first { first } else { 0 };
    let link = match strategy {
        None => array.link(world, other, 1)?,
        Some(strategy) => array.link_with(world, other, 1, strategy)?,
    };
    let result = f(&array, &link, in_first)?;
    drop(link);
    array.free()?;
    Ok(result)
}

/// Both strategies transfer an array, on every device.
#[test]
fn both_strategies_on_every_device() {
    everywhere(&[3, 5], |world, _| {
        for strategy in [None, Some(Strategy::Parallel), Some(Strategy::Centralized)] {
            for shape in [[6, 4], [200, 150], [0, 3], [1, 1]] {
                linked(world, 2, shape, strategy, there_and_back)?;
            }
        }
        Ok(())
    });
}

#[test]
fn both_strategies_between_processes() {
    as_processes(&farside_harness::itself!("both_strategies_between_processes"), 5, |world| {
        for strategy in [Strategy::Parallel, Strategy::Centralized] {
            for shape in [[6, 4], [400, 300]] {
                linked(world, 2, shape, Some(strategy), there_and_back)?;
            }
        }
        Ok(())
    });
}

#[test]
fn tasks_that_ask_for_different_strategies() {
    Job::threads(4, |job| {
        let world = job.world()?;
        let strategy = if world.rank() < 2 { Strategy::Parallel } else { Strategy::Centralized };
        let e = linked(&world, 2, [3, 3], Some(strategy), |_, _, _| Ok(())).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Mismatch);
        Ok(())
    })
    .unwrap();
}

/// Counters of all ranks in one transfer, after a first one, from 2 ranks to 3 over mapped memory.
fn counted(shape: [usize; 2], strategy: Strategy) -> Vec<Snapshot> {
    let transfer = |world: &Team| {
        linked(world, 2, shape, Some(strategy), |_, link, in_first| {
            let once = || if in_first { link.send() } else { link.recv() };
            once()?;
            world.barrier()?;
            let before = world.job().stats();
            once()?;
            Ok(world.job().stats() - before)
        })
    };
    MAPPED.run(5, transfer).unwrap()
}

#[test]
fn messages_and_copies_of_both_strategies() {
    if verbs() {
        return; // No memory is mapped.
    }
    let sends = |all: &[Snapshot]| all.iter().map(|one| one.count(Kind::Send)).collect::<Vec<_>>();
    let copied = |all: &[Snapshot]| all.iter().map(|one| one.bytes(Kind::Copy)).collect::<Vec<_>>();
    // A message for each pair of ranks.
    let parallel = counted([6, 6], Strategy::Parallel);
    assert_eq!(sends(&parallel), [3, 3, 0, 0, 0], "{parallel:?}");
    // The messages are the other sender's, one between the tasks, and those of the other receivers.
    let centralized = counted([6, 6], Strategy::Centralized);
    assert_eq!(sends(&centralized), [1, 1, 2, 0, 0], "{centralized:?}");
    // Nothing is copied except the first ranks' own parts: 3 of 6 rows, 2 of 6 columns.
    assert_eq!(copied(&parallel), [0; 5], "{parallel:?}");
    assert_eq!(copied(&centralized), [144, 0, 96, 0, 0], "{centralized:?}");
    // Messages of many packets, or messages read in place: the receiver copies each byte at most once.
    let parallel = counted([1200, 600], Strategy::Parallel);
    assert!(copied(&parallel).iter().sum::<u64>() <= 8 * 1200 * 600, "{parallel:?}");
}

/// Blocking transfers use the cheaper strategy for the ranks and the array; transfers of a link are parallel, so that
/// started transfers may be awaited in any order.
#[test]
fn strategy_of_many_ranks() {
    if verbs() {
        return; // An emulated machine is too small for this number of ranks.
    }
    Job::threads(24, |job| {
        let world = job.world()?;
        for n in [12, 1200] {
            linked(&world, 12, [n, n], None, |array, link, in_first| {
                assert_eq!(link.strategy(), Strategy::Parallel);
                let (other, value) = (if in_first { 12 } else { 0 }, |[i, j]: [usize; 2]| (n * i + j) as u64);
                if in_first {
                    array.map(|index, _| value(index))?;
                    array.send_to(&world, other, 2)
                } else {
                    array.recv_from(&world, other, 2)?;
                    array.for_each(|index, x| assert_eq!(*x, value(index)))
                }
            })?;
        }
        Ok(())
    })
    .unwrap();
}

/// Both tasks concurrently send one array and receive another, and wait for the receive first.
#[test]
fn transfers_in_both_directions_are_waited_for_in_any_order() {
    Job::threads(5, |job| {
        let world = job.world()?;
        linked(&world, 2, [40, 30], None, |one, link_one, in_first| {
            let two = GlobalArray::<u64, 2>::distributed(one.team(), [9, 70], [Format::Cyclic(2), Format::Whole])?;
            let link_two = two.link(&world, if in_first { 2 } else { 0 }, 7)?;
            let (out, link_out, into, link_into) =
                if in_first { (one, link_one, &two, &link_two) } else { (&two, &link_two, one, link_one) };
            out.map(|[i, j], _| (100 * i + j) as u64)?;
            let sending = link_out.start_send()?;
            link_into.start_recv()?.wait()?;
            sending.wait()?;
            into.for_each(|[i, j], x| assert_eq!(*x, (100 * i + j) as u64))?;
            drop(link_two);
            two.free()
        })
    })
    .unwrap();
}

/// Centralized transfers wait until no rank of the task still accesses the array.
#[test]
fn centralized_transfer_waits_for_accesses_of_the_task() {
    Job::threads(4, |job| {
        let world = job.world()?;
        linked(&world, 2, [4, 4], Some(Strategy::Centralized), |array, link, in_first| {
            array.map(|_, _| 7)?;
            array.sync()?; // `map` waits for no other rank.
            for round in 0..20 {
                // The second rank of each task still reads elements of the first one.
                if array.team().rank() == 1 {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                    assert_eq!(array.get_element([0, 0])?, 7, "{round}");
                }
                if in_first { link.send()? } else { link.recv()? }
            }
            Ok(())
        })
    })
    .unwrap();
}
