//! What waits to be sent on a connection: frames in a buffer, and operations whose frames are made as the socket takes them,
//! with their bytes sent from where they are.

use smallvec::SmallVec;

use super::frame::{CHUNK, END, HEADER, Header, Kind, LAST, PIECE, RETURN};
use super::memory::Memory;
use super::resend::Unacknowledged;
use super::sys::{Blocks, MOST_BLOCKS};
use crate::device::{Block, Range, target};
use crate::error::ErrorKind;

/// Bytes that a frame which asks for data counts against the limit of unanswered ones, beside the data that the target
/// has to keep.
pub(super) const ASKED: usize = 64;
/// Bytes of a buffer that an empty queue keeps.
const KEPT: usize = 4096;
/// Sent instead of memory that was released after its length had been announced.
pub(super) const ZEROS: &[u8; 4096] = &[0; 4096];

/// Blocks of local memory, and how much of them is done.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    blocks: SmallVec<[Block; 2]>,
    at: usize,
    /// Bytes of block `at` that are done.
    done: usize,
}

impl Cursor {
    pub(super) fn new(blocks: &[Block]) -> Self {
        Self { blocks: blocks.into(), at: 0, done: 0 }
    }

    /// Adds the next blocks of together at most `len` bytes to `out`, as many as a system call takes.
    pub(super) fn next(&self, mut len: usize, out: &mut Blocks) {
        let mut done = self.done;
        for block in &self.blocks[self.at..] {
            let part = (block.len - done).min(len);
            if part > 0 {
                out.push(Block { base: block.base.wrapping_add(done), len: part });
            }
            (done, len) = (0, len - part);
            if len == 0 || out.len() >= MOST_BLOCKS {
                return;
            }
        }
    }

    /// Counts `len` bytes as done.
    pub(super) fn advance(&mut self, mut len: usize) {
        while len > 0 && self.at < self.blocks.len() {
            let part = (self.blocks[self.at].len - self.done).min(len);
            (self.done, len) = (self.done + part, len - part);
            if self.done == self.blocks[self.at].len {
                (self.at, self.done) = (self.at + 1, 0);
            }
        }
    }
}

/// The frame that is being sent: what is left of its header and its payload.
#[derive(Debug, Default)]
struct Current {
    header: [u8; HEADER],
    header_left: usize,
    payload_left: usize,
}

impl Current {
    fn begin(&mut self, header: &Header) {
        *self = Self { header: header.bytes(), header_left: HEADER, payload_left: header.payload() };
    }

    fn is_over(&self) -> bool {
        self.header_left + self.payload_left == 0
    }

    /// Whether some of the frame has been sent and some has not.
    fn is_inside(&self) -> bool {
        !self.is_over() && self.header_left < HEADER
    }

    fn header(&self, out: &mut Blocks) {
        if self.header_left > 0 {
            out.push(Block::of(self.header[HEADER - self.header_left..].as_ptr(), self.header_left));
        }
    }

    /// Counts `len` bytes as sent, of which those of the header go to `log`; returns how many were payload.
    fn advance(&mut self, len: usize, log: &mut Unacknowledged) -> usize {
        let header = self.header_left.min(len);
        log.copy(&self.header[HEADER - self.header_left..][..header]);
        self.header_left -= header;
        self.payload_left -= len - header;
        len - header
    }
}

/// A write or an accumulate, sent from the memory of the caller.
#[derive(Debug)]
pub(super) struct Chunks {
    /// Number of the operation among those of the connection.
    pub(super) serial: u64,
    /// Kind, code, key, and the flags of the last frame.
    header: Header,
    local: Cursor,
    ranges: SmallVec<[Range; 1]>,
    /// Index of the range that is being sent, and how much of it is in frames.
    at: usize,
    done: usize,
    current: Current,
}

impl Chunks {
    pub(super) fn new(serial: u64, header: Header, blocks: &[Block], ranges: &[Range]) -> Self {
        let ranges = ranges.iter().copied().filter(|range| range.len > 0).collect();
        Self { serial, header, local: Cursor::new(blocks), ranges, at: 0, done: 0, current: Current::default() }
    }

    /// Begins the next frame unless one is being sent; returns what it owes.
    fn begin(&mut self) -> usize {
        if !self.current.is_over() {
            return 0;
        }
        let range = self.ranges[self.at];
        let most = if self.header.kind == Kind::Accumulate { PIECE } else { CHUNK };
        let len = (range.len - self.done).min(most);
        let mut header = Header { offset: (range.offset + self.done) as u64, len: len as u64, ..self.header };
        self.done += len;
        if self.done == range.len {
            (self.at, self.done) = (self.at + 1, 0);
        }
        if self.at < self.ranges.len() {
            header.flags &= !LAST;
        }
        self.current.begin(&header);
        if header.flags & RETURN > 0 { ASKED + len } else { 0 }
    }

