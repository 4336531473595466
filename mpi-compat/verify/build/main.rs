//! Generates, from the prototypes of MPI, the wrappers of the calls in `src/table.rs` (each wrapper passes its
//! arguments, by name, to `call::run`); the functions that complete requests; the `PMPI_` functions; and the names of
//! predefined handles.

#[path = "../src/table.rs"]
#[allow(dead_code)]
mod calls;
#[path = "../../build/table.rs"]
mod table;

use std::fmt::Write;

use table::{Function, Parameter, Table};

fn main() {
    println!("cargo::rerun-if-changed=../table");
    println!("cargo::rerun-if-changed=../build");
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=src/table.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libfarside_verify.so");
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let table = Table::read();
    let write = |name: &str, text: String| {
        std::fs::write(std::path::Path::new(&out).join(name), text)
            .unwrap_or_else(|e| panic!("cannot write {name}: {e}"));
    };
    write("pmpi.rs", table.functions().filter(|f| !f.name.starts_with("MPI_T_")).map(pmpi).collect());
    let names = std::cell::RefCell::new(Vec::<String>::new());
    let wrappers: String = table
        .functions()
        .filter_map(|function| wrapper(function, &mut names.borrow_mut()).or_else(|| completion(&table, function)))
        .collect();
    let names = names.into_inner();
    let mut text =
        String::from("/// Names of the calls, their rows and forms.\npub static NAMES: &[(&str, usize, Form)] = &[\n");
    for name in &names {
        let (row, form) = calls::find(name).expect("it has a wrapper");
        writeln!(text, "    (\"{name}\", {row}, Form::{form:?}),").expect("a string");
    }
    text += "];\n\n/// Names of predefined operators and datatypes.\npub static HANDLES: &[(usize, &str)] = &[\n";
    for group in table.groups.iter().filter(|group| matches!(group.of.as_str(), "MPI_Op" | "MPI_Datatype")) {
        for constant in &group.constants {
            writeln!(text, "    ({}, \"{}\"),", constant.value, constant.name).expect("a string");
        }
    }
    text += "];\n";
    write("names.rs", text);
    write("wrappers.rs", wrappers);
}

fn c_type(parameter: &Parameter) -> String {
    let base = match parameter.base.as_str() {
        "void" => "c_void",
        "char" => "c_char",
        "int" | "MPI_T_cb_safety" | "MPI_T_source_order" => "c_int",
        "MPI_Aint" | "MPI_Count" | "MPI_Offset" => "i64",
        "MPI_Status" => "Status",
        _ => "usize",
    };
    if parameter.base.ends_with("_function") || parameter.base.ends_with("_function_c") {
        return "*mut c_void".into();
    }
    let base = if parameter.triples { format!("[{base}; 3]") } else { base.to_owned() };
    (0..parameter.stars)
        .fold(base, |text, star| format!("*{} {text}", if star == 0 && parameter.constant { "const" } else { "mut" }))
}

fn returned(function: &Function) -> &'static str {
    match function.returns.as_str() {
        "int" => "c_int",
        "double" => "f64",
        "MPI_Aint" => "i64",
        _ => "usize",
    }
}

fn safe(name: &str) -> String {
    if matches!(name, "type" | "ref" | "in" | "mut") { format!("r#{name}") } else { name.to_owned() }
}

fn parameters(function: &Function) -> (String, String) {
    let declared: Vec<_> = function.parameters.iter().map(|p| format!("{}: {}", safe(&p.name), c_type(p))).collect();
    let passed: Vec<_> = function.parameters.iter().map(|p| safe(&p.name)).collect();
    (declared.join(", "), passed.join(", "))
}

