//! Basic elements in part of a message (MPI-5.0 section 5.1.11). A pair type has two.

use farside_datatype::{Datatype, Named};

/// The number of basic elements in the first `bytes` bytes of elements of a type; `None` if the last basic element is
/// incomplete.
pub fn elements_in(of: &Datatype, bytes: u64) -> Option<u64> {
    if bytes == 0 {
        return Some(0);
    }
    let size = of.size();
    if size == 0 {
        return None;
    }
    let (mut total, mut rest) = ((bytes / size).checked_mul(of.signature().elements())?, bytes % size);
    for (len, part) in of.parts().iter() {
        if rest == 0 {
            break;
        }
        let taken = rest.min(len * part.size());
        total += elements_in(part, taken)?;
        rest -= taken;
    }
    (rest == 0).then_some(total)
}

/// The bytes of the first `elements` basic elements of any number of `of`; `None` if they do not fit 64 bits, or the
/// type has no elements.
pub fn bytes_of(of: &Datatype, elements: u64) -> Option<u64> {
    if elements == 0 {
        return Some(0);
    }
    let each = of.signature().elements();
    if each == 0 {
        return None;
    }
    let (mut total, mut rest) = ((elements / each).checked_mul(of.size())?, elements % each);
    for (len, part) in of.parts().iter() {
        let some = rest.min(len * part.signature().elements());
        total = total.checked_add(bytes_of(part, some)?)?;
        rest -= some;
    }
    Some(total)
}

/// The predefined type of all basic elements; `None` if their types differ, or the type is empty.
pub fn element(of: &Datatype) -> Option<Named> {
    of.named().or_else(|| {
        let parts = of.parts();
        let mut all = parts.iter().map(|(_, part)| element(part));
        let first = all.next().flatten();
        first.filter(|_| all.all(|other| other == first))
    })
}
