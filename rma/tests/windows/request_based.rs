#![allow(unsafe_code)]
//! Request-based operations, with every way to complete them.

use farside_rma::raw::{Options, RawWindow};
use farside_rma::{Assert, LockWindow, Op, Selection};

use crate::checks::config::{Memory, everywhere, everywhere_with};
use crate::checks::requests::{self, Complete};

macro_rules! matrix {
    ($($name:ident: $check:path, $how:ident;)*) => { $(
        #[test]
        fn $name() {
            everywhere(|team, config| {
                // All ranks of a simulation are on one thread, which can run the runtime of one of them only.
                if config.seed.is_some() && matches!(Complete::$how, Complete::Await) {
                    return Ok(());
                }
                $check(team, config, Complete::$how)
            });
        }
    )* };
}

matrix! {
    rput_lock_all_wait: requests::rput, Wait;
    rput_lock_all_test: requests::rput, Test;
    rput_lock_all_await: requests::rput, Await;
    rput_lock_all_left_to_the_epoch: requests::rput, Epoch;
    rget_lock_all_wait: requests::rget, Wait;
    rget_lock_all_test: requests::rget, Test;
    rget_lock_all_await: requests::rget, Await;
    rget_lock_all_left_to_the_epoch: requests::rget, Epoch;
    raccumulate_lock_all_wait: requests::raccumulate, Wait;
    raccumulate_lock_all_test: requests::raccumulate, Test;
    raccumulate_lock_all_await: requests::raccumulate, Await;
    raccumulate_lock_all_left_to_the_epoch: requests::raccumulate, Epoch;
    rget_accumulate_lock_all_wait: requests::rget_accumulate, Wait;
    rget_accumulate_lock_all_test: requests::rget_accumulate, Test;
    rget_accumulate_lock_all_await: requests::rget_accumulate, Await;
    rget_accumulate_lock_all_left_to_the_epoch: requests::rget_accumulate, Epoch;
    rfetch_and_op_rcompare_and_swap_lock_all_wait: requests::rfetch_and_op_rcompare_and_swap, Wait;
    rfetch_and_op_rcompare_and_swap_lock_all_await: requests::rfetch_and_op_rcompare_and_swap, Await;
    rfetch_and_op_rcompare_and_swap_lock_all_left_to_the_epoch: requests::rfetch_and_op_rcompare_and_swap, Epoch;
}

#[test]
fn operations_that_are_complete_when_they_return_lock_all() {
    everywhere(requests::now);
}

/// A request in a fence epoch, together with accumulates that are deferred to the end of the epoch.
#[test]
fn accumulate_fence_of_a_request_is_complete_after_those_before_it() {
    everywhere_with(&[2, 3], |team, config| {
        let mut memory = vec![0u64; 4];
        // SAFETY: the memory outlives the window.
        let w = unsafe { RawWindow::create(team, memory.as_mut_ptr().cast(), 32, Options { locks: false }) }?;
        let (me, one) = (team.rank(), 1u64);
        let (mut old, none) = (9u64, std::ptr::null_mut());
        w.fence(Assert::empty())?;
        let offset = 8 * (me % 4);
        // SAFETY: the variables outlive the epoch.
        let add = |op, old| unsafe { w.accumulate(op, &raw const one, old, 1, 0, offset) };
        add(Op::Sum, none)?;
        let request = w.request(|| add(Op::NoOp, &raw mut old))?;
        w.wait_request(&request, 0)?;
        assert_eq!(old, 1, "{}", config.name);
        w.fence(Assert::NOSUCCEED)?;
        assert!(me != 0 || memory[..team.size()].iter().all(|x| *x == 1), "{memory:?}");
        w.free()
    });
}

/// Requests between selections, each completed by a wait, in another order than that of their issue.
#[test]
fn rput_rget_raccumulate_selected_lock_all_wait() {
    everywhere_with(&[2], |team, config| {
        let (me, peer) = (team.rank(), 1 - team.rank());
        let window = match config.memory {
            Memory::Allocated => LockWindow::<u64>::allocate(team, 12)?,
            Memory::Vector => LockWindow::from_vec(team, vec![0; 12])?,
        };
        let (packed, thirds) = (Selection::contiguous(4)?, Selection::vector(4, 1, 3)?);
        let (data, mut got) = ([1, 2, 3, 4].map(|i| 10 * me as u64 + i), [0; 12]);
        window.lock_all(Assert::empty(), |e| {
            let put = e.rput_selected(&data, &packed, peer, 0, &thirds)?;
            let sum = e.raccumulate_selected(Op::Sum, &data, &packed, peer, 1, &thirds)?;
            sum.wait()?;
            put.wait()?;
            e.rget_selected(&mut got, &thirds, peer, 0, &thirds)?.wait().map(drop)
        })?;
        let expected = |by: usize| std::array::from_fn::<u64, 12, _>(|i| 10 * by as u64 + i as u64 / 3 + 1);
        assert!((0..12).all(|i| got[i] == if i % 3 == 0 { expected(me)[i] } else { 0 }), "{got:?}");
        team.barrier()?;
        window.with_local(|own| {
            assert!((0..12).all(|i| own[i] == if i % 3 < 2 { expected(peer)[i] } else { 0 }), "{own:?}");
            Ok(())
        })?;
        team.barrier()?;
        window.free()
    });
}
