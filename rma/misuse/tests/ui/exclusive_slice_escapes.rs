//! A slice of symmetric memory exists only while no other rank accesses it.
use farside_rma::prelude::*;

fn keep(table: &Symmetric<u64>) -> Result<&mut [u64]> {
    table.exclusive(|own| Ok(own))
}

fn main() {
    let _ = keep;
}
