#![allow(unsafe_code)]
//! Messages as all chapters have them: their memory, with its checks, and the ranks and tags that they go by.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::rc::Rc;

use farside_core::am::{Sink, Source};
use farside_core::device::Block;
use farside_core::matching::Pattern;
use farside_core::two_sided::{self, Sending};
use farside_datatype::{Private, TypeMap};

use crate::arguments::{check_buffer, count, is_constant, no_buffer};
use crate::constants::*;
use crate::datatype::committed;
use crate::fail::{Fail, Result, fail};
use crate::handle::Type;
use crate::objects::{CommObject, Data, Partner, Typed};
use crate::runtime::Call;

/// The names of the arguments, for errors.
pub struct Names {
    pub buffer: &'static str,
    pub count: &'static str,
    pub rank: &'static str,
    pub tag: &'static str,
}

impl Data {
    /// `n` elements of `datatype` at `buffer`, checked: a committed type, a count that is not negative, a buffer that is no
    /// null pointer, unless the type has absolute addresses.
    #[inline(always)]
    pub fn new(call: &Call<'_>, names: &Names, buffer: *const c_void, n: i64, datatype: Type) -> Result<Self> {
        let base = buffer.cast_mut().cast::<u8>();
        match call.plain.size(n, datatype) {
            Some(len) => Self::contiguous(names, base, len),
            None => Self::of_type(call, names, base, n, datatype),
        }
    }

    /// The same, of other than some elements of a predefined type without gaps.
    #[inline(never)]
    fn of_type(call: &Call<'_>, names: &Names, base: *mut u8, n: i64, datatype: Type) -> Result<Self> {
        let n = count(n, names.count)?;
        let object = committed(call, datatype)?;
        let Some(size) = object.plain else { return Self::typed(names, base, object.layout.message(n)?) };
        let len = size.checked_mul(n).filter(|len| *len <= isize::MAX as u64);
        let len = len.ok_or_else(|| too_many(names, n))?;
        Self::contiguous(names, base, len as usize)
    }

    #[inline(always)]
    fn contiguous(names: &Names, base: *mut u8, len: usize) -> Result<Self> {
        if len == 0 {
            return Ok(Self { base: NonNull::dangling().as_ptr(), len, layout: None });
        }
        if is_constant(base.cast()) {
            return Err(no_buffer(base.cast(), names.buffer));
        }
        Ok(Self { base, len, layout: None })
    }

    #[inline(never)]
    fn typed(names: &Names, base: *mut u8, map: TypeMap) -> Result<Self> {
        if map.size() > 0 {
            check_buffer(base.cast(), map.true_lb() != 0, names.buffer)?;
        }
        if map.is_contiguous() {
            return Self::contiguous(names, base.wrapping_offset(map.true_lb() as isize), map.size() as usize);
        }
        let len = map.size() as usize;
        Ok(Self { base, len, layout: Some(Rc::new(Typed::new(map, base))) })
    }

    /// `len` bytes from number `from` on, packed.
    pub fn part(&self, from: usize, len: usize) -> Self {
        let part = |typed: &Rc<Typed>| {
            Rc::new(Typed { map: typed.map.clone(), base: typed.base, from: typed.from + from, len })
        };
        match &self.layout {
            None => Self { base: self.base.wrapping_add(from), len, layout: None },
            Some(typed) => Self { base: self.base, len, layout: Some(part(typed)) },
        }
    }

    /// The bytes of a buffer of this library.
    pub fn of(bytes: &[u8]) -> Self {
        Self { base: bytes.as_ptr().cast_mut(), len: bytes.len(), layout: None }
    }

    /// Whether the two share bytes, as far as that is seen without walking layouts.
    pub fn overlaps(&self, other: &Self) -> bool {
        let (a, b) = (self.base.addr(), other.base.addr());
        let contiguous = self.layout.is_none() && other.layout.is_none();
        contiguous && self.len > 0 && other.len > 0 && a < b + other.len && b < a + self.len
    }

    pub fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub fn source(&self) -> Source {
        match &self.layout {
            None => Source::Bytes(Block { base: self.base, len: self.len }),
            Some(typed) => Source::Layout(Rc::<Typed>::clone(typed)),
        }
    }

