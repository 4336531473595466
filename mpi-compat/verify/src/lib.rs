#![allow(unsafe_code)]
#![allow(missing_docs)] // exports are the standard's functions
#![allow(unreachable_pub)] // wrappers are generated as public functions
//! `libfarside_verify.so`: checks what MPI leaves unchecked, between the ranks of each collective call. It is preloaded
//! under any library of the MPI 5.0 standard ABI, intercepts `MPI_` calls, and forwards them to `PMPI_` (Traeff,
//! Worringen: Verifying Collective MPI Calls, EuroPVM/MPI 2004).
//!
//! `table` lists the calls and the checks of each; the build script generates a wrapper of each, in all its forms.
//! `call` runs a call: `describe` creates its record and detects the errors that are visible at one rank alone,
//! `exchange` sends the record to all ranks, and `compare`, a pure function of all records, detects the other errors:
//! so all ranks get the same result, and all call the error handler. A non-blocking call sends its record when it
//! starts, and is compared when its request completes (`requests`).
//!
//! A call costs one message to each other rank of its communicator.

mod arguments;
mod call;
mod compare;
mod describe;
mod exchange;
mod explain;
mod graph;
mod leaders;
mod level;
mod local;
mod pmpi;
mod record;
mod requests;
mod say;
mod shadow;
mod signature;
mod start;
#[allow(dead_code)] // the build script uses the rest
mod table;
mod types;

/// Generated from the tables.
mod names {
    use crate::table::Form;
    include!(concat!(env!("OUT_DIR"), "/names.rs"));
}

#[allow(non_snake_case, clippy::too_many_arguments, clippy::missing_safety_doc)] // made from the table
mod wrappers {
    use std::ffi::{c_char, c_int, c_void};

    use crate::call::{self, Value};
    use crate::pmpi::Status;
    use crate::{level, pmpi, requests};

    include!(concat!(env!("OUT_DIR"), "/wrappers.rs"));
}
