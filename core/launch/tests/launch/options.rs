//! The options of `farside run` and of `mpiexec` that users of other launchers expect.

use std::path::{Path, PathBuf};

use farside_harness::{Finished, Marked, farside};

/// A folder with the launcher under its second name.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(farside(), folder.path().join("mpiexec")).unwrap();
    folder
}

fn mpiexec(arguments: &[&str]) -> Finished {
    let folder = folder();
    Marked::new(folder.path().join("mpiexec")).finish_with(arguments)
}

fn run(arguments: &[&str]) -> Finished {
    Marked::new(farside()).finish_with(&[&["run"], arguments].concat())
}

/// Runs both commands, which must print the same lines and nothing on standard error; returns the lines, sorted.
fn both(arguments: &[&str]) -> Vec<String> {
    let [ours, theirs] = [run(arguments), mpiexec(arguments)].map(|done| {
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{arguments:?}: {done:?}");
        let mut lines: Vec<_> = done.out.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    });
    assert_eq!(ours, theirs, "{arguments:?}");
    ours
}

#[test]
fn number_of_ranks_is_given_in_the_ways_of_all_launchers() {
    for (options, ranks) in [
        ("-n 3", 3),
        ("-np 2", 2),
        ("--ranks=2", 2),
        ("", 1),
        ("-ppn 2", 2),
        ("-ppn 2 -n 3", 3),
        ("-N 2", 2),
        ("-host localhost:2,127.0.0.1", 2),
        ("-hosts localhost -n 3", 3),
        ("-n 8 -soft 1,2:6:2", 6),
        ("-n 3 --oversubscribe --allow-run-as-root", 3),
    ] {
        let options: Vec<&str> = options.split_whitespace().collect();
        assert_eq!(both(&[&options[..], &["echo", "up"]].concat()), vec!["up"; ranks], "{options:?}");
    }
}

#[test]
fn hosts_in_a_file_are_names_of_this_machine_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts");
    let name = file.to_str().unwrap();
    std::fs::write(&file, "# ours\nlocalhost slots=2 max_slots=4\n127.0.0.1:1\n\n").unwrap();
    for option in ["-f", "-hostfile", "--machinefile"] {
        assert_eq!(both(&[option, name, "echo", "up"]), ["up"; 3]);
    }
}

/// Runs `farside run` and `mpiexec` with only one folder in `PATH`.
fn with_path(path: &Path, arguments: &[&str]) -> [Finished; 2] {
    let folder = folder();
    let [mut run, mut mpiexec] = [Marked::new(farside()), Marked::new(folder.path().join("mpiexec"))];
    run.command.env("PATH", path).arg("run");
    mpiexec.command.env("PATH", path);
    [run, mpiexec].map(|command| command.finish_with(arguments))
}

#[test]
fn hosts_of_which_one_is_another_machine_need_another_launcher() {
    let empty = tempfile::tempdir().unwrap();
    let file = empty.path().join("hosts");
    std::fs::write(&file, "localhost slots=2\n192.0.2.7\n").unwrap();
    let file = file.to_str().unwrap();
    for options in [["-host", "localhost,192.0.2.7"], ["-H", "192.0.2.7:4"], ["--hostfile", file]] {
        for done in with_path(empty.path(), &[&options[..], &["true"]].concat()) {
            assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{done:?}");
            let parts = ["192.0.2.7 is another machine", "no mpiexec.hydra and no prterun", "install", "--launcher"];
            assert!(parts.iter().all(|part| done.err.contains(part)), "{done:?}");
        }
    }
    for (launcher, part) in [
        ("/bin/true", "/bin/true is neither Hydra nor PRRTE"),
        ("/nowhere/at/all", "there is no /nowhere/at/all"),
        ("prrte", "there is no prterun"),
    ] {
        let [done, _] = with_path(empty.path(), &["--launcher", launcher, "-n", "2", "true"]);
        assert!(done.code == Some(1) && done.err.contains(part), "{done:?}");
    }
}

