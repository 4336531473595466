//! A buffer that an operation owns can be used only when the handle has given it back.
use farside_rma::prelude::*;

fn early(table: &Symmetric<u64>) -> Result<u64> {
    let buffer = vec![0; 10];
    let get = table.get_nbi(buffer, 0, 0)?;
    let first = buffer[0];
    get.wait()?;
    Ok(first)
}

fn main() {
    let _ = early;
}
