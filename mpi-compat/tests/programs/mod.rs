//! C programs, one for each guarantee of the standard: tests/c/CHAPTER_PROMISE.c, which check and print their results. Those in
//! Fortran are in tests/fortran.
//! Each is built once, by MPICH's `mpicc_abi` where `ci/peers` has fetched it, and the same binary runs on Farside and
//! on MPICH with the same output; without MPICH it is built with the header here, and runs on Farside alone. In an
//! emulated machine (FARSIDE_TEST_QUICK) it runs on Farside alone, on two ranks or the smallest supported number above
//! that; with FARSIDE_TEST_NODES on three or more, since two ranks would share no node.
//!
//! The comment at the head of a program may say: `ranks N ..` (1 without it), `code N` or `code any` (its nonzero exit
//! code), `says TEXT` (a text in its output or errors), `link OPTIONS`, `env NAME=VALUE ..`, `not on peers: REASON`,
//! `not over verbs: REASON`.

mod fortran;
mod tool;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
// Relaxed: this counter only distributes program indices, so it pairs with nothing.
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use farside_harness::{Finished, Marked, farside, mpi_folder, mpi_include, mpich, quick};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c");

/// A test program, as the comment at its head describes it.
struct Program {
    name: String,
    source: PathBuf,
    ranks: Vec<u32>,
    code: Option<String>,
    says: String,
    link: Vec<String>,
    env: Vec<String>,
    on_peers: bool,
    over_verbs: bool,
}

impl Program {
    fn read(source: PathBuf) -> Self {
        let text = std::fs::read_to_string(&source).unwrap();
        // Lines of comments begin with `!` or `C` in Fortran.
        let is_fortran = source.extension().is_none_or(|end| end != "c");
        let head: String = match is_fortran {
            true => text
                .lines()
                .take_while(|line| line.starts_with(['!', 'C']))
                .map(|line| format!("{}\n", &line[1..]))
                .collect(),
            false => text.split("*/").next().unwrap().to_owned(),
        };
        let words = |key: &str| -> Vec<String> {
            let line = head.lines().map(str::trim).find_map(|line| line.strip_prefix(key));
            line.map(|line| line.split_whitespace().map(str::to_owned).collect()).unwrap_or_default()
        };
        let ranks: Vec<u32> = words("ranks ").iter().map(|n| n.parse().unwrap()).collect();
        Self {
            name: source.file_stem().unwrap().to_str().unwrap().to_owned(),
            ranks: if ranks.is_empty() { vec![1] } else { ranks },
            code: words("code ").pop(),
            says: words("says ").join(" "),
            link: words("link "),
            env: words("env "),
            on_peers: !head.contains("not on peers:"),
            over_verbs: !head.contains("not over verbs:"),
            source,
        }
    }

    /// Builds the program into a folder, unless the binary there is newer than all its sources.
    fn build(&self, folder: &Path, peer: Option<&str>) {
        let modified = |path: &Path| path.metadata().and_then(|meta| meta.modified()).ok();
        let program = folder.join(&self.name);
        let headers = std::fs::read_dir(SOURCES).unwrap().map(|entry| entry.unwrap().path());
        let headers = headers.filter(|path| path.extension().is_some_and(|end| end == "h"));
        let include = mpi_include();
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/mod.rs");
        let made_of = headers.chain([self.source.clone(), include.join("mpi.h"), here]);
        if modified(&program) > made_of.map(|path| modified(&path)).max().unwrap() {
            return;
        }
        let new = folder.join(format!("{}.{}", self.name, std::process::id()));
        let mut command = match peer {
            Some(compiler) => Command::new(compiler),
            None => {
                let mut command = Command::new("cc");
                command.arg("-I").arg(include).arg("-L").arg(mpi_folder());
                command
            }
        };
        command.args(["-O1", "-Wall", "-Wextra", "-Werror", "-Wno-cast-function-type"]).arg(&self.source);
        command.arg("-o").arg(&new).args(&self.link);
        if peer.is_none() {
            command.arg("-lmpi_abi");
        }
        assert!(command.status().expect("a C compiler").success(), "{} cannot be built", self.name);
        std::fs::rename(new, program).unwrap();
    }

