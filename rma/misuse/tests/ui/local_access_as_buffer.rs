//! The slice of local access cannot be a buffer of an enclosing epoch.
use farside_rma::prelude::*;

fn put(window: &LockWindow<u64>) -> Result<()> {
    window.lock(LockKind::Shared, 1, Assert::empty(), |epoch| window.with_local(|local| epoch.put(local, 1, 0)))
}

fn main() {
    let _ = put;
}
