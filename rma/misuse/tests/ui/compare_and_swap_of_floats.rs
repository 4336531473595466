//! Compare-and-swap is defined on integers only.
use farside_rma::prelude::*;

fn swap(window: &LockWindow<f64>) -> Result<f64> {
    window.lock_all(Assert::empty(), |epoch| epoch.compare_and_swap_blocking(0.0, 1.0, 0, 0))
}

fn main() {
    let _ = swap;
}
