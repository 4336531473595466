//! Rust source generated from the tables: the exported functions, and the constants.
//!
//! Every function has two symbols and one body, which converts the parameters to the types of `arguments.rs` and checks
//! them as far as the prototype allows. The int form and its `_c` twin call one function.

use std::fmt::Write;

use crate::table::{Constant, Function, Mark, Parameter, Table};

/// Functions with a fast path for the usual case: see `entry::Usual`.
const FAST_PATH: [&str; 14] = [
    "MPI_Send",
    "MPI_Isend",
    "MPI_Irecv",
    "MPI_Wait",
    "MPI_Test",
    "MPI_Put",
    "MPI_Get",
    "MPI_Accumulate",
    "MPI_Get_accumulate",
    "MPI_Fetch_and_op",
    "MPI_Compare_and_swap",
    "MPI_Win_flush",
    "MPI_Win_lock",
    "MPI_Win_unlock",
];

/// Window functions that threads may execute without the lock: see `entry::enter_unless`.
const WITHOUT_LOCK: [&str; 10] = [
    "MPI_Put",
    "MPI_Get",
    "MPI_Accumulate",
    "MPI_Get_accumulate",
    "MPI_Fetch_and_op",
    "MPI_Compare_and_swap",
    "MPI_Win_flush",
    "MPI_Win_flush_all",
    "MPI_Win_flush_local",
    "MPI_Win_flush_local_all",
];

/// The exported functions.
pub(crate) fn exports(table: &Table) -> String {
    let mut out = String::new();
    for chapter in &table.chapters {
        for function in &chapter.functions {
            export(&mut out, table, &chapter.module, function);
        }
    }
    out
}

/// The Rust type of a parameter in the ABI.
fn raw_type(parameter: &Parameter) -> String {
    let base = base_type(&parameter.base);
    if base == "Callback" {
        return base;
    }
    let base = if parameter.triples { "[c_int; 3]".into() } else { base };
    let mut text = base;
    for star in 0..parameter.stars {
        let kind = if star == 0 && parameter.constant { "const" } else { "mut" };
        text = format!("*{kind} {text}");
    }
    text
}

fn base_type(base: &str) -> String {
    match base {
        "void" => "c_void".into(),
        "char" => "c_char".into(),
        "int" | "MPI_T_cb_safety" | "MPI_T_source_order" => "c_int".into(),
        "double" => "f64".into(),
        "MPI_Aint" | "MPI_Count" | "MPI_Offset" => "i64".into(),
        "MPI_Status" => "Status".into(),
        "MPI_Datatype" => "Type".into(),
        base if base.ends_with("_function") || base.ends_with("_function_c") => "Callback".into(),
        base if base.starts_with("MPI_T_") => "Opaque".into(),
        base => base.strip_prefix("MPI_").expect("a type of MPI").into(),
    }
}

fn is_handle(parameter: &Parameter) -> bool {
    let base = base_type(&parameter.base);
    parameter.base.starts_with("MPI_") && !matches!(base.as_str(), "c_int" | "i64" | "Status" | "Callback" | "Opaque")
}

/// The function whose implementation an exported function calls: itself, or the function that has replaced it.
fn model<'a>(table: &'a Table, function: &'a Function) -> &'a Function {
    let replacement = table.functions().find(|other| Some(&other.name) == function.replacement.as_ref());
    replacement.filter(|new| new.parameters.len() == function.parameters.len()).unwrap_or(function)
}

/// The large-count form of a function, if the two forms differ only in the width of counts.
fn large_form<'a>(table: &'a Table, function: &Function) -> Option<&'a Function> {
    let find = |name: &str| table.functions().find(|other| other.name == name);
    let (int, large) = (find(function.base())?, find(&format!("{}_c", function.base()))?);
    (int.parameters.len() == large.parameters.len()).then_some(large)
}

/// The name of the implementation.
fn implementation(table: &Table, function: &Function) -> String {
    let name = if large_form(table, function).is_some() { function.base() } else { &function.name };
    name.strip_prefix("MPI_").expect("a name of MPI").to_lowercase()
}

