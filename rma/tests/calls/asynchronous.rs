//! Async functions: what they await, how often they are polled, their errors, and their end.

use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use farside_rma::calls::{AsyncCaller, CallingAll, Calls, Function};
use farside_rma::prelude::*;

use super::everywhere;

#[test]
fn async_functions_wait_for_each_other_as_deep_as_they_like() {
    everywhere(&[1, 2, 4], |team, _| {
        let calls = Calls::new(team)?;
        let own: Rc<Cell<Option<Function<u64, u64>>>> = Rc::default();
        let name = Rc::clone(&own);
        let sum_to = calls.register_async(move |caller: AsyncCaller, n: u64| {
            let sum_to = name.get().expect("it is registered before it is called");
            async move {
                let (calls, size) = (caller.calls(), caller.calls().team().size());
                let right = (calls.team().rank() + 1) % size;
                if n == 0 { 0 } else { n + calls.call(right, sum_to, n - 1).await.unwrap() }
            }
        })?;
        own.set(Some(sum_to));
        team.barrier()?;
        // Plain functions may wait in each other 8 times.
        for rank in 0..team.size() {
            assert_eq!(calls.call(rank, sum_to, 100).wait()?, 5050);
        }
        own.set(None);
        calls.free()
    });
}

#[test]
fn async_function_awaits_calls_and_operations_beside_each_other() {
    everywhere(&[1, 2, 3], |team, _| {
        let calls = Calls::new(team)?;
        let (me, size) = (team.rank(), team.size());
        let table = Rc::new(Symmetric::<u64>::allocate(team, 4)?);
        table.put(&[me as u64; 4], me, 0)?;
        table.barrier()?;
        let square = calls.register(|_, x: u64| x * x)?;
        let memory = Rc::clone(&table);
        let gather = calls.register_async(move |caller: AsyncCaller, from: usize| {
            let memory = Rc::clone(&memory);
            async move {
                let own = memory.get_nbi(vec![0; 2], from, 1).map_err(|e| e.to_string())?;
                let squares: CallingAll<u64> =
                    (0..4).map(|i| caller.calls().call(i as usize % size, square, i)).collect();
                let squares = squares.await.map_err(|e| e.to_string())?;
                let own = own.await.map_err(|e| e.to_string())?;
                Ok::<_, String>((squares, own))
            }
        })?;
        // Many at once, which the target finishes in any order.
        let all: Vec<_> = (0..50).map(|i| (i % size, calls.call((i + me) % size, gather, i % size))).collect();
        for (from, call) in all {
            assert_eq!(call.wait()?.unwrap(), (vec![0, 1, 4, 9], vec![from as u64; 2]));
        }
        // Casts run too before `quiesce` returns.
        let done = Rc::new(Cell::new(0));
        let count = Rc::clone(&done);
        let counted = calls.register_async(move |caller: AsyncCaller, x: u64| {
            let count = Rc::clone(&count);
            async move {
                let x = caller.calls().call(caller.rank, square, x).await.unwrap();
                count.set(count.get() + x);
            }
        })?;
        (0..100).try_for_each(|_| calls.cast_all(counted, 3))?;
        calls.quiesce()?;
        assert_eq!(done.get(), 900 * size as u64);
        calls.free()?;
        Rc::into_inner(table).expect("the functions were freed").free()
    });
}

#[test]
fn async_function_that_waits_is_polled_for_what_it_awaits_alone() {
    everywhere(&[2], |team, _| {
        let calls = Calls::new(team)?;
        let (me, other) = (team.rank(), 1 - team.rank());
        let echo = calls.register(|_, x: u64| x)?;
        let polls = Rc::new(Cell::new(0));
        let count = Rc::clone(&polls);
        // Awaits the answer of a rank that answers others first.
        let late = calls.register_async(move |caller: AsyncCaller, ()| {
            let count = Rc::clone(&count);
            async move {
                let mut call = caller.calls().call(caller.rank, echo, 7);
                poll_fn(|context| {
                    count.set(count.get() + 1);
                    Pin::new(&mut call).poll(context)
                })
                .await
                .unwrap()
            }
        })?;
        if me == 0 {
            let call = calls.call(other, late, ());
            (0..200).try_for_each(|x| calls.call(other, echo, x).wait().map(|y| assert_eq!(x, y)))?;
            assert_eq!(call.wait()?, 7);
        }
        team.barrier()?;
        assert_eq!(polls.get(), if me == 1 { 2 } else { 0 });
        calls.free()
    });
}

#[test]
fn errors_and_panics_of_async_functions_come_back() {
    everywhere(&[2], |team, _| {
        let calls = Calls::new(team)?;
        let (me, other) = (team.rank(), 1 - team.rank());
        let echo = calls.register(|_, x: u64| x)?;
        let fails = calls.register_async(move |caller: AsyncCaller, what: u8| async move {
            match what {
                0 => panic!("at once"),
                1 => {
                    caller.calls().call(caller.rank, echo, 1).await.unwrap();
                    panic!("after an await")
                }
                // Calls that a function must not make.
                2 => caller.calls().register(|_, ()| ()).unwrap_err().kind() == ErrorKind::InCallback,
                3 => caller.calls().quiesce().unwrap_err().kind() == ErrorKind::InCallback,
                _ => caller.calls().call(99, echo, 1).await.unwrap_err().kind() == ErrorKind::NoSuchRank,
            }
        })?;
        for (what, text) in [(0, "at once"), (1, "after an await")] {
            let e = calls.call(other, fails, what).wait().unwrap_err();
            assert_eq!((e.kind(), e.to_string().contains(text)), (ErrorKind::Aborted, true), "rank {me}: {e}");
        }
        for what in 2..5 {
            assert!(calls.call(other, fails, what).wait()?, "{what}");
        }
        calls.free()
    });
}

#[test]
fn function_that_never_ends_is_dropped_with_the_job() {
    struct Noticed(Arc<AtomicU32>);
    impl Drop for Noticed {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let dropped = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&dropped);
    Job::threads(2, move |job| {
        let team = job.world()?;
        let calls = Calls::new(&team)?;
        let own = Arc::clone(&count);
        let never = calls.register_async(move |_: AsyncCaller, ()| {
            let noticed = Noticed(Arc::clone(&own));
            async move {
                pending::<()>().await;
                drop(noticed);
            }
        })?;
        let ping = calls.register(|_, ()| ())?;
        calls.cast(1 - team.rank(), never, ())?;
        calls.call(1 - team.rank(), ping, ()).wait()?;
        team.barrier()?;
        assert_eq!(count.load(SeqCst), 0);
        team.barrier()
    })
    .unwrap();
    assert_eq!(dropped.load(SeqCst), 2);
}
