#![allow(unsafe_code)]
//! Sources and destinations of the data of a message: contiguous memory, the blocks of a layout, or (for a destination)
//! none.

use std::fmt;
use std::rc::Rc;

use super::payload::Payload;
use crate::device::{Block, Unread};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::copy;

/// Memory in blocks, in the order of the packed bytes.
///
/// # Safety
/// The runtime accesses the memory that the blocks name. An implementation guarantees that
/// - [`packed_len`](Self::packed_len) is always the same;
/// - [`blocks`](Self::blocks) leaves the list as it is and appends blocks of together `len` bytes, always the same ones for the
///   same bytes;
/// - both neither panic nor use the job.
///
/// Whether the memory may be accessed is promised where a layout is given to the runtime ([`Sink::layout`],
/// [`start_send`](super::start_send)).
pub unsafe trait Layout {
    /// Total length of all blocks in bytes.
    fn packed_len(&self) -> usize;
    /// Appends the blocks that hold the packed bytes from `from` to `from + len`, which are inside the packed length.
    fn blocks(&self, from: usize, len: usize, blocks: &mut Vec<Block>);
}

/// The `len` packed bytes of a layout from byte `from` on.
struct Part {
    layout: Rc<dyn Layout>,
    from: usize,
    len: usize,
}

// SAFETY: the blocks of a layout that satisfies the contract, from another start.
unsafe impl Layout for Part {
    fn packed_len(&self) -> usize {
        self.len
    }

    fn blocks(&self, from: usize, len: usize, blocks: &mut Vec<Block>) {
        self.layout.blocks(self.from + from, len, blocks);
    }
}

/// Destination of the data of a message.
pub struct Sink(pub(super) SinkKind);

pub(super) enum SinkKind {
    Discard,
    Buffer(Vec<u8>),
    Memory { base: *mut u8, len: usize },
    Layout(Rc<dyn Layout>),
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match &self.0 {
            SinkKind::Discard => "Discard",
            SinkKind::Buffer(_) => "Buffer",
            SinkKind::Memory { .. } => "Memory",
            SinkKind::Layout(_) => "Layout",
        };
        f.debug_struct(name).field("len", &self.room()).finish()
    }
}

impl Default for Sink {
    /// Same as [`discard`](Self::discard).
    fn default() -> Self {
        Self::discard()
    }
}

impl Sink {
    /// Discards the data. Data that waits at its sender is not sent.
    #[must_use]
    pub fn discard() -> Self {
        Self(SinkKind::Discard)
    }

    /// Whether it is [`discard`](Self::discard).
    pub(crate) fn is_discard(&self) -> bool {
        matches!(self.0, SinkKind::Discard)
    }

    /// Stores the data in `buffer`, resized to the message; the completion gets the buffer.
    #[must_use]
    pub fn buffer(buffer: Vec<u8>) -> Self {
        Self(SinkKind::Buffer(buffer))
    }

    /// Stores the data in `len` bytes at `base`. The rest of a longer message is discarded.
    ///
    /// # Safety
    /// The memory is valid for writes, and not read by others, until the completion of the message runs, or
    /// [`abandon`](super::abandon) of the message has returned, or the job has been dropped.
    #[must_use]
    pub unsafe fn memory(base: *mut u8, len: usize) -> Self {
        Self(SinkKind::Memory { base, len })
    }

    /// Stores the data in the blocks of `layout`, as many as the message fills.
    ///
    /// # Safety
    /// All blocks satisfy the contract of [`memory`](Self::memory), and do not overlap.
    #[must_use]
    pub unsafe fn layout(layout: Rc<dyn Layout>) -> Self {
        Self(SinkKind::Layout(layout))
    }

    /// The part of the sink for `len` bytes of its data from `from` on, cut to its end. A [buffer](Self::buffer) has no
    /// parts: the result discards.
    pub(crate) fn part(&self, from: usize, len: usize) -> Self {
        let from = from.min(self.room());
        let len = len.min(self.room() - from);
        Self(match &self.0 {
            SinkKind::Discard | SinkKind::Buffer(_) => SinkKind::Discard,
            SinkKind::Memory { base, .. } => SinkKind::Memory { base: base.wrapping_add(from), len },
            SinkKind::Layout(layout) => SinkKind::Layout(Rc::new(Part { layout: Rc::clone(layout), from, len })),
        })
    }

