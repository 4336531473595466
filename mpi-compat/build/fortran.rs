//! Generates the Fortran library from the tables: its C code, `mpif.h`, and the modules `mpi` and `mpi_f08`.
//!
//! Each function has an entry `mpi_x_`, whose arguments are addresses and whose strings have lengths behind them, as `mpif.h`
//! calls it. A function with buffers or strings has a second one, `mpi_x_f08ts_`, to which both modules pass descriptors. Handles,
//! statuses and absent `ierror` look the same to C in both modules.

pub(crate) mod interfaces;

use std::fmt::Write;

use crate::table::{Function, Parameter, Table};

/// What a parameter is to Fortran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A number, by value in C.
    Number,
    /// A number or an array of numbers, by address.
    Numbers,
    LogicalIn,
    LogicalOut,
    /// An array of logicals, whose true is 1.
    Logicals,
    HandleIn,
    HandleOut,
    HandleInOut,
    /// An array of handles; which way says `constant`, and only one function returns one without reading it.
    Handles,
    /// The number of an entry of an array, which counts from one.
    Index,
    Indices,
    StatusIn,
    Status,
    Statuses,
    StringIn,
    /// A string whose length is at most this constant of C.
    StringOut(&'static str),
    /// A string, or an array of strings, which a function by hand treats.
    Strings,
    Choice,
    /// Memory that the call returns.
    BasePointer,
    /// The buffer that a call detaches.
    Detached,
    /// A number as large as an address: an attribute, or what a callback gets.
    Word,
    Weights,
    Callback,
    /// `argc` and `argv`, which Fortran does not have.
    Nothing,
}

/// How a buffer that is not contiguous is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    /// The buffer is one element of a datatype made of the descriptor, in place of the count and datatype at these positions.
    Block(usize, usize),
    /// The call gets a contiguous copy.
    Copy,
    /// Its address alone counts.
    Address,
    /// Not at all: an error.
    Refused,
}

/// Functions whose C code is written by hand (`by_hand.c`, `callbacks.c`): their arguments need more than a rule for each.
const BY_HAND: [&str; 39] = [
    "MPI_Init",
    "MPI_Init_thread",
    "MPI_Session_init",
    "MPI_Pcontrol",
    "MPI_Info_get",
    "MPI_Info_get_string",
    "MPI_Session_get_nth_pset",
    "MPI_Buffer_detach",
    "MPI_Buffer_detach_c",
    "MPI_Comm_detach_buffer",
    "MPI_Comm_detach_buffer_c",
    "MPI_Session_detach_buffer",
    "MPI_Session_detach_buffer_c",
    "MPI_Comm_create_keyval",
    "MPI_Type_create_keyval",
    "MPI_Win_create_keyval",
    "MPI_Keyval_create",
    "MPI_Comm_get_attr",
    "MPI_Type_get_attr",
    "MPI_Win_get_attr",
    "MPI_Attr_get",
    "MPI_Comm_set_attr",
    "MPI_Type_set_attr",
    "MPI_Win_set_attr",
    "MPI_Attr_put",
    "MPI_Comm_create_errhandler",
    "MPI_Win_create_errhandler",
    "MPI_File_create_errhandler",
    "MPI_Session_create_errhandler",
    "MPI_Errhandler_create",
    "MPI_Op_create",
    "MPI_Op_create_c",
    "MPI_Grequest_start",
    "MPI_Comm_spawn",
    "MPI_Comm_spawn_multiple",
    "MPI_Register_datarep",
    "MPI_Register_datarep_c",
    "MPI_Address",
    "MPI_Type_extent",
];

/// Functions that the first libraries of the ABI lack. A program that calls one there gets an error.
const MAY_LACK: [&str; 2] = ["MPI_Psend_init_c", "MPI_Precv_init_c"];

/// Whether Fortran has the function.
fn exists(function: &Function) -> bool {
    let name = function.name.as_str();
    let removed = function.replacement.is_some();
    !name.starts_with("MPI_T_")
        && !name.ends_with("_toint")
        && !name.ends_with("_fromint")
        && !name.contains("fortran_booleans")
        && name != "MPI_Abi_set_fortran_info"
        // Those of MPI-1 whose addresses are default integers; programs of that age call few of them.
        && !(removed && !BY_HAND.contains(&name) && function.parameters.iter().any(Parameter::is_long))
}

