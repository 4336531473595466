//! Windows, epochs and operations in progress stay in the thread of their rank.
use farside_rma::prelude::*;

fn send(window: LockWindow<u64>, table: &Symmetric<u64>) {
    std::thread::spawn(move || window.free());
    std::thread::scope(|s| {
        s.spawn(|| table.get_value(0, 0));
    });
}

fn main() {
    let _ = send;
}
