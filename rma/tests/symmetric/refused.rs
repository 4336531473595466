//! Rejected calls, whose errors name the reason.

use std::panic::{AssertUnwindSafe, catch_unwind};

use farside_rma::prelude::*;

use super::everywhere;

#[test]
fn places_outside() {
    everywhere(&[2], |team, _| {
        let (table, flags) = (Symmetric::<u32>::allocate(team, 10)?, Flags::allocate(team, 1)?);
        let of = |e: Error| (e.kind(), e.to_string());
        let outside = |r: Result<()>| assert_eq!(r.unwrap_err().kind(), ErrorKind::OutOfRange);
        outside(table.put(&[1; 11], 0, 0));
        outside(table.put(&[1; 2], 1, 9));
        outside(table.put(&[1], 1, usize::MAX / 2));
        outside(table.get(&mut [0; 2], 0, 9));
        // The call is refused before memory is allocated.
        for count in [2, usize::MAX / 8, usize::MAX] {
            outside(table.get_as::<f32>(0, 9, count).map(drop));
        }
        outside(table.put_nbi(vec![0; 11], 1, 0).map(drop));
        outside(table.put_own(9..11, 0, 0));
        outside(table.put_own(0..2, 1, 9));
        outside(table.put_strided(&[1, 2], 0, 5, 5));
        outside(table.get_indexed(&mut [1, 2], 1, &[0, 10]));
        outside(table.atomic(1, 10).map(drop));
        outside(flags.set(1, 1, 1));
        outside(flags.add(1, 1, 1));
        outside(flags.get(1).map(drop));
        outside(flags.wait_until(7, eq(0)).map(drop));
        outside(table.local().load(10).map(drop));
        table.put_value(2, team.rank(), 0)?;
        assert_eq!(table.get_as::<char>(team.rank(), 0, 1)?, ['\u{2}']);
        table.put_value(0xd800, team.rank(), 0)?;
        let no_char = table.get_as::<char>(team.rank(), 0, 1).unwrap_err();
        assert!(no_char.to_string().contains("`char`"), "{no_char}");
        team.barrier()?;
        let (kind, text) = of(table.put(&[1], 2, 0).unwrap_err());
        assert!(kind == ErrorKind::NoSuchRank && text.contains("rank 2"), "{text}");
        outside(table.put_notify(&[1; 10], 1, 0, &flags, 1, 1));
        outside(table.put_notify_nbi(vec![1; 10], 1, 0, &flags, 1, 1).map(drop));
        table.put_indexed(&[4, 4], 1 - team.rank(), &[3, 3])?;
        // All objects remain usable after the errors.
        table.put(&[5; 10], 1 - team.rank(), 0)?;
        table.barrier()?;
        assert_eq!(table.local().to_vec()?, [5; 10]);
        flags.free()?;
        table.free()
    });
}

#[test]
fn mismatches_are_refused_at_every_rank() {
    everywhere(&[3], |team, _| {
        let me = team.rank();
        let e = Symmetric::<u64>::allocate(team, 5 + usize::from(me == 1)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Mismatch, "{e}");
        assert!(e.to_string().contains("5 elements") == (me == 1) || e.to_string().contains("6 elements"), "{e}");
        let e = if me == 2 {
            Symmetric::<[f32; 2]>::allocate(team, 5).map(drop).unwrap_err()
        } else {
            Symmetric::<u64>::allocate(team, 5).map(drop).unwrap_err()
        };
        let text = e.to_string();
        assert!(e.kind() == ErrorKind::Mismatch && text.contains("`u64`") && text.contains("`[f32; 2]`"), "{text}");
        // One of the ranks creates another kind of object with the same size and element type.
        type Make = fn(&Team) -> Result<()>;
        let makes: [(&str, Make); 4] = [
            ("flags", |team| Flags::allocate(team, 4).map(drop)),
            ("symmetric memory", |team| Symmetric::<u64>::allocate(team, 5).map(drop)),
            ("a lock window", |team| LockWindow::<u64>::allocate(team, 5).map(drop)),
            ("a shared window", |team| SharedWindow::<u64>::allocate(team, 5).map(drop)),
        ];
        for (i, one) in makes.iter().enumerate() {
            for other in &makes[i + 1..] {
                let e = (if me == 1 { one } else { other }).1(team).unwrap_err();
                let text = e.to_string();
                assert!(e.kind() == ErrorKind::Mismatch && text.contains(one.0) && text.contains(other.0), "{text}");
            }
        }
        Ok(())
    });
}

#[test]
fn flags_of_another_team() {
    everywhere(&[2], |team, _| {
        let Some(other) = team.split(Some(0), 0)? else { unreachable!() };
        let (table, flags) = (Symmetric::<u32>::allocate(team, 1)?, Flags::allocate(&other, 1)?);
        let e = table.put_notify(&[1], 0, 0, &flags, 0, 1).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::BadArgument, "{e}");
        flags.free()?;
        table.free()
    });
}

#[test]
fn operations_inside_exclusive_access() {
    everywhere(&[2], |team, _| {
        let table = Symmetric::<u32>::allocate(team, 4)?;
        let refused = |r: Result<()>| assert_eq!(r.unwrap_err().kind(), ErrorKind::WrongEpoch);
        let view = table.local();
        table.exclusive(|own| {
            own.fill(3);
            refused(table.put(&[1], 1, 0));
            refused(table.get_value(0, 0).map(drop));
            refused(table.put_nbi(vec![1], 0, 0).map(drop));
            refused(table.put_own(0..1, 0, 1));
            refused(table.atomic(0, 0)?.fetch_add(1).map(drop));
            refused(table.atomic(0, 0)?.add(1));
            refused(view.load(0).map(drop));
            refused(view.store(0, 1));
            refused(table.exclusive(|_| Ok::<(), Error>(())));
            Ok::<(), Error>(())
        })?;
        assert_eq!(view.to_vec()?, [3; 4]);
        // An error of any type, and a panic, leave the array open.
        let error: std::result::Result<(), Box<dyn std::error::Error>> = table.exclusive(|_| Err("no".into()));
        assert_eq!(error.unwrap_err().to_string(), "no");
        let panicked = catch_unwind(AssertUnwindSafe(|| table.exclusive(|_| -> Result<()> { panic!("stop") })));
        assert!(panicked.is_err());
        table.put(&[9], 1 - team.rank(), 0)?;
        table.barrier()?;
        assert_eq!(view.load(0)?, 9);
        table.free()
    });
}