/// Whether the function is one of MPI-1 for attributes.
fn is_old(function: &Function) -> bool {
    ["MPI_Attr_", "MPI_Keyval_"].iter().any(|old| function.name.starts_with(old))
}

fn is_by_hand(function: &Function) -> bool {
    BY_HAND.contains(&function.name.as_str())
}

fn is_handle(base: &str) -> bool {
    let handles =
        ["Comm", "Datatype", "Errhandler", "File", "Group", "Info", "Message", "Op", "Request", "Session", "Win"];
    base.strip_prefix("MPI_").is_some_and(|name| handles.contains(&name))
}

fn kind(function: &Function, parameter: &Parameter) -> Kind {
    let (of, name, base) = (function.name.as_str(), parameter.name.as_str(), parameter.base.as_str());
    let is_pointer = parameter.stars > 0;
    if name == "argc" || name == "argv" && function.parameters.iter().any(|p| p.name == "argc") {
        return Kind::Nothing;
    }
    if base.ends_with("_function") || base.ends_with("_function_c") {
        return Kind::Callback;
    }
    match base {
        "char" if parameter.stars > 1 => Kind::Strings,
        "char" if parameter.constant || name == "command" => Kind::StringIn,
        "char" => match (of, name) {
            ("MPI_Info_get" | "MPI_Info_get_string" | "MPI_Session_get_nth_pset", _) => Kind::Strings,
            ("MPI_Get_library_version", _) => Kind::StringOut("MPI_MAX_LIBRARY_VERSION_STRING"),
            ("MPI_Get_processor_name", _) => Kind::StringOut("MPI_MAX_PROCESSOR_NAME"),
            ("MPI_Error_string", _) => Kind::StringOut("MPI_MAX_ERROR_STRING"),
            (_, "key") => Kind::StringOut("MPI_MAX_INFO_KEY"),
            (_, "port_name") => Kind::StringOut("MPI_MAX_PORT_NAME"),
            (_, "datarep") => Kind::StringOut("MPI_MAX_DATAREP_STRING"),
            _ => Kind::StringOut("MPI_MAX_OBJECT_NAME"),
        },
        "void" => match name {
            "baseptr" => Kind::BasePointer,
            "buffer_addr" => Kind::Detached,
            "extra_state" | "attribute_val" => Kind::Word,
            _ => Kind::Choice,
        },
        "MPI_Status" if parameter.constant || of.starts_with("MPI_Status_set") => Kind::StatusIn,
        "MPI_Status" if name.starts_with("array_") => Kind::Statuses,
        "MPI_Status" => Kind::Status,
        _ if is_handle(base) => match (is_pointer, parameter.array) {
            (false, _) => Kind::HandleIn,
            (true, true) => Kind::Handles,
            (true, false) => {
                let changes = of.ends_with("_free")
                    || [
                        "Start",
                        "Wait",
                        "Test",
                        "Cancel",
                        "Type_commit",
                        "Comm_disconnect",
                        "File_close",
                        "Session_finalize",
                    ]
                    .iter()
                    .any(|one| of.strip_prefix("MPI_") == Some(one))
                    || base == "MPI_Message" && of.contains("recv");
                if changes { Kind::HandleInOut } else { Kind::HandleOut }
            }
        },
        "int" => match name {
            "reorder" | "commute" | "high" | "flag" if !is_pointer => Kind::LogicalIn,
            "flag" | "commute" | "weighted" if !parameter.array => Kind::LogicalOut,
            "periods" | "remain_dims" => Kind::Logicals,
            "weights" | "sourceweights" | "destweights" => Kind::Weights,
            "indx" if !parameter.array => Kind::Index,
            "array_of_indices" => Kind::Indices,
            _ if is_pointer => Kind::Numbers,
            _ => Kind::Number,
        },
        _ if is_pointer => Kind::Numbers,
        _ => Kind::Number,
    }
}

