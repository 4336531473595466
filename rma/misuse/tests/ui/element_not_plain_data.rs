//! Elements are plain data: no references, no booleans, no structures with padding.
use farside_rma::prelude::*;

fn make(team: &Team) -> Result<()> {
    Window::<bool>::allocate(team, 1)?.free()?;
    Window::<&'static u64>::allocate(team, 1)?.free()?;
    LockWindow::<String>::allocate(team, 1)?.free()?;
    SharedWindow::<(u8, u64)>::allocate(team, 1)?.free()
}

fn main() {
    let _ = make;
}
