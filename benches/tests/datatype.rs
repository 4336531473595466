//! The program `datatype`, run shortly: every line of its table, and its files.

use std::process::Command;

#[test]
fn datatype_quick_measures_both_ways_beside_loop_and_memcpy() {
    let folder = tempfile::tempdir().unwrap();
    let (json, html) = (folder.path().join("d.json"), folder.path().join("d.html"));
    let output = Command::new(env!("CARGO_BIN_EXE_datatype"))
        .args(["--quick", "--shapes", "vector_4,struct", "--json"])
        .arg(&json)
        .arg("--html")
        .arg(&html)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("by hand") && text.contains("unpack, struct: loop by hand / Farside"), "{text}");
    let results: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let records = results["records"].as_array().unwrap();
    for library in ["farside", "loop", "limit"] {
        for op in ["pack", "unpack", "copy"] {
            for shape in ["vector_4", "struct"] {
                let of = |r: &&serde_json::Value| r["library"] == library && r["op"] == op && r["shape"] == shape;
                assert!(records.iter().filter(of).count() >= 2, "{library} {op} {shape}");
            }
        }
    }
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("Farside: packing and unpacking") && page.contains("struct with gaps"));
}
