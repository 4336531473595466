//! Release builds, for the tests that count instructions.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The program `instructions`: the file that `FARSIDE_INSTRUCTIONS_BIN` names, or a fresh build.
///
/// # Panics
/// It cannot be built.
#[must_use]
pub fn program() -> PathBuf {
    std::env::var_os("FARSIDE_INSTRUCTIONS_BIN").map_or_else(|| built("instructions"), PathBuf::from)
}

/// The MPI library: the library in the folder `FARSIDE_MPI`, or a fresh build.
///
/// # Panics
/// It cannot be built.
#[must_use]
pub fn library() -> PathBuf {
    const NAME: &str = "libmpi_abi.so";
    std::env::var_os("FARSIDE_MPI").map_or_else(|| built(NAME), |folder| PathBuf::from(folder).join(NAME))
}

/// Builds both with one command, so that they share their dependencies. Omits the verbs device and the log, which take
/// longest to build and which no counted operation uses; so the builds use a separate target folder.
fn built(name: &str) -> PathBuf {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("counted");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--release", "--quiet", "--no-default-features", "-p", "farside-mpi", "--lib"]);
    build.args(["-p", "farside-instructions", "--bin", "instructions", "--target-dir"]).arg(&target).current_dir(root);
    assert!(build.status().expect("cargo starts").success());
    target.join("release").join(name)
}
