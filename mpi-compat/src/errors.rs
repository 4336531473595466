#![allow(unsafe_code)]
//! Error handlers, classes, codes and strings (MPI-5.0 chapter 9).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::rc::Rc;
use std::time::Duration;

use farside_core::engine::end_again;
use farside_core::say;

use crate::arguments::{Callback, Out, Text, TextOut};
use crate::constants::*;
use crate::errhandler::{Action, ErrhandlerObject, ErrhandlerOf, Handler, Target};
use crate::fail::{Fail, Result, fail};
use crate::handle::{Comm, Errhandler, File, Session, Win};
use crate::lock::{LOCK, this_thread};
use crate::objects::Added;
use crate::runtime::{Call, Phase, Runtime};

/// The object whose error handler is called for an error.
#[derive(Clone, Copy, Debug)]
pub enum On {
    /// No object: the error handler of `MPI_COMM_SELF`, and before `MPI_Init` the initial one.
    Process,
    Comm(Comm),
    Win(Win),
    File(File),
    Session(Session),
    /// An object that the call makes with a given error handler: the null handle, the kind, the handler.
    New(usize, Target, Errhandler),
}

/// The initial error handler of communicators.
pub fn fatal(runtime: &Runtime) -> Handler {
    let handler = runtime.errhandlers.get(MPI_ERRORS_ARE_FATAL);
    RefCell::new(handler.unwrap_or_else(|_| unreachable!("it is predefined")))
}

/// The error handler of an object, and the handle that is passed to it.
fn handler_of(runtime: &Runtime, on: On) -> Option<ErrhandlerOf> {
    match on {
        On::Comm(comm) => runtime.comms.get(comm).ok().map(|object| (Rc::clone(&object.errhandler.borrow()), comm.0)),
        On::Win(win) => runtime.wins.get(win).ok().map(|object| (Rc::clone(&object.errhandler.borrow()), win.0)),
        On::File(file) if file == MPI_FILE_NULL => runtime.errors.files.borrow().clone().map(|h| (h, file.0)),
        On::Session(session) => {
            runtime.sessions.get(session).ok().map(|object| (Rc::clone(&object.errhandler.borrow()), session.0))
        }
        On::New(null, target, errhandler) => {
            errhandler_for(runtime, target, errhandler).ok().map(|handler| (handler, null))
        }
        On::File(_) | On::Process => None,
    }
}

/// Applies the error handler of an object; without one, that of `MPI_COMM_SELF`; without either, ends the job. Returns
/// the code, and the user's handler function to call, if there is one.
#[cold]
pub fn raise(call: &Call<'_>, on: On, mut failed: Fail) -> (c_int, Option<HandlerCall>) {
    let mut text = format!("{}: ", call.name);
    if let Some(argument) = failed.argument {
        text += argument;
        if let Some(handle) = failed.handle {
            text += &format!(" (0x{handle:x})");
        }
        text += " ";
    }
    // An error text of core may begin with the name of the same function.
    text += failed.text.strip_prefix(&text).unwrap_or(&failed.text);
    let code = call.errors.code_of(failed.code, &text);
    let own = failed.on.take().or_else(|| handler_of(call, on)).or_else(|| handler_of(call, On::Comm(MPI_COMM_SELF)));
    match own {
        Some((handler, handle)) => (code, handle_error(call, &handler, handle, code, &text)),
        None => end(call, code, &text),
    }
}

/// A pending call of a user-defined error handler, with its arguments.
pub struct HandlerCall {
    function: Callback,
    handle: usize,
    code: c_int,
}

impl HandlerCall {
    /// Calls the function, and returns the possibly modified code, which the call that raised the error returns.
    pub fn call(mut self) -> c_int {
        // SAFETY: the program has passed a function of this type; all four kinds take pointers to a handle and a code.
        unsafe {
            let function: unsafe extern "C-unwind" fn(*mut usize, *mut c_int, ...) =
                std::mem::transmute(self.function.0 as *const ());
            function(&raw mut self.handle, &raw mut self.code);
        }
        self.code
    }
}

/// Applies an error handler; a user-defined one is returned instead of being called.
fn handle_error(
    call: &Call<'_>,
    handler: &ErrhandlerObject,
    handle: usize,
    code: c_int,
    text: &str,
) -> Option<HandlerCall> {
    match handler.action {
        Action::Return => None,
        Action::Abort => end(call, code, text),
        Action::Function(_, function) => Some(HandlerCall { function, handle, code }),
    }
}

/// Ends the job; a process that is not part of the job exits.
fn end(runtime: &Runtime, code: c_int, text: &str) -> ! {
    let class = runtime.errors.class(code).unwrap_or(MPI_ERR_OTHER);
    let name =
        ERROR_CLASSES.iter().find(|(_, known, _)| *known == class).map_or("an error class of the program", |row| row.0);
    let reason = format!("{text} ({name})");
    // The parent process sees only the lower byte, which must not be 0.
    let status = if class & 0xff == 0 { 1 } else { class & 0xff };
    if runtime.phase.get() == Phase::Child {
        say(format_args!("process {}: {reason}; the error handler ends the process", std::process::id()));
        // SAFETY: the call does not return. The parent's exit handlers must not run in the child.
        unsafe { libc::_exit(status) }
    }
    let what = if runtime.job.borrow().is_some() { "job" } else { "program" };
    end_process(runtime, status, &format!("{reason}; the error handler ends the {what}"))
}

