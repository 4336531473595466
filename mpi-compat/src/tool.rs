#![allow(unsafe_code)]
//! The tool interface (MPI-5.0 chapter 15): no control variables, performance variables, events, sources or categories.
//! Queries for the number of each return 0; calls that take an index return the error for an invalid index of that kind.
//! Errors are not passed to error handlers.

use std::ffi::{c_char, c_int, c_void};

use crate::arguments::{Callback, Opaque};
use crate::constants::*;
use crate::handle::{Info, Type};
use crate::objects::Tool;
use crate::runtime::Runtime;

/// Runs a call that requires the interface to be initialized.
fn call(f: impl FnOnce(&Tool) -> Result<(), c_int>) -> c_int {
    Runtime::with(|runtime| match runtime.tool.opened.get() {
        0 => MPI_T_ERR_NOT_INITIALIZED,
        _ => f(&runtime.tool).err().unwrap_or(MPI_SUCCESS),
    })
}

/// Writes a result to an address of the program.
fn put<T>(place: *mut T, value: T) -> Result<(), c_int> {
    if place.is_null() {
        return Err(MPI_T_ERR_INVALID);
    }
    // SAFETY: the program passes the address of a result, which need not be aligned.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

pub fn t_init_thread(_required: c_int, provided: *mut c_int) -> c_int {
    Runtime::with(|runtime| {
        if let Err(code) = put(provided, MPI_THREAD_MULTIPLE) {
            return code;
        }
        runtime.tool.opened.set(runtime.tool.opened.get() + 1);
        MPI_SUCCESS
    })
}

pub fn t_finalize() -> c_int {
    call(|tool| {
        tool.opened.set(tool.opened.get() - 1);
        if tool.opened.get() == 0 {
            tool.sessions.borrow_mut().clear();
        }
        Ok(())
    })
}

macro_rules! none {
    ($($name:ident),*) => {$(
        pub fn $name(number: *mut c_int) -> c_int {
            call(|_| put(number, 0))
        }
    )*};
}

none!(t_category_changed, t_category_get_num, t_cvar_get_num, t_event_get_num, t_pvar_get_num, t_source_get_num);

macro_rules! absent {
    ($($error:ident: $($name:ident($($kind:ty),*)),*;)*) => {$($(
        pub fn $name($(_: $kind),*) -> c_int {
            call(|_| Err($error))
        }
    )*)*};
}

type Text = *mut c_char;
type Name = *const c_char;
type Number = *mut c_int;

absent! {
    MPI_T_ERR_INVALID_NAME:
        t_category_get_index(Name, Number), t_cvar_get_index(Name, Number), t_event_get_index(Name, Number),
        t_pvar_get_index(Name, c_int, Number);
    MPI_T_ERR_INVALID_INDEX:
        t_category_get_categories(c_int, c_int, Number), t_category_get_cvars(c_int, c_int, Number),
        t_category_get_events(c_int, c_int, Number), t_category_get_pvars(c_int, c_int, Number),
        t_category_get_num_events(c_int, Number),
        t_category_get_info(c_int, Text, Number, Text, Number, Number, Number, Number),
        t_cvar_get_info(c_int, Text, Number, Number, *mut Type, *mut Opaque, Text, Number, Number, Number),
        t_cvar_handle_alloc(c_int, *mut c_void, *mut Opaque, Number),
        t_event_get_info(
            c_int, Text, Number, Number, *mut Type, *mut i64, Number, *mut Opaque, *mut Info, Text, Number, Number
        ),
        t_event_handle_alloc(c_int, *mut c_void, Info, *mut Opaque),
        t_pvar_get_info(
            c_int, Text, Number, Number, Number, *mut Type, *mut Opaque, Text, Number, Number, Number, Number, Number
        ),
        t_source_get_info(c_int, Text, Number, Text, Number, Number, *mut i64, *mut i64, *mut Info),
        t_source_get_timestamp(c_int, *mut i64);
    MPI_T_ERR_INVALID_HANDLE:
        t_cvar_handle_free(*mut Opaque), t_cvar_read(Opaque, *mut c_void), t_cvar_write(Opaque, *const c_void),
        t_enum_get_info(Opaque, Number, Text, Number), t_enum_get_item(Opaque, c_int, Number, Text, Number),
        t_event_callback_get_info(Opaque, c_int, *mut Info), t_event_callback_set_info(Opaque, c_int, Info),
        t_event_copy(Opaque, *mut c_void), t_event_get_source(Opaque, Number), t_event_get_timestamp(Opaque, *mut i64),
        t_event_handle_free(Opaque, *mut c_void, Callback), t_event_handle_get_info(Opaque, *mut Info),
        t_event_handle_set_info(Opaque, Info), t_event_read(Opaque, c_int, *mut c_void),
        t_event_register_callback(Opaque, c_int, Info, *mut c_void, Callback),
        t_event_set_dropped_handler(Opaque, Callback);
}

pub fn t_pvar_session_create(session: *mut Opaque) -> c_int {
    call(|tool| {
        let new = tool.last_session.get() + 1;
        put(session, Opaque(new))?;
        tool.last_session.set(new);
        tool.sessions.borrow_mut().push(new);
        Ok(())
    })
}

pub fn t_pvar_session_free(session: *mut Opaque) -> c_int {
    call(|tool| {
        if session.is_null() {
            return Err(MPI_T_ERR_INVALID);
        }
        // SAFETY: the program passes the address of a handle, which need not be aligned.
        let old = unsafe { session.read_unaligned() };
        tool.has(old)?;
        tool.sessions.borrow_mut().retain(|other| *other != old.0);
        put(session, MPI_T_PVAR_SESSION_NULL)
    })
}

pub fn t_pvar_handle_alloc(session: Opaque, _: c_int, _: *mut c_void, _: *mut Opaque, _: Number) -> c_int {
    call(|tool| tool.has(session).and(Err(MPI_T_ERR_INVALID_INDEX)))
}

pub fn t_pvar_handle_free(session: Opaque, _: *mut Opaque) -> c_int {
    call(|tool| tool.has(session).and(Err(MPI_T_ERR_INVALID_HANDLE)))
}

macro_rules! on_all_handles {
    ($($name:ident),*) => {$(
        pub fn $name(session: Opaque, handle: Opaque) -> c_int {
            call(|tool| {
                tool.has(session)?;
                // No handle of a performance variable exists, so only "all handles" is valid.
                if handle.0 == MPI_T_PVAR_ALL_HANDLES.0 { Ok(()) } else { Err(MPI_T_ERR_INVALID_HANDLE) }
            })
        }
    )*};
}

on_all_handles!(t_pvar_start, t_pvar_stop, t_pvar_reset);

macro_rules! on_one_handle {
    ($($name:ident($kind:ty)),*) => {$(
        pub fn $name(session: Opaque, _: Opaque, _: $kind) -> c_int {
            call(|tool| tool.has(session).and(Err(MPI_T_ERR_INVALID_HANDLE)))
        }
    )*};
}

on_one_handle!(t_pvar_read(*mut c_void), t_pvar_readreset(*mut c_void), t_pvar_write(*const c_void));
