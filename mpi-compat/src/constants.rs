//! The constants and types of the ABI, generated from `table/constants.txt`. Each kind of handle is a word with a type
//! of its own, which module `handle` interprets.
#![allow(missing_docs, dead_code)] // they are those of the standard, whole

use std::ffi::c_int;

/// A function pointer of the program. Some values are constants, not functions: see `constants.txt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Callback(pub usize);

/// A handle of the tool interface.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Opaque(pub usize);

/// `MPI_Status`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Status {
    pub source: c_int,
    pub tag: c_int,
    pub error: c_int,
    pub cancelled: c_int,
    /// Number of bytes received, in two halves, since a status is only aligned to `int`.
    bytes: [c_int; 2],
    unused: [c_int; 2],
}

impl Status {
    /// The status of a null or inactive request, and of a send.
    pub const EMPTY: Self = Self {
        source: MPI_ANY_SOURCE,
        tag: MPI_ANY_TAG,
        error: MPI_SUCCESS,
        cancelled: 0,
        bytes: [0; 2],
        unused: [0; 2],
    };
    /// The status of a receive from `MPI_PROC_NULL`.
    pub const FROM_PROC_NULL: Self = Self { source: MPI_PROC_NULL, ..Self::EMPTY };

    /// The status of a cancelled operation.
    pub const CANCELLED: Self = Self { cancelled: 1, ..Self::EMPTY };

    /// The status of a received message.
    pub fn received(source: c_int, tag: c_int, bytes: usize) -> Self {
        let mut status = Self { source, tag, ..Self::EMPTY };
        status.set_bytes(bytes as u64);
        status
    }

    /// Number of bytes received.
    pub fn bytes(&self) -> u64 {
        let half = |at: usize| self.bytes[at].to_ne_bytes();
        let ([a, b, c, d], [e, f, g, h]) = (half(0), half(1));
        u64::from_ne_bytes([a, b, c, d, e, f, g, h])
    }

    pub fn set_bytes(&mut self, bytes: u64) {
        let [a, b, c, d, e, f, g, h] = bytes.to_ne_bytes();
        self.bytes = [[a, b, c, d], [e, f, g, h]].map(c_int::from_ne_bytes);
    }
}

include!(concat!(env!("OUT_DIR"), "/constants.rs"));
