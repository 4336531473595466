//! A buffer is given to one call that gets its parts, not to several.
use farside_rma::prelude::*;

fn twice(window: &mut Window<'_, u64>, buffer: &mut [u64]) -> Result<()> {
    window.fence(Assert::empty(), |epoch| {
        epoch.get_parts(buffer, &[(0..1, 0, 0)])?;
        epoch.get_parts(buffer, &[(1..2, 0, 0)])
    })
}

fn main() {
    let _ = twice;
}
