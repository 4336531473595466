//! The queue for space in the send buffer of a connection: frames, and operations whose frames are made when there is
//! space, so that their bytes are sent without a copy.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::frame::{CHUNK, END, HEADER, Header, Kind, LAST, PIECE, RETURN};
use super::memory::Memory;
use super::send_buffer::{Lender, SendBuffer};
use super::sys::{Blocks, MAX_BLOCKS};
use crate::device::{Block, Range, target};
use crate::error::ErrorKind;

/// Number of bytes that a request for data counts against the limit of unanswered requests, in addition to the data
/// that the target has to buffer.
pub(super) const ASKED: usize = 64;
/// Maximum length of data that is copied from a region to the send buffer.
const COPIED: usize = 4096;

/// Blocks of local memory, and the number of their bytes that are done.
#[derive(Default)]
pub(super) struct Cursor {
    blocks: SmallVec<[Block; 2]>,
    at: usize,
    /// Number of bytes of block `at` that are done.
    done: usize,
}

impl Cursor {
    pub(super) fn new(blocks: &[Block]) -> Self {
        Self { blocks: blocks.into(), at: 0, done: 0 }
    }

    /// Adds the next blocks, together at most `len` bytes and as many as a system call supports, to `out`.
    pub(super) fn next(&self, mut len: usize, out: &mut Blocks) {
        let mut done = self.done;
        for block in &self.blocks[self.at..] {
            let part = (block.len - done).min(len);
            if part > 0 {
                out.push(Block { base: block.base.wrapping_add(done), len: part });
            }
            (done, len) = (0, len - part);
            if len == 0 || out.len() >= MAX_BLOCKS {
                return;
            }
        }
    }

    /// Counts `len` bytes as done.
    pub(super) fn advance(&mut self, len: usize) {
        self.take(len, |_| ());
    }

    /// Passes the next blocks, together at most `len` bytes, to `each`, and counts them as done.
    fn take(&mut self, mut len: usize, mut each: impl FnMut(Block)) {
        while let Some(block) = self.blocks.get(self.at).filter(|_| len > 0) {
            let part = (block.len - self.done).min(len);
            if part > 0 {
                each(Block { base: block.base.wrapping_add(self.done), len: part });
            }
            (self.done, len) = (self.done + part, len - part);
            if self.done == block.len {
                (self.at, self.done) = (self.at + 1, 0);
            }
        }
    }
}

/// A write or an accumulate, sent from the memory of the caller.
pub(super) struct Chunks {
    /// Number of the operation among those of the connection.
    pub(super) serial: u64,
    /// Kind, code, key, and the flags of the last frame.
    header: Header,
    local: Cursor,
    /// The ranges of which frames are to be made.
    ranges: SmallVec<[Range; 1]>,
    /// Index of the range of the next frame, and number of its bytes for which frames were made.
    at: usize,
    done: usize,
}

impl Chunks {
    pub(super) fn new(serial: u64, header: Header, blocks: &[Block], ranges: &[Range]) -> Self {
        let ranges = ranges.iter().copied().filter(|range| range.len > 0).collect();
        Self { serial, header, local: Cursor::new(blocks), ranges, at: 0, done: 0 }
    }

    /// Makes the next frame.
    fn make(&mut self, to: &mut SendBuffer) -> Made {
        let range = self.ranges[self.at];
        let most = if self.header.kind == Kind::Accumulate { PIECE } else { CHUNK };
        let len = (range.len - self.done).min(most);
        let mut header = Header { offset: (range.offset + self.done) as u64, len: len as u64, ..self.header };
        self.done += len;
        if self.done == range.len {
            (self.at, self.done) = (self.at + 1, 0);
        }
        let is_last = self.at == self.ranges.len();
        if !is_last {
            header.flags &= !LAST;
        }
        to.fill(|bytes| bytes.extend(header.bytes()));
        self.local.take(header.payload(), |block| to.lend(Lender::Operation(self.serial), block));
        let owes = if header.flags & RETURN > 0 { ASKED + len } else { 0 };
        Made::Request { serial: self.serial, owes, until: is_last.then(|| to.end()) }
    }

    /// A last frame that the target rejects, so that no signal follows.
    fn end(&self) -> [u8; HEADER] {
        Header { flags: self.header.flags & LAST, ..Header::new(Kind::Write) }.bytes()
    }
}

/// Reads of several ranges, whose frames are made as far as the limit of unanswered requests allows.
pub(super) struct Reads {
    pub(super) serial: u64,
    key: u64,
    ranges: Vec<Range>,
    at: usize,
}

impl Reads {
    pub(super) fn new(serial: u64, key: u64, ranges: Vec<Range>) -> Self {
        Self { serial, key, ranges, at: 0 }
    }