fn kinds(function: &Function) -> Vec<(&Parameter, Kind)> {
    let all = function.parameters.iter().map(|parameter| (parameter, kind(function, parameter)));
    all.filter(|(_, kind)| *kind != Kind::Nothing).collect()
}

fn is_string(kind: Kind) -> bool {
    matches!(kind, Kind::StringIn | Kind::StringOut(_) | Kind::Strings)
}

/// Whether the modules pass descriptors.
fn has_descriptors(function: &Function) -> bool {
    kinds(function).iter().any(|(_, kind)| is_string(*kind) || *kind == Kind::Choice)
}

/// The name of the C function with addresses.
fn raw(function: &Function) -> String {
    format!("{}_", function.name.to_lowercase())
}

/// The name of the C function that the modules call.
fn entry(function: &Function) -> String {
    let suffix = if has_descriptors(function) { "f08ts_" } else { "" };
    format!("{}{suffix}", raw(function))
}

fn is_blocking(function: &Function) -> bool {
    !function.parameters.iter().any(|p| p.base == "MPI_Request" && p.stars > 0) && !function.name.contains("_begin")
}

fn section(function: &Function, all: &[(&Parameter, Kind)], at: usize) -> Section {
    let (name, of) = (function.base().strip_prefix("MPI_").unwrap_or_default(), all[at].0.name.as_str());
    if ["Get_address", "Free_mem", "Win_detach"].contains(&name) || name.ends_with("_end") {
        return Section::Address;
    }
    let copied = if is_blocking(function) { Section::Copy } else { Section::Refused };
    let plain = name.trim_end_matches("_init");
    let plain = plain.strip_prefix('I').unwrap_or(plain).to_lowercase();
    let is_pair = |kinds: Option<&[(&Parameter, Kind)]>| {
        kinds.is_some_and(|kinds| {
            kinds[0].1 == Kind::Number && kinds[1].0.base == "MPI_Datatype" && kinds[1].1 == Kind::HandleIn
        })
    };
    let has_window = all.iter().any(|(p, _)| p.base == "MPI_Win");
    let has_op = all.iter().any(|(p, _)| p.base == "MPI_Op");
    let has_blocks = (of == "recvbuf" && (plain.contains("gather") || plain.contains("alltoall")))
        || (of == "sendbuf" && (plain.contains("scatter") || plain.contains("alltoall")));
    if has_op && !has_window || has_blocks {
        return copied;
    }
    match is_pair(all.get(at + 1..at + 3)) {
        true => Section::Block(at + 1, at + 2),
        false if ["pack", "unpack"].iter().any(|one| plain.starts_with(one)) => copied,
        false => Section::Refused,
    }
}

/// The name of a handle type in the functions that convert it.
fn converted(base: &str) -> &str {
    if base == "MPI_Datatype" { "Type" } else { &base["MPI_".len()..] }
}

fn null(base: &str) -> String {
    match base {
        "MPI_Datatype" => "MPI_DATATYPE_NULL".into(),
        base => format!("{}_NULL", base.to_uppercase()),
    }
}

/// Number of entries of an array of handles.
fn entries(function: &Function, parameter: &Parameter) -> String {
    let name = match parameter.name.as_str() {
        "array_of_datatypes" => "*max_datatypes",
        "sendtypes" | "recvtypes" if function.name.to_lowercase().contains("neighbor") => {
            return format!("farside_neighbors(Comm_from(*comm), {})", u8::from(parameter.name == "recvtypes"));
        }
        "sendtypes" => return "farside_is_in_place(sendbuf) ? 0 : farside_remote_size(Comm_from(*comm))".into(),
        "recvtypes" => return "farside_remote_size(Comm_from(*comm))".into(),
        _ if function.parameters.iter().any(|p| p.name == "incount") => "*incount",
        _ => "*count",
    };
    name.into()
}

