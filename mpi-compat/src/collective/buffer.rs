//! The buffers of a collective call: where their blocks lie, and how many bytes each has.

use std::ffi::c_void;
use std::ops::Range;
use std::rc::Rc;

use farside_core::coll::execute::Memory;
use farside_datatype::{Datatype, TypeMap};

use crate::arguments::{List, Longs, check_buffer, count};
use crate::constants::*;
use crate::datatype::committed;
use crate::fail::{Result, fail};
use crate::handle::Type;
use crate::objects::{TypeObject, Typed};
use crate::runtime::Call;

/// Something that is done on this rank alone.
pub type Step = Box<dyn Fn()>;

/// A buffer of the program, and the names of its parameters.
#[derive(Clone, Copy)]
pub struct Place {
    pub address: *mut c_void,
    pub name: &'static str,
    pub count: &'static str,
}

impl Place {
    /// A buffer that is only read.
    pub fn send(address: *const c_void) -> Self {
        Self { address: address.cast_mut(), name: "sendbuf", count: "sendcount" }
    }

    pub fn recv(address: *mut c_void) -> Self {
        Self { address, name: "recvbuf", count: "recvcount" }
    }

    pub fn is_in_place(self) -> bool {
        self.address.addr() == MPI_IN_PLACE
    }

    /// Checks that data of this message can be there.
    pub fn check(self, map: &TypeMap) -> Result {
        if map.size() > 0 { check_buffer(self.address, map.true_lb() != 0, self.name) } else { Ok(()) }
    }
}

/// Which of the blocks that the arguments describe there are: neighbours may be `MPI_PROC_NULL`.
#[derive(Clone, Copy)]
pub enum Blocks<'a> {
    All(usize),
    /// Of so many, those with these numbers.
    Some(usize, &'a [usize]),
}

impl Blocks<'_> {
    fn total(self) -> usize {
        match self {
            Self::All(n) | Self::Some(n, _) => n,
        }
    }

    /// Those elements of a list that belong to blocks that there are.
    fn of<T: Clone>(self, list: Vec<T>) -> Vec<T> {
        match self {
            Self::All(_) => list,
            Self::Some(_, numbers) => numbers.iter().map(|at| list[*at].clone()).collect(),
        }
    }
}

/// Bytes of the blocks of a buffer.
#[derive(Clone, Debug)]
pub enum Sizes {
    /// Of each of so many.
    Equal(u64, usize),
    Each(Vec<u64>),
}

impl Sizes {
    pub fn of(&self, block: usize) -> u64 {
        match self {
            Self::Equal(bytes, _) => *bytes,
            Self::Each(each) => each.get(block).copied().unwrap_or(0),
        }
    }

    /// One after the other.
    pub fn each(&self) -> Vec<u64> {
        match self {
            Self::Equal(bytes, n) => vec![*bytes; *n],
            Self::Each(each) => each.clone(),
        }
    }
}

/// A buffer with its blocks.
#[derive(Clone)]
pub struct Buffer {
    pub sizes: Sizes,
    pub map: TypeMap,
    pub place: Place,
    memory: Memory,
}

impl Buffer {
    /// Of a message; where it is without gaps but in another order, its blocks are `displaced` bytes from the address.
    pub fn new(
        place: Place,
        sizes: Sizes,
        map: TypeMap,
        displaced: impl FnOnce() -> Option<Rc<[isize]>>,
    ) -> Result<Self> {
        place.check(&map)?;
        let base = place.address.cast::<u8>();
        let memory = if map.is_contiguous() {
            Memory::Contiguous(base.wrapping_offset(map.true_lb() as isize))
        } else if let Some(displacements) = displaced() {
            Memory::Displaced(base, displacements)
        } else {
            Memory::Layout(Rc::new(Typed::new(map.clone(), base)))
        };
        Ok(Self { sizes, map, place, memory })
    }

    /// No data, in so many blocks.
    pub fn none(blocks: usize) -> Self {
        let place = Place { address: std::ptr::null_mut(), name: "", count: "" };
        Self {
            sizes: Sizes::Equal(0, blocks),
            map: TypeMap::EMPTY,
            place,
            memory: Memory::Contiguous(std::ptr::null_mut()),
        }
    }

    /// Bytes one after the other.
    pub fn bytes(address: *mut u8, sizes: Sizes) -> Self {
        Self { sizes, memory: Memory::Contiguous(address), ..Self::none(0) }
    }

    /// `n` elements for each block.
    pub fn equal(call: &Call<'_>, place: Place, n: i64, datatype: Type, blocks: Blocks<'_>) -> Result<Self> {
        let n = count(n, place.count)?;
        let object = used(call, datatype, n)?;
        let bytes = bytes(&object, n, place)?;
        let (map, at) = match blocks {
            Blocks::All(blocks) => {
                let all = n.checked_mul(blocks as u64).ok_or_else(|| too_far(place))?;
                return Self::new(place, Sizes::Equal(bytes, blocks), object.layout.message(all)?, || None);
            }
            Blocks::Some(_, numbers) => {
                let block = (n as i64).checked_mul(object.layout.extent()).ok_or_else(|| too_far(place))?;
                let at = numbers.iter().map(|at| (*at as i64).checked_mul(block)).collect::<Option<Vec<_>>>();
                let at = at.ok_or_else(|| too_far(place))?;
                (Datatype::hindexed(&vec![n; at.len()], &at, &object.layout)?.message(1)?, at)
            }
        };
        let one = object.layout.message(1)?;
        Self::new(place, Sizes::Equal(bytes, at.len()), map, || displaced(&one, object.layout.extent(), &at))
    }

