//! A freed window cannot be used.
use farside_rma::prelude::*;

fn free(window: LockWindow<u64>, other: Window<'static, u64>) -> Result<()> {
    window.free()?;
    window.lock_all(Assert::empty(), |_| Ok(()))?;
    other.into_vec()?;
    other.local().map(|_| ())
}

fn main() {
    let _ = free;
}