/// The type of a C parameter of an entry.
fn c_type(function: &Function, parameter: &Parameter, kind: Kind, has_descriptors: bool) -> String {
    let constant = if parameter.constant && kind != Kind::Choice { "const " } else { "" };
    match kind {
        Kind::Choice | Kind::StringIn | Kind::StringOut(_) | Kind::Strings if has_descriptors => "CFI_cdesc_t *".into(),
        Kind::Choice | Kind::Detached | Kind::BasePointer => "void *".into(),
        Kind::StringIn => "const char *".into(),
        Kind::StringOut(_) | Kind::Strings => "char *".into(),
        Kind::Word if is_old(function) => "int *".into(),
        Kind::Word => "MPI_Aint *".into(),
        Kind::Callback => "farside_callback *".into(),
        Kind::StatusIn | Kind::Status | Kind::Statuses => format!("{constant}MPI_Status *"),
        _ if is_handle(&parameter.base) => format!("{constant}int *"),
        _ => format!("{constant}{} *", parameter.base),
    }
}

fn parameters(function: &Function, descriptors: bool) -> String {
    let all = kinds(function);
    let mut list: Vec<String> =
        all.iter().map(|(p, kind)| format!("{}{}", c_type(function, p, *kind, descriptors), p.name)).collect();
    if !function.returns_value() {
        list.push("int *ierror".into());
    }
    if !descriptors {
        list.extend(all.iter().filter(|(_, kind)| is_string(*kind)).map(|(p, _)| format!("size_t {}_len", p.name)));
    }
    if list.is_empty() { "void".into() } else { list.join(", ") }
}

/// The C code of the library.
pub(crate) fn code(table: &Table) -> String {
    let mut out = String::from("/* Made from the tables of Farside's mpi-compat. */\n#include \"support.h\"\n\n");
    for function in table.functions().filter(|function| exists(function)) {
        match is_by_hand(function) {
            true => writeln!(out, "void ENTRY({})({});", raw(function), parameters(function, false)).expect("a string"),
            false => addresses(&mut out, function),
        }
        if has_descriptors(function) {
            descriptors(&mut out, function);
        }
    }
    out
}

