#![allow(unsafe_code)]
//! Messages, for all chapters: their validated memory, and their ranks and tags.

use std::ffi::c_int;
use std::ptr::NonNull;
use std::rc::Rc;

use farside_core::am::{Sink, Source};
use farside_core::device::Block;
use farside_core::matching::Pattern;
use farside_core::two_sided::{self, Sending};
use farside_datatype::{Private, TypeMap};
use farside_rma::raw::TypedMemory;

use crate::arguments::count;
use crate::constants::*;
use crate::datatype::committed;
use crate::fail::{Fail, Result, bad_rank, fail};
use crate::handle::Comm;
use crate::objects::{CommObject, Data, Outcome, Partner, TypeObject};
use crate::operands::{Address, Buffer, Peer};
use crate::runtime::Call;

/// `n` elements of a committed type.
pub struct Elements {
    pub object: Rc<TypeObject>,
    pub n: u64,
    address: Address,
}

impl Buffer {
    /// Checks that the type is committed and the count not negative.
    #[inline]
    pub fn elements(self, call: &Call<'_>) -> Result<Elements> {
        let n = count(self.n, self.address.count())?;
        Ok(Elements { object: committed(call, self.datatype)?, n, address: self.address })
    }

    /// The elements and the type map of a message, with its address checked.
    pub fn message(self, call: &Call<'_>) -> Result<(Elements, TypeMap)> {
        let elements = self.elements(call)?;
        let map = elements.map()?;
        self.address.check(map.size(), map.true_lb())?;
        Ok((elements, map))
    }
}

impl Elements {
    /// The bytes, if the elements are contiguous from the address on.
    #[inline]
    pub fn plain(&self) -> Result<Option<usize>> {
        let Some(size) = self.object.plain else { return Ok(None) };
        let len = size.checked_mul(self.n).filter(|len| *len <= isize::MAX as u64);
        Ok(Some(len.ok_or_else(|| self.address.too_far(self.n))? as usize))
    }

    pub fn map(&self) -> Result<TypeMap> {
        Ok(self.object.layout.message(self.n)?)
    }
}

impl Data {
    /// The validated memory of a message.
    #[inline(always)]
    pub fn new(call: &Call<'_>, buffer: Buffer) -> Result<Self> {
        match call.plain.size(buffer.n, buffer.datatype) {
            Some(len) => Self::contiguous(buffer.address, len, 0),
            None => Self::of_type(call, buffer.copied()),
        }
    }

    /// The slow path of `new`: any type, and any number of elements.
    #[inline(never)]
    fn of_type(call: &Call<'_>, buffer: Buffer) -> Result<Self> {
        let elements = buffer.elements(call)?;
        if let Some(len) = elements.plain()? {
            return Self::contiguous(buffer.address, len, 0);
        }
        let map = elements.map()?;
        let len = map.size() as usize;
        if map.is_contiguous() {
            return Self::contiguous(buffer.address, len, map.true_lb());
        }
        buffer.address.check(map.size(), map.true_lb())?;
        let base = buffer.address.at();
        Ok(Self { base, len, layout: Some(Rc::new(TypedMemory { map, base })) })
    }

    /// `len` contiguous bytes that begin `first` bytes after an address.
    #[inline(always)]
    fn contiguous(address: Address, len: usize, first: i64) -> Result<Self> {
        address.check(len as u64, first)?;
        let base = if len == 0 { NonNull::dangling().as_ptr() } else { address.at().wrapping_offset(first as isize) };
        Ok(Self { base, len, layout: None })
    }

    /// The bytes of a buffer of this library.
    pub fn of(bytes: &[u8]) -> Self {
        Self { base: bytes.as_ptr().cast_mut(), len: bytes.len(), layout: None }
    }

    /// Whether the two share bytes, as far as can be decided without walking the layouts.
    pub fn overlaps(&self, other: &Self) -> bool {
        let (a, b) = (self.base.addr(), other.base.addr());
        let contiguous = self.layout.is_none() && other.layout.is_none();
        contiguous && self.len > 0 && other.len > 0 && a < b + other.len && b < a + self.len
    }

