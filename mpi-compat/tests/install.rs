//! Tests of an installation by `ci/install`: the compiler wrappers, mpiexec, the pkg-config files.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use farside_harness::{Finished, Marked, mpi_library};

/// The folder of the installation.
fn prefix() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let _ = mpi_library();
        let folder = tempfile::tempdir().unwrap();
        let install = concat!(env!("CARGO_MANIFEST_DIR"), "/../ci/install");
        let output = Command::new(install).arg(folder.path()).arg("--debug").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        folder
    });
    folder.path()
}

fn run(program: &str, arguments: &[&str]) -> Finished {
    Marked::new(prefix().join("bin").join(program)).finish_with(arguments)
}

const HELLO: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int rank, size, *number, flag;
    char folder[4096];
    const char *word = getenv("WORD");
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &flag);
    printf("rank %d of %d, program %d, WORD=%s, %s, in %s\n", rank, size, flag ? *number : -1, word ? word : "",
        argc > 1 ? argv[1] : "", getcwd(folder, sizeof folder));
    MPI_Finalize();
    return 0;
}
"#;

/// The program, built by the wrapper.
fn hello(folder: &Path, compiler: &str, suffix: &str) -> PathBuf {
    let (source, program) = (folder.join(format!("hello.{suffix}")), folder.join(format!("hello-{suffix}")));
    std::fs::write(&source, HELLO).unwrap();
    let built = run(compiler, &["-Wall", "-Werror", source.to_str().unwrap(), "-o", program.to_str().unwrap()]);
    assert_eq!(built.code, Some(0), "{}", built.err);
    program
}

#[test]
fn the_wrappers_say_what_they_run() {
    let place = prefix().to_str().unwrap();
    let show = run("mpicc", &["-show", "a.c", "-o", "a"]);
    let command = format!(
        "cc -I{place}/include a.c -o a -L{place}/lib -Wl,-rpath,{place}/lib -Wl,--enable-new-dtags -lmpi_abi\n"
    );
    assert_eq!(show.out, command);
    assert_eq!(run("mpicc", &["-compile-info"]).out, format!("cc -I{place}/include\n"));
    assert!(run("mpicxx", &["-link-info"]).out.starts_with(&format!("c++ -L{place}/lib ")));
    assert_eq!(run("mpicc", &["-show", "-c", "a.c"]).out, format!("cc -I{place}/include -c a.c\n"));
    for show in ["-showme", "--showme"] {
        assert_eq!(run("mpicc", &[show, "a.c", "-o", "a"]).out, command, "{show}");
    }
    assert_eq!(run("mpicc", &["--showme:compile"]).out, format!("-I{place}/include\n"));
    let link = format!("-L{place}/lib -Wl,-rpath,{place}/lib -Wl,--enable-new-dtags -lmpi_abi\n");
    assert_eq!(run("mpicxx", &["-showme:link"]).out, link);
    let libraries = ["-showme:incdirs", "-showme:libdirs", "-showme:libs"].map(|what| run("mpicc", &[what]).out);
    assert_eq!(libraries, [format!("{place}/include\n"), format!("{place}/lib\n"), "mpi_abi\n".into()]);
    assert_eq!(run("mpicc", &["-showme:version"]).out, format!("mpicc (Farside) {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(run("mpicc", &["-cc=clang", "-showme:command"]).out, "clang\n");
    assert!(run("mpiCC", &["-cxx=g++-99", "-show", "a.cc"]).out.starts_with("g++-99 -I"));
    if farside_harness::works("gfortran", &["--version"]) {
        let link = format!("-L{place}/lib -Wl,-rpath,{place}/lib -Wl,--enable-new-dtags -lmpifort_abi -lmpi_abi\n");
        assert_eq!(run("mpif90", &["-showme:link"]).out, link);
        assert_eq!(run("mpifort", &["-fc=flang", "-compile-info"]).out, format!("flang -I{place}/include\n"));
    }
    let help = run("mpicc", &["-help"]);
    assert!(help.code == Some(0) && help.out.contains("-showme:compile") && !help.out.contains("readlink"), "{help:?}");
    assert_eq!(run("mpicc", &["-showme:colour"]).code, Some(2));
    assert_ne!(run("mpicc", &[]).code, Some(0));
}

#[test]
fn mpiexec_starts_one_program() {
    let folder = tempfile::tempdir().unwrap();
    let program = hello(folder.path(), "mpicc", "c");
    let program = program.to_str().unwrap();
    let place = folder.path().canonicalize().unwrap();
    let place = place.to_str().unwrap();
    let mut all = run("mpiexec", &["-n", "3", "-env", "WORD", "a b", "-wdir", place, program, "x y"]);
    assert_eq!(all.code, Some(0), "{}", all.err);
    let mut lines: Vec<_> = all.out.lines().collect();
    lines.sort_unstable();
    let wanted: Vec<_> = (0..3).map(|rank| format!("rank {rank} of 3, program 0, WORD=a b, x y, in {place}")).collect();
    assert_eq!(lines, wanted);
    all = run("mpiexec", &[program]);
    assert!(all.out.starts_with("rank 0 of 1, program 0, WORD=, "), "{}", all.out);
}

#[test]
fn mpiexec_starts_several_programs() {
    let folder = tempfile::tempdir().unwrap();
    let first = hello(folder.path(), "mpicc", "c");
    let first = first.to_str().unwrap();
    let options =
        ["-genv", "WORD", "all", "-n", "2", first, "one", ":", "-n", "1", "-env", "WORD", "it's", first, "$two"];
    let all = run("mpiexec", &options);
    assert_eq!(all.code, Some(0), "{}", all.err);
    let mut lines: Vec<_> = all.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with("rank 0 of 3, program 0, WORD=all, one, in "), "{lines:?}");
    assert!(lines[1].starts_with("rank 1 of 3, program 0, WORD=all, one, in "), "{lines:?}");
    assert!(lines[2].starts_with("rank 2 of 3, program 1, WORD=it's, $two, in "), "{lines:?}");
}

#[test]
fn mpiexec_preloads_the_verification() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("wrong.c"), folder.path().join("wrong"));
    let text = "#include <mpi.h>\nint main(void) { int rank; MPI_Init(0, 0); MPI_Comm_rank(MPI_COMM_WORLD, &rank);\n\
                MPI_Bcast(&rank, 1, MPI_INT, rank, MPI_COMM_WORLD); return MPI_Finalize(); }\n";
    std::fs::write(&source, text).unwrap();
    assert_eq!(run("mpicc", &[source.to_str().unwrap(), "-o", program.to_str().unwrap()]).code, Some(0));
    let program = program.to_str().unwrap();
    for arguments in [&["-n", "2", program] as &[_], &["-n", "1", program, ":", "-n", "1", program]] {
        let mut command = Marked::new(prefix().join("bin/mpiexec"));
        command.command.env("FARSIDE_VERIFY", "1");
        let wrong = command.finish_with(arguments);
        assert!(
            wrong.code != Some(0) && wrong.err.contains("VERIFY MPI_BCAST(1): root 1 inconsistent"),
            "{}",
            wrong.err
        );
    }
    // If verification was requested but the verifier is not preloaded, the library reports that.
    let mut command = Marked::run(1, &[program]);
    let unchecked = command.command.env("FARSIDE_VERIFY", "1").env("LD_LIBRARY_PATH", prefix().join("lib"));
    let unchecked = String::from_utf8(unchecked.output().unwrap().stderr).unwrap();
    assert!(unchecked.contains("libfarside_verify.so"), "{unchecked}");
}