    /// Runs the program on this library and on the peers, which are the folders of their installations; returns the errors of
    /// their results.
    fn run(&self, folder: &Path, peers: &[&Path]) -> Vec<String> {
        if !self.over_verbs && std::env::var("FARSIDE_DEVICE").is_ok_and(|device| device != "shm") {
            return Vec::new();
        }
        let program = folder.join(&self.name);
        let mut wrong = Vec::new();
        let least = if std::env::var_os("FARSIDE_TEST_NODES").is_some() { 3 } else { 2 };
        let ranks = match self.ranks.iter().position(|ranks| *ranks >= least) {
            Some(first) if quick() => &self.ranks[first..=first],
            None if least == 3 => &[],
            _ => &self.ranks[..],
        };
        for ranks in ranks {
            // The two configurations: window memory is mapped, or operations on it are messages.
            let memory = if self.name.starts_with("rma") && !self.name.contains("shared") && !quick() {
                &["none", "unmapped"][..]
            } else {
                &["none"]
            };
            let mut runs = memory.iter().map(|fault| {
                let mut ours = Marked::run(*ranks, &[&program]);
                ours.command.env("LD_LIBRARY_PATH", mpi_folder()).env("FARSIDE_TEST_FAULT", fault);
                ours.command.envs(self.env.iter().filter_map(|set| set.split_once('=')));
                let ours = ours.finish();
                if ours.out.contains("FAILED") || !self.ended_well(&ours) {
                    let (name, lines) = (&self.name, sorted(&ours.out).join("\n"));
                    wrong.push(format!("{name}, {ranks} ranks, {fault}: code {:?}\n{lines}\n{}", ours.code, ours.err));
                }
                ours
            });
            let Some(ours) = runs.next() else { continue };
            runs.for_each(drop);
            let with_peers = self.on_peers && self.code.is_none() && !quick();
            for place in peers.iter().filter(|_| with_peers) {
                // One file for each rank, since the launcher interleaves the output of several ranks.
                let output = tempfile::tempdir().unwrap();
                let mut theirs = Marked::new(place.join("bin/mpiexec"));
                theirs.command.env("LD_LIBRARY_PATH", place.join("lib")).args([
                    "-n",
                    &ranks.to_string(),
                    "-outfile-pattern",
                ]);
                theirs.command.arg(output.path().join("%r")).arg(&program);
                let mut theirs = theirs.finish();
                for entry in std::fs::read_dir(&output).unwrap() {
                    theirs.out += &std::fs::read_to_string(entry.unwrap().path()).unwrap();
                }
                if sorted(&theirs.out) != sorted(&ours.out) || theirs.code != ours.code {
                    let lines = [&ours.out, &theirs.out].map(|out| sorted(out).join("\n"));
                    let (name, [ours, their]) = (&self.name, &lines);
                    let peer = place.file_name().unwrap().display();
                    let end = format!("{ours}\n{peer}, code {:?}:\n{their}\n{}", theirs.code, theirs.err);
                    wrong.push(format!("{name}, {ranks} ranks: differs\nFarside:\n{end}"));
                }
            }
        }
        wrong
    }

    /// Runs the program on a device that damages one operation of every rank. Returns whether the program fails; `None`
    /// if it has no such operation. A damaged program may hang, so it is ended after a few seconds; a program that is
    /// undamaged by then is merely slow. A rank that sleeps while delayed data arrive does not notice them, so a
    /// program that succeeds is run up to three times.
    fn detects(&self, program: &Path, damage: &str) -> Option<bool> {
        let ranks = self.ranks.iter().max()?.to_string();
        let run = |seconds| {
            let mut run = Marked::new("timeout");
            run.command.arg(seconds).arg(farside()).args(["run", "-n", &ranks]).arg(program);
            run.command
                .env("LD_LIBRARY_PATH", mpi_folder())
                .env("FARSIDE_TEST_FAULT", damage)
                .env("FARSIDE_LOG", "info");
            let run = run.finish();
            (run.err.contains("fault injected"), run.code)
        };
        let ends_well = || {
            let (damaged, code) = match run("3") {
                (false, Some(124)) => run("100"),
                ended => ended,
            };
            damaged.then_some(code == Some(0))
        };
        let first = ends_well()?;
        Some(!(first && ends_well() == Some(true) && ends_well() == Some(true)))
    }

