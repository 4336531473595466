//! A buffer that a request has returned is borrowed until the epoch has closed.
use farside_rma::prelude::*;

fn keep<'b>(window: &LockWindow<u64>, buffer: &'b mut [u64]) -> Result<&'b mut [u64]> {
    window.lock_all(Assert::empty(), |epoch| epoch.rget(buffer, 0, 0)?.wait())
}

fn main() {
    let _ = keep;
}