#[test]
fn programs_in_fortran_are_built() {
    if !farside_harness::works("gfortran", &["--version"]) {
        return farside_harness::skip("programs_in_fortran_are_built", "there is no gfortran");
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("hello");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/hello.f90");
    let built = run("mpifort", &[source, "-o", program.to_str().unwrap()]);
    assert_eq!(built.code, Some(0), "{}", built.err);
    assert_eq!(run("mpiexec", &["-n", "3", program.to_str().unwrap()]).out, "the sum of 3 ranks is 3\n");
    assert!(run("farside", &["info"]).out.contains("libmpi_abi.so.1, libmpifort_abi.so.1"));
}

#[test]
fn programs_in_cxx_are_built() {
    if !farside_harness::works("c++", &["--version"]) {
        return farside_harness::skip("programs_in_cxx_are_built", "there is no C++ compiler");
    }
    let folder = tempfile::tempdir().unwrap();
    let program = hello(folder.path(), "mpicxx", "cpp");
    let all = run("mpiexec", &["-np", "2", program.to_str().unwrap()]);
    assert_eq!((all.code, all.out.lines().count()), (Some(0), 2), "{}", all.err);
}

#[test]
fn pkg_config_knows_it() {
    if !farside_harness::works("pkg-config", &["--version"]) {
        return farside_harness::skip("pkg_config_knows_it", "there is no pkg-config");
    }
    let place = prefix().to_str().unwrap();
    for name in ["mpi", "mpi-c", "mpi-cxx", "farside"] {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")).args(["--cflags", "--libs", name]);
        let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert!(output.contains(&format!("-I{place}/include")) && output.contains("-lmpi_abi"), "{name}: {output}");
    }
}