    /// Whether the memory is contiguous and shares none of `len` bytes at the address `at`.
    pub fn is_apart(&self, at: usize, len: usize) -> bool {
        let base = self.base.addr();
        self.layout.is_none() && (base + self.len <= at || at.saturating_add(len) <= base)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub fn source(&self) -> Source {
        match &self.layout {
            None => Source::Bytes(Block { base: self.base, len: self.len }),
            Some(typed) => Source::Layout(Rc::<TypedMemory>::clone(typed)),
        }
    }

    /// # Safety
    /// The memory is valid for writes, and not accessed otherwise, until the receive has ended.
    #[inline(always)]
    pub unsafe fn sink(&self) -> Sink {
        match &self.layout {
            // SAFETY: the caller guarantees the memory.
            None => unsafe { Sink::memory(self.base, self.len) },
            // SAFETY: as above. The program guarantees to MPI that blocks do not overlap; core copies the blocks one by
            // one.
            Some(typed) => unsafe { Sink::layout(Rc::<TypedMemory>::clone(typed)) },
        }
    }

    /// A copy of the bytes, packed.
    pub fn copied(&self) -> Result<Box<[u8]>> {
        let len = self.len();
        let mut bytes = Vec::<u8>::new();
        let cannot_allocate =
            |_| fail(MPI_ERR_NO_MEM, format!("cannot allocate {len} bytes for a copy of the message"));
        bytes.try_reserve_exact(len).map_err(cannot_allocate)?;
        // SAFETY: the program guarantees that its message is readable; the vector has room for it.
        unsafe {
            match &self.layout {
                None => bytes.as_mut_ptr().copy_from_nonoverlapping(self.base, len),
                Some(typed) => {
                    typed.map.pack_raw::<Private>(typed.base, 0, bytes.as_mut_ptr(), len);
                }
            }
            bytes.set_len(len);
        }
        Ok(bytes.into_boxed_slice())
    }
}

/// Starts a send to rank `target` of the job; `is_tried` says that the job's `try_send_message` has already failed to
/// send it.
pub fn start_send(
    comm: &CommObject,
    (target, tag): (u32, c_int),
    (mode, is_tried): (two_sided::Mode, bool),
    data: &Data,
) -> Result<Sending> {
    let (job, context, source) = (comm.team.job(), comm.context, data.source());
    // SAFETY: the program does not change the buffer until the send is complete; blocking calls cancel a send that
    // fails, and requests live until their operations have ended.
    let started = unsafe {
        if is_tried {
            job.start_open_message(target, context, tag, source, mode)
        } else {
            job.start_message(target, context, tag, source, mode)
        }
    };
    Ok(started?)
}

/// The rank in a communicator of a rank of the job.
#[inline(always)]
pub fn rank_of(comm: &CommObject, job_rank: u32) -> c_int {
    comm.peers.rank_of(job_rank).map_or(MPI_UNDEFINED, |rank| rank as c_int)
}

impl Peer {
    /// The job rank of this peer as the target of a message; `None` for `MPI_PROC_NULL`.
    #[inline(always)]
    pub fn target(self, comm: &CommObject) -> Result<Option<u32>> {
        if self.tag < 0 {
            return Err(bad_tag(self.tag, self.names[1]));
        }
        self.member(comm)
    }

    /// The source of a receive as a job rank.
    #[inline(always)]
    pub fn source(self, comm: &CommObject) -> Result<Partner> {
        if self.tag < 0 && self.tag != MPI_ANY_TAG {
            return Err(bad_tag(self.tag, self.names[1]));
        }
        if self.rank == MPI_ANY_SOURCE {
            return Ok(Partner::From(None));
        }
        Ok(match self.member(comm)? {
            None => Partner::ProcNull,
            known => Partner::From(known),
        })
    }

    /// The pattern of a receive from this peer; `None` for `MPI_PROC_NULL` and for invalid ranks and tags.
    #[inline(always)]
    pub fn pattern(self, comm: &CommObject) -> Option<Pattern> {
        match comm.peers.member(self.rank) {
            Some(source) if self.tag >= 0 => Some(Pattern::exact(comm.context, source, self.tag)),
            source => {
                let is_valid =
                    (source.is_some() || self.rank == MPI_ANY_SOURCE) && (self.tag >= 0 || self.tag == MPI_ANY_TAG);
                is_valid.then(|| pattern(comm, source, self.tag))
            }
        }
    }

    #[inline]
    fn member(self, comm: &CommObject) -> Result<Option<u32>> {
        match comm.peers.member(self.rank) {
            None if self.rank != MPI_PROC_NULL => Err(bad_rank(self.rank, comm.peers.members.len(), self.names[0])),
            member => Ok(member),
        }
    }
}

#[cold]
fn bad_tag(tag: c_int, name: &'static str) -> Fail {
    fail(MPI_ERR_TAG, format!("is {tag}, but must be from 0 to MPI_TAG_UB")).named(name)
}

/// The pattern of a receive or probe on a communicator.
#[inline]
pub fn pattern(comm: &CommObject, source: Option<u32>, tag: c_int) -> Pattern {
    Pattern::new(comm.context, source, (tag != MPI_ANY_TAG).then_some(tag))
}

impl Outcome {
    /// The outcome of a receive that has succeeded.
    #[inline(always)]
    pub fn received(comm: &(Comm, Rc<CommObject>), received: &two_sided::Status) -> Self {
        let status = status_of(&comm.1, received);
        let failed = (received.kept < received.len).then(|| truncated(comm, received, status.source));
        Self { status, failed }
    }
}

/// The status of a receive that has succeeded.
#[inline(always)]
pub fn status_of(comm: &CommObject, received: &two_sided::Status) -> Status {
    Status::received(rank_of(comm, received.source), received.tag, received.kept)
}

#[cold]
fn truncated(comm: &(Comm, Rc<CommObject>), received: &two_sided::Status, source: c_int) -> Fail {
    let text = format!(
        "a message from rank {source} with tag {} has {} bytes, but the receive buffer has {}",
        received.tag, received.len, received.kept
    );
    fail(MPI_ERR_TRUNCATE, text).on(comm)
}
