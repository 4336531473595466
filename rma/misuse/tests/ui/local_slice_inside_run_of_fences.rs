//! A slice of the window's own memory cannot be made between the epochs of a run of fences.
use farside_rma::prelude::*;

fn run(window: &mut Window<'static, u64>) -> Result<u64> {
    window.fences(|fences| {
        fences.epoch(Assert::empty(), |_| Ok(()))?;
        Ok(window.local()?[0])
    })
}

fn main() {
    let _ = run;
}
