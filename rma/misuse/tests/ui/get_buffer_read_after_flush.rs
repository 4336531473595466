//! A flush completes the get, but the borrow lasts as long as the epoch; `get_blocking` returns a value immediately.
use farside_rma::prelude::*;

fn get(window: &LockWindow<u64>) -> Result<u64> {
    let mut into = [0u64; 4];
    window.lock_all(Assert::empty(), |epoch| {
        epoch.get(&mut into, 0, 0)?;
        epoch.flush(0)?;
        Ok(into[0])
    })
}

fn main() {
    let _ = get;
}
