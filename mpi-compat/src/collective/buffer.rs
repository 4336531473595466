//! The buffers of a collective call: the addresses and sizes of their blocks.

use std::ops::Range;
use std::rc::Rc;

use farside_core::coll::execute::{Memory, Shape};
use farside_datatype::{Datatype, TypeMap};
use farside_rma::raw::TypedMemory;

use crate::arguments::count;
use crate::constants::*;
use crate::datatype::committed;
use crate::fail::{Fail, Result, fail};
use crate::handle::Type;
use crate::objects::TypeObject;
use crate::operands::{Address, Blocks, Buffer, Types};
use crate::runtime::Call;

/// A local step of one rank.
pub type Step = Box<dyn Fn()>;

/// The subset of the described blocks that exist, since a neighbour may be `MPI_PROC_NULL`.
#[derive(Clone, Copy)]
pub enum Existing<'a> {
    All(usize),
    /// A subset, by index, of a number of blocks.
    Some(usize, &'a [usize]),
}

impl Existing<'_> {
    fn total(self) -> usize {
        match self {
            Self::All(n) | Self::Some(n, _) => n,
        }
    }

    /// The elements of a list that belong to existing blocks.
    fn of<T: Clone>(self, list: Vec<T>) -> Vec<T> {
        match self {
            Self::All(_) => list,
            Self::Some(_, numbers) => numbers.iter().map(|at| list[*at].clone()).collect(),
        }
    }
}

/// The sizes in bytes of the blocks of a buffer.
#[derive(Clone, Debug)]
pub enum Sizes {
    /// The same size for a number of blocks.
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

    /// The shape of a call with blocks of these sizes.
    pub fn shape<'a>(self) -> Shape<'a> {
        match self {
            Self::Equal(bytes, _) => Shape::Equal(bytes),
            Self::Each(each) => Shape::Each(each.into()),
        }
    }

    /// The size of each block.
    pub fn each(&self) -> Vec<u64> {
        match self {
            Self::Equal(bytes, n) => vec![*bytes; *n],
            Self::Each(each) => each.clone(),
        }
    }
}

/// The data that a rank sends, or that it receives, with its blocks.
#[derive(Clone)]
pub struct Segments {
    pub sizes: Sizes,
    pub map: TypeMap,
    pub address: Address,
    memory: Memory,
}

impl Segments {
    /// The segments of a message. Contiguous blocks that are out of order are `displaced` bytes from the address.
    pub fn new(
        address: Address,
        sizes: Sizes,
        map: TypeMap,
        displaced: impl FnOnce() -> Option<Rc<[isize]>>,
    ) -> Result<Self> {
        address.check(map.size(), map.true_lb())?;
        let base = address.at();
        let memory = if map.is_contiguous() {
            Memory::Contiguous(base.wrapping_offset(map.true_lb() as isize))
        } else if let Some(displacements) = displaced() {
            Memory::Displaced(base, displacements)
        } else {
            Memory::Layout(Rc::new(TypedMemory { map: map.clone(), base }))
        };
        Ok(Self { sizes, map, address, memory })
    }

    /// An empty buffer of `blocks` blocks.
    pub fn none(blocks: usize) -> Self {
        Self {
            sizes: Sizes::Equal(0, blocks),
            map: TypeMap::EMPTY,
            address: Address::new(std::ptr::null(), &["", ""]),
            memory: Memory::Contiguous(std::ptr::null_mut()),
        }
    }

    /// Contiguous bytes.
    pub fn bytes(address: *mut u8, sizes: Sizes) -> Self {
        Self { sizes, memory: Memory::Contiguous(address), ..Self::none(0) }
    }

    /// Blocks of one size, in order.
    pub fn equal(call: &Call<'_>, buffer: Buffer, blocks: Existing<'_>) -> Result<Self> {
        let address = buffer.address;
        let n = count(buffer.n, address.count())?;
        let object = used(call, buffer.datatype, n)?;
        let bytes = bytes(&object, n, address)?;
        let too_far = || address.too_far(n);
        let (map, at) = match blocks {
            Existing::All(blocks) => {
                let all = n.checked_mul(blocks as u64).ok_or_else(too_far)?;
                return Self::new(address, Sizes::Equal(bytes, blocks), object.layout.message(all)?, || None);
            }
            Existing::Some(_, numbers) => {
                let block = (n as i64).checked_mul(object.layout.extent()).ok_or_else(too_far)?;
                let at = numbers.iter().map(|at| (*at as i64).checked_mul(block)).collect::<Option<Vec<_>>>();
                let at = at.ok_or_else(too_far)?;
                (Datatype::hindexed(&vec![n; at.len()], &at, &object.layout)?.message(1)?, at)
            }
        };
        let one = object.layout.message(1)?;
        Self::new(address, Sizes::Equal(bytes, at.len()), map, || displaced(&one, object.layout.extent(), &at))
    }

