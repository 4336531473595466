//! Generates the exported functions and the constants of the library, `mpi.h`, and the Fortran library, from the tables.

mod exports;
mod fortran;
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
    // What compilers need goes to target/PROFILE, beside the library. `out` is in target/PROFILE/build.
    let build = out.ancestors().find(|folder| folder.ends_with("build")).expect("a folder of build scripts");
    let place = |folder: &str, name: &str, text: String| place(&build.with_file_name(folder), name, &text);
    place("include", "mpi.h", header::header(&table));
    place("fortran", "fortran.c", fortran::code(&table));
    place("fortran", "mpif.h", fortran::interfaces::include(&table));
    place("fortran", "mpi.f90", fortran::interfaces::module(&table));
    place("fortran", "mpi_f08.f90", fortran::interfaces::module_f08(&table));
}

/// Writes a file unless it is there. It is renamed into place with the time of its sources, so that what is newer than the
/// sources is not rebuilt and no compiler reads an incomplete file. A deleted file is generated again.
fn place(folder: &Path, name: &str, text: &str) {
    std::fs::create_dir_all(folder).unwrap_or_else(|e| panic!("cannot create {}: {e}", folder.display()));
    let path = folder.join(name);
    println!("cargo::rerun-if-changed={}", path.display());
    if std::fs::read_to_string(&path).is_ok_and(|there| there == text) {
        return;
    }
    let new = folder.join(format!("{name}.new"));
    // If the file were newer than this run, the next build would run the build script again.
    let written = std::fs::write(&new, text).and_then(|()| std::fs::File::options().write(true).open(&new));
    written
        .and_then(|file| file.set_modified(sources_changed()))
        .and_then(|()| std::fs::rename(&new, &path))
        .unwrap_or_else(|e| panic!("cannot create {}: {e}", path.display()));
}

/// Modification time of the newest source of these files.
fn sources_changed() -> SystemTime {
    let files = ["table", "build"].into_iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let times = files.filter_map(|file| file.metadata().and_then(|meta| meta.modified()).ok());
    times.max().expect("the table has a time")
}
