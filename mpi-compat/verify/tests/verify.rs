//! C programs tests/c/CHECK_CALL.c, each with calls that are incorrect if WRONG is defined. The incorrect form must
//! print the texts that the head of the program lists (`says TEXT`), and all ranks must reach their error handler and
//! continue; the correct form prints nothing. Both are built once and run on Farside and on MPICH, where `ci/peers` has
//! fetched it.
//!
//! The head may also say: `ranks N` (2 without it), `level N` (1 without it), `both TEXT` (a text that both forms
//! print), `env NAME=VALUE`, `fatal` (the wrong form ends with an error), `wrong only`, `not on peers` and the reason.

use std::path::{Path, PathBuf};
use std::process::Command;

use farside_harness::{Finished, Marked, mpi_folder, mpi_include, mpich, verify_library};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c");

struct Program {
    name: String,
    head: String,
    source: PathBuf,
}

impl Program {
    fn words<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.head.lines().filter_map(move |line| line.trim().strip_prefix(key)).map(str::trim)
    }

    fn build(&self, folder: &Path, peer: Option<&str>, wrong: bool) -> PathBuf {
        let program = folder.join(format!("{}_{}", self.name, if wrong { "wrong" } else { "right" }));
        let mut command = Command::new(peer.unwrap_or("cc"));
        if peer.is_none() {
            command.arg("-I").arg(mpi_include()).arg("-L").arg(mpi_folder());
        }
        command
            .args(["-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"])
            .arg(&self.source)
            .arg("-o")
            .arg(&program);
        if wrong {
            command.arg("-DWRONG");
        }
        if peer.is_none() {
            command.arg("-lmpi_abi");
        }
        assert!(command.status().expect("a C compiler").success(), "{} cannot be built", self.name);
        program
    }

    /// The environment of the ranks.
    fn settings(&self) -> Vec<(&str, &str)> {
        let level = self.words("level ").next().unwrap_or("1");
        let mut all = vec![("FARSIDE_VERIFY", level)];
        all.extend(self.words("env ").filter_map(|word| word.split_once('=')));
        all
    }

    fn run(&self, program: &Path, mpich: Option<&str>) -> Finished {
        let ranks = self.words("ranks ").next().unwrap_or("2");
        let mut run = match mpich {
            None => {
                let mut run = Marked::run(ranks.parse().unwrap(), &[] as &[&str]);
                for (name, value) in self.settings() {
                    run.command.arg("--env").arg(format!("{name}={value}"));
                }
                run.command.arg("--env").arg(format!("LD_PRELOAD={}", verify_library().display()));
                run.command.env("LD_LIBRARY_PATH", mpi_folder());
                run
            }
            Some(compiler) => {
                let place = Path::new(compiler).parent().and_then(Path::parent).unwrap();
                let mut run = Marked::new(place.join("bin/mpiexec"));
                run.command.env("LD_LIBRARY_PATH", place.join("lib")).args(["-n", ranks]);
                for (name, value) in self.settings() {
                    run.command.args(["-genv", name, value]);
                }
                run.command.args(["-genv", "LD_PRELOAD", verify_library().to_str().unwrap()]);
                run
            }
        };
        run.command.arg(program);
        run.finish()
    }

    /// The errors of a run.
    fn judge(&self, run: &Finished, wrong: bool) -> Vec<String> {
        let ranks = self.words("ranks ").next().unwrap_or("2").parse().unwrap();
        let fatal = wrong && self.words("fatal").next().is_some();
        let expected = self.words("says ").filter(|_| wrong).chain(self.words("both "));
        let mut bad: Vec<_> = expected
            .filter(|text| !run.err.contains(text))
            .map(|text| format!("the output does not contain {text:?}"))
            .collect();
        if fatal == (run.code == Some(0)) {
            bad.push(format!("ends with {:?}", run.code));
        }
        if run.out.contains("FAILED") || (!fatal && run.out.matches("ended").count() != ranks) {
            bad.push(format!("prints {}", run.out));
        }
        if !wrong && self.words("both ").next().is_none() && run.err.contains("VERIFY") {
            bad.push("reports an error in a correct call".into());
        }
        bad
    }
}

fn all() -> Vec<Program> {
    let mut all: Vec<_> = std::fs::read_dir(SOURCES)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "c"))
        .map(|source| {
            let text = std::fs::read_to_string(&source).unwrap();
            let head = text.split("*/").next().unwrap().to_owned();
            Program { name: source.file_stem().unwrap().to_str().unwrap().to_owned(), head, source }
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn check(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let compiler = mpich(&format!("{name}, on MPICH"), "mpicc_abi");
    let expected = std::env::var("FARSIDE_C_PROGRAM").unwrap_or_default();
    let mut bad = Vec::new();
    for program in all().iter().filter(|p| p.name.split('_').next() == Some(name) && p.name.contains(&expected)) {
        for wrong in [true, false] {
            if !wrong && program.words("wrong only").next().is_some() {
                continue;
            }
            let built = program.build(folder.path(), compiler.as_deref(), wrong);
            let peers = compiler.as_deref().filter(|_| program.words("not on peers").next().is_none());
            for peer in std::iter::once(None).chain(peers.map(Some)) {
                let run = program.run(&built, peer);
                let faults = program.judge(&run, wrong);
                if !faults.is_empty() {
                    let on = if peer.is_some() { "MPICH" } else { "Farside" };
                    let form = if wrong { "wrong" } else { "right" };
                    bad.push(format!(
                        "{}, {form}, on {on}: {}\n{}{}",
                        program.name,
                        faults.join("; "),
                        run.out,
                        run.err
                    ));
                }
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n\n"));
}

macro_rules! checks {
    ($($name:ident),*) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*

        #[test]
        fn every_program_belongs_to_a_test() {
            let known = [$(stringify!($name)),*];
            for program in all() {
                assert!(known.contains(&program.name.split('_').next().unwrap()), "{}", program.name);
                assert!(program.words("says ").next().is_some(), "{} must list the texts of its wrong form", program.name);
            }
        }
    };
}

checks!(call, comm, inplace, level, local, op, root, session, size, topology, types, win);