    /// Whether every byte was sent.
    fn is_over(&self) -> bool {
        self.at == self.ranges.len() && self.current.is_over()
    }

    fn is_begun(&self) -> bool {
        self.at > 0 || self.done > 0
    }

    /// Replaces what is not sent by copies of the rest of its frame, and an empty last frame.
    ///
    /// # Safety
    /// The blocks are valid.
    #[allow(unsafe_code)]
    unsafe fn detach(&mut self) -> Vec<u8> {
        let mut blocks = Blocks::new();
        self.current.header(&mut blocks);
        let (mut bytes, mut log) = (Vec::new(), Unacknowledged::default());
        loop {
            // SAFETY: by the contract, and the header.
            unsafe { append(&blocks, &mut bytes) };
            let sent = self.current.advance(blocks.drain(..).map(|b| b.len).sum(), &mut log);
            self.local.advance(sent);
            if self.current.is_over() {
                break;
            }
            self.local.next(self.current.payload_left, &mut blocks);
        }
        if self.at < self.ranges.len() {
            bytes.extend(self.end());
        }
        bytes
    }

    /// A last frame that the target refuses, so that no signal follows.
    fn end(&self) -> [u8; HEADER] {
        Header { flags: self.header.flags & LAST, ..Header::new(Kind::Write) }.bytes()
    }
}

/// Appends copies of blocks.
///
/// # Safety
/// The blocks are valid for reads.
#[allow(unsafe_code)]
pub(super) unsafe fn append(blocks: &[Block], to: &mut Vec<u8>) {
    for block in blocks {
        let at = to.len();
        to.resize(at + block.len, 0);
        // SAFETY: valid by the contract; the vector has just been extended.
        unsafe { crate::memory::copy::load(block.base, to[at..].as_mut_ptr(), block.len) };
    }
}

/// Reads of several ranges, whose frames are made as far as the limit of unanswered ones allows.
#[derive(Debug)]
pub(super) struct Reads {
    pub(super) serial: u64,
    key: u64,
    flags: u8,
    ranges: Vec<Range>,
    at: usize,
}

impl Reads {
    pub(super) fn new(serial: u64, key: u64, flags: u8, ranges: Vec<Range>) -> Self {
        Self { serial, key, flags, ranges, at: 0 }
    }

    /// Appends the next frame; returns whether there was one.
    fn next(&mut self, to: &mut Vec<u8>) -> bool {
        let Some(range) = self.ranges.get(self.at) else { return false };
        self.at += 1;
        let flags = if self.at == self.ranges.len() { self.flags } else { 0 };
        let (offset, len) = (range.offset as u64, range.len as u64);
        to.extend(Header { flags, key: self.key, offset, len, ..Header::new(Kind::Read) }.bytes());
        true
    }
}

/// The answer to a read, sent from the region.
#[derive(Debug)]
pub(super) struct Answer {
    key: u64,
    offset: u64,
    left: u64,
    /// Whether no frame of data has said that it is the last one.
    is_due: bool,
    /// Whether the operation ends with it.
    last: bool,
    current: Current,
}

impl Answer {
    pub(super) fn new(header: &Header) -> Self {
        let last = header.flags & LAST > 0;
        let (key, offset, left) = (header.key, header.offset, header.len);
        Self { key, offset, left, is_due: true, last, current: Current::default() }
    }

    /// Begins the next frame unless one is being sent; returns whether there is one.
    fn begin(&mut self, memory: &Memory, failed: &mut Option<ErrorKind>) -> bool {
        if !self.current.is_over() {
            return true;
        }
        if self.left > 0 && failed.is_none() {
            // The whole range is checked before its first byte is sent.
            let whole = usize::try_from(self.left).map_err(|_| ErrorKind::OutOfRange);
            *failed = whole.and_then(|len| memory.address((self.key, self.offset), len)).err();
        }
        if self.left > 0 && failed.is_none() {
            let len = self.left.min(CHUNK as u64);
            let flags = if len == self.left { END } else { 0 };
            self.left -= len;
            self.is_due = self.left > 0;
            self.current.begin(&Header { flags, len, ..Header::new(Kind::Data) });
            return true;
        }
        self.left = 0;
        let is_due = std::mem::take(&mut self.is_due);
        let last = std::mem::take(&mut self.last);
        if last {
            let status = target::status(failed.take().map_or(Ok(()), Err));
            self.current.begin(&Header { size: status as u16, ..Header::new(Kind::Done) });
        } else if is_due {
            // Tells the origin that nothing is owed for this frame any more.
            self.current.begin(&Header { flags: END, ..Header::new(Kind::Data) });
        }
        last || is_due
    }

