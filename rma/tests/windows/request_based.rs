//! Request-based operations x ways to complete them.

use crate::checks::config::everywhere;
use crate::checks::requests::{self, Complete};

macro_rules! matrix {
    ($($name:ident: $check:path, $how:ident;)*) => { $(
        #[test]
        fn $name() {
            everywhere(|team, config| $check(team, config, Complete::$how));
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