    /// Makes the next frame.
    fn make(&mut self, to: &mut SendBuffer) -> Made {
        let Range { offset, len } = self.ranges[self.at];
        self.at += 1;
        let is_last = self.at == self.ranges.len();
        let flags = if is_last { LAST } else { 0 };
        let (offset, len) = (offset as u64, len as u64);
        let header = Header { flags, key: self.key, offset, len, ..Header::new(Kind::Read) };
        to.fill(|bytes| bytes.extend(header.bytes()));
        Made::Request { serial: self.serial, owes: ASKED, until: is_last.then_some(0) }
    }
}

/// The answer to a read, sent from the region.
pub(super) struct Answer {
    key: u64,
    offset: u64,
    left: u64,
    /// Whether the operation ends with this answer.
    last: bool,
}

impl Answer {
    pub(super) fn new(header: &Header) -> Self {
        Self { key: header.key, offset: header.offset, left: header.len, last: header.flags & LAST > 0 }
    }

    /// Makes the next frame; returns whether it is the last one.
    fn make(&mut self, memory: &Memory, failed: &mut Option<ErrorKind>, to: &mut SendBuffer) -> bool {
        let place = (self.key, self.offset);
        if self.left > 0 && failed.is_none() {
            // The whole range is checked before its first byte is sent.
            let whole = usize::try_from(self.left).map_err(|_| ErrorKind::OutOfRange);
            match whole.and_then(|len| memory.address(place, len)) {
                Ok(base) => {
                    let len = self.left.min(CHUNK as u64);
                    (self.offset, self.left) = (self.offset + len, self.left - len);
                    let is_end = self.left == 0;
                    let header = Header { flags: if is_end { END } else { 0 }, len, ..Header::new(Kind::Data) };
                    to.fill(|bytes| bytes.extend(header.bytes()));
                    let block = Block { base, len: len as usize };
                    if block.len > COPIED {
                        to.lend(Lender::Region(self.key), block);
                    } else {
                        to.fill(|bytes| {
                            let end = bytes.len() + block.len;
                            // The region has been checked under the same lock.
                            let _ = memory.read(place, block.len, bytes);
                            bytes.resize(end, 0);
                        });
                    }
                    return is_end && !self.last;
                }
                Err(kind) => *failed = Some(kind),
            }
        }
        let header = if self.last {
            let status = target::status(failed.take().map_or(Ok(()), Err));
            Header { size: status as u16, ..Header::new(Kind::Done) }
        } else {
            // Informs the origin that no more data follows for this frame.
            Header { flags: END, ..Header::new(Kind::Data) }
        };
        to.fill(|bytes| bytes.extend(header.bytes()));
        true
    }
}

/// An item of the queue.
pub(super) enum Item {
    Bytes(Vec<u8>),
    Chunks(Chunks),
    Reads(Reads),
    Answer(Answer),
}

/// The frames that were added to the send buffer.
pub(super) enum Made {
    /// No frame: the queue is empty, or its next frame waits for answers.
    Nothing,
    Frames,
    /// A frame of an operation, which the peer answers with this many bytes. If it is the last frame, the operation may
    /// be answered once the peer has received everything before `until`.
    Request {
        serial: u64,
        owes: usize,
        until: Option<u64>,
    },
}

/// The operations that wait for space in the send buffer, in order.
#[derive(Default)]
pub(super) struct Queue {
    items: VecDeque<Item>,
    /// Bytes in buffers.
    pub(super) buffered: usize,
    /// The failure of a read with further answers in the queue.
    failed: Option<ErrorKind>,
}

impl Queue {
    /// A buffer of this length is closed, and a new one is started.
    const BUFFER_LEN: usize = 64 << 10;

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn push(&mut self, item: Item) {
        self.items.push_back(item);
    }

    /// Adds bytes, which `fill` appends to a buffer: to that of `to` if the queue is empty and there is space.
    pub(super) fn fill(&mut self, to: &mut SendBuffer, fill: impl FnOnce(&mut Vec<u8>)) {
        if self.items.is_empty() && to.has_room() {
            return to.fill(fill);
        }
        if !matches!(self.items.back(), Some(Item::Bytes(bytes)) if bytes.len() < Self::BUFFER_LEN) {
            self.items.push_back(Item::Bytes(Vec::new()));
        }
        if let Some(Item::Bytes(bytes)) = self.items.back_mut() {
            let before = bytes.len();
            fill(bytes);
            self.buffered += bytes.len() - before;
        }
    }

