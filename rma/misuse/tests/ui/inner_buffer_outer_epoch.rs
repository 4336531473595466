//! An operation of an outer epoch borrows its buffer for the outer epoch.
use farside_rma::prelude::*;

fn put(window: &LockWindow<u64>) -> Result<()> {
    window.lock(LockKind::Shared, 0, Assert::empty(), |outer| {
        window.lock(LockKind::Shared, 1, Assert::empty(), |_| {
            let buffer = [1u64];
            outer.put(&buffer, 0, 0)
        })
    })
}

fn main() {
    let _ = put;
}
