//! The matrix: operation x synchronization, over every configuration and number of ranks.

use crate::checks::config::{self, everywhere, everywhere_with};
use crate::checks::operations as op;
use crate::checks::ordering;
use crate::checks::sync::Sync;

macro_rules! matrix {
    ($($name:ident: $check:path, $sync:ident;)*) => { $(
        #[test]
        fn $name() {
            everywhere(|team, config| $check(team, config, Sync::$sync));
        }
    )* };
}

matrix! {
    put_fence: op::put::<u64>, Fence;
    put_fences: op::put::<u64>, Fences;
    put_pscw: op::put::<u64>, Pscw;
    put_lock_shared: op::put::<u64>, LockShared;
    put_lock_exclusive: op::put::<u64>, LockExclusive;
    put_lock_all: op::put::<u64>, LockAll;
    put_value_fence: op::put_value::<u64>, Fence;
    put_value_fences: op::put_value::<u64>, Fences;
    put_value_pscw: op::put_value::<u64>, Pscw;
    put_value_lock_shared: op::put_value::<u64>, LockShared;
    put_value_lock_exclusive: op::put_value::<u64>, LockExclusive;
    put_value_lock_all: op::put_value::<u64>, LockAll;
    get_fence: op::get::<u64>, Fence;
    get_fences: op::get::<u64>, Fences;
    get_pscw: op::get::<u64>, Pscw;
    get_lock_shared: op::get::<u64>, LockShared;
    get_lock_exclusive: op::get::<u64>, LockExclusive;
    get_lock_all: op::get::<u64>, LockAll;
    accumulate_fence: op::accumulate::<u64>, Fence;
    accumulate_fences: op::accumulate::<u64>, Fences;
    accumulate_pscw: op::accumulate::<u64>, Pscw;
    accumulate_lock_shared: op::accumulate::<u64>, LockShared;
    accumulate_lock_exclusive: op::accumulate::<u64>, LockExclusive;
    accumulate_lock_all: op::accumulate::<u64>, LockAll;
    get_accumulate_fence: op::get_accumulate::<u64>, Fence;
    get_accumulate_fences: op::get_accumulate::<u64>, Fences;
    get_accumulate_pscw: op::get_accumulate::<u64>, Pscw;
    get_accumulate_lock_shared: op::get_accumulate::<u64>, LockShared;
    get_accumulate_lock_exclusive: op::get_accumulate::<u64>, LockExclusive;
    get_accumulate_lock_all: op::get_accumulate::<u64>, LockAll;
    fetch_and_op_fence: op::fetch_and_op::<u64>, Fence;
    fetch_and_op_fences: op::fetch_and_op::<u64>, Fences;
    fetch_and_op_pscw: op::fetch_and_op::<u64>, Pscw;
    fetch_and_op_lock_shared: op::fetch_and_op::<u64>, LockShared;
    fetch_and_op_lock_exclusive: op::fetch_and_op::<u64>, LockExclusive;
    fetch_and_op_lock_all: op::fetch_and_op::<u64>, LockAll;
    compare_and_swap_fence: op::compare_and_swap::<u64>, Fence;
    compare_and_swap_fences: op::compare_and_swap::<u64>, Fences;
    compare_and_swap_pscw: op::compare_and_swap::<u64>, Pscw;
    compare_and_swap_lock_shared: op::compare_and_swap::<u64>, LockShared;
    compare_and_swap_lock_exclusive: op::compare_and_swap::<u64>, LockExclusive;
    compare_and_swap_lock_all: op::compare_and_swap::<u64>, LockAll;
    accumulate_fence_ordered: ordering::short, Fence;
    accumulate_fences_ordered: ordering::short, Fences;
    accumulate_pscw_ordered: ordering::short, Pscw;
    accumulate_lock_shared_ordered: ordering::short, LockShared;
    accumulate_lock_exclusive_ordered: ordering::short, LockExclusive;
    accumulate_lock_all_ordered: ordering::short, LockAll;
}

macro_rules! few {
    ($($name:ident: $check:path, $sync:ident;)*) => { $(
        #[test]
        fn $name() {
            everywhere_with(&[2, 3, 6], |team, config| $check(team, config, Sync::$sync));
        }
    )* };
}

