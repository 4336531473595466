#![allow(unsafe_code)]
//! A packet that is still in the memory to which its sender wrote it.

use std::cell::Cell;
use std::marker::PhantomData;

use crate::memory::copy;

/// The bytes of a packet in memory that its sender can still write, although a correct sender does not. Each read is
/// therefore a copy, into a buffer of the receiver or to the final destination of the bytes.
#[derive(Debug)]
pub struct Unread<'a> {
    /// The bytes that are not in the buffer.
    base: *const u8,
    len: usize,
    /// The buffer for [`read`](Self::read), which has room for the packet.
    room: *mut u8,
    /// Number of the packet's first bytes that are in the buffer.
    received: Cell<usize>,
    _room: PhantomData<&'a mut [u8]>,
}

impl<'a> Unread<'a> {
    /// A packet of `len` bytes, of which the first `received` are in `room`, the buffer for [`read`](Self::read), and the
    /// others at `base`.
    ///
    /// # Safety
    /// The memory is valid for reads while this value lives, and written only by atomics, by devices, or by functions
    /// that are opaque to the compiler.
    ///
    /// # Panics
    /// If `room` is shorter than the packet, or the packet than its first bytes.
    pub(crate) unsafe fn new(base: *const u8, len: usize, received: usize, room: &'a mut [u8]) -> Self {
        assert!((received..=room.len()).contains(&len), "a packet of {len} bytes");
        Self { base, len, room: room.as_mut_ptr(), received: Cell::new(received), _room: PhantomData }
    }

    /// Length in bytes.
    #[allow(clippy::len_without_is_empty)] // It is long.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A copy of the first `N` bytes, which may differ from a later copy; `None` if the packet is shorter.
    pub(crate) fn first<const N: usize>(&self) -> Option<[u8; N]> {
        let mut first = [0; N];
        (N <= self.len).then(|| {
            self.copy_into(0, &mut first);
            first
        })
    }

    /// Copies bytes, starting at byte `from`, into private memory.
    ///
    /// # Panics
    /// If the bytes reach beyond the end of the packet.
    pub(crate) fn copy_into(&self, from: usize, to: &mut [u8]) {
        // SAFETY: exclusive memory.
        unsafe { self.copy_to(from, to.as_mut_ptr(), to.len()) };
    }

    /// All bytes, which the first call copies into the buffer.
    #[must_use]
    pub fn read(&self) -> &[u8] {
        // SAFETY: only this value accesses the buffer, which is at least as long as the packet, as `new` has checked.
        // It is written before the first slice of it is made, and not afterwards.
        unsafe {
            let received = self.received.replace(self.len);
            copy::bytes(self.base, self.room.add(received), self.len - received);
            std::slice::from_raw_parts(self.room, self.len)
        }
    }

    /// Copies `len` bytes, starting at byte `from`, to `to`.
    ///
    /// # Safety
    /// `to` is valid for writes of `len` bytes.
    ///
    /// # Panics
    /// If the bytes reach beyond the end of the packet.
    pub(crate) unsafe fn copy_to(&self, from: usize, to: *mut u8, len: usize) {
        assert!(
            from.checked_add(len).is_some_and(|end| end <= self.len),
            "{len} bytes from byte {from} of {}",
            self.len
        );
        // Bytes are not read again once they are in the buffer, where they may have been checked.
        let received = self.received.get();
        let buffered = received.saturating_sub(from).min(len);
        // SAFETY: inside the buffer and the memory, whose first byte follows those in the buffer; the target by the contract.
        unsafe {
            copy::bytes(self.room.wrapping_add(from), to, buffered);
            let rest = self.base.wrapping_add((from + buffered).saturating_sub(received));
            copy::bytes(rest, to.wrapping_add(buffered), len - buffered);
        }
    }
}