/// For a function of chapter 6: its blocking function, and its form, which takes the last parameters, those that only
/// this form has. `None` for functions of other chapters.
fn form<'a>(table: &'a Table, module: &str, function: &'a Function) -> Option<(&'a Function, &'static str)> {
    if module != "collective" {
        return None;
    }
    let name = function.base();
    let started = name.strip_prefix("MPI_I").map(|rest| format!("MPI_{}{}", rest[..1].to_uppercase(), &rest[1..]));
    let persistent = name.strip_suffix("_init").map(str::to_owned);
    let find = |name: Option<String>| table.functions().find(|other| Some(&other.name) == name.as_ref());
    Some(match (find(started), find(persistent)) {
        (Some(blocking), _) => (blocking, "Form::Started(Out::new(request, \"request\")?)"),
        (_, Some(blocking)) => (blocking, "Form::Persistent(info, Out::new(request, \"request\")?)"),
        _ => (function, "Form::Blocking"),
    })
}

/// Whether a parameter of type `void *` is the address of a pointer that the function writes.
fn is_pointer_out(parameters: &[Parameter], at: usize) -> bool {
    let Parameter { base, constant, stars, name, .. } = &parameters[at];
    let gets = parameters.iter().any(|parameter| parameter.name == "flag");
    let is_written = matches!(name.as_str(), "baseptr" | "buffer_addr") || name == "attribute_val" && gets;
    base == "void" && *stars == 1 && !constant && is_written
}

/// The argument of the implementation for a parameter; `wide` if the parameter has 64 bits in the `_c` form.
fn argument(module: &str, parameter: &Parameter, wide: bool) -> String {
    let Parameter { name, constant, stars, array, .. } = parameter;
    let base = base_type(&parameter.base);
    let raw = rust_name(name);
    if *stars == 0 {
        return if wide && base == "c_int" { format!("i64::from({raw})") } else { raw };
    }
    let width = if base == "i64" { "long" } else { "int" };
    match (base.as_str(), stars, array, constant) {
        ("Callback" | "c_void", ..) | (_, 2.., ..) | ("Opaque", ..) => raw,
        ("c_char", 1, _, true) => format!("Text::new({raw}, \"{name}\")"),
        ("c_char", 1, false, false) => format!("TextOut::new({raw}, \"{name}\")"),
        ("c_int", 1, false, false) if name == "argc" => raw,
        ("Status", 1, false, false) if module != "status" => format!("StatusOut::new({raw})"),
        // Edge weights are lists or constants.
        ("c_int", 1, false, true) if name.ends_with("weights") => format!("List::new({raw}, \"{name}\")"),
        ("c_int", 1, false, false) if name.ends_with("weights") => format!("ListOut::new({raw}, \"{name}\")"),
        (_, 1, true, true) if wide => format!("Longs::{width}({raw}, \"{name}\")"),
        (_, 1, true, true) => format!("List::new({raw}, \"{name}\")"),
        (_, 1, true, false) => format!("ListOut::new({raw}, \"{name}\")"),
        (_, 1, false, true) => format!("In::new({raw}, \"{name}\")?"),
        (_, 1, false, false) if wide => format!("LongOut::{width}({raw}, \"{name}\")?"),
        _ => format!("Out::new({raw}, \"{name}\")?"),
    }
}

fn rust_name(name: &str) -> String {
    if matches!(name, "type" | "ref" | "in" | "mut") { format!("r#{name}") } else { name.to_owned() }
}

