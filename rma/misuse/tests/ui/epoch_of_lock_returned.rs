//! The handle of a lock epoch cannot be returned from its body.
use farside_rma::prelude::*;

fn keep(window: &LockWindow<u64>) -> Result<()> {
    let epoch = window.lock_all(Assert::empty(), |epoch| Ok(epoch))?;
    epoch.put_value(1, 0, 0)
}

fn main() {
    let _ = keep;
}
