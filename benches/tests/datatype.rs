//! Short runs of `farside-bench datatype`: every line of its table, and its files.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The search path for the launcher: the program's own folder, or that of a freshly built launcher.
pub(crate) fn folders_with_launcher() -> Vec<PathBuf> {
    let beside = Path::new(env!("CARGO_BIN_EXE_farside-bench")).parent().unwrap();
    assert!(farside_harness::farside().is_file());
    let path = env::var_os("PATH").unwrap_or_default();
    [beside.to_owned(), beside.with_file_name("debug")].into_iter().chain(env::split_paths(&path)).collect()
}

#[test]
fn datatype_quick_measures_puts_beside_copies_by_hand_and_exchanges() {
    let folder = tempfile::tempdir().unwrap();
    let (json, html) = (folder.path().join("d.json"), folder.path().join("d.html"));
    let output = Command::new(env!("CARGO_BIN_EXE_farside-bench"))
        .args([
            "datatype",
            "--quick",
            "--suites",
            "put",
            "--shapes",
            "columns_64,blocks_8,blocks_16,diagonals",
            "--json",
        ])
        .arg(&json)
        .arg("--html")
        .arg(&html)
        .env("PATH", env::join_paths(folders_with_launcher()).unwrap())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    // A run on a busy machine has a note that says so.
    assert!(!text.replace("note: the machine", "").contains("note:"), "{text}");
    assert!(text.contains("put of columns, 64 rows, allocated window, 2 ranks: Farside / copy by hand"), "{text}");
    let results: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let records = results["records"].as_array().unwrap();
    let count = |library: &str, window: &str, op: &str, shape: &str, ranks: u32| {
        let of = |r: &&serde_json::Value| {
            let what = r["library"] == library && r["window"] == window && r["op"] == op;
            what && r["shape"] == shape && r["ranks"] == ranks
        };
        records.iter().filter(of).count()
    };
    for window in ["allocated", "user", "unmapped"] {
        for op in ["put", "put_bw", "origin_cpu", "target_cpu"] {
            assert_eq!(count("farside", window, op, "columns_64", 2), 4, "{window} {op}");
        }
        for library in ["loop", "limit"] {
            let copies = if window == "unmapped" { 0 } else { 4 };
            assert_eq!(count(library, window, "put", "columns_64", 2), copies, "{library} {window}");
        }
        for (ranks, sizes) in [(2, 4), (4, 3)] {
            assert_eq!(count("farside", window, "alltoall", "columns_64", ranks), sizes, "{window} {ranks}");
        }
        assert_eq!(count("farside", window, "put", "blocks_16", 2), 1, "{window}");
        assert_eq!(count("farside", window, "put", "diagonals", 2), 3, "{window}");
    }
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("blocks of 128 KiB together") && page.contains("user window, unmapped"));
}

#[test]
fn datatype_quick_measures_both_ways_beside_loop_and_memcpy() {
    let folder = tempfile::tempdir().unwrap();
    let (json, html) = (folder.path().join("d.json"), folder.path().join("d.html"));
    let output = Command::new(env!("CARGO_BIN_EXE_farside-bench"))
        .args(["datatype", "--quick", "--suites", "pack", "--shapes", "vector_4,struct", "--json"])
        .arg(&json)
        .arg("--html")
        .arg(&html)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("by hand") && text.contains("unpack of struct with gaps: Farside / loop by hand"), "{text}");
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
    assert!(page.contains("Packing and unpacking") && page.contains("struct with gaps"));
}
