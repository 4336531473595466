//! `mpif.h` and the modules `mpi` and `mpi_f08`.

use std::fmt::Write;

use super::{Kind, entry, exists, is_blocking, is_handle, is_old, kinds, raw};
use crate::table::{Function, Parameter, Table};

/// An interface of Fortran.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Module {
    Mpi,
    F08,
}

/// A declaration of a dummy argument, without its name, and what follows the name.
fn declared(function: &Function, parameter: &Parameter, kind: Kind, module: Module) -> (String, &'static str) {
    let base = parameter.base.as_str();
    let long = match base {
        "MPI_Aint" => "integer(MPI_ADDRESS_KIND)",
        "MPI_Count" => "integer(MPI_COUNT_KIND)",
        "MPI_Offset" => "integer(MPI_OFFSET_KIND)",
        _ => "integer",
    };
    let handle = match module {
        Module::F08 if is_handle(base) => format!("type({base})"),
        _ => "integer".into(),
    };
    let constant = if parameter.constant { ", intent(in)" } else { "" };
    let list = if parameter.triples {
        "(3,*)"
    } else if parameter.array {
        "(*)"
    } else {
        ""
    };
    let asynchronous = if is_blocking(function) { "" } else { ", asynchronous" };
    match kind {
        Kind::Number => (format!("{long}, intent(in)"), ""),
        Kind::Numbers => (format!("{long}{constant}"), list),
        Kind::LogicalIn => ("logical, intent(in)".into(), ""),
        Kind::LogicalOut => ("logical, intent(out)".into(), ""),
        Kind::Logicals => (format!("logical{constant}"), "(*)"),
        Kind::HandleIn => (format!("{handle}, intent(in)"), ""),
        Kind::HandleOut => (format!("{handle}, intent(out)"), ""),
        Kind::HandleInOut => (format!("{handle}, intent(inout)"), ""),
        Kind::Handles => (format!("{handle}{constant}"), "(*)"),
        Kind::Index => ("integer, intent(out)".into(), ""),
        Kind::Indices | Kind::Weights => (format!("integer{constant}"), "(*)"),
        Kind::StatusIn | Kind::Status => match module {
            Module::F08 => (format!("type(MPI_Status){constant}"), ""),
            Module::Mpi => (format!("integer{constant}"), "(MPI_STATUS_SIZE)"),
        },
        Kind::Statuses => match module {
            Module::F08 => ("type(MPI_Status)".into(), "(*)"),
            Module::Mpi => ("integer".into(), "(MPI_STATUS_SIZE,*)"),
        },
        Kind::StringIn => ("character(len=*), intent(in)".into(), ""),
        Kind::StringOut(_) => ("character(len=*), intent(out)".into(), ""),
        Kind::Strings => match (parameter.stars, function.name.as_str()) {
            (1, _) => ("character(len=*)".into(), ""),
            (_, "MPI_Comm_spawn_multiple") if parameter.name == "array_of_argv" => {
                ("character(len=*), intent(in)".into(), "(count,*)")
            }
            _ => ("character(len=*), intent(in)".into(), "(*)"),
        },
        Kind::Choice => (format!("type(*), dimension(..){constant}{asynchronous}"), ""),
        Kind::BasePointer => match module {
            Module::F08 => ("type(c_ptr), intent(out)".into(), ""),
            Module::Mpi => ("integer(MPI_ADDRESS_KIND), intent(out)".into(), ""),
        },
        Kind::Detached => match module {
            Module::F08 => ("type(c_ptr), intent(out)".into(), ""),
            Module::Mpi => ("type(*), dimension(..)".into(), ""),
        },
        // Attributes of MPI-1 are default integers.
        Kind::Word if is_old(function) => ("integer".into(), ""),
        Kind::Word => ("integer(MPI_ADDRESS_KIND)".into(), ""),
        Kind::Callback => match module {
            Module::F08 => (format!("procedure({base})"), ""),
            Module::Mpi => ("external".into(), ""),
        },
        Kind::Nothing => unreachable!("{} has no argument {}", function.name, parameter.name),
    }
}

