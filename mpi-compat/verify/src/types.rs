#![allow(unsafe_code)]
//! Properties of a datatype, stored as an attribute of the datatype: whether it is committed, its signature, and its
//! segments.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, OnceLock};

use crate::pmpi::{self, BYTE, PACKED, PREDEFINED};
use crate::record::Block;
use crate::signature::Signature;

/// Types with more segments are not checked for overlap.
const SEGMENTS: usize = 1 << 16;

#[derive(Clone, Debug, Default)]
struct TypeFacts {
    committed: OnceLock<()>,
    signature: OnceLock<Signature>,
    segments: OnceLock<Option<Vec<(i64, i64)>>>,
}

unsafe extern "C" fn copy(
    _: usize,
    _: c_int,
    _: *mut c_void,
    from: *mut c_void,
    to: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: the attribute is a `TypeFacts` that `known` has boxed; `to` takes a pointer.
    unsafe {
        let copied = Box::new((*from.cast::<TypeFacts>()).clone());
        *to.cast::<*mut TypeFacts>() = Box::into_raw(copied);
        *flag = 1;
    }
    0
}

unsafe extern "C" fn delete(_: usize, _: c_int, from: *mut c_void, _: *mut c_void) -> c_int {
    // SAFETY: as above, and the attribute is no longer used.
    drop(unsafe { Box::from_raw(from.cast::<TypeFacts>()) });
    0
}

fn keyval() -> c_int {
    static KEY: OnceLock<c_int> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the functions have the types that the standard requires, and live as long as the process.
        unsafe {
            pmpi::MPI_Type_create_keyval(copy as *mut c_void, delete as *mut c_void, &raw mut key, std::ptr::null_mut())
        };
        key
    })
}

/// The properties of a derived type.
fn known<'a>(handle: usize) -> &'a TypeFacts {
    // The lock prevents two threads from replacing each other's attribute.
    static LOCK: Mutex<()> = Mutex::new(());
    let _one = LOCK.lock();
    let (mut at, mut flag) = (std::ptr::null_mut::<TypeFacts>(), 0);
    // SAFETY: the attribute is a pointer; no call uses a type, or the returned reference, after the type is freed.
    unsafe {
        pmpi::MPI_Type_get_attr(handle, keyval(), (&raw mut at).cast(), &raw mut flag);
        if flag == 0 {
            at = Box::into_raw(Box::default());
            pmpi::MPI_Type_set_attr(handle, keyval(), at.cast());
        }
        &*at
    }
}

/// Records that a type is committed.
pub fn commit(handle: usize) {
    if handle >= PREDEFINED {
        let _ = known(handle).committed.set(());
    }
}

pub fn is_committed(handle: usize) -> bool {
    handle < PREDEFINED || known(handle).committed.get().is_some() || Contents::of(handle).combiner.is_basic()
}

pub fn size(handle: usize) -> i64 {
    let mut size = 0;
    // SAFETY: the function writes one count.
    unsafe { pmpi::MPI_Type_size_c(handle, &raw mut size) };
    size
}

/// The lower bound and the extent.
pub fn extent(handle: usize) -> (i64, i64) {
    let (mut low, mut extent) = (0, 0);
    // SAFETY: the function writes two counts.
    unsafe { pmpi::MPI_Type_get_extent_c(handle, &raw mut low, &raw mut extent) };
    (low, extent)
}

/// The first byte of the data of `count` elements, and the byte behind the last.
pub fn span(handle: usize, count: i64) -> (i64, i64) {
    let (mut low, mut length) = (0, 0);
    // SAFETY: the function writes two counts.
    unsafe { pmpi::MPI_Type_get_true_extent_c(handle, &raw mut low, &raw mut length) };
    let last = extent(handle).1.saturating_mul(count - 1);
    (low.saturating_add(last.min(0)), low.saturating_add(length).saturating_add(last.max(0)))
}

/// `count` elements of a type.
pub fn block(count: i64, handle: usize) -> Block {
    let signature = signature(handle).repeated(count);
    Block {
        size: size(handle).saturating_mul(count),
        hash: if signature.any { -1 } else { signature.hash as i64 },
        elements: signature.elements,
        first: if signature.is_uniform() { signature.first } else { -signature.first },
    }
}

pub fn signature(handle: usize) -> Signature {
    if handle < PREDEFINED {
        return predefined(handle);
    }
    *known(handle).signature.get_or_init(|| {
        let contents = Contents::of(handle);
        let first = contents.types.first().copied();
        match contents.combiner {
            Combiner::STRUCT => {
                let counts = contents.numbers.iter().skip(1);
                let parts = contents.types.iter().zip(counts).map(|(part, count)| signature(*part).repeated(*count));
                parts.fold(Signature::EMPTY, Signature::then)
            }
            Combiner::VALUE_INDEX => {
                contents.types.iter().map(|part| signature(*part)).fold(Signature::EMPTY, Signature::then)
            }
            // All other constructors repeat one type.
            _ => match first {
                Some(part) if size(part) > 0 => signature(part).repeated(size(handle) / size(part)),
                Some(_) => Signature::EMPTY,
                None => {
                    let code = contents.numbers.iter().fold(contents.combiner.0 as i64, |code, n| code << 16 ^ n);
                    Signature::basic(code << 16)
                }
            },
        }
    })
}

