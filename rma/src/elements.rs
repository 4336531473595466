//! The elements of typed windows: their identity at other ranks, their datatypes, and the conversion of displacements and
//! lengths to bytes.

use std::any::{TypeId, type_name};
use std::hash::Hasher;

use bytemuck::Pod;
use farside_core::{Error, ErrorKind, Located, Result};
use farside_datatype::{Datatype, Named};
use rustc_hash::FxHasher;

use crate::op::{Element, ElementType};

/// The kind of object and its element type, which must agree on all ranks and are compared between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowElement {
    object: &'static str,
    name: &'static str,
    pub(crate) size: usize,
    pub(crate) align: usize,
}

impl WindowElement {
    /// An object with elements of type `T`; its name includes the article, as in `a window`. `T` must not be
    /// zero-sized.
    #[must_use]
    pub fn of<T: Pod>(object: &'static str) -> Self {
        const { assert!(size_of::<T>() > 0, "zero-sized elements are not supported") };
        Self { object, name: type_name::<T>(), size: size_of::<T>(), align: align_of::<T>() }
    }

    /// A number that distinguishes objects and types, and is never 0.
    pub(crate) fn code(self) -> u64 {
        let mut hasher = FxHasher::default();
        hasher.write(self.object.as_bytes());
        hasher.write(self.name.as_bytes());
        hasher.write_usize(self.size);
        hasher.finish() | 1
    }

    /// The object, its element type and the element size, for the error of a mismatch between ranks.
    pub(crate) fn describe(self) -> String {
        format!("{} of elements `{}` of {} bytes", self.object, self.name, self.size)
    }

    /// The name of the object in error texts.
    pub(crate) fn object(element: Option<Self>) -> &'static str {
        element.map_or("a window", |element| element.object)
    }
}

/// Describes bytes `start` to `end` of an object of `len` bytes: in elements if the object has an element type and the
/// range is a whole number of them.
#[cold]
pub(crate) fn range_text(element: Option<WindowElement>, start: i128, end: i128, len: usize) -> String {
    let what = WindowElement::object(element);
    let whole = |e: &WindowElement| [start, end, len as i128].iter().all(|n| n % e.size as i128 == 0);
    let Some(WindowElement { name, size, .. }) = element.filter(whole) else {
        return format!("bytes {start} to {end} are not inside {what} of {len} bytes");
    };
    let (size, len) = (size as i128, len / size);
    match (end - start) / size {
        1 => format!("element {} is not inside {what} of {len} elements (`{name}`)", start / size),
        _ => format!("elements {} to {} are not inside {what} of {len} elements (`{name}`)", start / size, end / size),
    }
}

/// The predefined type of `T`, if it has one.
pub(crate) fn element_type_of<T: Pod>() -> Option<ElementType> {
    macro_rules! first {
        ($($t:ty),*) => {{
            $(if TypeId::of::<T>() == TypeId::of::<$t>() {
                return Some(<$t as Element>::TYPE);
            })*
            None
        }};
    }
    first!(i8, i16, i32, i64, isize, u8, u16, u32, u64, usize, f32, f64)
}

/// The datatype of one element: a predefined one, or the bytes of another type.
pub(crate) fn datatype_of<T: Pod>() -> Datatype {
    match element_type_of::<T>() {
        Some(ty) => named(ty).into(),
        None => Datatype::contiguous(size_of::<T>() as u64, &Named::Byte.into()).unwrap_or_else(|_| Named::Byte.into()),
    }
}

/// Converts a displacement in elements to bytes.
#[inline(always)]
#[track_caller]
pub(crate) fn bytes<T>(displacement: usize) -> Result<usize> {
    match displacement.checked_mul(size_of::<T>()) {
        Some(offset) => Ok(offset),
        None => Err(too_far(displacement)).located(),
    }
}

#[cold]
fn too_far(displacement: usize) -> Error {
    Error::new(ErrorKind::OutOfRange, "address a window")
        .cause(format!("the byte offset of element {displacement} overflows"))
}

pub(crate) fn same_length(a: usize, b: usize) -> Result<()> {
    if a == b {
        Ok(())
    } else {
        Err(Error::new(ErrorKind::BadArgument, "check buffers")
            .cause(format!("the lengths differ: {a} and {b} elements")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_in_elements_where_they_are_whole() {
        let word = Some(WindowElement::of::<u32>("a window"));
        assert_eq!(range_text(word, 8, 20, 16), "elements 2 to 5 are not inside a window of 4 elements (`u32`)");
        assert_eq!(range_text(word, 16, 20, 16), "element 4 is not inside a window of 4 elements (`u32`)");
        assert_eq!(range_text(word, -4, 4, 16), "elements -1 to 1 are not inside a window of 4 elements (`u32`)");
        assert_eq!(range_text(word, 8, 21, 16), "bytes 8 to 21 are not inside a window of 16 bytes");
        assert_eq!(range_text(None, 8, 20, 16), "bytes 8 to 20 are not inside a window of 16 bytes");
    }
}
