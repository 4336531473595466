//! Fortran programs in the three interfaces, with one Fortran library for Farside, MPICH and Intel MPI.

use std::path::{Path, PathBuf};
use std::process::Command;

use farside_harness::{mpi_folder, mpi_include, mpi_library, peer, quick, skip, works};

use super::{Program, installation, run_all};

const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

/// The compiler of the library and of the programs, as `ci/install` has it.
fn compiler() -> String {
    std::env::var("FARSIDE_FC").unwrap_or("gfortran".into())
}

/// Builds the Fortran library; returns the folder with its `include` and `lib`.
fn library() -> PathBuf {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fortran-library-{}", compiler().replace('/', "-")));
    let generated = mpi_library().with_file_name("fortran");
    let modified = |path: &Path| path.metadata().and_then(|meta| meta.modified()).ok();
    let sources =
        [generated.clone(), Path::new(PACKAGE).join("fortran")].map(|folder| std::fs::read_dir(folder).unwrap());
    let newest = sources.into_iter().flatten().map(|entry| modified(&entry.unwrap().path())).max().unwrap();
    if modified(&folder.join("lib/libmpifort_abi.so.1")) <= newest {
        let folders = [generated, mpi_include(), mpi_folder(), folder.clone()];
        let mut built = Command::new(Path::new(PACKAGE).join("fortran/build"));
        let built = built.env("FC", compiler()).args(folders).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    }
    folder
}

/// The sources of a program in one interface, in the order in which they need each other.
const CHAPTERS: [&str; 9] =
    ["checks", "messages", "datatypes", "collectives", "groups", "environment", "windows", "files", "main"];

/// Builds a program, whose operators may be internal procedures, which gfortran calls by code on the stack. The library is found at its
/// place even where the folder of a peer has one of the same name. Without interfaces, the arguments of two calls may differ.
fn build(program: &Program, library: &Path, folder: &Path) {
    let (modules, lib) = (library.join("include"), library.join("lib"));
    let mut command = Command::new(compiler());
    command.args(["-O1", "-z", "execstack"]);
    let interface = program.name.strip_prefix("chapters_");
    if compiler().contains("gfortran") {
        command.args(match interface {
            Some("MPIF_H" | "MPI_MODULE") => &["-w", "-fallow-argument-mismatch"][..],
            _ => &["-Wall", "-Wno-unused-dummy-argument", "-Werror"],
        });
    }
    // Modules of this program.
    let scratch = folder.join(format!("{}.modules", program.name));
    std::fs::create_dir_all(&scratch).unwrap();
    command.current_dir(scratch).arg("-I").arg(modules).arg("-o").arg(folder.join(&program.name));
    match interface {
        Some(interface) => {
            let chapters = program.source.parent().unwrap();
            command.arg(format!("-D{interface}"));
            command.args(CHAPTERS.map(|name| chapters.join(name).with_extension("F90")));
        }
        None => _ = command.arg(&program.source),
    }
    command.arg("-L").arg(&lib).arg("-lmpifort_abi").arg("-L").arg(mpi_folder()).arg("-lmpi_abi");
    command.arg(format!("-Wl,--disable-new-dtags,-rpath,{}", lib.display()));
    assert!(command.status().unwrap().success(), "{} cannot be built", program.name);
}

#[test]
fn fortran() {
    const TEST: &str = "programs::fortran::fortran";
    if !works(&compiler(), &["--version"]) {
        return skip(TEST, &format!("there is no {}", compiler()));
    }
    let wanted = std::env::var("FARSIDE_C_PROGRAM").unwrap_or_default();
    let sources = Path::new(PACKAGE).join("tests/fortran");
    let files = std::fs::read_dir(&sources).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let mut programs: Vec<_> = files.map(Program::read).collect();
    programs.extend(["MPIF_H", "MPI_MODULE", "MPI_F08"].map(|interface| Program {
        name: format!("chapters_{interface}"),
        ..Program::read(sources.join("chapters/main.F90"))
    }));
    programs.retain(|program| wanted.split(',').any(|one| program.name.contains(one)));
    let (library, folder) = (library(), tempfile::tempdir().unwrap());
    programs.iter().for_each(|program| build(program, &library, folder.path()));
    let peers = ["mpich", "impi"].map(|name| if quick() { None } else { peer(TEST, name, "mpiexec") });
    let places: Vec<&Path> = peers.iter().flatten().map(|program| installation(program)).collect();
    run_all(programs, folder.path(), &places);
}