#[test]
fn other_launcher_is_found_by_path_name_or_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let make = |name: &str, version: &str| {
        let text = format!("#!/bin/sh\n[ \"$1\" = --version ] && echo '{version}' && exit\necho \"$*\"; exit 7\n");
        script(&folder.path().join(name), &text);
    };
    make("prterun", "");
    make("other-mpi", "mpirun (Open MPI) 5.0.11");
    make("old-mpi", "mpirun (Open MPI) 4.1.4");
    make("intel-mpi", "Intel(R) MPI Library for Linux* OS, Version 2021.18");
    let hosts = "192.0.2.7:1,192.0.2.8:1";
    let said = |options: &[&str]| with_path(folder.path(), &[options, &["-host", hosts, "a", "-n", "b"]].concat());
    for done in said(&[]) {
        assert!(done.code == Some(7) && done.out.contains("--host 192.0.2.7:1,192.0.2.8:1"), "{done:?}");
        assert!(done.out.contains(" -x PATH ") && done.out.ends_with(" a -n b\n"), "{done:?}");
    }
    make("mpiexec.hydra", "");
    let [path, intel, open, old] = ["./mpiexec.hydra", "intel-mpi", "other-mpi", "old-mpi"]
        .map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    for options in [&[][..], &["--launcher", "hydra"], &["-launcher", &path], &["--launcher", &intel]] {
        for done in said(options) {
            let want = "-hosts 192.0.2.7:1,192.0.2.8:1 -n 2 a -n b\n";
            assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(7), want, ""), "{options:?}");
        }
    }
    let [done, _] = said(&["--launcher", &open]);
    assert!(done.code == Some(7) && done.out.contains("--host"), "{done:?}");
    let [done, _] = said(&["--launcher", &old]);
    assert!(done.code == Some(1) && done.err.contains("neither Hydra nor PRRTE"), "{done:?}");
}

#[test]
fn variables_are_set_in_the_ways_of_all_launchers() {
    let show = ["sh", "-c", "echo $A-$B"];
    for options in [
        "-genv A=1 -env B=2",
        "-genv A 1 -env B 2",
        "-x A=1 -x B=2",
        "--env A=1 --env B=2",
        "--env=A=1 -genvall -envall -genv B=2",
        "-genv A=0 -genv B=2 -env A=1",
        "-x HOME -env A=1 -env B=2",
    ] {
        let options: Vec<&str> = options.split_whitespace().collect();
        assert_eq!(both(&[&options[..], &show].concat()), ["1-2"], "{options:?}");
    }
    let show = ["sh", "-c", "echo ${A-none} ${C-none} ${PMI_RANK-none}"];
    for (options, seen) in [
        ("-genvnone -genv A=1", "1 none 0"),
        ("-envnone -env A=1", "1 none 0"),
        ("-genvlist C", "none c 0"),
        ("-envlist C,D -genvnone -env A=1", "1 c 0"),
    ] {
        // The mark of the test is a variable that such ranks do not have.
        let mut launcher = Marked::new(farside());
        let options: Vec<&str> = options.split_whitespace().collect();
        launcher.command.env("C", "c").arg("run").args(&options);
        assert_eq!(launcher.finish_with(&show).out, format!("{seen}\n"), "{options:?}");
    }
}

pub(crate) fn script(file: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(file, text).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A program in a folder of its own.
fn program(folder: &Path, name: &str) -> PathBuf {
    let file = folder.join(name);
    script(&file, "#!/bin/sh\necho \"here $PMI_APPNUM $PMI_RANK $*\"; pwd\n");
    file
}

#[test]
fn program_is_found_by_path_and_starts_in_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().canonicalize().unwrap();
    program(&place, "only-here");
    let place = place.to_str().unwrap();
    assert_eq!(both(&["-path", place, "-wdir", place, "only-here", "x y"]), [place, "here 0 0 x y"]);
    assert_eq!(both(&["-wdir", place, "./only-here"]), [place, "here 0 0 "]);
    let done = run(&["only-here"]);
    assert!(done.code == Some(127) && done.err.contains("only-here"), "{done:?}");
    let done = mpiexec(&["-wdir", "/nowhere/at/all", "true"]);
    assert!(done.code == Some(2) && done.err.contains("no directory"), "{done:?}");
}