    /// # Safety
    /// The memory is valid for writes, and touched by nobody else, until the receive is over.
    #[inline(always)]
    pub unsafe fn sink(&self) -> Sink {
        match &self.layout {
            // SAFETY: the caller's promise.
            None => unsafe { Sink::memory(self.base, self.len) },
            // SAFETY: as above. That blocks do not overlap is the program's promise to MPI, and core copies them one by one.
            Some(typed) => unsafe { Sink::layout(Rc::<Typed>::clone(typed)) },
        }
    }

    /// A copy of the bytes, packed.
    pub fn copied(&self) -> Result<Box<[u8]>> {
        let len = self.len();
        let mut bytes = Vec::<u8>::new();
        let none = |_| fail(MPI_ERR_NO_MEM, format!("cannot allocate {len} bytes for a copy of the message"));
        bytes.try_reserve_exact(len).map_err(none)?;
        // SAFETY: the program promises that its message is readable; the vector has room for it.
        unsafe {
            match &self.layout {
                None => bytes.as_mut_ptr().copy_from_nonoverlapping(self.base, len),
                Some(typed) => {
                    typed.map.pack_raw::<Private>(typed.base, typed.from as u64, bytes.as_mut_ptr(), len);
                }
            }
            bytes.set_len(len);
        }
        Ok(bytes.into_boxed_slice())
    }
}

#[cold]
fn too_many(names: &Names, n: u64) -> Fail {
    fail(MPI_ERR_COUNT, format!("is {n}: too many bytes")).named(names.count)
}

/// Starts a send to rank `target` of the job.
#[inline(always)]
pub fn start_send(
    comm: &CommObject,
    (target, tag): (u32, c_int),
    mode: two_sided::Mode,
    data: &Data,
) -> Result<Sending> {
    // SAFETY: the program leaves the buffer alone until the send is complete; blocking calls forget a send that fails, and
    // requests are kept until they are over.
    Ok(unsafe { comm.team.job().start_message(target, comm.context, tag, data.source(), mode) }?)
}

/// The rank in a communicator of a rank of the job.
#[inline(always)]
pub fn rank_of(comm: &CommObject, job_rank: u32) -> c_int {
    comm.peers.rank_of(job_rank).map_or(MPI_UNDEFINED, |rank| rank as c_int)
}

/// The rank of the job that a rank argument means; `None` for `MPI_PROC_NULL`.
#[inline]
pub fn target_of(comm: &CommObject, rank: c_int, names: &Names) -> Result<Option<u32>> {
    let members = &comm.peers.members;
    match usize::try_from(rank).ok().and_then(|rank| members.get(rank)) {
        Some(member) => Ok(Some(*member)),
        None if rank == MPI_PROC_NULL => Ok(None),
        None => Err(bad_rank(names, rank, members.len())),
    }
}

#[cold]
pub fn bad_rank(names: &Names, rank: c_int, ranks: usize) -> Fail {
    fail(MPI_ERR_RANK, format!("is {rank}, and there are {ranks} ranks")).named(names.rank)
}

/// What a receive or probe asks for.
#[inline(always)]
pub fn from(comm: &CommObject, names: &Names, source: c_int, tag: c_int) -> Result<Partner> {
    if tag < 0 && tag != MPI_ANY_TAG {
        return Err(bad_tag(names, tag));
    }
    if source == MPI_ANY_SOURCE {
        return Ok(Partner::From(None));
    }
    Ok(match target_of(comm, source, names)? {
        None => Partner::ProcNull,
        known => Partner::From(known),
    })
}

/// The pattern of a receive or probe on a communicator.
#[inline]
pub fn pattern(comm: &CommObject, source: Option<u32>, tag: c_int) -> Pattern {
    Pattern::new(comm.context, source, (tag != MPI_ANY_TAG).then_some(tag))
}

#[cold]
pub fn bad_tag(names: &Names, tag: c_int) -> Fail {
    fail(MPI_ERR_TAG, format!("is {tag}, and tags are from 0 to MPI_TAG_UB")).named(names.tag)
}
