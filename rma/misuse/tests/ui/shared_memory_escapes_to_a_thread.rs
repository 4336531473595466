//! A thread that uses an array ends before the array: it is a scoped thread.
use farside_rma::prelude::*;

fn spawn(table: &Symmetric<u64>) -> Result<()> {
    let shared = table.shared()?;
    std::thread::spawn(move || shared.put_value(1, 0, 0));
    Ok(())
}

fn main() {
    let _ = spawn;
}
