//! Generates the exported functions and the constants of the library from the tables.

mod exports;
mod groups;
mod table;

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=table");
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmpi_abi.so.1");
    let out = std::env::var("OUT_DIR").expect("cargo says where to write");
    let write = |name: &str, text: String| {
        std::fs::write(Path::new(&out).join(name), text).unwrap_or_else(|e| panic!("cannot write {name}: {e}"));
    };
    let table = table::Table::read();
    write("exports.rs", exports::exports(&table));
    write("constants.rs", exports::constants(&table));
}
