//! Whole arrays between tasks.

use farside_rma::global_array::Format;
use farside_rma::prelude::*;

use super::config::quick;
use super::distributed_pairs;

/// Splits the ranks into two tasks, which exchange arrays in every pair of formats, both ways, again and again.
#[test]
fn arrays_travel_between_tasks() {
    let all = distributed_pairs(&[Format::Block, Format::Cyclic(1), Format::Cyclic(2), Format::Whole]);
    let sides: &[(u32, u32)] = if quick() { &[(1, 2)] } else { &[(1, 1), (2, 1), (1, 3), (2, 4), (3, 3)] };
    for (first, second) in sides.iter().copied() {
        Job::threads(first + second, |job| {
            let world = job.world()?;
            let in_first = world.rank() < first as usize;
            let Some(task) = world.split(Some(u32::from(in_first)), 0)? else { unreachable!() };
            let other = if in_first { first as usize } else { 0 };
            let value = |[row, column]: [usize; 2], round: u64| round * 10_000 + (100 * row + column) as u64;
            for (i, own) in all.iter().enumerate() {
                for (j, theirs) in all.iter().enumerate().filter(|(j, _)| (i + j) % if quick() { 5 } else { 2 } == 0) {
                    let array = GlobalArray::distributed(&task, [9, 6], if in_first { *own } else { *theirs })?;
                    let link = array.link(&world, other, (i * 20 + j) as i32)?;
                    for round in 1..=3u64 {
                        // There and back.
                        for forth in [true, false] {
                            if forth == in_first {
                                array.for_each(|index, x: &mut u64| *x = value(index, round) + u64::from(forth))?;
                                let transfer = link.start_send()?;
                                assert_eq!(array.gather(&[[0, 0]]).unwrap_err().kind(), ErrorKind::WrongEpoch);
                                assert!(link.start_send().is_err());
                                transfer.wait()?;
                            } else {
                                let transfer = link.start_recv()?;
                                while !transfer.test()? {}
                                drop(transfer);
                                let expected = |index| value(index, round) + u64::from(forth);
                                array.for_each(|index, x| assert_eq!(*x, expected(index), "{own:?} {theirs:?}"))?;
                            }
                        }
                    }
                    array.free()?;
                }
            }
            Ok(())
        })
        .unwrap();
    }
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
        if first {
            let ints = GlobalArray::<i32, 1>::new(&task, [8])?;
            assert_eq!(ints.recv_from(&world, other, 2).unwrap_err().kind(), ErrorKind::Mismatch);
            ints.free()?;
        } else {
            assert_eq!(array.send_to(&world, other, 2).unwrap_err().kind(), ErrorKind::Mismatch);
        }
        // A transfer that is leaked keeps the elements until the array ends.
        let array2 = GlobalArray::<u8, 1>::new(&task, [6])?;
        let link = array2.link(&world, other, 3)?;
        std::mem::forget(if first { link.start_send()? } else { link.start_recv()? });
        assert_eq!(array2.with_local(|_| Ok::<(), Error>(())).unwrap_err().kind(), ErrorKind::WrongEpoch);
        drop(link);
        drop(array2);
        let array3 = GlobalArray::<u8, 1>::new(&task, [600_000])?;
        let link = array3.link(&world, other, 4)?;
        std::mem::forget(if first { link.start_send()? } else { link.start_recv()? });
        drop(link);
        assert_eq!(array3.free().unwrap_err().kind(), ErrorKind::WrongEpoch);
        world.barrier()?;
        array.free()
    })
    .unwrap();
}