    /// Stores a message that has arrived completely, if the sink is contiguous memory; returns the number of bytes
    /// stored.
    #[inline(always)]
    pub(crate) fn take_into_memory(&self, data: Payload<'_>) -> Option<usize> {
        let SinkKind::Memory { base, len } = self.0 else { return None };
        let kept = data.len().min(len);
        // SAFETY: inside the sink; valid for writes by the contract of `Sink::memory`.
        unsafe { data.copy_to(0, base, kept) };
        Some(kept)
    }

    /// Stores a message that has arrived completely; returns the number of bytes stored.
    ///
    /// # Errors
    /// The error that the message's completion would get.
    pub(crate) fn take_whole(self, data: Payload<'_>) -> Result<usize> {
        Filling::beginning(self, data.len(), data).received().map(|received| received.kept)
    }

    /// The maximum number of bytes that the sink stores.
    fn room(&self) -> usize {
        match &self.0 {
            SinkKind::Discard => 0,
            SinkKind::Buffer(_) => usize::MAX,
            SinkKind::Memory { len, .. } => *len,
            SinkKind::Layout(layout) => layout.packed_len(),
        }
    }
}

/// Source of the data of a message.
#[derive(Clone)]
pub enum Source {
    /// Contiguous memory.
    Bytes(Block),
    /// The blocks of a layout.
    Layout(Rc<dyn Layout>),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if matches!(self, Self::Bytes(_)) { "Bytes" } else { "Layout" };
        f.debug_struct(name).field("len", &self.len()).finish()
    }
}

impl Source {
    /// The contiguous memory of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::Bytes(Block::of(bytes.as_ptr(), bytes.len()))
    }

    /// The memory, if it is contiguous.
    pub(super) fn one(&self) -> Option<Block> {
        if let Self::Bytes(block) = self { Some(*block) } else { None }
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Bytes(block) => block.len,
            Self::Layout(layout) => layout.packed_len(),
        }
    }

    /// The `len` bytes from byte `from` on, which must exist.
    pub(crate) fn part(&self, from: usize, len: usize) -> Self {
        match self {
            Self::Bytes(block) => Self::Bytes(Block { base: block.base.wrapping_add(from), len }),
            Self::Layout(layout) => Self::Layout(Rc::new(Part { layout: Rc::clone(layout), from, len })),
        }
    }

    /// Sets `blocks` to those of the packed bytes from `from` to `from + len`.
    pub(super) fn blocks(&self, from: usize, len: usize, blocks: &mut Vec<Block>) -> Result<()> {
        blocks.clear();
        match self {
            Self::Bytes(block) => {
                blocks.push(Block { base: block.base.wrapping_add(from), len });
                Ok(())
            }
            Self::Layout(layout) => blocks_of(&**layout, from, len, blocks),
        }
    }
}

/// Appends the blocks of a layout, and checks their total length.
fn blocks_of(layout: &dyn Layout, from: usize, len: usize, blocks: &mut Vec<Block>) -> Result<()> {
    layout.blocks(from, len, blocks);
    let sum = blocks.iter().try_fold(0usize, |sum, b| sum.checked_add(b.len));
    if sum == Some(len) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::BadArgument, "look up the blocks of a layout").cause(format!(
        "the blocks have {} bytes, but {len} were requested from byte {from} on",
        sum.unwrap_or(usize::MAX)
    )))
}

/// A message whose data is in its sink.
#[derive(Debug, Default)]
pub struct Received {
    /// The bytes, if the sink was a [buffer](Sink::buffer).
    pub buffer: Vec<u8>,
    /// Length of the message in bytes.
    pub len: usize,
    /// Number of bytes that the sink has stored: fewer than `len` if the sink was shorter than the message.
    pub kept: usize,
}

