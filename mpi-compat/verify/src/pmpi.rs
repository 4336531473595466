#![allow(unsafe_code)]
#![allow(dead_code, non_snake_case, missing_docs, clippy::too_many_arguments, clippy::missing_safety_doc)] // made from the table
//! The `PMPI_` functions of the library below, looked up at their first call, so that this library can also be
//! preloaded into programs without MPI, such as shells between a launcher and its ranks.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// `MPI_Status`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Status {
    pub source: c_int,
    pub tag: c_int,
    pub error: c_int,
    pub internal: [c_int; 5],
}

struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn get(&self) -> *mut c_void {
        // Relaxed, like the store below: an address of loaded code; a thread that does not see it looks it up again.
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the names are strings. A library that Python has loaded for itself is not in the global scope.
        let found = unsafe {
            let found = libc::dlsym(libc::RTLD_DEFAULT, self.name.as_ptr());
            if found.is_null() {
                let library = libc::dlopen(c"libmpi_abi.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
                if library.is_null() { found } else { libc::dlsym(library, self.name.as_ptr()) }
            } else {
                found
            }
        };
        if found.is_null() {
            let name = self.name;
            crate::say::write(&format!(
                "VERIFY: {name:?} not found: the program is not linked with an MPI library of the standard ABI"
            ));
            std::process::abort();
        }
        // Relaxed: see the load above.
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

include!(concat!(env!("OUT_DIR"), "/pmpi.rs"));

/// Constants of the ABI.
pub const COMM_NULL: usize = 0x100;
pub const COMM_WORLD: usize = 0x101;
pub const COMM_SELF: usize = 0x102;
pub const GROUP_NULL: usize = 0x108;
pub const WIN_NULL: usize = 0x110;
pub const INFO_NULL: usize = 0x130;
pub const ERRORS_RETURN: usize = 0x143;
pub const MESSAGE_NULL: usize = 0x128;
pub const REQUEST_NULL: usize = 0x180;
pub const REPLACE: usize = 0x3c;
pub const NO_OP: usize = 0x3d;
pub const TYPE_NULL: usize = 0x200;
pub const CHAR: usize = 0x243;
pub const BYTE: usize = 0x247;
pub const PACKED: usize = 0x207;
pub const ANY_SOURCE: c_int = -1;
pub const PROC_NULL: i64 = -3;
pub const ROOT: i64 = -4;
pub const UNDEFINED: c_int = -32766;
pub const IN_PLACE: usize = 1;
pub const UNWEIGHTED: usize = 10;
pub const WEIGHTS_EMPTY: usize = 11;
/// Handles below this one are predefined.
pub const PREDEFINED: usize = 4096;

/// Error classes.
pub mod class {
    pub const SUCCESS: i64 = 0;
    pub const BUFFER: i64 = 1;
    pub const COUNT: i64 = 2;
    pub const TYPE: i64 = 3;
    pub const RANK: i64 = 6;
    pub const REQUEST: i64 = 7;
    pub const ROOT: i64 = 8;
    pub const GROUP: i64 = 9;
    pub const OP: i64 = 10;
    pub const TOPOLOGY: i64 = 11;
    pub const DIMS: i64 = 12;
    pub const ARG: i64 = 13;
    pub const TRUNCATE: i64 = 15;
    pub const INTERN: i64 = 17;
    pub const DISP: i64 = 26;
    pub const NOT_SAME: i64 = 40;
    pub const RMA_RANGE: i64 = 48;
    pub const RMA_SYNC: i64 = 50;
}