/// The time for which a thread with an error waits for another thread that is ending the process. Exit handlers of the
/// program may wait for this thread.
const GRACE: Duration = Duration::from_secs(2);

/// Ends the job, and this process after its exit handlers. An error in one of them, or in a signal handler that
/// interrupts them, ends the process immediately with the code of the first error; an error in another thread does so
/// after a grace period.
pub fn end_process(runtime: &Runtime, code: c_int, reason: &str) -> ! {
    fn exit(code: c_int) -> ! {
        // The lock is released first, so that other threads, for which exit handlers may wait, return from their calls.
        LOCK.outside(|| std::process::exit(code))
    }
    if let Some((thread, first)) = runtime.ending.get() {
        end_again(first, reason, || {
            if thread != this_thread() {
                LOCK.outside(|| std::thread::sleep(GRACE));
            }
        })
    }
    runtime.ending.set(Some((this_thread(), code)));
    let job = runtime.job.borrow().clone();
    match job {
        Some(job) => job.abort_by(code, reason, exit),
        None => {
            say(format_args!("{reason}"));
            exit(code)
        }
    }
}

fn create(call: &Call<'_>, target: Target, function: Callback, errhandler: Out<Errhandler>) -> Result {
    if function.0 == 0 {
        return Err(fail(MPI_ERR_ARG, "is a null pointer").named("errhandler_fn"));
    }
    let object = Rc::new(ErrhandlerObject { action: Action::Function(target, function), handle: Cell::new(0) });
    errhandler.set(call.errhandlers.share(&object));
    Ok(())
}

/// Looks up an error handler and checks that it is for objects of this kind.
pub fn errhandler_for(runtime: &Runtime, target: Target, errhandler: Errhandler) -> Result<Rc<ErrhandlerObject>> {
    let object = runtime.errhandlers.get(errhandler)?;
    match object.action {
        Action::Function(of, _) if of != target => {
            Err(fail(MPI_ERR_ERRHANDLER, format!("was created for another kind of object ({of:?})"))
                .value(errhandler.0))
        }
        _ => Ok(object),
    }
}

fn check_code(call: &Call<'_>, code: c_int) -> Result {
    match call.errors.class(code) {
        Some(_) => Ok(()),
        None => Err(fail(MPI_ERR_ARG, format!("is {code}, not an error code")).named("errorcode")),
    }
}

