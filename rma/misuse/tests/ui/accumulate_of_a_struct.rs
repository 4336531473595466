//! Structs are put and got, and not accumulated or used as atomics.
use farside_rma::prelude::*;

fn sums(table: &Symmetric<[f32; 2]>, words: &Symmetric<f64>, window: &LockWindow<[f32; 2]>) -> Result<()> {
    table.put(&[[1.0, 2.0]], 0, 0)?;
    table.atomic(0, 0)?.add([1.0, 2.0])?;
    words.atomic(0, 0)?.compare_exchange(0.0, 1.0)?.unwrap();
    window.lock_all(Assert::empty(), |epoch| epoch.accumulate(Op::Sum, &[[1.0; 2]], 0, 0))
}

fn main() {
    let _ = sums;
}
