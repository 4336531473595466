//! Freed symmetric memory cannot be used, neither itself nor by views, atomics and flags of it.
use farside_rma::prelude::*;

fn after(table: Symmetric<u64>, other: Symmetric<u64>, flags: Flags) -> Result<()> {
    let (view, word) = (table.local(), other.atomic(0, 0)?);
    let seen = flags.until(0, ge(1));
    table.free()?;
    other.free()?;
    flags.free()?;
    view.load(0)?;
    word.load()?;
    drop(seen);
    Ok(())
}

fn main() {
    let _ = after;
}
