//! Memory that other ranks access: segments shared by the ranks of a node, raw copies, the table of exposed regions.

pub(crate) mod arrival;
pub(crate) mod available;
pub mod copy;
pub mod keys;
pub(crate) mod segment;
pub mod words;

use crate::error::{Error, ErrorKind, Result};

/// Allocates `len` zeroed bytes for `operation`, where the program or a peer determines `len`.
///
/// # Errors
/// `Limit` if the bytes cannot be allocated.
pub fn zeroed(len: usize, operation: &'static str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let cannot_allocate = |_| Error::new(ErrorKind::Limit, operation).cause(format!("cannot allocate {len} bytes"));
    bytes.try_reserve_exact(len).map_err(cannot_allocate)?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// A range of this rank's memory.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// First byte.
    pub base: *mut u8,
    /// Length in bytes.
    pub len: usize,
}

impl Block {
    /// A block that is only read.
    #[must_use]
    pub fn of(base: *const u8, len: usize) -> Self {
        Self { base: base.cast_mut(), len }
    }
}
