//! A device written outside the workspace passes the checks, and a program runs on it.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The crate is the root of a workspace of its own, with packages that are already downloaded, most of them built.
#[test]
fn device_of_another_workspace_passes_the_checks_and_runs_the_heat_stencil() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let farside = here.ancestors().nth(2).unwrap();
    let crate_dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside");
    fs::create_dir_all(crate_dir.join("src")).unwrap();
    let manifest = fs::read_to_string(here.join("tests/outside/Cargo.toml.in")).unwrap();
    let manifest = manifest.replace("@FARSIDE@", farside.to_str().unwrap());
    fs::write(crate_dir.join("Cargo.toml"), manifest).unwrap();
    fs::copy(farside.join("Cargo.lock"), crate_dir.join("Cargo.lock")).unwrap();
    for sources in [here.join("tests/outside/src"), farside.join("rma/examples/heat_stencil")] {
        for file in fs::read_dir(sources).unwrap().map(|file| file.unwrap().path()) {
            let to = crate_dir.join("src").join(file.file_name().unwrap());
            // The main file of the example is used in place.
            if !file.ends_with("heat_stencil/main.rs") {
                fs::copy(file, to).unwrap();
            }
        }
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let ended = Command::new(cargo)
        .args(["run", "--quiet", "--offline"])
        .current_dir(&crate_dir)
        .env("CARGO_TARGET_DIR", crate_dir.ancestors().nth(2).unwrap())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (output, errors) = (text(&ended.stdout), text(&ended.stderr));
    assert!(ended.status.success(), "{}\n{output}\n{errors}", ended.status);
    assert!(output.contains("heat: as a serial computation"), "{output}\n{errors}");
    println!("{output}");
}
