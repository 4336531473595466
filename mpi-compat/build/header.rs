//! Generates `mpi.h` from the tables.

use std::fmt::Write;

use crate::table::{Group, Table};

/// Handle types without constants in `constants.txt`.
const HANDLES: [&str; 11] = [
    "MPI_Comm",
    "MPI_Datatype",
    "MPI_Errhandler",
    "MPI_File",
    "MPI_Group",
    "MPI_Info",
    "MPI_Message",
    "MPI_Op",
    "MPI_Request",
    "MPI_Session",
    "MPI_Win",
];
const TOOL_HANDLES: [&str; 6] = [
    "MPI_T_enum",
    "MPI_T_cvar_handle",
    "MPI_T_pvar_handle",
    "MPI_T_pvar_session",
    "MPI_T_event_registration",
    "MPI_T_event_instance",
];

/// The text of the header.
pub(crate) fn header(table: &Table) -> String {
    let mut out = String::from(
        "/* The MPI 5.0 standard ABI. Made from the tables of Farside's mpi-compat. */\n\
         #ifndef FARSIDE_MPI_H\n#define FARSIDE_MPI_H\n\n#include <stdint.h>\n\n\
         #ifdef __cplusplus\nextern \"C\" {\n#endif\n\n\
         #ifdef __GNUC__\n\
         #define FARSIDE_REMOVED(now) __attribute__((deprecated(\"MPI-3.0 has removed it; call \" now)))\n\
         #else\n#define FARSIDE_REMOVED(now)\n#endif\n\n",
    );
    for handle in HANDLES {
        let tag = handle.replacen("MPI_", "MPI_ABI_", 1);
        writeln!(out, "typedef struct {tag} *{handle};").expect("a string");
    }
    for handle in TOOL_HANDLES {
        writeln!(out, "typedef struct {handle}_t *{handle};").expect("a string");
    }
    writeln!(out, "\n{}", include_str!("../table/types.h")).expect("a string");
    for group in &table.groups {
        constants(&mut out, group);
    }
    writeln!(out, "{}", include_str!("../table/types-late.h")).expect("a string");
    for prefix in ["", "P"] {
        for chapter in &table.chapters {
            writeln!(out, "/* {} */", chapter.title).expect("a string");
            for function in &chapter.functions {
                let space = if function.returns.ends_with('*') { "" } else { " " };
                let removed =
                    function.replacement.as_ref().map(|new| format!(" FARSIDE_REMOVED(\"{new}\")")).unwrap_or_default();
                let (returns, name, text) = (&function.returns, &function.name, &function.text);
                writeln!(out, "{returns}{space}{prefix}{name}({text}){removed};").expect("a string");
            }
            out.push('\n');
        }
    }
    out += include_str!("../table/fortran.h");
    out += "\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n";
    out
}

fn constants(out: &mut String, group: &Group) {
    writeln!(out, "/* {} */", group.title).expect("a string");
    let width = group.constants.iter().map(|constant| constant.name.len()).max().unwrap_or(0);
    if group.kind == "enum" {
        let tag = &group.of;
        let head = if tag.is_empty() { "enum {".to_owned() } else { format!("typedef enum {tag} {{") };
        writeln!(out, "{head}").expect("a string");
        let last = group.constants.len() - 1;
        for (i, constant) in group.constants.iter().enumerate() {
            let comma = if i < last { "," } else { "" };
            writeln!(out, "    {:width$} = {}{comma}", constant.name, constant.value).expect("a string");
        }
        writeln!(out, "}}{};\n", if tag.is_empty() { String::new() } else { format!(" {tag}") }).expect("a string");
        return;
    }
    for constant in &group.constants {
        let value = match group.kind.as_str() {
            "handle" => format!("(({}){})", group.of, constant.value),
            "pointer" => format!("(({}){})", constant.c_type, constant.value),
            _ => constant.value.clone(),
        };
        writeln!(out, "#define {:width$} {value}", constant.name).expect("a string");
    }
    out.push('\n');
}
