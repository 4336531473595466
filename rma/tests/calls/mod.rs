//! Remote calls: results, errors and panics, calls from inside functions, data in place, termination, distributed
//! values.

mod asynchronous;
mod callbacks;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use crate::checks::config::{Config, Memory, quick, table, verbs, within};
use farside_rma::calls::{Caller, Calls, Dist};
use farside_rma::prelude::*;
use serde::{Deserialize, Serialize};

/// Runs `f` with the given numbers of ranks over every device.
fn everywhere(ranks: &[u32], f: impl Fn(&Team, &Config) -> Result<()> + Sync + Send + Copy + 'static) {
    let most = if verbs() && quick() { 1 } else { 12 };
    let allocated = |c: &&Config| c.memory == Memory::Allocated || c.device.is_some();
    // Skips simulations, since thread-local variables count per rank, and all ranks of a simulation are on one thread.
    for config in table().iter().filter(allocated).filter(|c| c.seed.is_none()).take(most) {
        for n in ranks.iter().copied() {
            let result = within(60, &format!("{} with {n} ranks", config.name), move || {
                config.run(n, |team| f(team, config)).map(drop)
            });
            result.unwrap_or_else(|e| panic!("{}, {n} ranks: {e}", config.name));
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Point,
    Named { name: String, corners: Vec<(i32, i32)> },
}

fn mirrored(_: &Caller<'_>, shape: Shape) -> std::result::Result<Shape, String> {
    match shape {
        Shape::Point => Err("a point has no mirror image".into()),
        Shape::Named { name, corners } => Ok(Shape::Named {
            name: name.chars().rev().collect(),
            corners: corners.iter().map(|(x, y)| (-x, *y)).collect(),
        }),
    }
}

#[test]
fn results_of_every_size_come_back() {
    everywhere(&[1, 2, 4], |team, _| {
        let calls = Calls::new(team)?;
        calls.register(mirrored)?;
        let me = team.rank();
        let who = calls.register(move |caller, ()| (caller.rank, me))?;
        let grown = calls.register_short(|_, (byte, len): (u8, usize)| vec![byte; len])?;
        for rank in 0..team.size() {
            assert_eq!(calls.call(rank, who, ()).wait()?, (me, rank));
            for len in [0, 1, 20, 90, 130, 5_000, 300_000] {
                let shape = Shape::Named { name: "ab".repeat(len), corners: vec![(1, 2)] };
                let expected = Shape::Named { name: "ba".repeat(len), corners: vec![(-1, 2)] };
                assert_eq!(calls.call(rank, mirrored, shape).wait()?, Ok(expected));
                assert_eq!(calls.call(rank, grown, (7, len)).wait()?, vec![7; len]);
            }
            assert!(calls.call(rank, mirrored, Shape::Point).wait()?.unwrap_err().contains("mirror"));
        }
        let all: Vec<_> = (0..team.size()).map(|rank| (me, rank)).collect();
        assert_eq!(calls.call_all(who, ()).wait()?, all);
        // Many calls are in progress, and tests complete them in another order.
        let mut open: Vec<_> = (0..600).map(|i| (i, calls.call(i % team.size(), grown, (i as u8, 3)))).collect();
        while let Some((i, mut call)) = open.pop() {
            let result = loop {
                if let Some(result) = call.test()? {
                    break result;
                }
            };
            assert_eq!(result, [i as u8; 3]);
            assert_eq!(call.test().unwrap_err().kind(), ErrorKind::BadArgument);
        }
        drop(calls.call(0, who, ()));
        calls.free()
    });
}

fn spread(caller: &Caller<'_>, depth: u32) {
    VISITS.with(|visits| visits.set(visits.get() + 1));
    if depth > 0 {
        let (calls, me) = (caller.calls(), caller.calls().team().rank());
        for step in 1..=2 {
            calls.cast((me + step) % calls.team().size(), spread, depth - 1).unwrap();
        }
    }
}

thread_local! {
    /// Ranks of a test are threads.
    static VISITS: Cell<u64> = const { Cell::new(0) };
}

#[test]
fn quiesce_waits_for_calls_that_calls_have_made() {
    everywhere(&[1, 2, 3], |team, _| {
        let calls = Calls::new(team)?;
        calls.register(spread)?;
        let depth = if verbs() && quick() { 5 } else { 9 };
        for round in 1..=2 {
            VISITS.with(|visits| visits.set(0));
            team.barrier()?;
            calls.cast(0, spread, depth)?;
            if round == 2 && team.rank() == 0 {
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
            calls.quiesce()?;
            let mut sum = [VISITS.with(Cell::get)];
            team.allreduce(&mut sum, Op::Sum)?;
            assert_eq!(sum[0], team.size() as u64 * ((2 << depth) - 1));
        }
        calls.quiesce()?;
        calls.free()
    });
}

#[test]
fn function_waits_for_a_call_of_its_own() {
    fn factorial(caller: &Caller<'_>, n: u64) -> u64 {
        let calls = caller.calls();
        let next = (calls.team().rank() + 1) % calls.team().size();
        if n < 2 { 1 } else { n * calls.call(next, factorial, n - 1).wait().unwrap() }
    }
    everywhere(&[2, 3], |team, _| {
        let calls = Calls::new(team)?;
        calls.register(factorial)?;
        for rank in 0..team.size() {
            assert_eq!(calls.call(rank, factorial, 6).wait()?, 720);
        }
        calls.free()
    });
}

/// Functions with too deeply nested waits get an error, and do not hang.
#[test]
fn functions_that_wait_too_deep_get_an_error() {
    fn descend(caller: &Caller<'_>, n: u32) -> std::result::Result<u32, String> {
        let calls = caller.calls();
        let next = (calls.team().rank() + 1) % calls.team().size();
        if n == 0 {
            return Ok(0);
        }
        let below = calls.call(next, descend, n - 1).wait().map_err(|e| format!("{:?}: {e}", e.kind()))?;
        below.map(|depth| depth + 1)
    }
    everywhere(&[1, 2], |team, _| {
        let calls = Calls::new(team)?;
        calls.register(descend)?;
        let depth = 7 * team.size() as u32;
        if team.rank() == 0 {
            assert_eq!(calls.call(0, descend, depth).wait()?, Ok(depth));
            let e = calls.call(0, descend, 40).wait()?.unwrap_err();
            assert!(e.contains("Limit"), "{e}");
        }
        calls.free()
    });
}

#[test]
fn what_a_function_must_not_do_is_refused() {
    fn inside(caller: &Caller<'_>, what: u8) -> bool {
        let (calls, me) = (caller.calls(), caller.calls().team().rank());
        let done = match what {
            0 => calls.quiesce(),
            1 => calls.register(|_, ()| ()).map(drop),
            2 => calls.call(me, inside, 9).test().map(drop),
            _ => Ok(()),
        };
        done.is_err_and(|e| e.kind() == ErrorKind::InCallback)
    }
    everywhere(&[2], |team, _| {
        let (calls, others) = (Calls::new(team)?, Calls::new(team)?);
        let peer = 1 - team.rank();
        calls.register(inside)?;
        for what in 0..3 {
            assert!(calls.call(peer, inside, what).wait()?, "{what}");
        }
        let short = calls.register_short(|caller, (): ()| {
            let (calls, me) = (caller.calls(), caller.calls().team().rank());
            let errors = [calls.call(me, inside, 9).wait().map(drop), calls.cast(me, inside, 9)];
            errors.map(|done| done.is_err_and(|e| e.kind() == ErrorKind::InCallback))
        })?;
        assert_eq!(calls.call(peer, short, ()).wait()?, [true; 2]);
        let e = others.call(peer, short, ()).wait().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::BadArgument, "a function of other calls: {e}");
        others.free()?;
        calls.free()
    });
}

#[test]
fn panics_and_errors_come_back() {
    everywhere(&[2], |team, _| {
        let calls = Calls::new(team)?;
        let peer = 1 - team.rank();
        let divided = calls.register(|_, (a, b): (u32, u32)| a / b)?;
        let short = calls.register_short(|_, text: String| assert!(text.is_empty(), "got {text:?}"))?;
        let e = calls.call(peer, divided, (1, 0)).wait().unwrap_err();
        assert!(e.kind() == ErrorKind::Aborted && e.to_string().contains("divide by zero"), "{e}");
        let e = calls.call(peer, short, "xyz".to_owned()).wait().unwrap_err();
        assert!(e.kind() == ErrorKind::Aborted && e.to_string().contains("got \"xyz\""), "{e}");
        // Neither prevents further calls.
        calls.call(peer, short, String::new()).wait()?;
        assert_eq!(calls.call(peer, divided, (6, 3)).wait()?, 2);
        let e = calls.call(7, divided, (6, 3)).wait().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NoSuchRank);
        assert_eq!(calls.cast(7, divided, (6, 3)).unwrap_err().kind(), ErrorKind::NoSuchRank);
        let e = calls.call(peer, mirrored, Shape::Point).wait().unwrap_err();
        assert!(e.kind() == ErrorKind::BadArgument && e.to_string().contains("mirrored"), "{e}");
        Calls::new(team)?.free()?;
        calls.free()
    });
}

#[test]
fn different_functions_are_refused_at_every_rank() {
    everywhere(&[3], |team, _| {
        let calls = Calls::new(team)?;
        let refused = if team.rank() == 1 {
            calls.register(|_, (): ()| 1u8).map(drop)
        } else {
            calls.register(|_, (): ()| 1u16).map(drop)
        };
        let e = refused.unwrap_err();
        assert!(
            e.kind() == ErrorKind::Mismatch && e.to_string().contains("u8") && e.to_string().contains("u16"),
            "{e}"
        );
        calls.free()
    });
}

#[test]
fn data_is_seen_in_place() {
    everywhere(&[1, 2], |team, _| {
        let calls = Calls::new(team)?;
        let peer = team.size() - 1 - team.rank();
        let kept = Rc::new(RefCell::new(HashMap::<String, Vec<u64>>::new()));
        let own = Rc::clone(&kept);
        let keep = calls.register_with(move |caller, name: String, data: &[u64]| {
            own.borrow_mut().insert(format!("{name} of {}", caller.rank), data.to_vec());
            data.iter().sum::<u64>()
        })?;
        for (len, name) in [(0, "none"), (1, "one"), (100, "some"), (3_000, "more"), (200_000, "many")] {
            let data: Vec<u64> = (0..len).collect();
            let long = name.repeat(40);
            for name in [name, &long] {
                assert_eq!(calls.call_with(peer, keep, name.to_owned(), &data)?.wait()?, data.iter().sum::<u64>());
            }
            calls.cast_with(peer, keep, format!("cast {name}"), &data)?;
            calls.quiesce()?;
            assert_eq!(kept.borrow()[&format!("cast {name} of {peer}")], data);
        }
        assert_eq!(kept.borrow().len(), 15);
        calls.free()
    });
}

/// Sends more casts than may be in progress, to ranks that do not enter the runtime for a while.
#[test]
fn casts_beyond_the_limit_wait_and_all_run() {
    everywhere(&[2, 3], |team, _| {
        let calls = Calls::new(team)?;
        let sum = Rc::new(Cell::new(0u64));
        let (own, other) = (Rc::clone(&sum), Rc::clone(&sum));
        let add = calls.register(move |_, x: u64| own.set(own.get() + x))?;
        let short = calls.register_short(move |_, x: u64| other.set(other.get() + x))?;
        let rounds = if verbs() && quick() { 600 } else { 3000 };
        for i in 0..rounds {
            for rank in 0..team.size() {
                if i % 2 == 0 { calls.cast(rank, add, i) } else { calls.cast(rank, short, i) }?;
            }
            if i % 500 == 0 && team.rank() == 0 {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        }
        calls.cast_all(add, 1_000_000)?;
        calls.quiesce()?;
        assert_eq!(sum.get(), team.size() as u64 * ((0..rounds).sum::<u64>() + 1_000_000));
        calls.free()
    });
}

#[test]
fn distributed_values() {
    everywhere(&[1, 3], |team, _| {
        let (calls, me) = (Calls::new(team)?, team.rank());
        let value = Dist::new(&calls, vec![me as u32; 3])?;
        team.barrier()?;
        for rank in 0..team.size() {
            assert_eq!(value.fetch(rank).wait()?, [rank as u32; 3]);
        }
        team.barrier()?;
        value.local_mut()?.push(9);
        team.barrier()?;
        assert_eq!(value.fetch((me + 1) % team.size()).wait()?.len(), 4);
        team.barrier()?;
        {
            let _held = value.local_mut()?;
            assert_eq!(value.fetch(me).wait().unwrap_err().kind(), ErrorKind::WrongEpoch);
            assert_eq!(value.local().map(drop).unwrap_err().kind(), ErrorKind::WrongEpoch);
        }
        team.barrier()?;
        drop(value);
        calls.free()
    });
}

#[cfg(feature = "async")]
#[test]
fn calls_are_awaited_beside_each_other() {
    use farside_rma::block_on;
    everywhere(&[2, 3], |team, _| {
        let calls = Calls::new(team)?;
        let p = team.size();
        let double = calls.register(|_, x: u64| 2 * x)?;
        let name = Dist::new(&calls, team.rank().to_string())?;
        let (a, b, all, names) = block_on(async {
            // The future is polled once, and then its result is waited for.
            let mut polled = calls.call_all(double, 1);
            tokio::select! {
                biased;
                early = &mut polled => assert_eq!(early.unwrap(), vec![2; p]),
                () = std::future::ready(()) => assert_eq!(polled.wait().unwrap(), vec![2; p]),
            }
            tokio::join!(
                calls.call(0, double, 4),
                calls.call(p - 1, double, 5),
                calls.call_all(double, 6),
                name.fetch(1)
            )
        })?;
        assert_eq!((a?, b?, all?, names?), (8, 10, vec![12; p], "1".to_owned()));
        drop(name);
        calls.free()
    });
}
