//! Arguments and calls that are refused.

use farside_rma::aggregate::{Conveyor, Options};
use farside_rma::prelude::*;

use super::everywhere;

fn kind<R>(result: Result<R>) -> Option<ErrorKind> {
    result.err().map(|e| e.kind())
}

#[test]
fn wrong_arguments_are_refused() {
    everywhere(&[3], |team, _| {
        let table = Symmetric::<f64>::allocate(team, 4)?;
        assert_eq!(kind(table.aggregated(Op::Bor)), Some(ErrorKind::Unsupported));
        let mut sums = table.aggregated(Op::Sum)?;
        assert_eq!(kind(sums.add(3, 0, 1.0)), Some(ErrorKind::NoSuchRank));
        assert_eq!(kind(sums.add(0, 4, 1.0)), Some(ErrorKind::OutOfRange));
        assert_eq!(kind(sums.flush(3)), Some(ErrorKind::NoSuchRank));
        sums.add(0, 3, 0.5)?;
        sums.finish()?;
        assert_eq!(table.get_value(0, 3)?, 1.5);
        // One rank's wrong place is its own error, and the others get their elements.
        let mut found = 0.0;
        let place = if team.rank() == 1 { (0, 4) } else { (0, 3) };
        let gathered = table.gather_aggregated(&[place], |_, value| found = value);
        let expected = if team.rank() == 1 { (Some(ErrorKind::OutOfRange), 0.0) } else { (None, 1.5) };
        assert_eq!((kind(gathered), found), expected);
        table.free()
    });
}

#[test]
fn options_are_checked_and_compared() {
    everywhere(&[3], |team, _| {
        let with = |bytes, hops| Conveyor::<u32>::with(team, Options { bytes, hops });
        let e = with(1000, Some(4)).unwrap_err();
        assert!(e.kind() == ErrorKind::BadArgument && e.to_string().contains("4 hops"), "{e}");
        assert_eq!(kind(with(1000, Some(0))), Some(ErrorKind::BadArgument));
        assert_eq!(kind(with(30, None)), Some(ErrorKind::BadArgument));
        let e = with(1000 + team.rank() / 2, None).unwrap_err();
        assert!(e.kind() == ErrorKind::Mismatch && e.to_string().contains("1001"), "{e}");
        let other = if team.rank() == 1 { kind(Conveyor::<u32>::new(team)) } else { kind(Conveyor::<i32>::new(team)) };
        assert_eq!(other, Some(ErrorKind::Mismatch));
        let mut conveyor = with(1000, None)?;
        assert_eq!(kind(conveyor.push(3, 1)), Some(ErrorKind::NoSuchRank));
        while conveyor.advance(true)? {}
        conveyor.free()
    });
}

/// The owner applies updates while it is inside the runtime, so its memory must not be borrowed.
#[test]
fn exclusive_access_is_refused_until_updates_are_finished() {
    everywhere(&[2], |team, _| {
        let table = Symmetric::<u64>::allocate(team, 2)?;
        let sums = table.aggregated(Op::Sum)?;
        if !table.is_mapped() {
            let refused = table.exclusive(|_| Ok::<(), Error>(()));
            assert_eq!(kind(refused), Some(ErrorKind::WrongEpoch));
        }
        sums.finish()?;
        table.exclusive(|own| {
            own.fill(1);
            assert_eq!(kind(table.aggregated(Op::Sum)), Some(ErrorKind::WrongEpoch));
            Ok::<(), Error>(())
        })?;
        let array = GlobalArray::<u64, 1>::new(team, [4])?;
        let sums = array.aggregated(Op::Sum)?;
        assert_eq!(kind(array.with_local(|_| Ok::<(), Error>(()))), Some(ErrorKind::WrongEpoch));
        assert_eq!(kind(array.gather(&[[0]])), Some(ErrorKind::WrongEpoch));
        assert_eq!(kind(array.aggregated(Op::Sum)), Some(ErrorKind::WrongEpoch));
        sums.finish()?;
        array.with_local(|_| Ok::<(), Error>(()))?;
        array.free()?;
        table.free()
    });
}

/// Updates that are dropped are lost, and the table can be used further.
#[test]
fn dropped_updates_leave_the_memory_usable() {
    everywhere(&[2], |team, _| {
        let table = Symmetric::<u64>::allocate(team, 2)?;
        let mut sums = table.aggregated(Op::Sum)?;
        (0..10_000).try_for_each(|_| sums.add(1 - team.rank(), 0, 1))?;
        drop(sums);
        table.barrier()?;
        let mut sums = table.aggregated(Op::Sum)?;
        sums.add(1 - team.rank(), 1, 1)?;
        sums.finish()?;
        table.exclusive(|own| {
            assert_eq!(own[1], 1);
            Ok::<(), Error>(())
        })?;
        table.free()
    });
}
