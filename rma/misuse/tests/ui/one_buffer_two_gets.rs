//! Two gets into one buffer would write it at the same time.
use farside_rma::prelude::*;

fn get(window: &mut Window<'static, u64>) -> Result<()> {
    let mut into = [0u64; 4];
    window.fence(Assert::empty(), |epoch| {
        epoch.get(&mut into, 0, 0)?;
        epoch.get(&mut into, 1, 0)
    })
}

fn main() {
    let _ = get;
}
