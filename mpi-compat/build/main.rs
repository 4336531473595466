//! Generates the exported functions and the constants of the library, and `mpi.h`, from the tables.

mod exports;
mod groups;
mod header;
mod table;

use std::path::Path;
use std::time::SystemTime;

fn main() {
    println!("cargo::rerun-if-changed=table");
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmpi_abi.so.1");
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let out = Path::new(&out);
    let write = |path: &Path, text: String| {
        std::fs::write(path, text).unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
    };
    let table = table::Table::read();
    write(&out.join("exports.rs"), exports::exports(&table));
    write(&out.join("constants.rs"), exports::constants(&table));
    // `mpi.h` goes to target/PROFILE/include, beside the library. `out` is in target/PROFILE/build.
    let build = out.ancestors().find(|folder| folder.ends_with("build")).expect("a folder of build scripts");
    let include = build.with_file_name("include");
    std::fs::create_dir_all(&include).unwrap_or_else(|e| panic!("cannot create {}: {e}", include.display()));
    let (path, header) = (include.join("mpi.h"), header::header(&table));
    // A deleted header is generated again. The file is renamed into place with the time of its sources, so that
    // programs newer than the sources are not rebuilt and no compiler reads an incomplete header.
    println!("cargo::rerun-if-changed={}", path.display());
    if std::fs::read_to_string(&path).ok().as_ref() != Some(&header) {
        let new = include.join("mpi.h.new");
        write(&new, header);
        // If the header were newer than this run, the next build would run the build script again.
        let file = std::fs::File::options().write(true).open(&new);
        file.and_then(|file| file.set_modified(sources_changed()))
            .unwrap_or_else(|e| panic!("cannot set the time of {}: {e}", new.display()));
        std::fs::rename(&new, &path).unwrap_or_else(|e| panic!("cannot create {}: {e}", path.display()));
    }
}

/// Modification time of the newest source of the header.
fn sources_changed() -> SystemTime {
    let files = ["table", "build"].into_iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let times = files.filter_map(|file| file.metadata().and_then(|meta| meta.modified()).ok());
    times.max().expect("the table has a time")
}
