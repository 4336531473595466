//! A buffer that is dropped inside a lock epoch is refused, even if its request has been waited for.
use farside_rma::prelude::*;

fn put(window: &LockWindow<u64>) -> Result<()> {
    window.lock(LockKind::Shared, 0, Assert::empty(), |epoch| {
        let buffer = vec![1u64; 4];
        epoch.rput(&buffer, 0, 0)?.wait().map(drop)
    })
}

fn main() {
    let _ = put;
}
