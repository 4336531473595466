//! An operation that continues after the call owns its buffer: a borrow could end before.
use farside_rma::prelude::*;

fn borrowed(table: &Symmetric<u64>) -> Result<()> {
    let mut buffer = [0; 10];
    std::mem::forget(table.get_nbi(&mut buffer[..], 0, 0)?);
    Ok(())
}

fn main() {
    let _ = borrowed;
}
