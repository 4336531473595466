#![allow(unsafe_code)]
//! A call of the program: the ranks exchange and compare records of it; then the call continues to `PMPI_`, or the
//! error handler is called.

use std::ffi::c_int;
use std::sync::Arc;

use crate::arguments::Arguments;
pub use crate::arguments::Value;
use crate::compare::{CallRecords, compare};
use crate::exchange::Pending;
use crate::names::NAMES;
use crate::pmpi::{self, COMM_NULL, WIN_NULL, class};
use crate::record::Record;
use crate::say::{self, report};
use crate::shadow::{self, Object, Shadow};
use crate::table::{CALLS, Data, Form};
use crate::{describe, leaders, level, local, requests};

/// Checks a call, and makes it by `go` if it is correct.
///
/// # Safety
/// The arguments are those of the function with the number `call` in `NAMES`.
pub unsafe fn run(call: usize, args: &[(&str, Value)], go: &mut dyn FnMut() -> c_int) -> c_int {
    let (name, row, form) = NAMES[call];
    let (row, args) = (&CALLS[row], Arguments(args));
    if matches!(row.data, Data::Message | Data::Access | Data::Local | Data::Lock | Data::Ranks) {
        return match local::fault(name, row.data, &args) {
            Some((class, text)) => {
                local::report(name, &args, &text);
                match args.object() {
                    // The verifier does not know the session of a group, so there is no error handler to call.
                    None if local::world().is_none() => class as c_int,
                    object => handler(object, class),
                }
            }
            None => go(),
        };
    }
    let Some(object) =
        args.object().filter(|object| !matches!(object, Object::Comm(COMM_NULL) | Object::Win(WIN_NULL)))
    else {
        return go();
    };
    if level::off() {
        shadow::free(object);
        return go();
    }
    match checked(call, name, form, row, &args, object, go) {
        Ok(code) => code,
        Err(code) => {
            say::write(&format!(
                "VERIFY {}: exchanging the records of the call failed: {}",
                name.to_uppercase(),
                error_text(code)
            ));
            handler(Some(object), i64::from(code))
        }
    }
}

fn checked(
    call: usize,
    name: &str,
    form: Form,
    row: &crate::table::Row,
    args: &Arguments<'_>,
    object: Object,
    go: &mut dyn FnMut() -> c_int,
) -> Result<c_int, c_int> {
    let alone = row.data == Data::GroupAlone;
    let shadow = if alone { shadow::known(object) } else { shadow::of(object, name)? };
    let Some(shadow) = shadow else { return Ok(go()) };
    let record = describe::record(call, row, args, &shadow);
    let with = alone.then(|| members(&record)).map(|ranks| (ranks, args.int("tag").unwrap_or(0) as c_int));
    if with.as_ref().is_some_and(|(ranks, _)| !ranks.contains(&shadow.me)) {
        return Ok(go());
    }
    let fault = record.fault.clone();
    let mut pending = shadow.start(record.bytes(), with)?;
    if form == Form::Started && shadow.places.len() > 1 {
        if let Some((class, text)) = fault {
            // The other ranks get the error when they complete the call.
            report(name, shadow.rank(), &text);
            return Ok(handler(Some(object), class));
        }
        let duplicate = if name.starts_with("MPI_Comm_idup") { shadow.duplicate()? } else { None };
        let code = go();
        if let (0, Some(request)) = (code, args.out("request")) {
            let created_comm = name
                .starts_with("MPI_Comm_idup")
                .then(|| (args.out("newcomm").unwrap_or_default() as usize, duplicate));
            // SAFETY: the call has written its request.
            requests::add(
                unsafe { *request },
                requests::Check { name: name.to_owned(), object, pending, created_comm, verified: false },
            );
        }
        return Ok(code);
    }
    pending.finish(name)?;
    let mut records = match compare_records(name, object, &pending) {
        Ok(records) => records,
        Err(code) => return Ok(code),
    };
    if name == "MPI_Intercomm_create" {
        // The leaders of both groups have compared their records; each distributes the result in its group.
        let fault = leaders::fault(name, args, &shadow, &record)?;
        let mut pending = shadow.start(Record { call: call as i64, fault, ..Record::default() }.bytes(), None)?;
        pending.finish(name)?;
        records = match compare_records(name, object, &pending) {
            Ok(records) => records,
            Err(code) => return Ok(code),
        };
    }
    if matches!(name, "MPI_Comm_free" | "MPI_Comm_disconnect" | "MPI_Win_free") {
        shadow::free(object);
    }
    let code = go();
    if code == 0 {
        after(name, row.data, args, &shadow, &records)?;
    }
    Ok(code)
}

/// The ranks of the group argument of a call.
fn members(record: &Record) -> Vec<usize> {
    let group = record.value("group").map_or(&[][..], |same| &same.values);
    group.iter().filter_map(|rank| usize::try_from(*rank).ok()).collect()
}

