//! A request does not outlive its epoch, which completes it.
use farside_rma::prelude::*;

fn keep(window: &LockWindow<u64>) -> Result<()> {
    let from = [1u64];
    let request = window.lock_all(Assert::empty(), |epoch| epoch.rput(&from, 0, 0))?;
    request.wait().map(drop)
}

fn main() {
    let _ = keep;
}
