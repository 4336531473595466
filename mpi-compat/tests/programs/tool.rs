//! A preloaded tool defines every `MPI_` function of the table, counts its calls and forwards them to `PMPI_`. Its
//! counts must equal the number of calls that the program makes, which the same functions count through the linker's
//! `--wrap`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use farside_harness::{Marked, mpi_include};

use crate::table::Table;

/// Each function, as `NAME(MPI_X)`, counts and calls `NEXT(MPI_X)`. At the end each process writes `function calls`
/// lines to TOOL_COUNTS/KIND.PID.
fn source(table: &Table) -> String {
    let mut out = String::from(
        "#include <mpi.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
         #ifdef TOOL\n#define KIND \"tool\"\n#define NAME(x) x\n#define NEXT(x) P##x\n\
         #else\n#define KIND \"program\"\n#define NAME(x) __wrap_##x\n#define NEXT(x) __real_##x\n#endif\n\
         enum function {\n",
    );
    for function in table.functions() {
        writeln!(out, "    COUNT_{},", function.name).unwrap();
    }
    out += "    FUNCTIONS\n};\nstatic const char *const names[] = {\n";
    for function in table.functions() {
        writeln!(out, "    \"{}\",", function.name).unwrap();
    }
    out += "};\nstatic unsigned long calls[FUNCTIONS];\n";
    for function in table.functions() {
        let (returns, name, text) = (&function.returns, &function.name, &function.text);
        let passed: Vec<_> = function.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
        let passed = passed.join(", ");
        writeln!(
            out,
            "{returns} NEXT({name})({text});\n{returns} NAME({name})({text}) {{\n    \
             __atomic_fetch_add(&calls[COUNT_{name}], 1, __ATOMIC_RELAXED);\n    return NEXT({name})({passed});\n}}"
        )
        .unwrap();
    }
    out += "__attribute__((destructor)) static void write_counts(void) {\n    char path[4096];\n    \
            snprintf(path, sizeof path, \"%s/\" KIND \".%d\", getenv(\"TOOL_COUNTS\"), (int)getpid());\n    \
            FILE *file = fopen(path, \"w\");\n    if (file == NULL) return;\n    \
            for (int i = 0; i < FUNCTIONS; i++)\n        \
            if (calls[i] != 0) fprintf(file, \"%s %lu\\n\", names[i], calls[i]);\n    fclose(file);\n}\n";
    out
}

fn cc(arguments: &[&str], more: &[String]) {
    let mut command = Command::new("cc");
    command
        .args(["-O1", "-Wall", "-Wextra", "-Wno-cast-function-type", "-I"])
        .arg(mpi_include())
        .args(arguments)
        .args(more);
    assert!(command.status().expect("a C compiler").success(), "cc {arguments:?}");
}

/// The counts of one kind, by process.
fn counts(folder: &Path, kind: &str) -> BTreeMap<String, String> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of_kind = files.filter(|path| path.file_stem().unwrap() == kind);
    of_kind
        .map(|path| {
            let pid = path.extension().unwrap().to_str().unwrap().to_owned();
            (pid, std::fs::read_to_string(path).unwrap())
        })
        .collect()
}

/// Programs are run until each function that any of them names has been seen.
#[test]
fn a_preloaded_tool_sees_every_call() {
    let table = Table::read();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let library = super::mpi_folder();
    let library = library.to_str().unwrap();
    std::fs::write(at("tool.c"), source(&table)).unwrap();
    cc(&["-DTOOL", "-fPIC", "-shared", &at("tool.c"), "-o", &at("tool.so"), "-L", library, "-lmpi_abi"], &[]);
    cc(&["-c", &at("tool.c"), "-o", &at("wrap.o")], &[]);
    let wrapped: String = table.functions().map(|function| format!("-Wl,--wrap={}\n", function.name)).collect();
    std::fs::write(at("wrapped"), wrapped).unwrap();

    let known: BTreeSet<_> = table.functions().map(|function| function.name.as_str()).collect();
    let (mut covered, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for program in super::all()
        .into_values()
        .flatten()
        .filter(|program| program.code.is_none() && !program.name.starts_with("killed"))
    {
        let text = std::fs::read_to_string(&program.source).unwrap();
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_').filter_map(|word| known.get(word));
        let words: BTreeSet<_> = words.copied().collect();
        covered.extend(&words);
        if words.is_subset(&seen) {
            continue;
        }
        let (name, source) = (&program.name, program.source.to_str().unwrap());
        let wrap = format!("@{}", at("wrapped"));
        cc(&[source, &at("wrap.o"), &wrap, "-o", &at(name), "-L", library, "-lmpi_abi"], &program.link);
        std::fs::create_dir(at("counts")).unwrap();
        let preload = format!("LD_PRELOAD={}", at("tool.so"));
        let mut run = Marked::run(*program.ranks.last().unwrap(), &["env", &preload, &at(name)]);
        run.command.env("LD_LIBRARY_PATH", library).env("TOOL_COUNTS", at("counts"));
        run.command.envs(program.env.iter().filter_map(|set| set.split_once('=')));
        let run = run.finish();
        assert!(!run.out.contains("FAILED") && program.ended_well(&run), "{name}: {}{}", run.out, run.err);
        let [tool, calls] = ["tool", "program"].map(|kind| counts(&folder.path().join("counts"), kind));
        assert_eq!(tool, calls, "{name}: the calls that the tool saw, and those that were made");
        assert!(!tool.is_empty() && tool.values().all(|text| !text.is_empty()), "{name} calls MPI: {tool:?}");
        seen.extend(tool.values().flat_map(|text| text.lines()).filter_map(|line| known.get(line.split(' ').next()?)));
        std::fs::remove_dir_all(at("counts")).unwrap();
    }
    let unseen: Vec<_> = covered.difference(&seen).collect();
    assert!(unseen.is_empty(), "named by a program, and not seen: {unseen:?}");
}
