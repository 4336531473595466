//! A buffer that is borrowed by the epoch cannot be dropped in it.
use farside_rma::prelude::*;

fn put(window: &mut Window<'static, u64>) -> Result<()> {
    let buffer = vec![1u64; 4];
    window.fence(Assert::empty(), |epoch| {
        epoch.put(&buffer, 0, 0)?;
        drop(buffer);
        Ok(())
    })
}

fn main() {
    let _ = put;
}
