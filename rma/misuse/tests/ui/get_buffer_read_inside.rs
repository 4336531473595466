//! The buffer of a get cannot be read before the epoch is closed.
use farside_rma::prelude::*;

fn get(window: &mut Window<'static, u64>) -> Result<u64> {
    let mut into = [0u64; 4];
    window.fence(Assert::empty(), |epoch| {
        epoch.get(&mut into, 0, 0)?;
        Ok(into[0])
    })
}

fn main() {
    let _ = get;
}
