//! A window cannot be freed inside its epoch.
use farside_rma::prelude::*;

fn free(window: LockWindow<u64>) -> Result<()> {
    window.lock_all(Assert::empty(), |_| window.free())
}

fn main() {
    let _ = free;
}
