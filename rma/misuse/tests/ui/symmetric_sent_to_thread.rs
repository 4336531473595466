//! Symmetric memory stays in the thread of its rank.
use farside_rma::prelude::*;

fn send(table: Symmetric<u64>) {
    std::thread::spawn(move || table.free());
}

fn main() {
    let _ = send;
}
