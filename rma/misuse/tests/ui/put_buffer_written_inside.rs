//! The buffer of a put cannot be written while the epoch is open.
use farside_rma::prelude::*;

fn put(window: &mut Window<'static, u64>) -> Result<()> {
    let mut from = [0u64; 4];
    window.fence(Assert::empty(), |epoch| {
        epoch.put(&from, 0, 0)?;
        from[0] = 1;
        Ok(())
    })
}

fn main() {
    let _ = put;
}
