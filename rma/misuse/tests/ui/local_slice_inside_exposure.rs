//! A slice of the window's own memory cannot be made while an exposure is open.
use farside_rma::prelude::*;

fn expose(window: &mut Window<'static, u64>) -> Result<u64> {
    window.expose(&[0], Assert::empty(), |_| Ok(window.local()?[0]))
}

fn main() {
    let _ = expose;
}
