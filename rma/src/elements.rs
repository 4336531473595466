//! Displacements and lengths in elements.

use farside_core::{Error, ErrorKind, Result};

/// A displacement in bytes.
#[inline(always)]
pub(crate) fn bytes<T>(displacement: usize) -> Result<usize> {
    match displacement.checked_mul(size_of::<T>()) {
        Some(offset) => Ok(offset),
        None => Err(too_far(displacement)),
    }
}

#[cold]
fn too_far(displacement: usize) -> Error {
    Error::new(ErrorKind::OutOfRange, "address a window").cause(format!("displacement {displacement}"))
}

pub(crate) fn same_length(a: usize, b: usize) -> Result<()> {
    if a == b {
        Ok(())
    } else {
        Err(Error::new(ErrorKind::BadArgument, "check buffers").cause(format!("lengths {a} and {b}")))
    }
}