/// The entry with addresses.
fn addresses(out: &mut String, function: &Function) {
    let (all, mut before, mut after, mut always) = (kinds(function), String::new(), String::new(), String::new());
    let mut list = Vec::new();
    for parameter in &function.parameters {
        let (name, base) = (parameter.name.as_str(), parameter.base.as_str());
        let convert = |way: &str| if is_handle(base) { format!("{}_{way}", converted(base)) } else { String::new() };
        let (from, to) = (convert("from"), convert("to"));
        match kind(function, parameter) {
            Kind::Nothing => list.push("0".into()),
            Kind::Number => list.push(format!("*{name}")),
            Kind::LogicalIn => list.push(format!("*{name} != 0")),
            Kind::LogicalOut => {
                _ = writeln!(before, "    int {name}_ = 0;");
                _ = writeln!(after, "    *{name} = {name}_ != 0;");
                list.push(format!("&{name}_"));
            }
            Kind::HandleIn => list.push(format!("{from}(*{name})")),
            Kind::HandleOut => {
                _ = writeln!(before, "    {base} {name}_ = {};", null(base));
                _ = writeln!(after, "    *{name} = {to}({name}_);");
                list.push(format!("&{name}_"));
            }
            Kind::HandleInOut => {
                _ = writeln!(before, "    {base} {name}_ = {from}(*{name});");
                _ = writeln!(always, "    *{name} = {to}({name}_);");
                list.push(format!("&{name}_"));
            }
            Kind::Handles => {
                let number = entries(function, parameter);
                let is_out = name == "array_of_datatypes";
                _ = writeln!(before, "    size_t {name}_number = farside_number({number});");
                _ = writeln!(before, "    {base} {name}_few[FARSIDE_FEW];");
                _ = writeln!(before, "    {base} *{name}_ = farside_array({name}_few, sizeof({base}), {name}_number);");
                let each = format!("for (size_t i_ = 0; {name}_ && i_ < {name}_number; ++i_)");
                if !is_out {
                    _ = writeln!(before, "    {each} {name}_[i_] = {from}({name}[i_]);");
                }
                if is_out {
                    _ = writeln!(before, "    {each} {name}_[i_] = MPI_DATATYPE_NULL;");
                    let given =
                        format!("for (size_t i_ = 0; i_ < {name}_number && {name}_[i_] != MPI_DATATYPE_NULL; ++i_)");
                    _ = writeln!(after, "    {given} {name}[i_] = {to}({name}_[i_]);");
                } else if !parameter.constant {
                    _ = writeln!(always, "    {each} {name}[i_] = {to}({name}_[i_]);");
                }
                // A request in progress may use the array until it is complete.
                let kept = parameter.constant && !is_blocking(function) && base == "MPI_Datatype";
                if kept {
                    _ = writeln!(
                        before,
                        "    {name}_ = farside_kept({name}_, {name}_few, {name}_number * sizeof({base}));"
                    );
                } else {
                    _ = writeln!(always, "    farside_free_array({name}_, {name}_few);");
                }
                list.push(format!("{name}_"));
            }
            Kind::Index => {
                _ = writeln!(after, "    if (*{name} != MPI_UNDEFINED) ++*{name};");
                list.push(name.into());
            }
            Kind::Indices => {
                _ = writeln!(
                    always,
                    "    for (int i_ = 0; (error_ == MPI_SUCCESS || error_ == MPI_ERR_IN_STATUS) && i_ < *outcount; ++i_) ++{name}[i_];"
                );
                list.push(name.into());
            }
            Kind::Status | Kind::Statuses => list.push(format!("farside_status({name})")),
            Kind::StringIn => {
                _ = writeln!(before, "    FARSIDE_STRING({name}_, {name}, {name}_len);");
                if function.name.starts_with("MPI_Info_") {
                    _ = writeln!(before, "    while (*{name}_ == ' ') ++{name}_;");
                }
                list.push(format!("{name}_"));
            }
            Kind::StringOut(most) => {
                _ = writeln!(before, "    char {name}_[{most} + 1] = \"\";");
                _ = writeln!(after, "    farside_pad({name}, {name}_len, {name}_);");
                list.push(format!("{name}_"));
            }
            Kind::Numbers if parameter.triples => list.push(format!("(int (*)[3]){name}")),
            Kind::Choice => list.push(format!("farside_address({name})")),
            Kind::Weights => list.push(format!("farside_weights({name})")),
            _ => list.push(name.into()),
        }
    }
    let called = function.replacement.as_ref().unwrap_or(&function.name);
    let call = format!("CALL({called})({})", list.join(", "));
    let (name, parameters) = (raw(function), parameters(function, false));
    if function.returns_value() {
        _ = writeln!(out, "{} ENTRY({name})({parameters})\n{{\n    return {call};\n}}\n", function.returns);
        return;
    }
    let call = match MAY_LACK.contains(&function.name.as_str()) {
        true => {
            _ = writeln!(out, "FARSIDE_WEAK({})", function.name);
            format!("CALL({}) ? {call} : MPI_ERR_UNSUPPORTED_OPERATION", function.name)
        }
        false => call,
    };
    let changed =
        if after.is_empty() { String::new() } else { format!("    if (error_ == MPI_SUCCESS) {{\n{after}    }}\n") };
    _ = writeln!(
        out,
        "void ENTRY({name})({parameters})\n{{\n{before}    int error_ = {call};\n{changed}{always}    if (ierror) *ierror = error_;\n}}\n"
    );
    // The module `mpi` has a second interface, for `type(c_ptr)`; a label of its own, as some compilers make one type of both.
    if all.iter().any(|(_, kind)| *kind == Kind::BasePointer) && !function.name.ends_with("_c") {
        let names = all.iter().map(|(p, _)| p.name.as_str()).chain(["ierror"]).collect::<Vec<_>>().join(", ");
        _ = writeln!(out, "void ENTRY({name}cptr_)({parameters})\n{{\n    ENTRY({name})({names});\n}}\n");
    }
}

