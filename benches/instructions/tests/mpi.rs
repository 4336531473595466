//! Instructions of two-sided messages and of puts through the MPI library, with all checks. A single process: valgrind
//! does not support the system call by which a process monitors other processes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use farside_instructions as instructions;

const OPERATIONS: u64 = 2000;

/// Builds a C program of this folder, and puts the library into the same folder as the result.
fn program(folder: &Path, name: &str) -> PathBuf {
    let (program, library) = (folder.join(name), instructions::release::library());
    for name in ["libmpi_abi.so", "libmpi_abi.so.1"] {
        let link = folder.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(library.canonicalize().unwrap(), link).unwrap();
        }
    }
    let mut build = Command::new("cc");
    build.args(["-O2", "-Wall", "-Wextra", "-Werror"]);
    build.arg(format!("{}/tests/{name}.c", env!("CARGO_MANIFEST_DIR")));
    build.arg("-I").arg(farside_harness::mpi_include()).arg("-L").arg(folder);
    build.arg("-lmpi_abi").arg("-o").arg(&program);
    assert!(build.status().expect("a C compiler").success());
    program
}

/// Instructions of a run of a program: all, and those of each function of MPI with its callees.
struct Counts {
    all: u64,
    functions: HashMap<String, u64>,
}

/// Instructions of one operation: all, or only those of a function and its callees. The program is run with `arguments`.
fn of_one(program: &Path, arguments: &[&str]) -> impl Fn(Option<&str>) -> f64 + use<> {
    let [once, twice] = [1, 2].map(|times| count(program, times * OPERATIONS, arguments));
    move |function| {
        let of = |counts: &Counts| function.map_or(counts.all, |name| counts.functions[name]);
        (of(&twice) - of(&once)) as f64 / OPERATIONS as f64
    }
}

fn count(program: &Path, operations: u64, arguments: &[&str]) -> Counts {
    let file = program.with_extension("callgrind");
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"]);
    command.arg(format!("--callgrind-out-file={}", file.display()));
    command.arg(program).arg(operations.to_string()).args(arguments).env("LD_LIBRARY_PATH", program.parent().unwrap());
    let output = command.output().expect("valgrind starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let collected = text.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    let all = collected.unwrap_or_else(|| panic!("no count: {text}"));
    let counted = std::fs::read_to_string(file).unwrap();
    let (mut functions, mut callee, mut lines) = (HashMap::new(), "", counted.lines());
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("cfn=") {
            // The two symbols of a function have the same address, and callgrind may show either.
            callee = name.strip_prefix('P').filter(|name| name.starts_with("MPI_")).unwrap_or(name);
        } else if line.starts_with("calls=") && callee.starts_with("MPI_") {
            // A position, and the cost of the calls.
            let cost = lines.next().and_then(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).unwrap();
            *functions.entry(callee.to_owned()).or_default() += cost;
        }
    }
    Counts { all, functions }
}

#[test]
fn messages_of_8_bytes_from_this_rank_to_itself() {
    if !instructions::has_valgrind() {
        farside_harness::skip("instructions of messages", "valgrind does not start");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let posted = of_one(&program(folder.path(), "mpi"), &[]);
    let (isend, all) = (posted(Some("MPI_Isend")), posted(None));
    println!("MPI_Isend of 8 bytes: {isend:.1} instructions; with Irecv and both waits: {all:.1}");
    assert!((50.0..=190.0).contains(&isend), "{isend} instructions");
    assert!(all > isend && all <= 540.0, "{all} instructions");
    let unexpected = of_one(&program(folder.path(), "unexpected"), &[])(None);
    println!("MPI_Send of 8 bytes, and then MPI_Recv: {unexpected:.1} instructions");
    assert!((50.0..=1250.0).contains(&unexpected), "{unexpected} instructions");
}

#[test]
fn operations_of_windows_on_8_bytes_in_passive_epochs() {
    if !instructions::has_valgrind() {
        farside_harness::skip("instructions of operations of windows", "valgrind does not start");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), "rma");
    let [mapped, dynamic] = [&[][..], &["dynamic"]].map(|arguments| of_one(&program, arguments));
    // In a put, 12 instructions acquire and release the lock, 25 look up window and types, 35 are the put of
    // `farside_rma`, and 28 save registers for calls on slow paths. On attached memory about 80 more find the
    // attachment, and in atomics some 10 access the lazily created state of the target. Some 5 check whether another
    // thread is starting operations. To enter the element lock takes some 10 in an accumulate, and some 45 in a
    // compare-and-swap.
    for (function, most, attached) in [
        ("MPI_Put", 122.0, 195.0),
        ("MPI_Get", 125.0, 200.0),
        ("MPI_Accumulate", 175.0, 270.0),
        ("MPI_Fetch_and_op", 190.0, 280.0),
        ("MPI_Compare_and_swap", 195.0, 290.0),
        ("MPI_Win_flush", 90.0, 172.0),
        ("MPI_Win_lock", 122.0, 122.0),
        ("MPI_Win_unlock", 142.0, 220.0),
    ] {
        for (window, one, most) in
            [("mapped", mapped(Some(function)), most), ("dynamic", dynamic(Some(function)), attached)]
        {
            println!("{function} of 8 bytes in a passive epoch on a {window} window: {one:.1} instructions");
            assert!((20.0..=most).contains(&one), "{function} on a {window} window: {one} instructions");
        }
    }
}

#[test]
fn reductions_and_accumulates_of_doubles() {
    if !instructions::has_valgrind() {
        farside_harness::skip("instructions of reductions", "valgrind does not start");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let counted = of_one(&program(folder.path(), "elements"), &[]);
    // Neither examines a layout. A repeated reduction uses a cached plan. In an accumulate, each element takes about 20
    // instructions.
    for (function, most) in [("MPI_Allreduce", 1350.0), ("MPI_Accumulate", 380.0), ("MPI_Get_accumulate", 420.0)] {
        let one = counted(Some(function));
        println!("{function} of doubles: {one:.1} instructions");
        assert!((100.0..=most).contains(&one), "{function}: {one} instructions");
    }
}
