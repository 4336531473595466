//! The test harness of all crates for processes: programs of the workspace, started by `farside run` or other
//! launchers, whose processes must all have ended afterwards.

mod marked;
mod programs;
mod refuse;

use std::io::Write;
use std::process::Command;

pub use marked::{Finished, Marked, PATIENCE, Running, children, signal};
pub use programs::{example, farside, mpi_folder, mpi_include, mpi_library, verify_library};
pub use refuse::{refuse, refuse_opens};

/// Whether each test runs fewer rounds and combinations, for emulated machines.
#[must_use]
pub fn quick() -> bool {
    std::env::var_os("FARSIDE_TEST_QUICK").is_some()
}

/// Reports that a test is skipped because this machine lacks something that it needs. `ci/test` collects these lines,
/// which are written past the harness of Rust's tests, and counts the test as skipped.
pub fn skip(test: &str, why: &str) {
    // An error cannot be reported.
    let _ = std::io::stdout().write_all(format!("\nfarside-skip: {test}: {why}\n").as_bytes());
}

/// This test program with one of its tests chosen, as the program that ranks run.
#[must_use]
pub fn itself(test: &str) -> Vec<String> {
    let program = std::env::current_exe().expect("this program has a path");
    let program = program.to_str().expect("the path is text");
    [program, test, "--exact", "--nocapture"].map(str::to_owned).to_vec()
}

/// Like [`itself()`], for a test of the calling module.
#[macro_export]
macro_rules! itself {
    ($test:literal) => {
        $crate::itself($crate::within(concat!(module_path!(), "::", $test)))
    };
}

/// Makes the calling test, which has this name, run in a process of its own, since it counts or changes state of the
/// whole process. The caller continues only in that process.
#[macro_export]
macro_rules! alone {
    ($test:literal) => {
        if !$crate::is_alone($crate::within(concat!(module_path!(), "::", $test))) {
            return;
        }
    };
}

/// The name of a test within its program: its path without the name of the crate.
#[doc(hidden)]
#[must_use]
pub fn within(path: &'static str) -> &'static str {
    path.split_once("::").expect("a path begins with the name of a crate").1
}

/// Whether this process was started to run one test alone. If not, starts a process that runs `test` alone, and panics
/// if it fails.
#[doc(hidden)]
#[must_use]
pub fn is_alone(test: &str) -> bool {
    const ALONE: &str = "FARSIDE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let program = itself(test);
    let output = Command::new(&program[0]).args(&program[1..]).env(ALONE, "1").output().expect("this program runs");
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{test}: {}\n{text}", output.status);
    print!("{text}");
    false
}

/// The path of a program of MPICH, as [`peer`] finds it.
#[must_use]
pub fn mpich(test: &str, program: &str) -> Option<String> {
    peer(test, "mpich", program)
}

/// The path of a program of an MPI library, as `ci/peers` has put it into `$FARSIDE_PEERS` or target/peers; without it
/// the test is skipped.
#[must_use]
pub fn peer(test: &str, library: &str, program: &str) -> Option<String> {
    let target = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers").to_owned();
    let path = format!("{}/{library}/bin/{program}", std::env::var("FARSIDE_PEERS").unwrap_or(target));
    let found = std::path::Path::new(&path).exists();
    if !found {
        skip(test, &format!("there is no {program} (ci/peers fetches it)"));
    }
    found.then_some(path)
}

/// Whether a command can be run with these arguments and succeeds.
#[must_use]
pub fn works(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}