    /// Blocks with their own counts and displacements.
    pub fn each(call: &Call<'_>, blocks: Blocks, existing: Existing<'_>) -> Result<Self> {
        let total = existing.total() as i64;
        let (counts, displs) = (existing.of(blocks.counts.counts(total)?), existing.of(blocks.displs.read(total)?));
        match blocks.types {
            Types::One(datatype) => Self::of_one_type(call, blocks.address, &counts, &displs, datatype),
            Types::Each(list) => {
                let types = existing.of(list.read(total)?);
                let failed = |failed: Fail| failed.named(list.name());
                let objects = types.into_iter().zip(&counts).map(|(of, n)| used(call, of, *n).map_err(failed));
                Self::of_types(blocks.address, &counts, &displs, &objects.collect::<Result<Vec<_>>>()?)
            }
        }
    }

    /// `counts[i]` elements at `displs[i]` extents for block i.
    fn of_one_type(call: &Call<'_>, address: Address, counts: &[u64], displs: &[i64], datatype: Type) -> Result<Self> {
        let most = counts.iter().copied().max().unwrap_or(0);
        let object = used(call, datatype, most)?;
        let extent = object.layout.extent();
        let at = displs.iter().map(|displ| displ.checked_mul(extent)).collect::<Option<Vec<_>>>();
        let at = at.ok_or_else(|| address.too_far(most))?;
        let sizes = counts.iter().map(|n| bytes(&object, *n, address)).collect::<Result<Vec<_>>>()?;
        let map = Datatype::hindexed(counts, &at, &object.layout)?.message(1)?;
        let one = object.layout.message(1)?;
        Self::new(address, Sizes::Each(sizes), map, || displaced(&one, extent, &at))
    }

    /// `counts[i]` elements of `objects[i]` at `displs[i]` bytes for block i.
    fn of_types(address: Address, counts: &[u64], displs: &[i64], objects: &[Rc<TypeObject>]) -> Result<Self> {
        let sizes = counts.iter().zip(objects).map(|(n, object)| bytes(object, *n, address));
        let sizes = sizes.collect::<Result<Vec<_>>>()?;
        let layouts: Vec<_> = objects.iter().map(|object| object.layout.clone()).collect();
        let map = Datatype::structure(counts, displs, &layouts)?.message(1)?;
        Self::new(address, Sizes::Each(sizes), map, || None)
    }

    pub fn memory(&self) -> Memory {
        self.memory.clone()
    }

    /// The range of addresses of the bytes, if they have no gaps.
    fn range(&self) -> Option<Range<i64>> {
        let base = self.address.at().addr() as i64;
        let range = base.wrapping_add(self.map.true_lb())..base.wrapping_add(self.map.true_ub());
        (self.map.is_contiguous() && self.map.size() > 0).then_some(range)
    }

    /// Checks that the send buffer does not overlap the receive buffer.
    pub fn check_apart(&self, receives: &Self) -> Result {
        let overlaps = match (self.range(), receives.range()) {
            (Some(a), Some(b)) => a.start < b.end && b.start < a.end,
            _ => {
                let same = self.address.at() == receives.address.at() && !self.address.at().is_null();
                same && self.map.true_lb() == receives.map.true_lb() && self.map.size().min(receives.map.size()) > 0
            }
        };
        if overlaps { Err(overlap(self.address, receives.address)) } else { Ok(()) }
    }
}

/// The error of a send buffer that overlaps the receive buffer.
#[cold]
pub fn overlap(send: Address, recv: Address) -> Fail {
    let text = format!("overlaps {}; pass MPI_IN_PLACE to use one buffer for both", recv.name());
    fail(MPI_ERR_BUFFER, text).named(send.name())
}

/// The type of `n` elements; it may be `MPI_DATATYPE_NULL` if `n` is 0.
fn used(call: &Call<'_>, datatype: Type, n: u64) -> Result<Rc<TypeObject>> {
    committed(call, if n == 0 && datatype == MPI_DATATYPE_NULL { MPI_BYTE } else { datatype })
}

/// The displacements of blocks of elements without gaps; `None` if elements have gaps.
fn displaced(one: &TypeMap, extent: i64, at: &[i64]) -> Option<Rc<[isize]>> {
    let dense = one.is_contiguous() && one.size() as i64 == extent;
    dense.then(|| at.iter().map(|at| at.wrapping_add(one.true_lb()) as isize).collect())
}

fn bytes(object: &TypeObject, n: u64, address: Address) -> Result<u64> {
    let bytes = object.layout.size().checked_mul(n).filter(|bytes| i64::try_from(*bytes).is_ok());
    bytes.ok_or_else(|| address.too_far(n))
}