/// A sink that is being filled in byte order.
pub(super) struct Filling {
    sink: Sink,
    /// Length of the message.
    len: usize,
    /// Number of bytes that the sink stores.
    pub(super) kept: usize,
    /// Bytes that have arrived.
    pub(super) filled: usize,
    blocks: Vec<Block>,
    /// Set if the data is discarded because of an error.
    failed: Option<Error>,
}

impl Filling {
    /// Prepares `sink` for a message of `len` bytes.
    ///
    /// # Errors
    /// `Limit` if a buffer cannot be allocated: the length comes from the peer.
    pub(super) fn new(mut sink: Sink, len: usize) -> Result<Self> {
        if let SinkKind::Buffer(buffer) = &mut sink.0 {
            buffer.clear();
            if buffer.try_reserve_exact(len).is_err() {
                return Err(Error::new(ErrorKind::Limit, "receive an active message")
                    .cause(format!("cannot allocate a buffer for the announced message of {len} bytes")));
            }
        }
        let kept = sink.room().min(len);
        Ok(Self { sink, len, kept, filled: 0, blocks: Vec::new(), failed: None })
    }

    /// Puts the first bytes of a message of `len` bytes into `sink`, or discards it if a buffer cannot be allocated.
    pub(super) fn beginning(sink: Sink, len: usize, data: Payload<'_>) -> Self {
        let mut filling = Self::new(sink, len).unwrap_or_else(|e| Self::discarding(len, Some(e)));
        match data {
            Payload::Bytes(bytes) => _ = filling.take(bytes),
            Payload::Unread(packet, skip) => filling.take_unread(packet, skip),
        }
        filling
    }

    /// Moves the data that has arrived from a buffer to `sink`, which receives the remaining data too.
    pub(super) fn moved(self, sink: Sink) -> Self {
        let (len, filled) = (self.len, self.filled);
        match self.received() {
            Ok(stored) => Self::beginning(sink, len, Payload::Bytes(&stored.buffer)),
            Err(e) => Self { filled, ..Self::discarding(len, Some(e)) },
        }
    }

    /// Discards a message of `len` bytes, which is completed with the error `failed`, if there is one.
    pub(super) fn discarding(len: usize, failed: Option<Error>) -> Self {
        Self { sink: Sink::discard(), len, kept: 0, filled: 0, blocks: Vec::new(), failed }
    }

    /// Stores the next bytes; those beyond the sink are discarded. Returns how many bytes were copied.
    pub(super) fn take(&mut self, data: &[u8]) -> usize {
        let at = self.filled;
        self.filled += data.len();
        let data = &data[..data.len().min(self.kept.saturating_sub(at))];
        match &mut self.sink.0 {
            SinkKind::Discard => {}
            SinkKind::Buffer(buffer) => buffer.extend_from_slice(data),
            SinkKind::Memory { base, .. } => {
                // SAFETY: inside the sink by `kept`; valid for writes by the contract of `Sink::memory`.
                unsafe { copy::store(data.as_ptr(), base.wrapping_add(at), data.len()) };
            }
            SinkKind::Layout(layout) => {
                self.blocks.clear();
                if let Err(e) = blocks_of(&**layout, at, data.len(), &mut self.blocks) {
                    self.failed.get_or_insert(e);
                    return 0;
                }
                let mut rest = data;
                for block in &self.blocks {
                    let (now, later) = rest.split_at(block.len);
                    // SAFETY: the blocks are valid for writes by the contract of `Sink::layout`.
                    unsafe { copy::store(now.as_ptr(), block.base, now.len()) };
                    rest = later;
                }
            }
        }
        data.len()
    }

