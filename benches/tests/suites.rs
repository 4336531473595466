//! The table of `ci/test`, `ci/suites`, must list each test program of the workspace, and only existing programs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const TOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn text(file: &str) -> String {
    std::fs::read_to_string(Path::new(TOP).join(file)).unwrap()
}

/// Test programs of the workspace, with their source.
fn programs() -> BTreeMap<String, PathBuf> {
    let metadata = Command::new(env!("CARGO"))
        .current_dir(TOP)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{metadata:?}");
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let targets = metadata["packages"].as_array().unwrap().iter().flat_map(|one| one["targets"].as_array().unwrap());
    let tests = targets.filter(|target| target["kind"][0] == "test");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    tests.map(|target| (text(&target["name"]), PathBuf::from(text(&target["src_path"])))).collect()
}

/// A step: suite, condition, machine, and each program with its filters.
type Step = (String, String, String, Vec<(String, Vec<String>)>);

fn steps() -> Vec<Step> {
    let table = text("ci/suites");
    let lines = table.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let words: Vec<&str> = line.trim_start_matches('+').split_whitespace().collect();
            let [suite, when, place, what @ ..] = &words[..] else { panic!("a step needs four words: {line}") };
            assert!(["gate", "always", "named"].contains(when), "{line}");
            let what = what.iter().map(|word| {
                let (program, filters) = word.split_once('=').unwrap_or((word, ""));
                let program = program.split('@').next().unwrap().to_owned();
                (program, filters.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect())
            });
            ((*suite).to_owned(), (*when).to_owned(), (*place).to_owned(), what.collect())
        })
        .collect()
}

#[test]
fn each_test_program_runs_whole() {
    let script = text("ci/test");
    // Another step, which may be a named one, has the tests that a step that always runs leaves out.
    let lists = |program: &str, whens: &[&str]| -> Vec<Vec<String>> {
        let here = steps().into_iter().filter(|(_, when, place, _)| {
            whens.contains(&when.as_str()) && ["here", "brief"].contains(&place.as_str())
        });
        here.flat_map(|step| step.3).filter(|(name, _)| name == program).map(|(_, filters)| filters).collect()
    };
    for program in programs().keys() {
        let all = lists(program, &["always", "named"]);
        let lists = lists(program, &["always"]);
        if lists.iter().any(Vec::is_empty) || script.contains(&format!(" program {program}\n")) {
            continue;
        }
        let (without, with): (Vec<&String>, Vec<&String>) = all.iter().flatten().partition(|one| one.starts_with('-'));
        assert!(
            lists.iter().any(|list| list.iter().all(|one| one.starts_with('-'))),
            "no step of ci/suites runs the test program {program} on this machine: {lists:?}"
        );
        for one in without {
            assert!(with.contains(&&one[1..].to_owned()), "ci/suites excludes {program}={one}, but has no step for it");
        }
    }
}

#[test]
fn what_the_table_names_is_there() {
    let (programs, script) = (programs(), text("ci/test"));
    let named: BTreeSet<String> = steps().into_iter().map(|step| step.0).collect();
    for suite in &named {
        assert!(script.contains(&format!("\n#   {suite} ")), "the head of ci/test does not explain {suite}");
    }
    for (suite, _, place, what) in steps() {
        assert!(script.contains(&format!("[{place}]=")), "{suite}: ci/test has no machine {place}");
        let run = what[0].0 == "run";
        for (name, filters) in what {
            match name.as_str() {
                "lib" | "bins" | "doc" | "run" => continue,
                setting if setting.starts_with("FARSIDE_") => continue,
                _ if run => assert!(script.contains(&format!("\n{name}() {{")), "{suite}: no function {name}"),
                _ => {
                    let source = programs.get(&name).unwrap_or_else(|| panic!("{suite}: no test program {name}"));
                    let root = std::fs::read_to_string(source).unwrap();
                    for module in
                        filters.iter().filter(|one| !one.starts_with('-')).filter_map(|one| one.split_once("::"))
                    {
                        let line = format!("mod {};", module.0);
                        assert!(root.contains(&line), "{suite}: the test program {name} has no module {}", module.0);
                    }
                }
            }
        }
    }
}