#[test]
fn programs_come_from_the_line_or_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().canonicalize().unwrap();
    let program = program(&place, "which").to_str().unwrap().to_owned();
    let place = place.to_str().unwrap();
    let file = folder.path().join("programs");
    let text =
        format!("# two of the first\n-n 2 -wdir {place} {program} one \"a  b\"\n\n-wdir {place} {program} 'it is'\n");
    std::fs::write(&file, text).unwrap();
    let line = ["-n", "2", "-wdir", place, &program, "one", "a  b", ":", "-wdir", place, &program, "it is"];
    let all = [mpiexec(&line), mpiexec(&["-configfile", file.to_str().unwrap()])];
    for done in all {
        let mut lines: Vec<_> = done.out.lines().collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            [place, place, place, "here 0 0 one a  b", "here 0 1 one a  b", "here 1 2 it is"],
            "{done:?}"
        );
    }
    assert_eq!(run(&["echo", ":", "b"]).out, ": b\n", "`farside run` starts one program");
}

#[test]
fn wishes_that_one_machine_cannot_grant_are_a_line() {
    for (options, part) in [
        ("--map-by socket", "--map-by socket"),
        ("--bind-to socket", "--bind-to socket"),
        ("--mca btl self", "--mca btl self"),
    ] {
        let options: Vec<&str> = options.split_whitespace().collect();
        let done = mpiexec(&[&options[..], &["echo", "up"]].concat());
        assert_eq!((done.code, done.out.as_str(), done.err.lines().count()), (Some(0), "up\n", 1), "{done:?}");
        assert!(done.err.starts_with("mpiexec: no effect: ") && done.err.contains(part), "{done:?}");
    }
    assert_eq!(both(&["-n", "2", "--map-by", "slot", "--bind-to", "core", "echo", "up"]), ["up", "up"]);
    let only = both(&["--bind-to", "core", "grep", "Cpus_allowed_list", "/proc/self/status"]);
    assert_eq!(only, [format!("Cpus_allowed_list:\t{}", farside_core::processors::allowed()[0])]);
    // A launcher that may use one processor gives ranks no other one.
    let mut bound = Marked::new("taskset");
    let last = farside_core::processors::allowed().pop().unwrap().to_string();
    bound.command.args(["-c", &last]).arg(farside()).args(["run", "-n", "2", "--bind", "numa"]);
    let bound = bound.finish_with(&["grep", "Cpus_allowed_list", "/proc/self/status"]);
    assert_eq!(bound.out, format!("Cpus_allowed_list:\t{last}\n").repeat(2), "{bound:?}");
}

#[test]
fn help_and_version_are_printed_and_mistakes_refused() {
    let version = format!("mpiexec (Farside) {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(mpiexec(&["--version"]).out, version);
    assert_eq!(mpiexec(&["-n", "2", "-V"]).out, version);
    for done in [mpiexec(&["-help"]), run(&["--help"])] {
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
        assert!(["-ppn", "-genv", "-configfile", "-timeout"].iter().all(|name| done.out.contains(name)), "{done:?}");
        assert!(!done.out.contains("guard"), "{done:?}");
    }
    for wrong in [
        &["-n", "x", "true"] as &[_],
        &["-n", "0", "true"],
        &["-n"],
        &["-n", "100001", "true"],
        &["-n", "4000000000", "true", ":", "-n", "4000000000", "true"],
        &["-soft", "5:9", "true"],
        &["-soft", "1:2:0", "true"],
        &["--prefix=yes", "true"],
        &["-none", "true"],
        &["-n", "2"],
        &["true", ":"],
        &[],
        &["-configfile", "/nowhere/at/all"],
        &["--bind", "socket", "true"],
        &["-timeout", "0", "true"],
        &["--launch-agent", "", "true"],
        &["-host", "localhost:0", "true"],
    ] {
        let done = mpiexec(wrong);
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{wrong:?}: {done:?}");
        assert!(done.err.starts_with("mpiexec: ") && done.err.lines().count() == 1, "{wrong:?}: {done:?}");
    }
}
