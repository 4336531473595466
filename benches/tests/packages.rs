//! The publishable crates can be packaged together, and each package contains the files that its users need.

use std::process::Command;

use serde_json::Value;

const PUBLISHED: [&str; 6] =
    ["farside-conformance", "farside-core", "farside-datatype", "farside-launch", "farside-rma", "farside-schedule"];

const TOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn run(command: &mut Command) -> String {
    let output = command.current_dir(TOP).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}:\n{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The crates of the workspace without `publish = false`.
fn published() -> Vec<String> {
    let metadata =
        run(Command::new(env!("CARGO")).args(["metadata", "--no-deps", "--offline", "--format-version", "1"]));
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let crates = metadata["packages"].as_array().unwrap().iter().filter(|one| one["publish"].is_null());
    let mut names: Vec<String> = crates.map(|one| one["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn crates_are_packaged_with_readme_and_licences_and_without_tests_that_cannot_run() {
    let names = published();
    assert_eq!(names, PUBLISHED);
    let folder = tempfile::tempdir().unwrap();
    let mut package = Command::new(env!("CARGO"));
    package
        .args(["package", "--quiet", "--offline", "--allow-dirty", "--no-verify", "--target-dir"])
        .arg(folder.path());
    run(package.args(names.iter().flat_map(|name| ["-p", name])));
    for name in names {
        let stem = format!("{name}-{}", env!("CARGO_PKG_VERSION"));
        let archive = folder.path().join("package").join(format!("{stem}.crate"));
        let list = run(Command::new("tar").arg("tzf").arg(archive));
        let files: Vec<&str> = list.lines().filter_map(|file| file.strip_prefix(&format!("{stem}/"))).collect();
        let main = if name == "farside-launch" { "src/main.rs" } else { "src/lib.rs" };
        for file in ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE", main] {
            assert!(files.contains(&file), "{name} is packaged without {file}: {files:?}");
        }
        // The other crates' tests use the harness, which is not published.
        let has_tests = files.iter().any(|file| file.starts_with("tests/"));
        assert_eq!(has_tests, ["farside-datatype", "farside-schedule"].contains(&&*name), "{name}: {files:?}");
        let has_examples = files.contains(&"examples/hello_put_get.rs");
        assert_eq!(has_examples, name == "farside-rma", "{name}: {files:?}");
    }
}
