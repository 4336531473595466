//! Handles as integers (MPI-5.0 chapter 20).

use std::ffi::c_int;

use crate::handle::{Comm, Errhandler, File, Group, Info, Message, Objects, Op, Request, Session, Type, Win, to_int};
use crate::runtime::Runtime;

macro_rules! conversions {
    ($($kind:ident: $to:ident, $from:ident, $($table:ident)?;)*) => {$(
        pub fn $to(handle: $kind) -> c_int {
            to_int(handle)
        }

        pub fn $from(int: c_int) -> $kind {
            conversions!(@ $kind, int, $($table)?)
        }
    )*};
    (@ $kind:ident, $int:ident, $table:ident) => { Runtime::with(|runtime| runtime.$table.of_int($int)) };
    // No objects of this kind yet.
    (@ $kind:ident, $int:ident,) => { Objects::<$kind, ()>::default().of_int($int) };
}

pub fn request_toint(handle: Request) -> c_int {
    to_int(handle)
}

pub fn request_fromint(int: c_int) -> Request {
    Runtime::with(|runtime| runtime.receives.of_int(int).unwrap_or_else(|| runtime.requests.of_int(int)))
}

conversions! {
    Comm: comm_toint, comm_fromint, comms;
    Errhandler: errhandler_toint, errhandler_fromint, errhandlers;
    File: file_toint, file_fromint,;
    Group: group_toint, group_fromint, groups;
    Info: info_toint, info_fromint, infos;
    Message: message_toint, message_fromint, messages;
    Op: op_toint, op_fromint, ops;
    Session: session_toint, session_fromint, sessions;
    Type: type_toint, type_fromint, types;
    Win: win_toint, win_fromint, wins;
}