/// A function that calls `PMPI_X`, under the name of `MPI_X`.
fn pmpi(function: &Function) -> String {
    let (declared, passed) = parameters(function);
    let types: Vec<_> = function.parameters.iter().map(c_type).collect();
    let (name, types, returned) = (&function.name, types.join(", "), returned(function));
    format!(
        "pub unsafe fn {name}({declared}) -> {returned} {{\n    static AT: Symbol = Symbol::new(c\"P{name}\");\n    \
         // SAFETY: the function of this name has this type in every library of the ABI; the caller guarantees the
         // arguments.\n    \
         unsafe {{ std::mem::transmute::<*mut c_void, unsafe extern \"C-unwind\" fn({types}) -> \
         {returned}>(AT.get())({passed}) }}\n}}\n\n"
    )
}

/// The wrapper of a call, if `src/table.rs` has it.
fn wrapper(function: &Function, names: &mut Vec<String>) -> Option<String> {
    let name = function.base();
    calls::find(name)?;
    let at = names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    });
    // `src/start.rs` defines it.
    if name == "MPI_Finalize" {
        return Some(String::new());
    }
    let (declared, passed) = parameters(function);
    let arguments: Vec<_> = function.parameters.iter().map(|p| format!("(\"{}\", {})", p.name, value(p))).collect();
    let (symbol, arguments) = (&function.name, arguments.join(", "));
    // Calls that free a communicator or window also free its shadow, at every level.
    let always = name.ends_with("_free") || name.ends_with("_disconnect");
    let off = if always { "" } else { "    if level::off() {\n        return go();\n    }\n" };
    Some(format!(
        "#[unsafe(no_mangle)]\npub unsafe extern \"C-unwind\" fn {symbol}({declared}) -> c_int {{\n    \
         // SAFETY: the arguments are those of this call.\n    \
         let mut go = || unsafe {{ pmpi::{symbol}({passed}) }};\n{off}    \
         // SAFETY: as above, with the names of the standard.\n    \
         unsafe {{ call::run({at}, &[{arguments}], &mut go) }}\n}}\n\n"
    ))
}

/// The exported function, if it completes requests by waiting or testing.
fn completion(table: &Table, function: &Function) -> Option<String> {
    let name = &function.name;
    let waits = name.starts_with("MPI_Wait");
    let which = name.strip_prefix("MPI_Wait").or_else(|| name.strip_prefix("MPI_Test"))?;
    // A wait for some requests of a list is implemented as a loop of tests.
    let (below, call) = match which {
        "" | "all" => (name.clone(), format!("all(list, {}, ", if waits { "std::ptr::null_mut()" } else { "flag" })),
        "any" => ("MPI_Testany".to_owned(), format!("some(list, {waits}, (indx, 0), flag, ")),
        "some" => ("MPI_Testsome".to_owned(), format!("some(list, {waits}, (outcount, 1), outcount, ")),
        _ => return None,
    };
    let below = table.functions().find(|function| function.name == below).expect("a test for each wait");
    let is_list = |p: &&Parameter| p.base == "MPI_Request";
    let shown: Vec<_> = below.parameters.iter().map(|p| if is_list(&p) { "requests" } else { &p.name }).collect();
    let (declared, passed) = parameters(function);
    let list = &function.parameters.iter().find(is_list).expect("it has requests").name;
    let count = function.parameters.first().filter(|p| !is_list(p)).map_or("1", |p| &p.name);
    let flag = if name == "MPI_Waitany" { "let flag: *mut c_int = &mut 0;\n        " } else { "" };
    let (below, shown) = (&below.name, shown.join(", "));
    Some(format!(
        "#[unsafe(no_mangle)]\npub unsafe extern \"C-unwind\" fn {name}({declared}) -> c_int {{\n    \
         // SAFETY: the arguments are those of this call.\n    unsafe {{\n        \
         let list = requests::list({count}, {list});\n        \
         if !requests::any(list) {{\n            return pmpi::{name}({passed});\n        }}\n        \
         {flag}requests::{call}&mut |requests| pmpi::{below}({shown}))\n    }}\n}}\n\n"
    ))
}

/// An argument, as `call::Value`.
fn value(parameter: &Parameter) -> String {
    let name = safe(&parameter.name);
    let long = parameter.is_long();
    let handle = c_type(&Parameter { stars: 0, ..parameter.clone() }) == "usize";
    match (parameter.base.as_str(), parameter.stars, parameter.constant) {
        ("int", 0, _) => format!("Value::Int(i64::from({name}))"),
        ("int", 1, _) if parameter.array || name.ends_with("weights") => format!("Value::Ints({name}.cast())"),
        (_, 0, _) if long => format!("Value::Int({name})"),
        (_, 1, true) if long => format!("Value::Longs({name})"),
        (_, 0, _) if handle => format!("Value::Handle({name})"),
        (_, 1, true) if handle => format!("Value::Handles({name})"),
        (_, 1, false) if handle => format!("Value::Out({name})"),
        _ => format!("Value::Address({name}.cast())"),
    }
}
