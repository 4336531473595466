//! Runs the commands that the documents quote, as a reader with a fresh clone would: block by block, in a folder with
//! the same layout, where stand-ins (`documents/stand-in`) replace commands that take long or need the network. The
//! output that a document shows right below a command must be in the command's output.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use farside_harness::{example, farside, mpi_library, verify_library, works};

const TOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The documents, and the minimum number of command blocks in each. A later document may use files that an earlier one
/// has installed.
const DOCUMENTS: [(&str, usize); 23] = [
    ("README.md", 4),
    ("ARCHITECTURE.md", 0),
    ("mpi-compat/README.md", 1),
    ("mpi-compat/docs/programs.md", 1),
    ("mpi-compat/docs/fortran.md", 1),
    ("rma/README.md", 0),
    ("rma/docs/features.md", 0),
    ("rma/docs/user-windows.md", 0),
    ("core/README.md", 0),
    ("core/docs/starting.md", 1),
    ("core/docs/settings.md", 1),
    ("core/docs/bill.md", 2),
    ("core/docs/adapters.md", 1),
    ("core/docs/tcp.md", 1),
    ("core/docs/ofi.md", 1),
    ("core/docs/nodes.md", 1),
    ("core/docs/routes.md", 1),
    ("core/docs/selection.md", 1),
    ("core/docs/simulation.md", 0),
    ("core/launch/README.md", 1),
    ("core/schedule/README.md", 0),
    ("datatype/README.md", 0),
    ("benches/docs/measuring.md", 4),
];

/// Part of a document: a block of commands, and the expected lines.
#[derive(Debug, Default)]
struct Block {
    commands: String,
    promised: Vec<String>,
}

/// The blocks of commands of a document: those marked `sh`, with a `text` block right below them, and lines of a `text`
/// block after a `$`. Blocks below a comment that marks them as needing the network are skipped.
fn blocks(document: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let (mut kind, mut is_below, mut needs_network) = (None, false, false);
    for line in document.lines() {
        match (kind, line.strip_prefix("```")) {
            (None, Some(opened)) => {
                kind = Some(opened);
                if opened == "sh" && !needs_network {
                    found.push(Block::default());
                }
                is_below &= opened == "text";
            }
            (Some(closed), Some(_)) => {
                is_below = closed == "sh" && !needs_network;
                (kind, needs_network) = (None, false);
            }
            (Some("sh"), None) if !needs_network => {
                let block = found.last_mut().unwrap();
                block.commands += &format!("{line}\n");
            }
            (Some("text"), None) => match line.strip_prefix("$ ") {
                Some(command) => found.push(Block { commands: format!("{command}\n"), promised: Vec::new() }),
                None if is_below => found.last_mut().unwrap().promised.push(line.to_owned()),
                None => {}
            },
            (None, None) if line.is_empty() => {}
            (None, None) => (is_below, needs_network) = (false, line.starts_with("<!-- needs the network")),
            _ => {}
        }
    }
    found
}

