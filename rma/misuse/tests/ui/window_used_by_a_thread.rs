//! Windows, arrays and epochs belong to the rank's thread; only what `shared` lends goes to others.
use farside_rma::prelude::*;

fn spawn(table: &Symmetric<u64>, flags: &Flags) {
    std::thread::scope(|scope| {
        scope.spawn(|| table.put_value(1, 0, 0));
        scope.spawn(|| flags.set(0, 0, 1));
    });
}

fn main() {
    let _ = spawn;
}