    fn ended_well(&self, run: &Finished) -> bool {
        if !run.out.contains(&self.says) && !run.err.contains(&self.says) {
            return false;
        }
        match self.code.as_deref() {
            None => run.code == Some(0),
            Some("any") => run.code != Some(0) && !run.err.is_empty() && !run.out.contains("it went on"),
            Some(code) => run.code == code.parse().ok(),
        }
    }
}

/// The lines of several ranks arrive in any order.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// The programs of each chapter; with FARSIDE_C_PROGRAM, a list, those whose name contains one of its names.
fn all() -> BTreeMap<String, Vec<Program>> {
    let wanted = std::env::var("FARSIDE_C_PROGRAM").unwrap_or_default();
    let mut chapters = BTreeMap::<String, Vec<Program>>::new();
    for entry in std::fs::read_dir(SOURCES).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "c") {
            let program = Program::read(path);
            if !wanted.split(',').any(|one| program.name.contains(one)) {
                continue;
            }
            let chapter = program.name.split('_').next().unwrap().to_owned();
            chapters.entry(chapter).or_default().push(program);
        }
    }
    chapters
}

/// Builds all programs with this compiler and returns their folder.
fn built(compiler: Option<&str>) -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let name = if compiler.is_some() { "c-by-mpich" } else { "c" };
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let programs: Vec<_> = all().into_values().flatten().collect();
        let next = AtomicUsize::new(0);
        let _ = mpi_folder();
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    // Relaxed: pairs with nothing; joining the threads publishes the built programs.
                    while let Some(program) = programs.get(next.fetch_add(1, Relaxed)) {
                        program.build(&folder, compiler);
                    }
                });
            }
        });
        folder
    })
}

fn chapter(name: &str) {
    let compiler = mpich(&format!("{name}, on MPICH"), "mpicc_abi");
    let folder = built(compiler.as_deref());
    let peer = compiler.as_deref().map(installation);
    run_all(all().remove(name).unwrap_or_default(), folder, peer.as_slice());
}

/// The folder in which a program of a library's installation is.
fn installation(program: &str) -> &Path {
    Path::new(program).parent().and_then(Path::parent).unwrap()
}