    /// `counts[i]` elements at `displs[i]` extents for block i.
    pub fn each(
        call: &Call<'_>,
        place: Place,
        counts: Longs,
        displs: Longs,
        datatype: Type,
        blocks: Blocks<'_>,
    ) -> Result<Self> {
        let total = blocks.total() as i64;
        let (counts, displs) = (blocks.of(counts.counts(total)?), blocks.of(displs.read(total)?));
        let object = used(call, datatype, counts.iter().copied().max().unwrap_or(0))?;
        let extent = object.layout.extent();
        let at = displs.iter().map(|displ| displ.checked_mul(extent)).collect::<Option<Vec<_>>>();
        let at = at.ok_or_else(|| too_far(place))?;
        let sizes = counts.iter().map(|n| bytes(&object, *n, place)).collect::<Result<Vec<_>>>()?;
        let map = Datatype::hindexed(&counts, &at, &object.layout)?.message(1)?;
        let one = object.layout.message(1)?;
        Self::new(place, Sizes::Each(sizes), map, || displaced(&one, extent, &at))
    }

    /// `counts[i]` elements of `types[i]` at `displs[i]` bytes for block i.
    pub fn each_typed(
        call: &Call<'_>,
        place: Place,
        counts: Longs,
        displs: Longs,
        types: List<Type>,
        blocks: Blocks<'_>,
    ) -> Result<Self> {
        let total = blocks.total() as i64;
        let (counts, at) = (blocks.of(counts.counts(total)?), blocks.of(displs.read(total)?));
        let named = |failed: crate::fail::Fail| failed.named(types.name());
        let types = blocks.of(types.read(total)?);
        let objects = types.into_iter().zip(&counts).map(|(datatype, n)| used(call, datatype, *n).map_err(named));
        let objects = objects.collect::<Result<Vec<_>>>()?;
        let sizes = counts.iter().zip(&objects).map(|(n, object)| bytes(object, *n, place));
        let sizes = sizes.collect::<Result<Vec<_>>>()?;
        let layouts: Vec<_> = objects.iter().map(|object| object.layout.clone()).collect();
        let map = Datatype::structure(&counts, &at, &layouts)?.message(1)?;
        Self::new(place, Sizes::Each(sizes), map, || None)
    }

    pub fn memory(&self) -> Memory {
        self.memory.clone()
    }

    /// The addresses of its bytes, if they are without gaps.
    fn range(&self) -> Option<Range<i64>> {
        let base = self.place.address.addr() as i64;
        let range = base.wrapping_add(self.map.true_lb())..base.wrapping_add(self.map.true_ub());
        (self.map.is_contiguous() && self.map.size() > 0).then_some(range)
    }

    /// Checks that a buffer that is sent from does not share memory with one that is received into.
    pub fn check_apart(&self, receives: &Self) -> Result {
        let overlaps = match (self.range(), receives.range()) {
            (Some(a), Some(b)) => a.start < b.end && b.start < a.end,
            _ => {
                let same = self.place.address == receives.place.address && !self.place.address.is_null();
                same && self.map.true_lb() == receives.map.true_lb() && self.map.size().min(receives.map.size()) > 0
            }
        };
        if overlaps {
            let text = format!("overlaps {}; MPI_IN_PLACE is the way to have both in one buffer", receives.place.name);
            return Err(fail(MPI_ERR_BUFFER, text).named(self.place.name));
        }
        Ok(())
    }
}

/// The type of `n` elements. Without elements it may be `MPI_DATATYPE_NULL`.
fn used(call: &Call<'_>, datatype: Type, n: u64) -> Result<Rc<TypeObject>> {
    committed(call, if n == 0 && datatype == MPI_DATATYPE_NULL { MPI_BYTE } else { datatype })
}

/// Where blocks of elements without gaps begin; `None` of others.
fn displaced(one: &TypeMap, extent: i64, at: &[i64]) -> Option<Rc<[isize]>> {
    let dense = one.is_contiguous() && one.size() as i64 == extent;
    dense.then(|| at.iter().map(|at| at.wrapping_add(one.true_lb()) as isize).collect())
}

fn bytes(object: &TypeObject, n: u64, place: Place) -> Result<u64> {
    let bytes = object.layout.size().checked_mul(n).filter(|bytes| i64::try_from(*bytes).is_ok());
    bytes.ok_or_else(|| too_far(place))
}

#[cold]
fn too_far(place: Place) -> crate::fail::Fail {
    fail(MPI_ERR_COUNT, "and the datatype reach further than memory can").named(place.count)
}