/// The object whose error handler is called: the first communicator, window, file or session, or the object that is
/// freed; for a function that makes an object with a given error handler, the new object.
fn object(function: &Function) -> String {
    let is_object = |p: &&Parameter| matches!(base_type(&p.base).as_str(), "Comm" | "Win" | "File" | "Session");
    // These functions have no open file yet.
    if ["MPI_File_open", "MPI_File_delete"].contains(&function.name.as_str()) {
        return "On::File(crate::constants::MPI_FILE_NULL)".into();
    }
    if let Some(first) = function.parameters.iter().filter(|p| p.stars == 0).find(is_object) {
        return format!("On::{}({})", base_type(&first.base), first.name);
    }
    if function.parameters.iter().any(|p| p.stars == 0 && p.name == "errhandler") {
        let new = function.parameters.last().map_or(String::new(), |p| base_type(&p.base));
        let null = format!("crate::constants::MPI_{}_NULL.0", new.to_uppercase());
        return format!("On::New({null}, crate::errhandler::Target::{new}, errhandler)");
    }
    match function.parameters.first().filter(is_object) {
        Some(first) if ["_free", "_disconnect", "_finalize"].iter().any(|end| function.name.ends_with(end)) => {
            let base = base_type(&first.base);
            format!("On::{base}(*{}.as_ref().unwrap_or(&{base}(0)))", first.name)
        }
        _ => "On::Process".into(),
    }
}

/// The output parameter for the communicator that a function creates.
fn made_comm(function: &Function) -> Option<&Parameter> {
    let ends = ["_free", "_disconnect", "_parent"].iter().any(|end| function.name.ends_with(end));
    let makes = |p: &&Parameter| p.stars == 1 && !p.array && !p.constant && base_type(&p.base) == "Comm";
    function.parameters.iter().find(makes).filter(|_| !ends)
}

fn export(out: &mut String, table: &Table, module: &str, function: &Function) {
    let name = &function.name;
    let parameters: Vec<String> =
        function.parameters.iter().map(|p| format!("{}: {}", rust_name(&p.name), raw_type(p))).collect();
    let parameters = parameters.join(", ");
    let passed: Vec<String> = function.parameters.iter().map(|p| rust_name(&p.name)).collect();
    let passed = passed.join(", ");
    let returns = match function.returns.as_str() {
        "int" => "c_int".to_owned(),
        other => base_type(other),
    };
    let large = name.ends_with("_c") || name.ends_with("_x");
    let model = model(table, function);
    let wide: Vec<bool> = match large_form(table, model) {
        Some(twin) => {
            let pairs = function.parameters.iter().zip(&twin.parameters);
            let int_form = |p: &Parameter| {
                table
                    .functions()
                    .find(|f| f.name == model.base())
                    .is_some_and(|f| f.parameters.iter().any(|q| q.name == p.name && !q.is_long()))
            };
            pairs.map(|(_, long)| long.is_long() && int_form(long)).collect()
        }
        None => vec![false; function.parameters.len()],
    };
    let arguments = |parameters: &[Parameter]| {
        crate::groups::arguments(module, parameters, |at| {
            if is_pointer_out(parameters, at) {
                let name = &parameters[at].name;
                return format!("Out::new({name}.cast::<usize>(), \"{name}\")?");
            }
            argument(module, &parameters[at], wide[at])
        })
    };
    let (implementation, arguments) = match form(table, module, function) {
        Some((blocking, form)) => {
            let mut arguments = arguments(&function.parameters[..blocking.parameters.len()]);
            arguments.push(format!("crate::{module}::{form}"));
            (implementation(table, blocking), arguments)
        }
        None => (implementation(table, model), arguments(&function.parameters)),
    };
    let arguments = arguments.join(", ");
    let is_at_once = FAST_PATH.contains(&function.base());
    let body = if module == "tool" && function.mark != Mark::NotYet {
        // These functions return errors without calling an error handler.
        format!("crate::tool::{implementation}({passed})")
    } else if function.returns_value() {
        format!("crate::{module}::{implementation}({arguments})")
    } else {
        let handles: Vec<String> = function
            .parameters
            .iter()
            .filter(|p| p.stars == 0 && is_handle(p))
            .map(|p| format!("(\"{}\", {}.0)", p.name, p.name))
            .collect();
        let handles = format!("|| vec![{}]", handles.join(", "));
        let on = object(function);
        match function.mark {
            Mark::NotYet => format!("not_yet(\"{name}\", {on})"),
            mark => {
                let comma = if arguments.is_empty() { "" } else { ", " };
                // A function that fails to create a communicator returns the null handle, as in other libraries.
                let failed = made_comm(function).map_or_else(String::new, |made| {
                    let new = argument(module, made, false);
                    let null = "crate::constants::MPI_COMM_NULL";
                    format!(".inspect_err(|_| _ = {}.map(|made| made.set({null})))", new.trim_end_matches('?'))
                });
                let (call, complete) = if is_at_once { ("Usual::of(call)", ".map(drop)") } else { ("call", "") };
                let enter = if WITHOUT_LOCK.contains(&function.base()) {
                    format!(
                        "enter_unless(|state| crate::{module}::without_lock::{implementation}(state, {arguments}), "
                    )
                } else {
                    "enter(".into()
                };
                format!(
                    "{enter}\"{name}\", {large}, When::{mark:?}, {on}, {handles}, |call| {{\n\
                     crate::{module}::{implementation}({call}{comma}{arguments}){failed}{complete}\n}})"
                )
            }
        }
    };
    let lower = name.to_lowercase();
    let body = if is_at_once {
        let checked = format!("{lower}_checked");
        write_body(out, &checked, &parameters, &returns, &body);
        let call = format!("|call| crate::{module}::{implementation}(call, {arguments})");
        format!("if try_fast({call}) {{ return crate::constants::MPI_SUCCESS; }}\n{checked}({passed})")
    } else {
        body
    };
    write_body(out, &lower, &parameters, &returns, &body);
    for prefix in ["", "P"] {
        write!(
            out,
            "#[unsafe(no_mangle)]\npub unsafe extern \"C-unwind\" fn {prefix}{name}({parameters}) -> {returns} {{\n\
             // SAFETY: the contract of the caller.\nunsafe {{ {lower}({passed}) }}\n}}\n"
        )
        .expect("a string");
    }
}

