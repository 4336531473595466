//! A slice of the window's own memory does not live across an epoch, in which peers may write it.
use farside_rma::prelude::*;

fn fence(window: &mut Window<'static, u64>) -> Result<u64> {
    let local = window.local()?;
    window.fence(Assert::empty(), |_| Ok(()))?;
    Ok(local[0])
}

fn main() {
    let _ = fence;
}
