//! Conversion of displacements and lengths from elements to bytes, and the predefined datatypes of element types.

use farside_core::{Error, ErrorKind, Result};
use farside_datatype::Named;

use crate::op::ElementType;

/// Converts a displacement in elements to bytes.
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

/// The predefined datatype of an element type.
pub(crate) fn named(ty: ElementType) -> Named {
    match ty {
        ElementType::I8 => Named::Int8,
        ElementType::I16 => Named::Int16,
        ElementType::I32 => Named::Int32,
        ElementType::I64 => Named::Int64,
        ElementType::U8 => Named::Uint8,
        ElementType::U16 => Named::Uint16,
        ElementType::U32 => Named::Uint32,
        ElementType::U64 => Named::Uint64,
        ElementType::F32 => Named::Float,
        ElementType::F64 => Named::Double,
    }
}
