//! Checks that the header agrees with that of the ABI, and the README and the symbols of the library with the tables
//! from which they are made. With FARSIDE_WRITE set, the README is written instead.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use crate::table::{Mark, Table};

#[test]
fn all_functions_are_there() {
    let table = Table::read();
    let names: BTreeSet<_> = table.functions().map(|function| function.name.as_str()).collect();
    assert_eq!(names.len(), 674);
    assert_eq!(table.functions().count(), 674);
    let mut removed: Vec<_> = table.functions().filter_map(|function| function.replacement.as_deref()).collect();
    assert_eq!(removed.len(), 10);
    removed.retain(|new| !names.contains(new));
    assert!(removed.is_empty(), "replaced by functions that do not exist: {removed:?}");
    let stages = table.functions().map(|function| function.stage);
    assert!(stages.into_iter().all(|stage| (1..=7).contains(&stage)));
}

/// The support table: chapters, the share of each that is implemented, and the functions that are missing.
fn support(table: &Table) -> String {
    let mut out = String::from("| chapter | supported | not yet |\n|---|---|---|\n");
    for chapter in &table.chapters {
        let all = chapter.functions.len();
        let missing: Vec<_> = chapter.functions.iter().filter(|function| function.mark == Mark::NotYet).collect();
        // A name includes its `_c` form.
        let names: Vec<_> = missing
            .iter()
            .filter(|function| {
                !missing.iter().any(|other| other.name != function.name && other.name == function.base())
            })
            .map(|function| format!("`{}`", function.name.replacen("MPI_", "", 1)))
            .collect();
        let names = match (missing.len(), names.len()) {
            (0, _) => String::new(),
            (n, _) if n == all => "all".into(),
            _ => names.join(", "),
        };
        writeln!(out, "| {} | {} of {all} | {names} |", chapter.title, all - missing.len()).expect("a string");
    }
    out
}

#[test]
fn the_readme_shows_what_is_there() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (head, rest) = text.split_once("<!-- support -->\n").expect("a mark where the table begins");
    let (_, tail) = rest.split_once("<!-- /support -->").expect("a mark where it ends");
    let wanted = format!("{head}<!-- support -->\n{}<!-- /support -->{tail}", support(&Table::read()));
    if std::env::var_os("FARSIDE_WRITE").is_some() {
        std::fs::write(&file, wanted).unwrap();
    } else {
        let remedy = "FARSIDE_WRITE=1 cargo test -p farside-mpi --test mpi tables";
        assert!(text == wanted, "README.md disagrees with the tables: {remedy}");
    }
}

#[test]
fn the_symbols_are_the_functions() {
    let library = farside_harness::mpi_library();
    let output = match Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output() {
        Ok(output) if output.status.success() => output,
        _ => return farside_harness::skip("the_symbols_are_the_functions", "there is no nm"),
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let mut exported = BTreeSet::new();
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words[1], "T", "not a strong symbol: {line}");
        exported.insert(words[2].to_owned());
    }
    let table = Table::read();
    let wanted: BTreeSet<_> =
        table.functions().flat_map(|function| [function.name.clone(), format!("P{}", function.name)]).collect();
    let difference: Vec<_> = exported.symmetric_difference(&wanted).collect();
    assert!(difference.is_empty(), "{difference:?}");
}

/// The constants of a header as a C program sees them, one `NAME VALUE` a line.
fn seen(table: &Table, include: &Path, name: &str, folder: &Path) -> String {
    let mut source = format!("#include <stdio.h>\n#include \"{name}\"\nint main(void) {{\n");
    for constant in table.groups.iter().flat_map(|group| &group.constants) {
        source += &format!("    printf(\"{0} %lld\\n\", (long long)({0}));\n", constant.name);
    }
    for size in ["MPI_Status", "MPI_Aint", "MPI_Count", "MPI_Offset", "MPI_Comm", "MPI_T_cb_safety"] {
        source += &format!("    printf(\"{size} %zu %zu\\n\", sizeof({size}), _Alignof({size}));\n");
    }
    source += "    return 0;\n}\n";
    let (file, program) = (folder.join(format!("seen_{name}.c")), folder.join(format!("seen_{name}.x")));
    std::fs::write(&file, source).unwrap();
    let status =
        Command::new("cc").arg("-w").arg("-I").arg(include).arg(&file).arg("-o").arg(&program).status().unwrap();
    assert!(status.success());
    String::from_utf8(Command::new(program).output().unwrap().stdout).unwrap()
}

#[test]
fn the_header_is_that_of_the_abi() {
    let Some(compiler) = farside_harness::mpich("the_header_is_that_of_the_abi", "mpicc_abi") else { return };
    let theirs = Path::new(&compiler).parent().unwrap().parent().unwrap().join("include");
    let (table, folder) = (Table::read(), tempfile::tempdir().unwrap());
    let [ours, other] = [(farside_harness::mpi_include(), "mpi.h"), (theirs.clone(), "mpi_abi.h")]
        .map(|(at, name)| seen(&table, &at, name, folder.path()));
    assert_eq!(ours, other);

    // The prototypes are the same: a declaration of one compiles after that of the other. Two prototypes differ on
    // purpose, and the header of the ABI does not declare removed functions.
    let mut source = String::from("#include \"mpi_abi.h\"\n#undef MPI_VERSION\n");
    for function in table.functions().filter(|function| function.replacement.is_none()) {
        if !["MPI_Psend_init", "MPI_Precv_init", "MPI_Psend_init_c", "MPI_Precv_init_c"]
            .contains(&function.name.as_str())
        {
            source += &format!("{} {}({});\n", function.returns, function.name, function.text);
            source += &format!("{} P{}({});\n", function.returns, function.name, function.text);
        }
    }
    let file = folder.path().join("prototypes.c");
    std::fs::write(&file, source).unwrap();
    let status = Command::new("cc")
        .args(["-c", "-Werror", "-I"])
        .arg(theirs)
        .arg(&file)
        .arg("-o")
        .arg(folder.path().join("p.o"))
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn the_header_compiles_as_c_and_cxx_without_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let compile = |compiler: &str, suffix: &str, options: &[&str]| {
        let file = folder.path().join(format!("header.{suffix}"));
        std::fs::write(
            &file,
            "#include <mpi.h>\n#include <mpi.h>\nint main(void) { MPI_Comm c = MPI_COMM_WORLD; MPI_Fint f = MPI_Comm_c2f(c);\n\
             return c == 0 || MPI_Comm_f2c(f) != c || MPI_F_STATUS_IGNORE == &f; }\n",
        )
        .unwrap();
        let mut command = Command::new(compiler);
        command
            .args(["-c", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
            .arg(farside_harness::mpi_include())
            .args(options);
        command.arg(&file).arg("-o").arg(folder.path().join("header.o"));
        command.status().map(|status| assert!(status.success(), "{compiler} {options:?}"))
    };
    for options in [&["-std=c99"] as &[_], &["-std=c11"]] {
        compile("cc", "c", options).unwrap();
    }
    if compile("c++", "cpp", &["-std=c++11"]).is_err() {
        farside_harness::skip("the_header_compiles_as_c_and_cxx_without_a_warning", "there is no C++ compiler");
    }
}
