//! The slice of local access does not outlive the lock.
use farside_rma::prelude::*;

fn keep(window: &LockWindow<u64>) -> Result<u64> {
    let local = window.with_local(|local| Ok(local))?;
    Ok(local[0])
}

fn main() {
    let _ = keep;
}
