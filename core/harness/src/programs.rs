//! Programs of the workspace that tests start. `cargo test --test NAME` alone does not build them, so this does, unless
//! they are newer than their sources.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// The `farside` command.
#[must_use]
pub fn farside() -> PathBuf {
    built("farside", &["-p", "farside-launch", "--bin", "farside"], &["core/src", "core/launch/src"])
}

/// The MPI library.
#[must_use]
pub fn mpi_library() -> PathBuf {
    let sources = ["core/src", "datatype/src", "rma/src", "mpi-compat/src", "mpi-compat/table", "mpi-compat/build"];
    built("libmpi_abi.so", &["-p", "farside-mpi", "--lib"], &sources)
}

/// The folder of the MPI library, which also contains it under the name that programs load.
#[must_use]
pub fn mpi_folder() -> PathBuf {
    let library = mpi_library();
    let folder = library.parent().unwrap().to_owned();
    match std::os::unix::fs::symlink("libmpi_abi.so", folder.join("libmpi_abi.so.1")) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => panic!("{}: {e}", folder.display()),
        _ => folder,
    }
}

/// The folder of `mpi.h`, which the build of the MPI library writes.
#[must_use]
pub fn mpi_include() -> PathBuf {
    mpi_library().with_file_name("include")
}

/// The library that checks collective calls, to be preloaded.
#[must_use]
pub fn verify_library() -> PathBuf {
    let sources = ["mpi-compat/verify/src", "mpi-compat/verify/build", "mpi-compat/table"];
    built("libfarside_verify.so", &["-p", "farside-verify", "--lib"], &sources)
}

/// The path of a package's example program; checks that it is built.
#[must_use]
pub fn example(package: &str, name: &str) -> PathBuf {
    let folder = if package == "farside-rma" { "rma" } else { "core/launch" };
    let sources = ["core/src", "datatype/src", &format!("{folder}/src"), &format!("{folder}/examples")];
    built(&format!("examples/{name}"), &["-p", package, "--example", name], &sources)
}

/// The path of a program, in the folder of its profile: target/PROFILE.
fn built(program: &str, package: &[&str], sources: &[&str]) -> PathBuf {
    // Each program is checked once, one at a time.
    static LOOKED_AT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let mut looked_at = LOOKED_AT.lock().unwrap_or_else(PoisonError::into_inner);
    // target/PROFILE/deps/test-..
    let me = std::env::current_exe().expect("this program has a path");
    let profile = me.parent().and_then(Path::parent).expect("it is in the folder of a profile");
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let path = profile.join(program);
    if looked_at.contains(&path) {
        return path;
    }
    let newest = sources.iter().map(|folder| newest(&root.join(folder))).max();
    if modified(&path) < newest.flatten() {
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        build.args(["build", "--quiet", "--offline"]).args(package).current_dir(root);
        build.arg("--target-dir").arg(profile.parent().expect("it has a folder of its own"));
        if profile.ends_with("release") {
            build.arg("--release");
        }
        // The machine of `ci/rxe` may have no cargo; the programs are already built there.
        let built = build.status().map_or_else(|_| path.exists(), |status| status.success());
        assert!(built, "{program} cannot be built");
    }
    looked_at.push(path.clone());
    path
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|meta| meta.modified()).ok()
}

/// When the newest file of a folder was changed; `None` if the sources do not exist.
fn newest(folder: &Path) -> Option<SystemTime> {
    let entries = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    entries.map(|path| if path.is_dir() { newest(&path) } else { modified(&path) }).max().flatten()
}