/// A folder like the parent of a fresh clone, with the clone in `clone`.
fn clone_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let clone = folder.path().join("clone");
    let top = Path::new(TOP).canonicalize().unwrap();
    std::fs::create_dir_all(clone.join("ci")).unwrap();
    for entry in std::fs::read_dir(&top).unwrap().flatten() {
        let name = entry.file_name();
        if !["ci", "target", ".git", "out"].iter().any(|own| name == *own) {
            symlink(entry.path(), clone.join(name)).unwrap();
        }
    }
    let bin = folder.path().join("stand-ins");
    std::fs::create_dir(&bin).unwrap();
    let stand_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/documents/stand-in");
    for name in ["cargo", "apt-get"] {
        symlink(&stand_in, bin.join(name)).unwrap();
    }
    for entry in std::fs::read_dir(top.join("ci")).unwrap().flatten().filter(|entry| entry.path().is_file()) {
        symlink(&stand_in, clone.join("ci").join(entry.file_name())).unwrap();
    }
    let farside = farside();
    symlink(&farside, bin.join("farside")).unwrap();
    for profile in ["debug", "release"] {
        let target = clone.join("target").join(profile);
        std::fs::create_dir_all(target.join("examples")).unwrap();
        symlink(&farside, target.join("farside")).unwrap();
        for name in ["hello_put_get", "heat_stencil"] {
            symlink(example("farside-rma", name), target.join("examples").join(name)).unwrap();
        }
        let quick =
            "case \" $* \" in *' --quick '*) exec \"$0.real\" \"$@\" ;; *) exec \"$0.real\" \"$@\" --help ;; esac";
        let place = target.join("farside-bench");
        symlink(env!("CARGO_BIN_EXE_farside-bench"), place.with_extension("real")).unwrap();
        std::fs::write(&place, format!("#!/bin/sh\n{quick}\n")).unwrap();
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

/// Runs a block and returns its output.
fn run(folder: &Path, document: &str, block: &Block) -> String {
    let path = std::env::var("PATH").unwrap();
    let output = Command::new("bash")
        .args(["-e", "-o", "pipefail", "-c", &block.commands])
        .current_dir(folder.join("clone"))
        .env("PATH", format!("{}:{path}", folder.join("stand-ins").display()))
        .env("REAL_PATH", path)
        .env("REAL_TOP", TOP)
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{document}:\n{}{out}{errors}", block.commands);
    out
}

#[test]
fn commands_of_the_documents_do_what_is_promised() {
    // The programs are built first, so that the commands trigger no build.
    let _ = (mpi_library(), verify_library());
    let folder = clone_folder();
    let with_fortran = works("gfortran", &["--version"]);
    for (document, least) in DOCUMENTS {
        let blocks = blocks(&std::fs::read_to_string(Path::new(TOP).join(document)).unwrap());
        assert!(blocks.len() >= least, "{document} has {} blocks of commands: {blocks:?}", blocks.len());
        for mut block in blocks {
            // The other commands are run where gfortran is missing.
            if !with_fortran && block.commands.contains("fort") {
                let lines = block.commands.lines().filter(|line| !line.contains("fort"));
                block.commands = lines.map(|line| format!("{line}\n")).collect();
                block.promised.clear();
            }
            let output = run(folder.path(), document, &block);
            let lines: BTreeSet<_> = output.lines().collect();
            for line in &block.promised {
                assert!(
                    lines.contains(line.as_str()),
                    "{document} shows {line:?}, which is missing from the output of\n{}{output}",
                    block.commands
                );
            }
        }
    }
}

#[test]
fn readme_shows_the_example_that_it_names() {
    let read = |path: &str| std::fs::read_to_string(Path::new(TOP).join(path)).unwrap();
    let (readme, example) = (read("README.md"), read("rma/examples/hello_put_get.rs"));
    let (_, program) = example.split_once("\n\n").unwrap();
    assert!(readme.contains(&format!("```rust\n{program}```\n")), "the README should show\n{program}");
    assert_eq!(readme.matches("```rust").count(), 1, "programs of the README that no test runs");
}

#[test]
fn first_page_is_short_and_opens_with_programs_and_a_measurement() {
    let readme = std::fs::read_to_string(Path::new(TOP).join("README.md")).unwrap();
    let lines: Vec<&str> = readme.lines().collect();
    assert!(lines.len() <= 220, "the README has {} lines", lines.len());
    for part in [
        "fn main() -> Result<()> {",
        "../farside-mpi/bin/mpiexec -n 4 ../hello-mpi",
        "target/release/farside-bench sync-overhead --quick --ranks 2",
    ] {
        assert!(lines[..60].contains(&part), "the first 60 lines of the README do not have {part}");
    }
    for mark in ["results: written by ci/results --write", "pictures: written by ci/results --pictures"] {
        assert!(lines.contains(&&*format!("<!-- {mark} -->")), "the README has no mark of its {mark}");
    }
}

#[test]
fn every_page_has_an_example_that_a_test_runs() {
    let crates = std::fs::read_dir(TOP).unwrap().flatten().map(|entry| entry.path());
    let mut seen = 0;
    for folder in crates.filter(|path| path.join("docs").is_dir()) {
        for page in std::fs::read_dir(folder.join("docs")).unwrap().flatten().map(|entry| entry.path()) {
            if page.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let file = page.file_name().unwrap().to_str().unwrap();
            let name = format!("{}/docs/{file}", folder.file_name().unwrap().to_str().unwrap());
            assert!(DOCUMENTS.iter().any(|(document, _)| *document == name), "{name} is not covered by this test");
            let text = std::fs::read_to_string(&page).unwrap();
            let has_program = text.contains("```rust");
            assert!(has_program || !blocks(&text).is_empty(), "{name} has no example");
            if has_program {
                // Documentation tests run its programs.
                let library = std::fs::read_to_string(folder.join("src/lib.rs")).unwrap();
                assert!(
                    library.contains(&format!("include_str!(\"../docs/{file}\")")),
                    "no test runs the program of {name}"
                );
            }
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen} pages");
}

#[test]
fn links_of_the_documents_lead_somewhere() {
    let mut seen = 0;
    for document in DOCUMENTS.map(|(document, _)| document).into_iter().chain(["CHANGELOG.md"]) {
        let path = Path::new(TOP).join(document);
        for link in links(&std::fs::read_to_string(&path).unwrap()) {
            let (file, heading) = link.split_once('#').unwrap_or((link.as_str(), ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(target.exists(), "{document} links to {link}: there is no {}", target.display());
            seen += 1;
            if heading.is_empty() {
                continue;
            }
            let text = std::fs::read_to_string(&target).unwrap();
            let headings = prose(&text).into_iter().filter(|line| line.starts_with('#'));
            let mut anchors = headings.map(|line| anchor(line.trim_start_matches('#')));
            assert!(anchors.any(|name| name == heading), "{document} links to {link}: there is no such heading");
        }
    }
    assert!(seen > 20, "{seen} links");
}

#[test]
fn readme_of_rma_lists_the_examples() {
    let folder = Path::new(TOP).join("rma");
    let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let listed: BTreeSet<_> = rows.map(|(name, _)| name.to_owned()).collect();
    let entries = std::fs::read_dir(folder.join("examples")).unwrap().flatten().map(|entry| entry.path());
    let programs = entries.filter(|path| path.is_file() || path.join("main.rs").exists());
    for program in programs.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()) {
        assert!(listed.contains(&program), "rma/README.md does not list the example {program}");
    }
}

/// The lines outside of blocks.
fn prose(document: &str) -> Vec<&str> {
    let mut is_block = false;
    let lines = document.lines().filter(|line| {
        is_block ^= line.starts_with("```");
        !is_block && !line.starts_with("```")
    });
    lines.collect()
}

/// Texts in backticks, outside of blocks.
fn inline(document: &str) -> Vec<String> {
    prose(document).join(" ").split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The targets of a document's links, except those on other hosts.
fn links(document: &str) -> Vec<String> {
    let text = prose(document).join(" ");
    let text: String = text.split('`').step_by(2).collect();
    let places = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
    places.filter(|place| !place.contains("://")).collect()
}

/// The anchor of a heading in links.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn options_and_scripts_that_the_documents_name_exist() {
    let help = |arguments: &[&str]| {
        let output = Command::new(farside()).args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let (run, info) = (help(&["run", "--help"]), help(&["info", "--help"]));
    let mut seen = 0;
    for document in DOCUMENTS.map(|(document, _)| document).into_iter().chain(["CHANGELOG.md"]) {
        let text = std::fs::read_to_string(Path::new(TOP).join(document)).unwrap();
        for code in inline(&text) {
            let words: Vec<_> = code.split_whitespace().collect();
            if let Some(script) = words.first().filter(|word| word.starts_with("ci/") && !word.ends_with('/')) {
                assert!(Path::new(TOP).join(script).exists(), "{document}: `{code}`: there is no {script}");
            }
            let known = match words[..] {
                ["farside", "run", ..] | ["mpiexec", ..] => &run,
                ["farside", "info", ..] => &info,
                _ => continue,
            };
            seen += 1;
            let is_option = |word: &&&str| word.starts_with('-') && word.len() > 1;
            for option in words.iter().take_while(|word| !word.starts_with("./")).filter(is_option) {
                let name = option.trim_start_matches('-');
                assert!(known.contains(&format!("-{name}")), "{document}: `{code}`: there is no option {option}");
            }
        }
    }
    assert!(seen > 5, "{seen} commands");
}
