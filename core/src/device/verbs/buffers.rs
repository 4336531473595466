#![allow(unsafe_code)]
//! Registered memory of the device itself: chunks for bytes that are not registered (the bounce pool), and the
//! buffers that receive.

use std::io;
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};

use super::sys::queue::{Piece, SharedReceives};
use super::sys::{Domain, Memory, Rights};
use crate::device::Block;

/// Longest packet; also the size of a receive buffer.
pub(super) const PACKET: usize = 4096;
/// Longest transfer that goes through a chunk; longer ones are registered for the while.
pub(super) const LARGEST: usize = 64 << 10;

/// Size and number of the chunks of each class.
const CLASSES: [(usize, usize); 3] = [(64, 1024), (PACKET, 256), (LARGEST, 24)];

/// A chunk that its holder alone uses.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    class: u8,
    offset: usize,
}

/// The bounce pool.
#[derive(Debug)]
pub(super) struct Pool {
    memory: Memory,
    slab: MmapRaw,
    free: [Vec<usize>; 3],
}

impl Pool {
    /// Bytes that are registered at start-up.
    pub(super) fn bytes() -> usize {
        CLASSES.iter().map(|(size, count)| size * count).sum()
    }

    pub(super) fn new(domain: &Arc<Domain>) -> io::Result<Self> {
        let len = Self::bytes();
        let slab = MmapRaw::from(MmapOptions::new().len(len).map_anon()?);
        // SAFETY: the slab is dropped after the registration, and reached through chunks only.
        let memory = unsafe { Memory::register(domain, slab.as_mut_ptr(), len, Rights::Local) }?;
        let mut start = 0;
        let free = CLASSES.map(|(size, count)| {
            let offsets = (0..count).rev().map(|i| start + i * size).collect();
            start += size * count;
            offsets
        });
        Ok(Self { memory, slab, free })
    }

    /// A chunk of at least `len` bytes, at most [`LARGEST`].
    pub(super) fn take(&mut self, len: usize) -> Option<Chunk> {
        let class = CLASSES.iter().position(|(size, _)| len <= *size)?;
        Some(Chunk { class: class as u8, offset: self.free[class].pop()? })
    }

    /// A chunk of at least 8 bytes.
    #[inline]
    pub(super) fn take_word(&mut self) -> Option<Chunk> {
        Some(Chunk { class: 0, offset: self.free[0].pop()? })
    }

    pub(super) fn give(&mut self, chunk: Chunk) {
        self.free[usize::from(chunk.class)].push(chunk.offset);
    }

    /// Whether more than half of the packets' chunks are taken: then completions must come soon.
    pub(super) fn is_scarce(&self) -> bool {
        self.free[1].len() < CLASSES[1].1 / 2
    }

    /// Whether one of the largest chunks is free.
    pub(super) fn has_largest(&self) -> bool {
        !self.free[2].is_empty()
    }

    pub(super) fn at(&self, chunk: &Chunk, offset: usize) -> *mut u8 {
        self.slab.as_mut_ptr().wrapping_add(chunk.offset + offset)
    }

    pub(super) fn piece(&self, chunk: &Chunk, offset: usize, len: usize) -> Piece {
        Piece { address: self.at(chunk, offset).addr() as u64, len: len as u32, key: self.memory.local_key() }
    }

    /// Copies blocks into a chunk, one behind the other, from `offset` on.
    ///
    /// # Safety
    /// The blocks are valid for reads, and together fit the chunk behind `offset`.
    pub(super) unsafe fn gather(&self, chunk: &Chunk, offset: usize, blocks: &[Block]) {
        let mut at = offset;
        for b in blocks {
            // SAFETY: by the contract; the chunk is the holder's alone.
            unsafe { std::ptr::copy_nonoverlapping(b.base, self.at(chunk, at), b.len) };
            at += b.len;
        }
    }

    /// Copies at most 8 bytes out of the start of a chunk.
    ///
    /// # Safety
    /// As [`copy_out`](Self::copy_out).
    #[inline(always)]
    pub(super) unsafe fn copy_word(&self, chunk: &Chunk, to: *mut u8, len: usize) {
        // SAFETY: by the contract.
        unsafe {
            if len == 8 {
                to.cast::<u64>().write_unaligned(self.at(chunk, 0).cast::<u64>().read_unaligned());
            } else {
                self.copy_out(chunk, 0, to, len);
            }
        }
    }

    /// Copies out of a chunk.
    ///
    /// # Safety
    /// `to` is valid for writes of `len` bytes, which the chunk has behind `offset`.
    pub(super) unsafe fn copy_out(&self, chunk: &Chunk, offset: usize, to: *mut u8, len: usize) {
        // SAFETY: by the contract.
        unsafe { std::ptr::copy_nonoverlapping(self.at(chunk, offset), to, len) };
    }
}

/// The buffers of the shared receive queue. Those that were used go back in lists.
#[derive(Debug)]
pub(super) struct Receives {
    queue: Arc<SharedReceives>,
    memory: Memory,
    slab: MmapRaw,
    back: Vec<(u64, Piece)>,
    count: usize,
}

impl Receives {
    pub(super) fn new(domain: &Arc<Domain>, queue: &Arc<SharedReceives>, count: usize) -> io::Result<Self> {
        let slab = MmapRaw::from(MmapOptions::new().len(count * PACKET).map_anon()?);
        // SAFETY: as in `Pool::new`.
        let memory = unsafe { Memory::register(domain, slab.as_mut_ptr(), count * PACKET, Rights::Local) }?;
        let mut receives = Self { queue: Arc::clone(queue), memory, slab, back: Vec::new(), count };
        (0..count as u64).for_each(|i| receives.give_back(i));
        receives.replenish()?;
        Ok(receives)
    }

    /// The bytes of a packet.
    ///
    /// # Safety
    /// Buffer `index` has come back by a completion of `len` bytes and was not given back since.
    pub(super) unsafe fn bytes<'a>(&self, index: u64, len: u32) -> &'a [u8] {
        let (index, len) = ((index as usize).min(self.count - 1), (len as usize).min(PACKET));
        // SAFETY: inside the slab, and this rank's alone until it is given back.
        unsafe { std::slice::from_raw_parts(self.slab.as_ptr().add(index * PACKET), len) }
    }

    pub(super) fn give_back(&mut self, index: u64) {
        let address = self.slab.as_mut_ptr().wrapping_add(index as usize * PACKET).addr() as u64;
        self.back.push((index, Piece { address, len: PACKET as u32, key: self.memory.local_key() }));
    }

    /// Gives the card the buffers that came back.
    pub(super) fn replenish(&mut self) -> io::Result<()> {
        if !self.back.is_empty() {
            // SAFETY: buffers of the slab, each of which came back once.
            unsafe { self.queue.post(&self.back) }?;
            self.back.clear();
        }
        Ok(())
    }
}