/// The interface of one function, under a name and with a type for returned memory.
fn interface(out: &mut String, function: &Function, name: &str, prefix: &str, module: Module, pointer: Option<&str>) {
    let all = kinds(function);
    let mut names: Vec<&str> = all.iter().map(|(p, _)| p.name.as_str()).collect();
    let is_function = function.returns_value();
    if !is_function {
        names.push("ierror");
    }
    let mut list = names.join(", ");
    if list.len() > 60 {
        list = names.chunks(5).map(|some| some.join(", ")).collect::<Vec<_>>().join(", &\n        ");
    }
    // A module's entries that return detached memory differ from those of `mpif.h`.
    let is_detaching = module == Module::F08 && all.iter().any(|(_, kind)| *kind == Kind::Detached);
    let entry = match pointer {
        Some(_) => format!("{}cptr_", raw(function)),
        None if is_detaching => format!("{}f08_", raw(function)),
        None => entry(function),
    };
    let what = if is_function { "function" } else { "subroutine" };
    // A procedure of Fortran is no argument of a C function; the name of this one is then that of the entry with addresses.
    let bind = match is_separate(function) {
        true => String::new(),
        false => format!(" &\n        bind(C, name=\"{}{entry}\")", prefix.to_lowercase()),
    };
    _ = writeln!(out, "  {what} {name}( &\n        {list}){bind}");
    _ = writeln!(out, "    import");
    for (parameter, kind) in &all {
        let (mut text, mut after) = declared(function, parameter, *kind, module);
        if let (Kind::BasePointer, Some(pointer)) = (kind, pointer) {
            (text, after) = (format!("{pointer}, intent(out)"), "");
        }
        _ = writeln!(out, "    {text} :: {}{after}", parameter.name);
    }
    match (function.returns.as_str(), is_function) {
        (_, false) => {
            let optional = if module == Module::F08 { ", optional" } else { "" };
            _ = writeln!(out, "    integer{optional}, intent(out) :: ierror");
        }
        ("double", _) => _ = writeln!(out, "    double precision :: {name}"),
        _ => _ = writeln!(out, "    integer(MPI_ADDRESS_KIND) :: {name}"),
    }
    _ = writeln!(out, "  end {what} {name}");
}

/// The kinds of the arguments, by which a generic name chooses.
fn signature(function: &Function) -> Vec<String> {
    let all = kinds(function);
    let text = |(p, kind): &(&Parameter, Kind)| declared(function, p, *kind, Module::F08);
    all.iter()
        .map(text)
        .map(|(text, after)| format!("{text}{after}").replace("_ADDRESS_", "_COUNT_").replace("_OFFSET_", "_COUNT_"))
        .collect()
}

/// The interfaces of all functions.
fn interfaces(out: &mut String, table: &Table, module: Module) {
    let all: Vec<&Function> = table.functions().filter(|function| exists(function)).collect();
    let is_large = |function: &Function| function.name.ends_with("_c");
    // Those that MPI-3.0 removed have no place in the modules, nor old attributes in `mpi_f08`.
    let has = |f: &Function| f.replacement.is_none() && !(module == Module::F08 && is_old(f));
    let current = all.iter().filter(|f| has(f));
    for prefix in ["", "P"] {
        for function in current.clone() {
            if is_large(function) {
                continue;
            }
            let name = format!("{prefix}{}", function.name);
            let large = all.iter().find(|f| is_large(f) && f.name[..f.name.len() - 2] == function.name);
            let large = large.filter(|large| module == Module::F08 && signature(large) != signature(function));
            let has_pointer =
                module == Module::Mpi && kinds(function).iter().any(|(_, kind)| *kind == Kind::BasePointer);
            let is_generic = has_pointer || large.is_some_and(|large| !is_separate(large));
            _ = writeln!(out, "{}", if is_generic { format!("interface {name}") } else { "interface".into() });
            let own = if is_generic { format!("{name}_f08ts") } else { name.clone() };
            interface(out, function, &own, prefix, module, None);
            if let Some(large) = large.filter(|large| !is_separate(large)) {
                interface(out, large, &format!("{name}_c_f08ts"), prefix, module, None);
            }
            if has_pointer {
                interface(out, function, &format!("{name}_cptr"), prefix, module, Some("type(c_ptr)"));
            }
            _ = writeln!(out, "end interface");
            if let Some(large) = large.filter(|large| is_separate(large)) {
                _ = writeln!(out, "interface");
                interface(out, large, &format!("{prefix}{}", large.name), prefix, module, None);
                _ = writeln!(out, "end interface");
            }
        }
    }
}