/// The entry with descriptors.
fn descriptors(out: &mut String, function: &Function) {
    let all = kinds(function);
    let choices: Vec<usize> = (0..all.len()).filter(|at| all[*at].1 == Kind::Choice).collect();
    let lengths = || all.iter().filter(|(_, kind)| is_string(*kind)).map(|(p, _)| format!("{}->elem_len", p.name));
    let call = |replaced: &dyn Fn(usize, String) -> String| {
        let one = |(at, (p, kind)): (usize, &(&Parameter, Kind))| {
            let name = if is_string(*kind) || *kind == Kind::Choice {
                format!("{}->base_addr", p.name)
            } else {
                p.name.clone()
            };
            replaced(at, name)
        };
        let list = all.iter().enumerate().map(one).chain(["ierror".to_owned()]).chain(lengths());
        format!("ENTRY({})({});", raw(function), list.collect::<Vec<_>>().join(", "))
    };
    let head = |name: &str| format!("void {name}({})", parameters(function, true));
    let entry = format!("ENTRY({})", entry(function));
    let checked: Vec<usize> =
        choices.iter().copied().filter(|at| section(function, &all, *at) != Section::Address).collect();
    let plain = call(&|_, name| name);
    if checked.is_empty() {
        _ = writeln!(out, "{}\n{{\n    {plain}\n}}\n", head(&entry));
        return;
    }
    let flat =
        checked.iter().map(|at| format!("farside_is_flat({})", all[*at].0.name)).collect::<Vec<_>>().join(" && ");
    let sections = format!("sections_{}", raw(function));
    _ = writeln!(out, "FARSIDE_COLD {}\n{{\n    int error_ = MPI_SUCCESS;", head(&sections));
    let (mut made, mut done) = (String::new(), String::new());
    let mut places: Vec<(usize, String)> = Vec::new();
    for at in &checked {
        let (parameter, name) = (all[*at].0, &all[*at].0.name);
        _ = writeln!(out, "    struct farside_section {name}_ = {{0}};");
        places.push((*at, format!("{name}_.base")));
        match section(function, &all, *at) {
            Section::Block(count, datatype) => {
                let (count_of, type_of) = (all[count].0, &all[datatype].0.name);
                let (field, count_name) = (if count_of.is_long() { "large" } else { "count" }, &count_of.name);
                _ = writeln!(
                    made,
                    "    if (!error_) error_ = farside_block(&{name}_, {name}, *{count_name}, *{type_of});"
                );
                places.extend([(count, format!("&{name}_.{field}")), (datatype, format!("&{name}_.datatype"))]);
            }
            Section::Copy => {
                let keeps = u8::from(parameter.constant);
                _ = writeln!(made, "    if (!error_) error_ = farside_copy(&{name}_, {name}, {keeps});");
            }
            Section::Address | Section::Refused => {
                _ = writeln!(made, "    if (!error_) error_ = farside_refuse(&{name}_, {name});");
            }
        }
        _ = writeln!(done, "    farside_section_end(&{name}_, {name});");
    }
    let of = |base: &str| {
        all.iter().find(|(p, kind)| p.base == base && *kind == Kind::HandleIn).map(|(p, _)| p.name.as_str())
    };
    let report = match (of("MPI_Win"), of("MPI_Comm")) {
        (Some(win), _) => format!("CALL(MPI_Win_call_errhandler)(Win_from(*{win}), error_)"),
        (None, Some(comm)) => format!("CALL(MPI_Comm_call_errhandler)(Comm_from(*{comm}), error_)"),
        (None, None) => "CALL(MPI_Comm_call_errhandler)(MPI_COMM_SELF, error_)".into(),
    };
    let replaced = call(&|at, name| places.iter().find(|(of, _)| *of == at).map_or(name, |(_, place)| place.clone()));
    _ = writeln!(
        out,
        "{made}    if (error_) {{\n        {report};\n        if (ierror) *ierror = error_;\n    }} else {{\n        {replaced}\n    }}\n{done}}}\n"
    );
    let names = all.iter().map(|(p, _)| p.name.as_str()).chain(["ierror"]).collect::<Vec<_>>().join(", ");
    _ = writeln!(
        out,
        "{}\n{{\n    if ({flat}) {{\n        {plain}\n    }} else {{\n        {sections}({names});\n    }}\n}}\n",
        head(&entry)
    );
}
