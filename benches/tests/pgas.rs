//! A short run of `farside-bench pgas` and of `benches/pgas/run` must print every figure. Peers that are not installed
//! are skipped.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use farside_harness::{farside, skip, works};

fn printed(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn pgas_prints_a_figure_of_every_operation() {
    let output = Command::new(farside())
        .args(["run", "-n", "2", "--timeout", "60", env!("CARGO_BIN_EXE_farside-bench"), "pgas"])
        .args(["--block-ms", "1", "--table-bits", "8", "--pictures", "1,2,8"])
        .output()
        .unwrap();
    let text = printed(&output);
    let figures: BTreeSet<_> = text
        .lines()
        .map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            let [operation, number, figure] = words[..] else { panic!("{line}") };
            assert!(figure.parse::<f64>().unwrap() > 0.0, "{line}");
            format!("{operation} {number}")
        })
        .collect();
    let sized = |operations: &[&str], numbers: &[usize]| -> Vec<String> {
        operations.iter().flat_map(|of| numbers.iter().map(move |number| format!("{of} {number}"))).collect()
    };
    let expected: BTreeSet<_> = [
        sized(&["put", "get", "put_signal"], &[8, 4096, 1 << 20]),
        sized(&["add", "fetch_add", "call", "call_short", "histogram_loop", "histogram_batch"], &[8]),
        sized(&["gather_loop", "gather_batch", "gather_indexed"], &[8]),
        sized(&["array_link", "array_new_link", "array_by_hand"], &[4096, 1 << 20]),
        sized(&["fourier_two_tasks", "fourier_one_task"], &[1, 2, 8]),
    ]
    .concat()
    .into_iter()
    .collect();
    assert_eq!(figures, expected);
}

#[test]
fn tables_of_pgas_have_the_figures_of_farside_and_name_missing_peers() {
    if !works("python3", &["--version"]) {
        skip("tables of pgas", "there is no python3");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    symlink(farside(), folder.path().join("farside")).unwrap();
    symlink(env!("CARGO_BIN_EXE_farside-bench"), folder.path().join("farside-bench")).unwrap();
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("pgas/run"))
        .args(["--rounds", "1", "--block-ms", "1", "--pictures", "4", "--libraries", "farside,lamellar"])
        .env("FARSIDE_MPI", folder.path())
        .env("FARSIDE_PEERS", folder.path())
        .output()
        .unwrap();
    let text = printed(&output);
    let row = |first: &[&str]| {
        let found = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        found.into_iter().find(|words| words.starts_with(first)).unwrap_or_else(|| panic!("{first:?} in {text}"))
    };
    for (operation, bytes) in [("put", "8"), ("get", "1048576"), ("call", "8"), ("gather_indexed", "8")] {
        assert!(row(&[operation, bytes])[3].parse::<f64>().unwrap() > 0.0, "{text}");
    }
    assert!(row(&["2", "+", "2", "4096"])[6].parse::<f64>().unwrap() > 0.0, "{text}");
    assert!(row(&["4", "4"])[3].parse::<f64>().unwrap() > 0.0, "{text}");
    assert!(text.contains("note: lamellar: no "), "{text}");
}