macro_rules! chapter {
    ($($target:ident: $create:ident, $set:ident, $get:ident, $invoke:ident, $handler:expr;)*) => {$(
        pub fn $create(call: &Call<'_>, function: Callback, errhandler: Out<Errhandler>) -> Result {
            create(call, Target::$target, function, errhandler)
        }

        pub fn $set(call: &Call<'_>, object: $target, errhandler: Errhandler) -> Result {
            let new = errhandler_for(call, Target::$target, errhandler)?;
            let with: fn(&Call<'_>, $target, &mut dyn FnMut(&mut Rc<ErrhandlerObject>)) -> Result = $handler;
            with(call, object, &mut |handler| *handler = Rc::clone(&new))
        }

        pub fn $get(call: &Call<'_>, object: $target, errhandler: Out<Errhandler>) -> Result {
            let with: fn(&Call<'_>, $target, &mut dyn FnMut(&mut Rc<ErrhandlerObject>)) -> Result = $handler;
            with(call, object, &mut |handler| errhandler.set(call.errhandlers.share(handler)))
        }

        pub fn $invoke(call: &Call<'_>, object: $target, code: c_int) -> Result {
            check_code(call, code)?;
            let with: fn(&Call<'_>, $target, &mut dyn FnMut(&mut Rc<ErrhandlerObject>)) -> Result = $handler;
            let mut found = None;
            with(call, object, &mut |handler| found = Some(Rc::clone(handler)))?;
            let text = format!("{}: code {code}", call.name);
            let function = found.and_then(|handler| handle_error(call, &handler, object.0, code, &text));
            drop(text);
            if let Some(function) = function {
                LOCK.outside(|| function.call());
            }
            Ok(())
        }
    )*};
}

chapter! {
    Comm: comm_create_errhandler, comm_set_errhandler, comm_get_errhandler, comm_call_errhandler,
        |call, comm, f| { f(&mut call.comms.get(comm)?.errhandler.borrow_mut()); Ok(()) };
    Win: win_create_errhandler, win_set_errhandler, win_get_errhandler, win_call_errhandler,
        |call, win, f| { f(&mut call.wins.get(win)?.errhandler.borrow_mut()); Ok(()) };
    File: file_create_errhandler, file_set_errhandler, file_get_errhandler, file_call_errhandler,
        |call, file, f| match &mut *call.errors.files.borrow_mut() {
            Some(handler) if file == MPI_FILE_NULL => { f(handler); Ok(()) }
            _ => Err(fail(MPI_ERR_FILE, "is not a file").value(file.0)),
        };
    Session: session_create_errhandler, session_set_errhandler, session_get_errhandler, session_call_errhandler,
        |call, session, f| { f(&mut call.sessions.get(session)?.errhandler.borrow_mut()); Ok(()) };
}

pub fn errhandler_free(call: &Call<'_>, errhandler: Out<Errhandler>) -> Result {
    let handle = errhandler.get();
    call.errhandlers.get(handle)?;
    // Programs free the result of `MPI_Comm_get_errhandler` even if it is a predefined handler, which stays valid.
    if ![MPI_ERRORS_ARE_FATAL, MPI_ERRORS_ABORT, MPI_ERRORS_RETURN].contains(&handle) {
        call.errhandlers.release(handle)?;
    }
    errhandler.set(MPI_ERRHANDLER_NULL);
    Ok(())
}

fn add(call: &Call<'_>, class: impl FnOnce(c_int) -> c_int) -> Result<c_int> {
    let code = call.errors.last_used.get() + 1;
    if code > 0x7fff {
        return Err(fail(MPI_ERR_OTHER, "all error codes are in use"));
    }
    call.errors.last_used.set(code);
    call.errors.added.borrow_mut().insert(code, Added { class: class(code), text: Vec::new() });
    Ok(code)
}

/// Changes an error class, code or string that the program has added.
fn change(
    call: &Call<'_>,
    code: c_int,
    name: &'static str,
    is_class: Option<bool>,
    f: impl FnOnce(&mut BTreeMap<c_int, Added>),
) -> Result {
    let mut added = call.errors.added.borrow_mut();
    let found = added.get(&code).is_some_and(|added| is_class.is_none_or(|is_class| is_class == (added.class == code)));
    if !found {
        return Err(fail(MPI_ERR_ARG, format!("is {code}, which the program has not added")).named(name));
    }
    f(&mut added);
    Ok(())
}

pub fn add_error_class(call: &Call<'_>, errorclass: Out<c_int>) -> Result {
    errorclass.set(add(call, |code| code)?);
    Ok(())
}

pub fn add_error_code(call: &Call<'_>, errorclass: c_int, errorcode: Out<c_int>) -> Result {
    if call.errors.class(errorclass) != Some(errorclass) {
        return Err(fail(MPI_ERR_ARG, format!("is {errorclass}, not an error class")).named("errorclass"));
    }
    errorcode.set(add(call, |_| errorclass)?);
    Ok(())
}

fn set_text(call: &Call<'_>, errorcode: c_int, text: Vec<u8>) -> Result {
    change(call, errorcode, "errorcode", None, |added| {
        if let Some(added) = added.get_mut(&errorcode) {
            added.text = text;
        }
    })
}

pub fn add_error_string(call: &Call<'_>, errorcode: c_int, string: Text) -> Result {
    let text = string.read()?;
    if text.len() >= MPI_MAX_ERROR_STRING {
        return Err(fail(
            MPI_ERR_ARG,
            format!("has {} bytes, but at most {} are allowed", text.len(), MPI_MAX_ERROR_STRING - 1),
        )
        .named("string"));
    }
    set_text(call, errorcode, text)
}

/// Removes a class or code without a string; the greatest code becomes available again.
fn remove(call: &Call<'_>, code: c_int, name: &'static str, is_class: bool) -> Result {
    let has_text = call.errors.added.borrow().get(&code).is_some_and(|added| !added.text.is_empty());
    if has_text {
        return Err(fail(MPI_ERR_ARG, format!("is {code}, which still has a string")).named(name));
    }
    change(call, code, name, Some(is_class), |added| {
        added.remove(&code);
        let last = added.last_key_value().map_or(MPI_ERR_LASTCODE, |(code, _)| *code);
        call.errors.last_used.set(last);
    })
}

pub fn remove_error_class(call: &Call<'_>, errorclass: c_int) -> Result {
    let used = call.errors.added.borrow().iter().any(|(code, added)| added.class == errorclass && *code != errorclass);
    if used {
        return Err(fail(MPI_ERR_ARG, format!("is {errorclass}, which still has error codes")).named("errorclass"));
    }
    remove(call, errorclass, "errorclass", true)
}

pub fn remove_error_code(call: &Call<'_>, errorcode: c_int) -> Result {
    remove(call, errorcode, "errorcode", false)
}

pub fn remove_error_string(call: &Call<'_>, errorcode: c_int) -> Result {
    set_text(call, errorcode, Vec::new())
}

pub fn error_class(call: &Call<'_>, errorcode: c_int, errorclass: Out<c_int>) -> Result {
    check_code(call, errorcode)?;
    errorclass.set(call.errors.class(errorcode).unwrap_or(MPI_ERR_UNKNOWN));
    Ok(())
}

pub fn error_string(call: &Call<'_>, errorcode: c_int, string: TextOut, resultlen: Out<c_int>) -> Result {
    check_code(call, errorcode)?;
    let text = call.errors.text(errorcode).unwrap_or_default();
    resultlen.set(string.write(&text, MPI_MAX_ERROR_STRING)? as c_int);
    Ok(())
}