/// Whether all parts of a type have the same predefined type, as accumulates require; `first` is the type of the parts
/// visited so far.
pub fn has_one_basic_type(handle: usize, first: &mut Option<usize>) -> bool {
    if handle < PREDEFINED {
        return *first.get_or_insert(handle) == handle;
    }
    let contents = Contents::of(handle);
    match contents.combiner {
        combiner if combiner.is_basic() || combiner == Combiner::VALUE_INDEX => *first.get_or_insert(handle) == handle,
        Combiner::STRUCT => {
            let mut parts = contents.types.iter().zip(contents.numbers.iter().skip(1));
            parts.all(|(part, count)| *count == 0 || has_one_basic_type(*part, first))
        }
        _ => contents.types.iter().all(|part| has_one_basic_type(*part, first)),
    }
}

/// The signature of a predefined type; that of a pair type is the signature of its two parts.
fn predefined(handle: usize) -> Signature {
    let pair = |first, second| Signature::basic(first).then(Signature::basic(second));
    const INT: i64 = 0x209;
    match handle {
        PACKED => Signature::any(),
        0x228 => pair(0x210, INT),
        0x229 => pair(0x214, INT),
        0x22a => pair(0x20a, INT),
        0x22b => pair(INT, INT),
        0x22c => pair(0x208, INT),
        0x22d => pair(0x220, INT),
        0x230 => pair(0x21a, 0x21a),
        0x231 => pair(0x21c, 0x21c),
        0x232 => pair(0x219, 0x219),
        handle => Signature::basic(handle as i64),
    }
}

/// `MPI_COMBINER_X`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Combiner(c_int);

#[allow(dead_code)]
impl Combiner {
    const NAMED: Self = Self(101);
    const DUP: Self = Self(102);
    const CONTIGUOUS: Self = Self(103);
    const VECTOR: Self = Self(104);
    const HVECTOR: Self = Self(105);
    const INDEXED: Self = Self(106);
    const HINDEXED: Self = Self(107);
    const INDEXED_BLOCK: Self = Self(108);
    const HINDEXED_BLOCK: Self = Self(109);
    const STRUCT: Self = Self(110);
    const SUBARRAY: Self = Self(111);
    const RESIZED: Self = Self(116);
    const VALUE_INDEX: Self = Self(117);

    fn is_basic(self) -> bool {
        self == Self::NAMED || (113..=115).contains(&self.0)
    }
}

/// Constructor and arguments of a type. The handles of its parts are freed on drop.
struct Contents {
    combiner: Combiner,
    /// Integers, addresses and large counts, in this order, which is that of the arguments in both forms of a
    /// constructor.
    numbers: Vec<i64>,
    types: Vec<usize>,
}

impl Contents {
    fn of(handle: usize) -> Self {
        let (mut ni, mut na, mut nl, mut nd, mut combiner) = (0i64, 0i64, 0i64, 0i64, 0);
        // SAFETY: the function writes four counts and the combiner.
        unsafe {
            pmpi::MPI_Type_get_envelope_c(handle, &raw mut ni, &raw mut na, &raw mut nl, &raw mut nd, &raw mut combiner)
        };
        let mut contents = Self { combiner: Combiner(combiner), numbers: Vec::new(), types: Vec::new() };
        if contents.combiner == Combiner::NAMED {
            return contents;
        }
        let mut integers = vec![0 as c_int; ni as usize];
        let (mut addresses, mut counts) = (vec![0i64; na as usize], vec![0i64; nl as usize]);
        contents.types = vec![pmpi::TYPE_NULL; nd as usize];
        // SAFETY: the arrays have the lengths that the envelope requires.
        unsafe {
            pmpi::MPI_Type_get_contents_c(
                handle,
                ni,
                na,
                nl,
                nd,
                integers.as_mut_ptr(),
                addresses.as_mut_ptr(),
                counts.as_mut_ptr(),
                contents.types.as_mut_ptr(),
            )
        };
        contents.numbers = integers.into_iter().map(i64::from).chain(addresses).chain(counts).collect();
        contents
    }