    /// Adds the next frame to the send buffer. `room` is the number of bytes of answers that may still be requested.
    pub(super) fn make(&mut self, memory: &Memory, room: usize, to: &mut SendBuffer) -> Made {
        let made = match self.items.front_mut() {
            None => return Made::Nothing,
            Some(Item::Bytes(bytes)) => {
                self.buffered -= bytes.len();
                to.keep(std::mem::take(bytes));
                Made::Frames
            }
            Some(Item::Chunks(chunks)) if chunks.header.flags & RETURN > 0 && room < ASKED + PIECE => {
                return Made::Nothing;
            }
            Some(Item::Reads(_)) if room < ASKED => return Made::Nothing,
            Some(Item::Chunks(chunks)) => chunks.make(to),
            Some(Item::Reads(reads)) => reads.make(to),
            Some(Item::Answer(answer)) => match answer.make(memory, &mut self.failed, to) {
                true => Made::Frames,
                false => return Made::Frames,
            },
        };
        if !matches!(made, Made::Request { until: None, .. }) {
            self.items.pop_front();
        }
        made
    }

    /// Ends the use of the caller's memory by the operations that `which` selects by their numbers, and passes those
    /// numbers to `ended`.
    pub(super) fn detach(&mut self, which: impl Fn(u64) -> bool, mut ended: impl FnMut(u64)) {
        for item in &mut self.items {
            if let Item::Chunks(chunks) = item
                && which(chunks.serial)
            {
                ended(chunks.serial);
                self.buffered += HEADER;
                *item = Item::Bytes(chunks.end().to_vec());
            }
        }
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use super::*;
    use crate::memory::keys::Exposed;

    /// All blocks that would be sent next, as if the kernel accepted none.
    fn blocks(queue: &mut Queue, buffer: &mut SendBuffer, memory: &Memory) -> Blocks {
        while !matches!(queue.make(memory, usize::MAX, buffer), Made::Nothing) {}
        let mut blocks = Blocks::new();
        buffer.next(&mut blocks);
        blocks
    }

    /// A frame is sent, and retransmitted, from the buffer to which it was first written, even if it had to wait.
    #[test]
    fn each_frame_is_copied_once() {
        const LEN: usize = 4000;
        let (mut queue, mut buffer, mut written) = (Queue::default(), SendBuffer::default(), Vec::new());
        for number in 0..100 {
            queue.fill(&mut buffer, |bytes| {
                // The reserved capacity keeps the buffer from being reallocated.
                bytes.reserve_exact((100 * LEN).saturating_sub(bytes.len()));
                bytes.extend([number; LEN]);
                written.push(bytes[bytes.len() - LEN..].as_ptr());
            });
        }
        assert!(!buffer.has_room() && queue.buffered > 50 * LEN, "most of them wait");
        for _ in 0..2 {
            let blocks = blocks(&mut queue, &mut buffer, &Memory::default());
            let frames =
                blocks.iter().flat_map(|block| (0..block.len).step_by(LEN).map(|at| block.base.wrapping_add(at)));
            assert!(frames.map(<*mut u8>::cast_const).eq(written.iter().copied()));
            buffer.advance(50 * LEN + 1);
            buffer.resume(0).unwrap();
        }
    }

    /// Of a long operation, only its headers are copied.
    #[test]
    fn long_payloads_are_sent_from_where_they_are() {
        const LEN: usize = 2 * CHUNK + 5000;
        let (bytes, mut region, memory) = (vec![1; LEN], vec![2; LEN], Memory::default());
        // SAFETY: the region outlives the table.
        let key = unsafe { memory.0.insert(Exposed { base: region.as_mut_ptr(), len: LEN, accumulate: None }) };
        let (mut queue, mut buffer) = (Queue::default(), SendBuffer::default());
        let (from, to) = ([Block::of(bytes.as_ptr(), LEN)], [Range { offset: 0, len: LEN }]);
        queue.push(Item::Chunks(Chunks::new(0, Header::new(Kind::Write), &from, &to)));
        queue.push(Item::Answer(Answer::new(&Header { flags: LAST, key, len: LEN as u64, ..Header::new(Kind::Read) })));
        let blocks = blocks(&mut queue, &mut buffer, &memory);
        let (headers, payloads): (Vec<&Block>, Vec<&Block>) = blocks.iter().partition(|block| block.len == HEADER);
        assert_eq!(headers.len(), 7, "three of each, and the end of the answer");
        let payloads = payloads.into_iter().map(|block| (block.base.cast_const(), block.len));
        let parts = |base: *const u8| [0, CHUNK, 2 * CHUNK].map(|at| (base.wrapping_add(at), CHUNK.min(LEN - at)));
        assert!(payloads.eq([parts(bytes.as_ptr()), parts(region.as_ptr())].concat()));
    }
}
