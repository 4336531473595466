//! Operation x synchronization, over every configuration and number of ranks.

use crate::checks::config::everywhere_with;
use crate::checks::selections as select;
use crate::checks::sync::Sync;

macro_rules! matrix {
    ($($name:ident: $check:path, $sync:ident;)*) => { $(
        #[test]
        fn $name() {
            everywhere_with(&[1, 2, 5], |team, config| $check(team, config, Sync::$sync));
        }
    )* };
}

matrix! {
    put_selected_fence: select::put::<u64>, Fence;
    put_selected_fences: select::put::<u32>, Fences;
    put_selected_pscw: select::put::<f64>, Pscw;
    put_selected_lock_shared: select::put::<u16>, LockShared;
    put_selected_lock_exclusive: select::put::<u8>, LockExclusive;
    put_selected_lock_all: select::put::<u64>, LockAll;
    get_selected_fence: select::get::<u64>, Fence;
    get_selected_fences: select::get::<u32>, Fences;
    get_selected_pscw: select::get::<f64>, Pscw;
    get_selected_lock_shared: select::get::<u16>, LockShared;
    get_selected_lock_exclusive: select::get::<u8>, LockExclusive;
    get_selected_lock_all: select::get::<u64>, LockAll;
    accumulate_selected_fence: select::accumulate::<u64>, Fence;
    accumulate_selected_fences: select::accumulate::<u32>, Fences;
    accumulate_selected_pscw: select::accumulate::<f64>, Pscw;
    accumulate_selected_lock_shared: select::accumulate::<u16>, LockShared;
    accumulate_selected_lock_exclusive: select::accumulate::<u8>, LockExclusive;
    accumulate_selected_lock_all: select::accumulate::<u64>, LockAll;
}