/// Compares the records of all ranks. On an error each rank reports its own complaint, and the error handler is called.
pub fn compare_records(name: &str, object: Object, pending: &Pending) -> Result<Vec<Option<Record>>, c_int> {
    let shadow = &pending.shadow;
    let mut records = Vec::with_capacity(pending.got.len());
    for (at, bytes) in pending.got.iter().enumerate() {
        let record = bytes.as_ref().map(|bytes| Record::parse(bytes));
        if record == Some(None) {
            report(
                name,
                shadow.rank(),
                &format!("rank {} sent a malformed record of its call", shadow.places[at].rank),
            );
            return Err(handler(Some(object), class::INTERN));
        }
        records.push(record.flatten());
    }
    let all = CallRecords { places: &shadow.places, records: &records, inter: shadow.inter };
    let complaints = compare(&all);
    let Some(first) = complaints.first() else { return Ok(records) };
    if let Some(mine) = complaints.iter().find(|complaint| complaint.reporter == shadow.me) {
        let rank = if mine.about == "inter" { " (INTERCOMM)".into() } else { format!("({})", shadow.rank()) };
        let mut lines = format!("VERIFY {}{rank}: {}", name.to_uppercase(), mine.text);
        if level::get() >= 2 {
            lines += &explanation(name, object, &mine.why, complaints.len(), pending);
        }
        say::write(&lines);
    }
    pending.settle();
    Err(handler(Some(object), first.class))
}

/// The explanation of level 2: the rule, the values passed, and the number of the call.
fn explanation(name: &str, object: Object, why: &str, complaints: usize, pending: &Pending) -> String {
    let ranks = pending.got.iter().flatten().count();
    let number = pending.number().map_or_else(|| "a call".to_owned(), |number| format!("call {number}"));
    let started = names_form(name) == Form::Started;
    let end = format!(
        "It was {number} on {}, of {ranks} ranks, {complaints} complaint{} in all; it was {}.",
        object_name(object),
        if complaints == 1 { "" } else { "s" },
        if started { "started" } else { "not made" }
    );
    let mut text = String::new();
    for paragraph in why.lines().chain([&*end]) {
        let mut column = usize::MAX;
        for word in paragraph.split_whitespace() {
            if column.saturating_add(word.len()) > 108 {
                text += "\nVERIFY  ";
                column = 8;
            }
            text.push(' ');
            text += word;
            column += 1 + word.len();
        }
    }
    text
}

fn names_form(name: &str) -> Form {
    NAMES.iter().find(|(known, ..)| *known == name).map_or(Form::Blocking, |(_, _, form)| *form)
}

/// The name that the program has given a communicator or window.
fn object_name(object: Object) -> String {
    let (mut text, mut length) = ([0u8; 129], 0);
    let at = text.as_mut_ptr().cast();
    // SAFETY: the buffer has the maximum length of the ABI plus one byte.
    let kind = unsafe {
        match object {
            Object::Comm(comm) => (pmpi::MPI_Comm_get_name(comm, at, &raw mut length), "a communicator").1,
            Object::Win(win) => (pmpi::MPI_Win_get_name(win, at, &raw mut length), "a window").1,
        }
    };
    match length {
        1..=128 => String::from_utf8_lossy(&text[..length as usize]).into_owned(),
        _ => format!("{kind} without a name"),
    }
}

fn error_text(code: c_int) -> String {
    let (mut text, mut length) = ([0u8; 513], 0);
    // SAFETY: the buffer has the maximum length of the ABI plus one byte.
    unsafe { pmpi::MPI_Error_string(code, text.as_mut_ptr().cast(), &raw mut length) };
    String::from_utf8_lossy(&text[..length.clamp(0, 512) as usize]).into_owned()
}

/// Calls the error handler of an object, or of `MPI_COMM_SELF`, and returns the error code.
pub fn handler(object: Option<Object>, class: i64) -> c_int {
    let code = class as c_int;
    // SAFETY: the object belongs to the program.
    unsafe {
        match object {
            Some(Object::Comm(comm)) => pmpi::MPI_Comm_call_errhandler(comm, code),
            Some(Object::Win(win)) => pmpi::MPI_Win_call_errhandler(win, code),
            None => pmpi::MPI_Comm_call_errhandler(pmpi::COMM_SELF, code),
        }
    };
    code
}

/// Creates the shadow of the communicator or window that the call has created.
fn after(
    name: &str,
    data: Data,
    args: &Arguments<'_>,
    shadow: &Arc<Shadow>,
    records: &[Option<Record>],
) -> Result<(), c_int> {
    if data == Data::Window {
        // SAFETY: the call has written the window.
        let Some(win) = args.out("win").map(|win| unsafe { *win }) else { return Ok(()) };
        let comm = args.comm().unwrap_or(COMM_NULL);
        let mine = shadow::create(Object::Win(win), comm, Some(shadow), name)?;
        let note = |record: &Option<Record>| match record.as_ref().map(|record| &record.note[..]) {
            Some([size, unit]) => (*size, *unit),
            _ => (-1, 1),
        };
        let _ = mine.exposed.set(records.iter().map(note).collect());
        return Ok(());
    }
    match args.created_comm() {
        None | Some(COMM_NULL) => {}
        Some(comm) => {
            let parent = name.contains("dup").then_some(&**shadow);
            shadow::create(Object::Comm(comm), comm, parent, name)?;
        }
    }
    Ok(())
}