/// Writes the function that the symbols call.
fn write_body(out: &mut String, name: &str, parameters: &str, returns: &str, body: &str) {
    // Functions that are not implemented ignore their parameters.
    let unused = if body.starts_with("not_yet(") { "#[allow(unused_variables)]\n" } else { "" };
    write!(
        out,
        "{unused}#[inline(never)]\nunsafe extern \"C-unwind\" fn {name}({parameters}) -> {returns} {{\n\
         // SAFETY: the caller passes arguments as the prototype and the standard require.\n\
         #[allow(unused_unsafe)]\nunsafe {{ {body} }}\n}}\n"
    )
    .expect("a string");
}

/// The types of handles, the constants, and the names of predefined datatypes.
pub(crate) fn constants(table: &Table) -> String {
    let mut out = String::new();
    for group in &table.groups {
        let of = if group.kind == "handle" { base_type(&group.of) } else { String::new() };
        if group.kind == "handle" && of != "Opaque" {
            writeln!(
                out,
                "#[derive(Clone, Copy, Debug, PartialEq, Eq)]\n#[repr(transparent)]\npub struct {of}(pub usize);"
            )
            .expect("a string");
        }
        for constant in &group.constants {
            let (name, value) = (&constant.name, &constant.value);
            let (c_type, value) = match group.kind.as_str() {
                "handle" => (of.clone(), format!("{of}({value})")),
                "enum" => ("c_int".to_owned(), value.clone()),
                "macro" | "pointer" if !value.starts_with('-') => ("usize".to_owned(), value.clone()),
                _ => continue,
            };
            writeln!(out, "pub const {name}: {c_type} = {value};").expect("a string");
        }
    }
    let rows = |title: &str, row: &dyn Fn(&Constant) -> String| -> String {
        let group = table.groups.iter().find(|group| group.title == title).expect("a section of the table");
        group.constants.iter().map(row).collect::<Vec<_>>().join(", ")
    };
    let datatypes = rows("Datatypes", &|c| format!("(\"{}\", {})", c.name, c.value));
    let classes = rows("Error classes", &|c| format!("(\"{}\", {}, \"{}\")", c.name, c.value, c.c_type));
    writeln!(out, "pub const DATATYPES: &[(&str, usize)] = &[{datatypes}];").expect("a string");
    writeln!(out, "pub const ERROR_CLASSES: &[(&str, c_int, &str)] = &[{classes}];").expect("a string");
    out
}