fn run_all(mut programs: Vec<Program>, folder: &Path, peers: &[&Path]) {
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    let mut wrong = Vec::new();
    let mut reported = Instant::now();
    for program in &programs {
        let since = Instant::now();
        wrong.extend(program.run(folder, peers));
        let took = since.elapsed().as_secs();
        // A chapter takes minutes in an emulated machine, where a program without output for a long time is treated as
        // hung.
        if quick() && (took >= 3 || reported.elapsed().as_secs() >= 60) {
            let _ = writeln!(std::io::stdout(), "{}: {took} s", program.name);
            reported = Instant::now();
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The synchronization calls under which an operation can be damaged, and the kinds of damage. Whether early
/// notifications are observable depends on the closing call.
const DAMAGES: [(&str, &[&str]); 4] = [
    ("drop-put:1", PUTS),
    ("double-put:1", PUTS),
    ("early-notify:1", &[]),
    ("lose-atomic:1", &["ccumulate(", "etch_and_op(", "ompare_and_swap(", "ADD("]),
];
const PUTS: &[&str] = &["MPI_Put(", "PUT(", "MPI_Rput("];

macro_rules! chapters {
    ($($name:ident),*) => {
        $(
            #[test]
            fn $name() {
                chapter(stringify!($name));
            }
        )*

        #[test]
        fn every_program_is_built_and_belongs_to_a_test() {
            let known = [$(stringify!($name),)* "killed"];
            built(mpich("every_program_is_built_by_mpich", "mpicc_abi").as_deref());
            assert!(all().keys().all(|chapter| known.contains(&chapter.as_str())), "{:?}", all().keys());
        }
    };
}

/// Every program with windows fails where the device damages one of its operations. Exceptions are programs that only
/// load and store shared memory, programs that end with an error, and programs that count the resources of thousands of
/// windows and write each window only once.
#[test]
fn damage_is_noticed_by_every_program_of_windows() {
    let folder = built(mpich("damage", "mpicc_abi").as_deref());
    let mut programs = all().remove("rma").expect("programs of windows");
    programs.retain(|program| {
        program.code.is_none() && !["shared", "costs"].iter().any(|part| program.name.contains(part))
    });
    let (next, outcomes) = (Mutex::new(programs.iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                loop {
                    let Some(program) = next.lock().unwrap().next() else { return };
                    let built = folder.join(&program.name);
                    let text = std::fs::read_to_string(&program.source).unwrap();
                    for (damage, calls) in DAMAGES {
                        let calls = calls.iter().any(|call| text.contains(call));
                        let notices = program.detects(&built, damage);
                        outcomes.lock().unwrap().push((damage, &program.name, calls, notices));
                    }
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().unwrap();
    for (damage, _) in DAMAGES {
        let of = || outcomes.iter().filter(|outcome| outcome.0 == damage);
        let missed: Vec<_> = of().filter(|outcome| outcome.3 == Some(false)).map(|outcome| outcome.1).collect();
        let done = of().filter(|outcome| outcome.3.is_some()).count();
        println!("{damage}: in {done} of {} programs", of().count());
        assert!(missed.is_empty(), "{damage} is not detected by {missed:?}");
        // All operations of a program go through the damaged device, except those that are refused.
        let passed_by: Vec<_> = of().filter(|outcome| outcome.2 && outcome.3.is_none()).map(|o| o.1).collect();
        let refused = ["strict", "proc_null", "nothing", "info"];
        let unexpected = passed_by.iter().find(|name| !refused.iter().any(|part| name.contains(part)));
        assert!(unexpected.is_none(), "no operation of these could be damaged by {damage}: {passed_by:?}");
        assert!(done > 60, "{damage}: {done} programs");
    }
}

/// A rank is killed inside an epoch: the others get the error, before the launcher ends the job three seconds after the
/// loss, or the default handler ends it. No file remains in the shared memory folder.
#[test]
fn killed_in_every_kind_of_epoch() {
    const EPOCHS: [&str; 9] =
        ["fence", "access", "access_test", "exposure", "lock", "lock_all", "flush", "dynamic", "free"];
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let built = built(mpich("killed", "mpicc_abi").as_deref()).join("killed_epochs");
    for (epoch, fault) in EPOCHS.iter().flat_map(|epoch| ["none", "unmapped"].map(|fault| (*epoch, fault))) {
        for fatal in [false, true] {
            let mut run = Marked::run(3, &[&built]);
            run.command.arg(epoch).args(fatal.then_some("fatal"));
            run.command
                .env("LD_LIBRARY_PATH", mpi_folder())
                .env("FARSIDE_TEST_FAULT", fault)
                .env("FARSIDE_SHM_DIR", memory.path());
            let run = run.finish();
            let text = format!("{epoch}, {fault}: code {:?}\n{}\n{}", run.code, run.out, run.err);
            assert!(run.code.is_some_and(|code| code != 0) && !run.out.contains("FAILED"), "{text}");
            assert_eq!(run.out.matches("got the error").count(), if fatal { 0 } else { 2 }, "{text}");
            assert!(!run.out.contains("it went on"), "{text}");
            let ended = run.err.contains("(MPI_ERR_PROC_ABORTED); the error handler ends the job");
            assert_eq!(ended, fatal, "{text}");
            assert_eq!(std::fs::read_dir(&memory).unwrap().count(), 0, "{text}");
        }
    }
}

chapters!(
    abi,
    attributes,
    bill,
    buffer,
    collective,
    comm,
    datatype,
    environment,
    errors,
    group,
    handle,
    info,
    op,
    p2p,
    pack,
    partitioned,
    request,
    rma,
    session,
    status,
    tool,
    topology,
    verbs
);
