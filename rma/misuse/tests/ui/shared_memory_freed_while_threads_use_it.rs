//! An array is not freed while threads have a handle of it.
use farside_rma::prelude::*;

fn free(table: Symmetric<u64>) -> Result<()> {
    let shared = table.shared()?;
    table.free()?;
    shared.put_value(1, 0, 0)
}

fn main() {
    let _ = free;
}
