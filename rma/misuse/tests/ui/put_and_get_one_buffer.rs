//! A get cannot write to a buffer that a put reads.
use farside_rma::prelude::*;

fn both(window: &mut Window<'static, u64>) -> Result<()> {
    let mut buffer = [0u64; 4];
    window.fence(Assert::empty(), |epoch| {
        epoch.put(&buffer, 0, 0)?;
        epoch.get(&mut buffer, 1, 0)
    })
}

fn main() {
    let _ = both;
}
