//! `farside tune`: its output, its files and its errors.

use std::path::Path;
use std::process::{Command, Output};

use farside_harness::farside;

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(farside());
    command.args(arguments).env("FARSIDE_CALIBRATION", folder).env("FARSIDE_DEVICE", "shm");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn models_are_stored_and_named_by_info() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    assert!(text(&run(dir.path(), &["info"]).stdout).contains("none: `farside tune` measures them"));
    let tuned = run(dir.path(), &["tune", "-n", "3", "--seconds", "0.5", "--page", page.to_str().unwrap()]);
    let (out, error) = (text(&tuned.stdout), text(&tuned.stderr));
    if error.contains("other programs needed the processors") {
        return farside_harness::skip("farside tune", "other programs load the processors");
    }
    assert!(tuned.status.success(), "{out}{error}");
    for part in ["device shm, 3 ranks", "messages  LogGP", "writes    pLogP", "a byte: G", "stored in"] {
        assert!(out.contains(part), "{part} is not in {out}");
    }
    let info = text(&run(dir.path(), &["info"]).stdout);
    assert!(info.contains("shm: residuals: messages LogGP") && info.contains(", written "), "{info}");
    let json = text(&run(dir.path(), &["info", "--json"]).stdout);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["models"][0]["residuals"]["messages"]["pLogP"].is_number(), "{json}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("Models of shm") && page.contains("writes: round trip") && page.contains("</svg>"));
}

#[test]
fn what_cannot_be_tuned_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    for (folder, arguments, cause) in [
        (dir.path(), &["tune", "-n", "1"][..], "1 is not in 2..=1024"),
        (dir.path(), &["tune", "--seconds", "0"], "a number from 0.02 to 600"),
        (dir.path(), &["run", "-n", "1", farside().to_str().unwrap(), "tune"], "start at least two ranks"),
        (&file, &["tune", "--seconds", "0.1"], "set FARSIDE_CALIBRATION to a writable directory"),
    ] {
        let output = run(folder, arguments);
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains(cause), "{arguments:?}: {error}");
    }
}