    /// Blocks as (displacement in bytes, count, part); `None` if they are unknown or too many.
    fn blocks(&self) -> Option<Vec<(i64, i64, usize)>> {
        let part = *self.types.first()?;
        let step = extent(part).1;
        let n = &self.numbers;
        let many = |at: usize, bytes: i64, length: &dyn Fn(usize) -> i64| -> Option<Vec<(i64, i64, usize)>> {
            let count = usize::try_from(n[0]).ok().filter(|count| *count <= SEGMENTS)?;
            Some((0..count).map(|i| (n[at + i] * bytes, length(i), part)).collect())
        };
        let strided = |bytes: i64| {
            let count = usize::try_from(n[0]).ok().filter(|count| *count <= SEGMENTS)?;
            Some((0..count as i64).map(|i| (i * n[2] * bytes, n[1], part)).collect())
        };
        let count = n.first().map_or(0, |count| *count as usize);
        match self.combiner {
            Combiner::DUP | Combiner::RESIZED => Some(vec![(0, 1, part)]),
            Combiner::CONTIGUOUS => Some(vec![(0, n[0], part)]),
            Combiner::VECTOR => strided(step),
            Combiner::HVECTOR => strided(1),
            Combiner::INDEXED => many(1 + count, step, &|i| n[1 + i]),
            Combiner::HINDEXED => many(1 + count, 1, &|i| n[1 + i]),
            Combiner::INDEXED_BLOCK => many(2, step, &|_| n[1]),
            Combiner::HINDEXED_BLOCK => many(2, 1, &|_| n[1]),
            Combiner::STRUCT => Some((0..count).map(|i| (n[1 + count + i], n[1 + i], self.types[i])).collect()),
            _ => None,
        }
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        for part in self.types.iter_mut().filter(|part| **part >= PREDEFINED) {
            // Types of `MPI_Type_create_f90_*` are not freed.
            if !Contents::of(*part).combiner.is_basic() {
                // SAFETY: derived types returned by `MPI_Type_get_contents` must be freed.
                unsafe { pmpi::MPI_Type_free(part) };
            }
        }
    }
}

/// Adds the segments of `count` elements at `base`. Returns false if they are unknown or too many.
fn flatten(handle: usize, base: i64, count: i64, out: &mut Vec<(i64, i64)>) -> bool {
    let (step, bytes) = (extent(handle).1, size(handle));
    if bytes == 0 || count <= 0 {
        return true;
    }
    let basic = handle < PREDEFINED || handle == BYTE;
    if basic && step == bytes {
        out.push((base, count.saturating_mul(bytes)));
        return out.len() <= SEGMENTS;
    }
    if basic {
        // The type is a pair with padding.
        return count <= SEGMENTS as i64 && {
            out.extend((0..count).map(|i| (base + i * step, span(handle, 1).1)));
            out.len() <= SEGMENTS
        };
    }
    let contents = Contents::of(handle);
    let Some(blocks) = contents.blocks() else { return false };
    if (blocks.len() as i64).saturating_mul(count) > SEGMENTS as i64 {
        return false;
    }
    (0..count).all(|i| blocks.iter().all(|(at, count, part)| flatten(*part, base + i * step + at, *count, out)))
}

/// The segments of one element, as (first byte, length); `None` if they are unknown or too many.
fn segments<'a>(handle: usize) -> Option<std::borrow::Cow<'a, [(i64, i64)]>> {
    let all = |handle| {
        let mut out = Vec::new();
        flatten(handle, 0, 1, &mut out).then_some(out)
    };
    if handle < PREDEFINED {
        return all(handle).map(Into::into);
    }
    known(handle).segments.get_or_init(|| all(handle)).as_deref().map(Into::into)
}

/// The indices of two parts that have a byte in common. A part is (displacement in bytes, count, type).
pub fn overlap(parts: &[(i64, i64, usize)]) -> Option<(usize, usize)> {
    let mut all = Vec::new();
    for (number, (at, count, handle)) in parts.iter().enumerate() {
        let step = extent(*handle).1;
        let segments = segments(*handle)?;
        if let [(first, length)] = segments[..]
            && length == step
        {
            all.push((at + first, length.saturating_mul(*count), number));
            continue;
        }
        if (segments.len() as i64).saturating_mul(*count) > SEGMENTS as i64 || all.len() > SEGMENTS {
            return None;
        }
        all.extend(
            (0..*count)
                .flat_map(|i| segments.iter().map(move |(first, length)| (at + i * step + first, *length, number))),
        );
    }
    all.retain(|(_, length, _)| *length > 0);
    all.sort_unstable();
    all.windows(2).find(|two| two[0].0 + two[0].1 > two[1].0).map(|two| (two[0].2, two[1].2))
}

/// Whether a byte of the data, whose type may have absolute addresses, is in the first page of memory.
pub fn touches_null(base: i64, count: i64, handle: usize) -> bool {
    const PAGE: i64 = 4096;
    count > 0
        && segments(handle)
            .is_some_and(|segments| segments.iter().any(|(at, length)| *length > 0 && (0..PAGE).contains(&(base + at))))
}
