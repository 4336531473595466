#![allow(unsafe_code)]
//! The data of a message that has arrived completely.

use smallvec::{Array, SmallVec};

use crate::device::Unread;
use crate::memory::copy;

/// Data that arrived with the header of its message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    /// The bytes, contiguous in memory.
    Bytes(&'a [u8]),
    /// The bytes of a packet after the given number of leading ones.
    Unread(&'a Unread<'a>, usize),
}

impl<'a> Payload<'a> {
    /// Length in bytes.
    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Unread(packet, skip) => packet.len() - skip,
        }
    }

    /// The bytes, which are copied for this if they are still in the packet.
    #[inline]
    pub(crate) fn bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Unread(packet, skip) => &packet.read()[skip..],
        }
    }

    /// A copy of the bytes.
    pub(super) fn copied<A: Array<Item = u8>>(self) -> SmallVec<A> {
        match self {
            Self::Bytes(bytes) => SmallVec::from(bytes),
            Self::Unread(packet, skip) => {
                let mut copy = vec![0; packet.len() - skip];
                packet.copy_into(skip, &mut copy);
                SmallVec::from_vec(copy)
            }
        }
    }

    /// Copies `len` bytes, starting at byte `from`, to `to`.
    ///
    /// # Safety
    /// The contract of [`copy::store`] for `to`.
    ///
    /// # Panics
    /// If the bytes reach beyond the end of the data.
    #[inline(always)]
    pub(crate) unsafe fn copy_to(self, from: usize, to: *mut u8, len: usize) {
        match self {
            // SAFETY: by the contract.
            Self::Bytes(bytes) => unsafe { copy::store(bytes[from..][..len].as_ptr(), to, len) },
            // SAFETY: by the contract.
            Self::Unread(packet, skip) => unsafe { packet.copy_to(skip + from, to, len) },
        }
    }
}
