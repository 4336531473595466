//! The buffer of a request can be used again only after the request has returned it.
use farside_rma::prelude::*;

fn early(window: &LockWindow<u64>, buffer: &mut [u64]) -> Result<()> {
    window.lock_all(Assert::empty(), |epoch| {
        let request = epoch.rget(buffer, 0, 0)?;
        buffer[0] += 1;
        request.wait()?;
        Ok(())
    })
}

fn main() {
    let _ = early;
}
