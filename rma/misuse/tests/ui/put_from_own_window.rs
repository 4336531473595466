//! The window's own memory cannot be a buffer of its operations.
use farside_rma::prelude::*;

fn put(window: &mut Window<'static, u64>) -> Result<()> {
    let local = window.local()?;
    window.fence(Assert::empty(), |epoch| epoch.put(local, 0, 0))
}

fn main() {
    let _ = put;
}
