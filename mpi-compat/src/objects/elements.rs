//! Basic elements in part of a message (MPI-5.0 section 5.1.11). A pair type has two.

use farside_datatype::{Contents, Datatype, Named};

/// The component types of a type, one level down, in packed order, each with its count.
fn parts(of: &Datatype) -> Vec<(u64, Datatype)> {
    match of.contents() {
        Contents::Named(named) => match named.pair() {
            Some((first, second)) => vec![(1, first.into()), (1, second.into())],
            None => Vec::new(),
        },
        Contents::Struct { blocklengths, types, .. } => {
            blocklengths.iter().copied().zip(types.iter().cloned()).filter(|(len, old)| len * old.size() > 0).collect()
        }
        contents => match contents.old() {
            Some(old) if old.size() > 0 => vec![(of.size() / old.size(), old.clone())],
            _ => Vec::new(),
        },
    }
}

/// The number of basic elements in the first `bytes` bytes of elements of a type; `None` if the last one is not whole.
pub fn elements_in(of: &Datatype, bytes: u64) -> Option<u64> {
    if bytes == 0 {
        return Some(0);
    }
    let size = of.size();
    if size == 0 {
        return None;
    }
    let (mut total, mut rest) = ((bytes / size).checked_mul(of.signature().elements())?, bytes % size);
    for (len, part) in parts(of) {
        if rest == 0 {
            break;
        }
        let taken = rest.min(len * part.size());
        total += elements_in(&part, taken)?;
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
    for (len, part) in parts(of) {
        let some = rest.min(len * part.signature().elements());
        total = total.checked_add(bytes_of(&part, some)?)?;
        rest -= some;
    }
    Some(total)
}

/// The predefined type of all basic elements; `None` if their types differ, or the type is empty.
pub fn element(of: &Datatype) -> Option<Named> {
    match of.contents() {
        Contents::Named(named) => Some(named),
        _ => {
            let mut all = parts(of).into_iter().map(|(_, part)| element(&part));
            let first = all.next().flatten();
            first.filter(|_| all.all(|other| other == first))
        }
    }
}

/// The predefined type that a type is, or is a duplicate of.
pub fn plain(of: &Datatype) -> Option<Named> {
    match of.contents() {
        Contents::Named(named) => Some(named),
        Contents::Dup(old) => plain(&old),
        _ => None,
    }
}