    /// Whether the frame after the one that is being sent is the end of the operation.
    fn ends_next(&self) -> bool {
        self.left == 0 && self.last
    }

    fn blocks(&self, memory: &Memory, failed: &mut Option<ErrorKind>, out: &mut Blocks) {
        self.current.header(out);
        let len = self.current.payload_left;
        if len > 0 {
            out.push(match memory.address((self.key, self.offset), len) {
                Ok(base) => Block { base, len },
                Err(kind) => {
                    failed.get_or_insert(kind);
                    Block::of(ZEROS.as_ptr(), len.min(ZEROS.len()))
                }
            });
        }
    }

    /// Appends the whole answer, of one frame of data, if it is short and has not begun; returns whether it has.
    fn append(&mut self, memory: &Memory, failed: &mut Option<ErrorKind>, to: &mut Vec<u8>) -> bool {
        if self.left > 4096 || !self.current.is_over() {
            return false;
        }
        while self.begin(memory, failed) {
            to.extend(self.current.header);
            let len = self.current.payload_left;
            // The region has been checked under the same lock.
            if len > 0
                && let Err(kind) = memory.read((self.key, self.offset), len, to)
            {
                failed.get_or_insert(kind);
                to.resize(to.len() + len, 0);
            }
            self.current = Current::default();
        }
        true
    }
}

/// Something to send.
#[derive(Debug)]
pub(super) enum Item {
    Bytes { bytes: Vec<u8>, sent: usize },
    Chunks(Chunks),
    Reads(Reads),
    Answer(Answer),
}

/// Whether this is sent in any case right after what is before it.
fn follows(item: Option<&Item>) -> bool {
    match item {
        Some(Item::Bytes { .. }) => true,
        Some(Item::Chunks(chunks)) => chunks.header.flags & RETURN == 0,
        Some(Item::Reads(_) | Item::Answer(_)) | None => false,
    }
}

/// Changes of an operation while its frames are made.
#[derive(Debug)]
pub(super) enum Made {
    /// Answers are due for this many bytes.
    Owes(u64, usize),
    /// All frames were given to the kernel or copied.
    All(u64),
}

/// What waits to be sent, in order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    items: std::collections::VecDeque<Item>,
    spare: Vec<u8>,
    /// Bytes in buffers.
    pub(super) buffered: usize,
    /// The failure of a read whose later answers are in the queue.
    failed: Option<ErrorKind>,
}

impl Queue {
    /// Maximum length of a buffer before another one is begun.
    const LONG: usize = 64 << 10;

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn push(&mut self, item: Item) {
        self.items.push_back(item);
    }

    /// Appends bytes, which `fill` adds to a buffer.
    pub(super) fn fill(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        if !matches!(self.items.back(), Some(Item::Bytes { bytes, .. }) if bytes.len() < Self::LONG) {
            let bytes = std::mem::take(&mut self.spare);
            self.items.push_back(Item::Bytes { bytes, sent: 0 });
        }
        if let Some(Item::Bytes { bytes, .. }) = self.items.back_mut() {
            let before = bytes.len();
            fill(bytes);
            self.buffered += bytes.len() - before;
        }
    }

    /// Whether a frame is partly sent.
    pub(super) fn is_inside(&self) -> bool {
        match self.items.front() {
            Some(Item::Bytes { sent, .. }) => *sent > 0,
            Some(Item::Chunks(chunks)) => chunks.current.is_inside(),
            Some(Item::Answer(answer)) => answer.current.is_inside(),
            Some(Item::Reads(_)) | None => false,
        }
    }

