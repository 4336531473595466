#![allow(unsafe_code)]
//! The calls that start and end MPI, set the level of checks, and commit types.

use std::ffi::{c_char, c_int};

use crate::pmpi::{self, COMM_WORLD};
use crate::shadow::{self, Object};
use crate::{call, level, names, types};

fn started(code: c_int) -> c_int {
    if code == 0 {
        level::read();
        if !level::off()
            && let Err(code) = shadow::of(Object::Comm(COMM_WORLD), "MPI_Init")
        {
            return code;
        }
    }
    code
}

/// # Safety
/// The arguments are as the standard has them for `MPI_Init`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Init(argc: *mut c_int, argv: *mut *mut *mut c_char) -> c_int {
    // SAFETY: the arguments are those of this call, here and below.
    started(unsafe { pmpi::MPI_Init(argc, argv) })
}

/// # Safety
/// The arguments are as the standard has them for `MPI_Init_thread`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Init_thread(
    argc: *mut c_int,
    argv: *mut *mut *mut c_char,
    required: c_int,
    provided: *mut c_int,
) -> c_int {
    // SAFETY: as above.
    started(unsafe { pmpi::MPI_Init_thread(argc, argv, required, provided) })
}

/// # Safety
/// The arguments are as the standard has them for `MPI_Session_init`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Session_init(info: usize, errhandler: usize, session: *mut usize) -> c_int {
    // SAFETY: as above.
    let code = unsafe { pmpi::MPI_Session_init(info, errhandler, session) };
    if code == 0 {
        level::read();
    }
    code
}

/// # Safety
/// The arguments are as the standard has them for `MPI_Pcontrol`. Further arguments are not read.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Pcontrol(new: c_int) -> c_int {
    level::set(new);
    // SAFETY: as above.
    unsafe { pmpi::MPI_Pcontrol(new) }
}

/// # Safety
/// The arguments are as the standard has them for `MPI_Type_commit`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Type_commit(datatype: *mut usize) -> c_int {
    // SAFETY: as above.
    unsafe {
        let code = pmpi::MPI_Type_commit(datatype);
        if code == 0 {
            types::commit(*datatype);
        }
        code
    }
}

/// # Safety
/// The arguments are as the standard has them for `MPI_Finalize`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Finalize() -> c_int {
    if !level::off() {
        let finalize = names::NAMES.iter().position(|(name, ..)| *name == "MPI_Finalize");
        let world = [("comm", call::Value::Handle(COMM_WORLD))];
        // SAFETY: the row has these arguments.
        let code = finalize.map_or(0, |at| unsafe { call::run(at, &world, &mut || 0) });
        if code != 0 {
            return code;
        }
    }
    shadow::finish();
    // SAFETY: as above.
    unsafe { pmpi::MPI_Finalize() }
}
