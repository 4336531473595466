//! The memory of a shared window cannot be accessed after the window has been freed.
use farside_rma::prelude::*;

fn keep(window: SharedWindow<u64>) -> Result<u64> {
    let slice = window.of(0)?;
    window.free()?;
    slice.load(0)
}

fn main() {
    let _ = keep;
}