few! {
    accumulate_fence_long_then_short: ordering::long_then_short, Fence;
    accumulate_fence_together: op::together::<f64>, Fence;
    accumulate_fences_together: op::together::<u64>, Fences;
    accumulate_pscw_together: op::together::<f64>, Pscw;
    accumulate_lock_shared_together: op::together::<f64>, LockShared;
    accumulate_lock_all_together: op::together::<u16>, LockAll;
    put_fence_one_has_all: ordering::one_has_all, Fence;
    put_fences_one_has_all: ordering::one_has_all, Fences;
    put_pscw_one_has_all: ordering::one_has_all, Pscw;
    put_lock_shared_one_has_all: ordering::one_has_all, LockShared;
    put_lock_exclusive_one_has_all: ordering::one_has_all, LockExclusive;
    put_lock_all_one_has_all: ordering::one_has_all, LockAll;
    put_fence_ends_then_middle: ordering::ends_then_middle, Fence;
    accumulate_fences_long_then_short: ordering::long_then_short, Fences;
    put_fences_ends_then_middle: ordering::ends_then_middle, Fences;
    accumulate_pscw_long_then_short: ordering::long_then_short, Pscw;
    put_pscw_ends_then_middle: ordering::ends_then_middle, Pscw;
    accumulate_lock_shared_long_then_short: ordering::long_then_short, LockShared;
    put_lock_shared_ends_then_middle: ordering::ends_then_middle, LockShared;
    accumulate_lock_exclusive_long_then_short: ordering::long_then_short, LockExclusive;
    put_lock_exclusive_ends_then_middle: ordering::ends_then_middle, LockExclusive;
    accumulate_lock_all_long_then_short: ordering::long_then_short, LockAll;
    put_lock_all_ends_then_middle: ordering::ends_then_middle, LockAll;
}

#[test]
fn get_fences_of_what_a_third_rank_has_put() {
    everywhere_with(&[3, 4, 6], |team, config| ordering::third_gets(team, config, Sync::Fences));
}

/// Every operation on one element type.
macro_rules! of_type {
    ($team:ident, $config:ident, $sync:expr, $cas:ident, $t:ty) => {{
        op::put::<$t>($team, $config, $sync)?;
        op::put_value::<$t>($team, $config, $sync)?;
        op::get::<$t>($team, $config, $sync)?;
        op::accumulate::<$t>($team, $config, $sync)?;
        op::get_accumulate::<$t>($team, $config, $sync)?;
        op::fetch_and_op::<$t>($team, $config, $sync)?;
        of_type!($cas, $team, $config, $sync, $t);
    }};
    (integer, $team:ident, $config:ident, $sync:expr, $t:ty) => {
        op::compare_and_swap::<$t>($team, $config, $sync)?
    };
    (float, $team:ident, $config:ident, $sync:expr, $t:ty) => {};
}

macro_rules! types {
    ($($name:ident: $sync:ident;)*) => { $(
        #[test]
        fn $name() {
            for config in config::these(&[config::MAPPED, config::POSTED, config::REMAP, config::VM, config::RING]) {
                let all = move || config.run(3, |team| {
                    let (c, s) = (&config, Sync::$sync);
                    // A quick run over verbs tests each synchronization with a third of the types.
                    let third = (config::verbs() && config::quick()).then_some(Sync::$sync as usize % 3);
                    if third.is_none_or(|third| third == 0) {
                        of_type!(team, c, s, integer, i8);
                        of_type!(team, c, s, integer, u16);
                        of_type!(team, c, s, integer, u64);
                        of_type!(team, c, s, float, f32);
                    }
                    if third.is_none_or(|third| third == 1) {
                        of_type!(team, c, s, integer, u8);
                        of_type!(team, c, s, integer, i16);
                        of_type!(team, c, s, integer, u32);
                    }
                    if third.is_none_or(|third| third == 2) {
                        of_type!(team, c, s, integer, i32);
                        of_type!(team, c, s, integer, i64);
                        of_type!(team, c, s, float, f64);
                    }
                    Ok(())
                });
                config::within(60, config.name, all).unwrap_or_else(|e| panic!("{}: {e}", config.name));
            }
        }
    )* };
}

types! {
    every_type_fence: Fence;
    every_type_fences: Fences;
    every_type_pscw: Pscw;
    every_type_lock_shared: LockShared;
    every_type_lock_exclusive: LockExclusive;
    every_type_lock_all: LockAll;
}
