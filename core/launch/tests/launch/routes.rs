//! `farside routes`: its output, its files and its errors.

use std::path::Path;
use std::process::{Command, Output};

use farside_harness::farside;

fn run(arguments: &[&str]) -> Output {
    Command::new(farside()).arg("routes").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Four nodes: the first and the third have no common fast device, and no link leads to the last.
const NETWORK: &str = "
ranges = ['8KiB', '256KiB']
forward = 4.0
nodes = [{ name = 'a' }, { name = 'b' }, { name = 'c' }, { name = 'd' }]
[devices]
verbs.model = 'L=1.6,o=0.2,G=0.0001'
tcp.model = 'L=30,o=2,G=0.01'
[[links]]
device = 'verbs'
between = ['a', 'b']
[[links]]
device = 'verbs'
between = ['b', 'c']
[[links]]
device = 'tcp'
between = ['a', 'b', 'c']
";

fn write(folder: &Path, network: &str) -> String {
    let path = folder.join("net.toml");
    std::fs::write(&path, network).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn tables_are_printed_written_and_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let network = write(dir.path(), NETWORK);
    let [table, picture] = ["table.toml", "net.svg"].map(|name| dir.path().join(name).to_str().unwrap().to_owned());
    let made = run(&[&network, "--output", &table, "--picture", &picture]);
    let (out, error) = (text(&made.stdout), text(&made.stderr));
    assert!(made.status.success() && error.is_empty(), "{out}{error}");
    for part in ["routes of a", "verbs to b, 2 hops, 8.", "no route between 3 pairs of nodes: a - d, b - d, c - d"] {
        assert!(out.contains(part), "{part} is not in {out}");
    }
    let table = std::fs::read_to_string(table).unwrap();
    assert!(table.contains("from = \"a\"\nto = \"c\"\nnext = [\"b\", \"b\", \"b\"]"), "{table}");
    assert!(std::fs::read_to_string(picture).unwrap().contains("b: forwards 2 routes"));
}

#[test]
fn route_is_explained_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let network = write(dir.path(), NETWORK);
    let said = text(&run(&[&network, "--explain", "a", "c", "64KiB"]).stdout);
    for part in ["a to c, 64 KiB: medium messages", "a to b by verbs", "b forwards", "a to c by tcp", "more: bytes +"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    assert!(!said.contains("routes of a"), "{said}");
}

#[test]
fn what_cannot_be_computed_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let network = write(dir.path(), NETWORK);
    let missing = dir.path().join("missing.toml").to_str().unwrap().to_owned();
    let no_folder = dir.path().join("none/table.toml").to_str().unwrap().to_owned();
    for (arguments, cause) in [
        (&[missing.as_str()][..], "missing.toml: No such file"),
        (&["/dev/zero"], "is longer than 16777216 bytes"),
        (&[&network, "--explain", "a", "x", "1"], "no node \"x\"; name one of a, b, c, d"),
        (&[&network, "--explain", "a", "b", "1kB"], "\"1kB\" is not a number of bytes"),
        (&[&network, "--explain", "a", "b"], "3 values required"),
        (&[&network, "--output", &no_folder], "name a file in a writable directory"),
        (&[], "required arguments were not provided"),
        (&["--hosts", "a"], "required arguments were not provided"),
        (&[&network, "--discover"], "cannot be used with"),
        (&[&network, "--hosts", "a"], "cannot be used with"),
        (&["--discover", "--seconds", "0.01"], "a number from 0.2 to 600"),
    ] {
        let output = run(arguments);
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains(cause), "{arguments:?}: {error}");
    }
    let wrong = write(dir.path(), &NETWORK.replace("between = ['b', 'c']", "between = ['b', 'e']"));
    let error = text(&run(&[&wrong]).stderr);
    assert!(
        error.contains("net.toml, line 13: links.between: there is no node \"e\"; name a node of [[nodes]]"),
        "{error}"
    );
}

#[test]
fn description_of_the_help_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let help = text(&run(&["--help"]).stdout);
    let (_, example) = help.split_once("A description:").unwrap();
    let made = run(&[&write(dir.path(), example)]);
    assert!(made.status.success(), "{}", text(&made.stderr));
}

#[test]
fn network_of_this_machine_is_discovered_and_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("table.toml").to_str().unwrap().to_owned();
    let made = run(&["--discover", "-n", "3", "--seconds", "0.2", "--output", &table]);
    let (out, error) = (text(&made.stdout), text(&made.stderr));
    assert!(made.status.success(), "{out}{error}");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let link = format!("[[links]]\ndevice = \"shm\"\nbetween = [\"{}\"]\nperformance = ", host.trim());
    assert!(out.contains(&link) && out.contains("\n# tcp"), "{out}");
    let table = std::fs::read_to_string(table).unwrap();
    assert!(table.contains("device = [\"shm\", \"shm\", \"shm\"]"), "{table}");
    let said = text(&run(&[&write(dir.path(), &out), "--explain", host.trim(), host.trim(), "8"]).stdout);
    assert!(said.contains("shm"), "{said}");
    // The command reports the error of the rank.
    let mut failing = Command::new(farside());
    failing.args(["routes", "--discover"]).env("FARSIDE_TIMEOUT_S", "never");
    let failed = failing.output().unwrap();
    assert!(!failed.status.success() && text(&failed.stderr).contains("FARSIDE_TIMEOUT_S"), "{}", text(&failed.stderr));
}
