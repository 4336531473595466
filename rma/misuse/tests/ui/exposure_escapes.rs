//! The handle of an exposure does not outlive it.
use farside_rma::prelude::*;

fn keep(window: &mut Window<'static, u64>) -> Result<bool> {
    let exposure = window.expose(&[0], Assert::empty(), |exposure| Ok(exposure))?;
    exposure.test()
}

fn main() {
    let _ = keep;
}