/// Whether a function with large counts keeps its own name: callbacks do not make a generic name choose.
fn is_separate(function: &Function) -> bool {
    kinds(function).iter().any(|(_, kind)| *kind == Kind::Callback)
}

/// The numeric constants and the values of handles: names, values, the type of a handle.
fn constants(table: &Table) -> Vec<(&str, String, &str)> {
    let mut all = Vec::new();
    let skipped = |name: &str| name.starts_with("MPI_T_") || name.starts_with("MPI_F_");
    for group in &table.groups {
        for constant in group.constants.iter().filter(|constant| !skipped(&constant.name)) {
            let name = constant.name.as_str();
            let value = |text: &str| match text.strip_prefix("0x") {
                Some(hex) => i64::from_str_radix(hex, 16).expect("a number"),
                None => text.parse().expect("a number"),
            };
            match group.kind.as_str() {
                "handle" => all.push((name, value(&constant.value).to_string(), group.of.as_str())),
                "alias" => {
                    let (_, same, of) =
                        all.iter().find(|(other, ..)| *other == constant.value).expect("another name").clone();
                    all.push((name, same, of));
                }
                "enum" => all.push((name, value(&constant.value).to_string(), "")),
                // A string of Fortran has no final zero.
                "macro" if name.starts_with("MPI_MAX_") => {
                    all.push((name, (value(&constant.value) - 1).to_string(), ""))
                }
                "macro" => all.push((name, value(&constant.value).to_string(), "")),
                _ => {}
            }
        }
    }
    all
}

/// `mpif.h`, which is valid in fixed and in free form.
pub(crate) fn include(table: &Table) -> String {
    let mut out = String::from("! The MPI 5.0 standard ABI. Made from the tables of Farside's mpi-compat.\n");
    for (name, value, _) in constants(table) {
        _ = writeln!(out, "      INTEGER {name}\n      PARAMETER ({name}={value})");
    }
    out + include_str!("../../fortran/mpif-end.h")
}

/// The module `mpi`.
pub(crate) fn module(table: &Table) -> String {
    let mut out =
        String::from("! The MPI 5.0 standard ABI. Made from the tables of Farside's mpi-compat.\nmodule mpi\n");
    out += "use, intrinsic :: iso_c_binding, only: c_ptr\nimplicit none\nprivate :: c_ptr\n";
    for (name, value, _) in constants(table) {
        _ = writeln!(out, "integer, parameter :: {name} = {value}");
    }
    out += include_str!("../../fortran/mpi-head.f90");
    interfaces(&mut out, table, Module::Mpi);
    out + "end module mpi\n"
}

/// The module `mpi_f08`.
pub(crate) fn module_f08(table: &Table) -> String {
    let mut out =
        String::from("! The MPI 5.0 standard ABI. Made from the tables of Farside's mpi-compat.\nmodule mpi_f08\n");
    out += "use, intrinsic :: iso_c_binding, only: c_ptr\nimplicit none\nprivate :: c_ptr\n";
    let handles: Vec<&str> = table.groups.iter().filter(|g| is_handle(&g.of)).map(|g| g.of.as_str()).collect();
    for handle in &handles {
        _ = writeln!(out, "type, bind(C) :: {handle}\n  integer :: MPI_VAL\nend type {handle}");
    }
    for (name, value, of) in constants(table) {
        match of {
            "" => _ = writeln!(out, "integer, parameter :: {name} = {value}"),
            of => _ = writeln!(out, "type({of}), parameter :: {name} = {of}({value})"),
        }
    }
    out += include_str!("../../fortran/f08-head.f90");
    for (operator, word) in [("==", "equals"), ("/=", "differs")] {
        _ = writeln!(out, "interface operator({operator})");
        handles.iter().for_each(|handle| _ = writeln!(out, "  module procedure {handle}_{word}"));
        _ = writeln!(out, "end interface");
        handles.iter().for_each(|handle| _ = writeln!(out, "private :: {handle}_{word}"));
    }
    interfaces(&mut out, table, Module::F08);
    out += "contains\n";
    for handle in &handles {
        for (operator, word) in [("==", "equals"), ("/=", "differs")] {
            _ = writeln!(
                out,
                "elemental logical function {handle}_{word}(a, b)\n  type({handle}), intent(in) :: a, b\n  \
                 {handle}_{word} = a%MPI_VAL {operator} b%MPI_VAL\nend function {handle}_{word}"
            );
        }
    }
    out + "end module mpi_f08\n"
}