    /// Same as [`take`](Self::take), for the bytes of `packet` after the first `skip`.
    pub(super) fn take_unread(&mut self, packet: &Unread<'_>, skip: usize) {
        let (at, len) = (self.filled, packet.len() - skip);
        self.filled += len;
        let (kept, mut from) = (len.min(self.kept.saturating_sub(at)), skip);
        if kept == 0 {
            return;
        }
        if let SinkKind::Memory { base, .. } = self.sink.0 {
            // SAFETY: inside the sink by `kept`; valid for writes by the contract of `Sink::memory`.
            unsafe { packet.copy_to(from, base.wrapping_add(at), kept) };
            return;
        }
        let mut blocks = std::mem::take(&mut self.blocks);
        if let Err(e) = self.blocks(at, kept, &mut blocks) {
            self.failed.get_or_insert(e);
            blocks.clear();
        }
        for block in blocks.iter().filter(|block| block.len > 0) {
            // SAFETY: the blocks are valid for writes by the contract of the sink, or reserved space of its buffer.
            unsafe { packet.copy_to(from, block.base, block.len) };
            from += block.len;
        }
        if let SinkKind::Buffer(buffer) = &mut self.sink.0 {
            // SAFETY: space was reserved for the whole message, and its bytes have been written up to here.
            unsafe { buffer.set_len(at + kept) };
        }
        self.blocks = blocks;
    }

    /// Copies as many bytes from `source` as the sink has room for.
    ///
    /// # Safety
    /// The source is valid for reads, and is not the memory of the sink.
    ///
    /// # Errors
    /// `BadArgument` for a layout that has fewer bytes than its packed length.
    pub(super) unsafe fn take_from(&mut self, source: &Source) -> Result<()> {
        /// Bytes whose blocks are looked up at a time.
        const WINDOW: usize = 64 << 10;
        let most = if matches!(source, Source::Bytes(_)) { usize::MAX } else { WINDOW };
        let mut blocks = Vec::new();
        while self.filled < self.kept {
            source.blocks(self.filled, (self.kept - self.filled).min(most), &mut blocks)?;
            for block in blocks.iter().filter(|block| block.len > 0) {
                // SAFETY: valid for reads by the contract, and not written until the send is complete.
                self.take(unsafe { std::slice::from_raw_parts(block.base, block.len) });
            }
        }
        Ok(())
    }

    /// The memory for the bytes that the sink keeps, if it is contiguous.
    pub(super) fn one(&mut self) -> Option<Block> {
        let base = match &mut self.sink.0 {
            SinkKind::Buffer(buffer) => buffer.as_mut_ptr(),
            SinkKind::Memory { base, .. } => *base,
            SinkKind::Discard | SinkKind::Layout(_) => return None,
        };
        Some(Block { base, len: self.kept })
    }

    /// Sets `blocks` to those of the sink for the bytes from `from` to `from + len`, which are below `kept`.
    pub(super) fn blocks(&mut self, from: usize, len: usize, blocks: &mut Vec<Block>) -> Result<()> {
        blocks.clear();
        match &mut self.sink.0 {
            SinkKind::Discard => {}
            SinkKind::Buffer(buffer) => blocks.push(Block { base: buffer.as_mut_ptr().wrapping_add(from), len }),
            SinkKind::Memory { base, .. } => blocks.push(Block { base: base.wrapping_add(from), len }),
            SinkKind::Layout(layout) => blocks_of(&**layout, from, len, blocks)?,
        }
        Ok(())
    }

    /// Records that all bytes that the sink keeps have been written to its blocks.
    ///
    /// # Safety
    /// All these bytes have been written.
    pub(super) unsafe fn was_filled(&mut self) {
        self.filled = self.kept;
        if let SinkKind::Buffer(buffer) = &mut self.sink.0 {
            // SAFETY: space was reserved for the whole message, and all of it has been written by the contract.
            unsafe { buffer.set_len(self.kept) };
        }
    }

    /// The argument of the message's completion.
    ///
    /// # Errors
    /// `BadArgument` for a layout that has fewer bytes than its packed length; the error with which the data was
    /// discarded.
    pub(super) fn received(self) -> Result<Received> {
        let buffer = match self.sink.0 {
            SinkKind::Buffer(buffer) => buffer,
            _ => Vec::new(),
        };
        self.failed.map_or(Ok(Received { buffer, len: self.len, kept: self.kept }), Err)
    }
}
