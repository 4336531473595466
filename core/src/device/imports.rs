//! Checks of requests against the regions of peers that a device has imported: peer, length and alignment. Errors name
//! the peer; the device adds its name.

use super::request::length;
use super::{Operation, Range, Transfer, Update};
use crate::error::{Error, ErrorKind, Result};

/// A peer's region, as stored by its device.
pub trait ImportedRegion {
    /// The owner (rank of the job).
    fn peer(&self) -> u32;
    /// Length in bytes. The default is for a device that checks lengths when it accesses the memory.
    fn len(&self) -> usize {
        usize::MAX
    }
    /// Whether the region has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The lowest bits of the address of the region's first byte.
    fn alignment(&self) -> usize {
        0
    }
}

/// The region that a device has `found` under a handle, if the region belongs to `peer`: keys of two peers may be
/// equal, so a request to the wrong peer could change other memory.
///
/// # Errors
/// `BadKey`, `BadArgument`.
#[inline(always)]
pub fn region<'a, I: ImportedRegion>(
    found: Option<&'a I>,
    peer: u32,
    handle: u64,
    operation: &'static str,
) -> Result<&'a I> {
    match found {
        Some(import) if import.peer() == peer => Ok(import),
        found => Err(unusable(found.is_some(), peer, handle, operation)),
    }
}

/// Checks that a range is inside the region.
///
/// # Errors
/// `OutOfRange`.
#[inline(always)]
pub fn range(import: &impl ImportedRegion, range: Range, operation: &'static str) -> Result<()> {
    let is_inside = range.offset.checked_add(range.len).is_some_and(|end| end <= import.len());
    if is_inside { Ok(()) } else { Err(outside(import.peer(), range, import.len(), operation)) }
}

/// Checks that an integer of `len` bytes is inside the region and aligned.
///
/// # Errors
/// `OutOfRange`, `Misaligned`.
#[inline(always)]
pub fn integer(import: &impl ImportedRegion, offset: usize, len: usize, operation: &'static str) -> Result<()> {
    range(import, Range { offset, len }, operation)?;
    let is_aligned = (import.alignment() + offset).is_multiple_of(len);
    if is_aligned { Ok(()) } else { Err(misaligned(import.peer(), offset, operation)) }
}

/// Checks that all ranges of a transfer are inside the region, and have as many bytes as the local blocks.
///
/// # Errors
/// `OutOfRange`, `BadArgument`.
#[inline(always)]
pub fn ranges(import: &impl ImportedRegion, transfer: &Transfer<'_>) -> Result<()> {
    let (mut sum, operation) = (0usize, transfer.name());
    for one in transfer.ranges.iter() {
        range(import, *one, operation)?;
        sum = sum.saturating_add(one.len);
    }
    let local = length(transfer.local);
    if sum == local { Ok(()) } else { Err(unequal(import.peer(), [local, sum], operation)) }
}

/// Checks the access of a request to the region. An update must have the length of an integer, or be an accumulate,
/// whose alignment the owner checks.
///
/// # Errors
/// `OutOfRange`, `Misaligned`, `BadArgument`; `Unsupported` for an integer of another length than 1, 2, 4 or 8 bytes.
#[inline]
pub fn access(import: &impl ImportedRegion, operation: &Operation<'_>) -> Result<()> {
    let name = operation.name();
    match operation {
        Operation::Transfer(transfer) => ranges(import, transfer),
        Operation::Update(update) if !update.is_integer() => {
            range(import, Range { offset: update.at.offset, len: update.len }, name)
        }
        Operation::Update(Update { at, len: len @ (1 | 2 | 4 | 8), .. }) => integer(import, at.offset, *len, name),
        Operation::Update(update) => {
            let e = Error::new(ErrorKind::Unsupported, name).peer(import.peer());
            Err(e.cause(format!("integers of {} bytes are not supported, only of 1, 2, 4 or 8", update.len)))
        }
        Operation::Signal { at, .. } => integer(import, at.offset, 8, name),
        Operation::Packet(_) | Operation::List { .. } | Operation::Barrier(_) => Ok(()),
    }
}

#[cold]
fn unusable(is_known: bool, peer: u32, handle: u64, operation: &'static str) -> Error {
    match is_known {
        true => Error::new(ErrorKind::BadArgument, operation).peer(peer).cause("the region belongs to another rank"),
        false => {
            Error::new(ErrorKind::BadKey, operation).peer(peer).cause(format!("no imported region has handle {handle}"))
        }
    }
}

#[cold]
pub(crate) fn outside(peer: u32, range: Range, len: usize, operation: &'static str) -> Error {
    let Range { offset, len: wanted } = range;
    let of = if len == usize::MAX { String::new() } else { format!(" of {len} bytes") };
    let e = Error::new(ErrorKind::OutOfRange, operation).peer(peer);
    e.cause(format!("{wanted} bytes at offset {offset} are not inside the region{of}"))
}

#[cold]
pub(crate) fn misaligned(peer: u32, offset: usize, operation: &'static str) -> Error {
    Error::new(ErrorKind::Misaligned, operation)
        .peer(peer)
        .cause(format!("the integer at offset {offset} is not aligned"))
}

#[cold]
fn unequal(peer: u32, [local, remote]: [usize; 2], operation: &'static str) -> Error {
    let e = Error::new(ErrorKind::BadArgument, operation).peer(peer);
    e.cause(format!("the local blocks have {local} bytes, but the remote ranges {remote}"))
}