    /// Gives what can be sent next to `out`; returns whether more follows at once. `room`: how much more may be owed.
    pub(super) fn next(
        &mut self,
        memory: &Memory,
        mut room: usize,
        out: &mut Blocks,
        made: &mut impl FnMut(Made),
    ) -> bool {
        loop {
            let Self { items, failed, spare, buffered } = self;
            match items.front_mut() {
                None => return false,
                Some(Item::Bytes { bytes, sent }) => {
                    out.push(Block::of(bytes[*sent..].as_ptr(), bytes.len() - *sent));
                    return follows(items.get(1));
                }
                Some(Item::Chunks(chunks)) => {
                    if chunks.header.flags & RETURN > 0 && chunks.current.is_over() && room < ASKED + PIECE {
                        return false;
                    }
                    let owes = chunks.begin();
                    if owes > 0 {
                        made(Made::Owes(chunks.serial, owes));
                    }
                    chunks.current.header(out);
                    chunks.local.next(chunks.current.payload_left, out);
                    return follows(items.get(1));
                }
                Some(Item::Reads(reads)) => {
                    let mut bytes = std::mem::take(spare);
                    while room >= ASKED && bytes.len() < Self::LONG && reads.next(&mut bytes) {
                        room -= ASKED;
                    }
                    if bytes.is_empty() {
                        *spare = bytes;
                        return false;
                    }
                    let serial = reads.serial;
                    if reads.at == reads.ranges.len() {
                        made(Made::All(serial));
                        items.pop_front();
                    }
                    made(Made::Owes(serial, bytes.len() / HEADER * ASKED));
                    *buffered += bytes.len();
                    items.push_front(Item::Bytes { bytes, sent: 0 });
                }
                Some(Item::Answer(answer)) => {
                    let mut bytes = std::mem::take(spare);
                    if answer.append(memory, failed, &mut bytes) {
                        items.pop_front();
                        while bytes.len() < Self::LONG {
                            let joined = match items.front_mut() {
                                Some(Item::Answer(next)) => next.append(memory, failed, &mut bytes),
                                Some(Item::Bytes { bytes: next, sent: 0 }) => {
                                    *buffered -= next.len();
                                    bytes.append(next);
                                    true
                                }
                                _ => false,
                            };
                            if !joined {
                                break;
                            }
                            items.pop_front();
                        }
                        if !bytes.is_empty() {
                            *buffered += bytes.len();
                            items.push_front(Item::Bytes { bytes, sent: 0 });
                        }
                        continue;
                    }
                    *spare = bytes;
                    if !answer.begin(memory, failed) {
                        items.pop_front();
                        continue;
                    }
                    answer.blocks(memory, failed, out);
                    return answer.ends_next();
                }
            }
        }
    }

    /// Counts `len` bytes of those that [`next`](Self::next) gave as sent, which go to `log`.
    pub(super) fn advance(&mut self, len: usize, log: &mut Unacknowledged) -> Option<Made> {
        match self.items.front_mut() {
            Some(Item::Bytes { bytes, sent }) => {
                let is_kept = len == bytes.len() && len > KEPT;
                if !is_kept {
                    log.copy(&bytes[*sent..][..len]);
                }
                *sent += len;
                if *sent == bytes.len() {
                    self.buffered -= *sent;
                    if is_kept {
                        self.spare = log.keep(std::mem::take(bytes));
                    } else {
                        bytes.clear();
                        self.spare = std::mem::take(bytes);
                    }
                    self.items.pop_front();
                    // A peer that is idle keeps little memory.
                    if self.items.is_empty() && self.spare.capacity() > KEPT {
                        self.spare = Vec::new();
                    }
                }
            }
            Some(Item::Chunks(chunks)) => {
                let sent = chunks.current.advance(len, log);
                let mut blocks = Blocks::new();
                chunks.local.next(sent, &mut blocks);
                blocks.into_iter().for_each(|block| log.lend(chunks.serial, block));
                chunks.local.advance(sent);
                // At once: the answer may come before anything else of this queue is sent.
                if chunks.is_over() {
                    let all = Made::All(chunks.serial);
                    self.items.pop_front();
                    return Some(all);
                }
            }
            Some(Item::Answer(answer)) => {
                let sent = answer.current.advance(len, log);
                log.region(answer.key, answer.offset, sent);
                answer.offset += sent as u64;
            }
            Some(Item::Reads(_)) | None => {}
        }
        None
    }

    /// Ends the use of the memory of the caller by the operations that `which` selects by their numbers.
    ///
    /// # Safety
    /// That memory is still valid.
    #[allow(unsafe_code)]
    pub(super) unsafe fn detach(&mut self, which: impl Fn(u64) -> bool, made: &mut impl FnMut(Made)) {
        for item in &mut self.items {
            if let Item::Chunks(chunks) = item
                && which(chunks.serial)
            {
                made(Made::All(chunks.serial));
                // Where a part of a frame has been sent, a first byte stands for it.
                let sent = usize::from(chunks.current.is_inside());
                let mut bytes = vec![0; sent];
                if chunks.is_begun() {
                    // SAFETY: by the contract.
                    bytes.extend(unsafe { chunks.detach() });
                } else {
                    bytes.extend(chunks.end());
                }
                self.buffered += bytes.len();
                *item = Item::Bytes { bytes, sent };
            }
        }
    }
}
