#![allow(unsafe_code)]
//! Registered memory of the device itself: the bounce buffer pool, for bytes that are not registered (bcopy), and the
//! receive buffers.

use std::io;
use std::sync::Arc;

use super::slab::Slab;
use crate::device::Block;
use crate::device::verbs::sys::queue::{Piece, SharedReceives};
use crate::device::verbs::sys::{Domain, Rights};

/// Maximum length of a packet, and the size of a receive buffer: a page of data and the headers before it.
pub(crate) const PACKET: usize = 4096 + 64;
/// Maximum length of a transfer through one chunk; longer ones are registered.
pub(crate) const MAX_CHUNK: usize = 64 << 10;

/// Size and number of the chunks, by class.
const CLASSES: [(usize, usize); 3] = [(64, 1024), (PACKET, 256), (MAX_CHUNK, 24)];

/// A chunk of the pool, for the exclusive use of its holder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    class: u8,
    offset: usize,
}

/// The bounce buffer pool.
pub(crate) struct Pool {
    slab: Slab,
    free: [Vec<usize>; 3],
}

impl Pool {
    /// Bytes registered at start-up.
    pub(crate) fn bytes() -> usize {
        CLASSES.iter().map(|(size, count)| size * count).sum()
    }

    pub(crate) fn new(domain: &Arc<Domain>) -> io::Result<Self> {
        let slab = Slab::new(domain, Self::bytes(), Rights::Local)?;
        let mut start = 0;
        let free = CLASSES.map(|(size, count)| {
            let offsets = (0..count).rev().map(|i| start + i * size).collect();
            start += size * count;
            offsets
        });
        Ok(Self { slab, free })
    }

    /// Allocates a chunk of at least `len` bytes; `len` is at most [`MAX_CHUNK`].
    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Option<Chunk> {
        let class = CLASSES.iter().position(|(size, _)| len <= *size)?;
        Some(Chunk { class: class as u8, offset: self.free[class].pop()? })
    }

    pub(crate) fn give(&mut self, chunk: Chunk) {
        self.free[usize::from(chunk.class)].push(chunk.offset);
    }

    /// Whether more than half of the packet-sized chunks are in use, so that completions are needed soon.
    pub(crate) fn is_scarce(&self) -> bool {
        self.free[1].len() < CLASSES[1].1 / 2
    }

    /// Whether a chunk of the largest class is free.
    pub(crate) fn has_largest(&self) -> bool {
        !self.free[2].is_empty()
    }

    pub(crate) fn at(&self, chunk: &Chunk, offset: usize) -> *mut u8 {
        self.slab.at(chunk.offset + offset)
    }

    pub(crate) fn piece(&self, chunk: &Chunk, offset: usize, len: usize) -> Piece {
        self.slab.piece(chunk.offset + offset, len)
    }

    /// Copies blocks back to back into a chunk, from `offset` on.
    ///
    /// # Safety
    /// The blocks are valid for reads, and fit into the chunk from `offset` on.
    pub(crate) unsafe fn gather(&self, chunk: &Chunk, offset: usize, blocks: &[Block]) {
        let mut at = offset;
        for b in blocks {
            // SAFETY: by the contract; only the holder accesses the chunk.
            unsafe { std::ptr::copy_nonoverlapping(b.base, self.at(chunk, at), b.len) };
            at += b.len;
        }
    }

    /// Copies the start of a chunk to consecutive blocks; returns the number of bytes.
    ///
    /// # Safety
    /// The blocks are valid for writes, and their total length does not exceed the chunk.
    #[inline]
    pub(crate) unsafe fn scatter(&self, chunk: &Chunk, blocks: &[Block]) -> usize {
        let mut at = 0;
        for b in blocks {
            // SAFETY: by the contract. A single word, as in atomics, is copied without a call.
            unsafe {
                match b.len {
                    8 => std::ptr::copy_nonoverlapping(self.at(chunk, at), b.base, 8),
                    len => std::ptr::copy_nonoverlapping(self.at(chunk, at), b.base, len),
                }
            }
            at += b.len;
        }
        at
    }
}

/// The buffers of the shared receive queue. Used buffers are posted again in lists.
pub(crate) struct Receives {
    queue: Arc<SharedReceives>,
    slab: Slab,
    back: Vec<(u64, Piece)>,
    count: usize,
}

impl Receives {
    pub(crate) fn new(domain: &Arc<Domain>, queue: &Arc<SharedReceives>, count: usize) -> io::Result<Self> {
        let slab = Slab::new(domain, count * PACKET, Rights::Local)?;
        let mut receives = Self { queue: Arc::clone(queue), slab, back: Vec::new(), count };
        (0..count as u64).for_each(|i| receives.return_buffer(i));
        receives.replenish()?;
        Ok(receives)
    }

    /// The bytes of a packet.
    ///
    /// # Safety
    /// A completion of `len` bytes has returned buffer `index`, which has not been posted since.
    pub(crate) unsafe fn bytes<'a>(&self, index: u64, len: u32) -> &'a [u8] {
        let (index, len) = ((index as usize).min(self.count - 1), (len as usize).min(PACKET));
        // SAFETY: inside the slab, and accessed only by this rank until it is posted again.
        unsafe { std::slice::from_raw_parts(self.slab.at(index * PACKET), len) }
    }

    pub(crate) fn return_buffer(&mut self, index: u64) {
        self.back.push((index, self.slab.piece(index as usize * PACKET, PACKET)));
    }

    /// Posts the used buffers as receives again.
    pub(crate) fn replenish(&mut self) -> io::Result<()> {
        if !self.back.is_empty() {
            // SAFETY: buffers of the slab, each of which a completion has returned once.
            unsafe { self.queue.post(&self.back) }?;
            self.back.clear();
        }
        Ok(())
    }
}
