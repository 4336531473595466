//! MPI over Farside: `libmpi_abi.so.1`, the C library of the MPI 5.0 standard ABI.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the ABI is that of 64-bit systems");

mod abi;
mod arguments;
mod attributes;
mod comm;
mod constants;
mod conversion;
mod datatype;
mod environment;
mod errors;
mod exports;
mod fail;
mod group;
mod handle;
mod info;
mod op;
mod pack;
mod runtime;
mod status;
mod win;
