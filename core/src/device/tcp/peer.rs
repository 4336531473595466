#![allow(unsafe_code)]
//! One peer, as origin and as target: the data that waits to be sent to it, the operations that it has not answered,
//! and the credits that it still has.
//!
//! Memory is bounded at both ends without ever leaving a connection unread, so that an operation never waits for the
//! program of its target, and two ranks that send to each other cannot block each other:
//! - a packet needs credits according to its length, which are returned when the program has received it;
//! - the number of operations in progress, and the bytes that answers to them occupy at the target, are limited at the
//!   origin ([`MAX_OPEN`], [`MAX_OWED`]);
//! - requests that wait for such a limit, or for space in the send buffer, wait in a separate queue, so that answers
//!   overtake them.
//!
//! A peer that exceeds a limit breaks the protocol.

use std::collections::VecDeque;
use std::time::Instant;

use super::frame::{HEADER, Header, Kind, LAST, NOTIFY, PIECE, RETURN};
use super::input::Input;
use super::memory::Memory;
use super::queue::{ASKED, Answer, Chunks, Cursor, Item, Made, Queue, Reads};
use super::send_buffer::{Lender, SendBuffer};
use super::sys::Blocks;
use super::ways::Round;
use crate::device::{Block, Range, code, target};
use crate::error::{Error, ErrorKind};
use crate::memory::copy;

/// Maximum credits of packets that the program has not received; see [`cost`].
pub(super) const CREDITS: usize = 128;
/// Maximum number of operations in progress to one peer.
pub(super) const MAX_OPEN: usize = 1024;
/// Maximum number of bytes that answers in progress occupy at the target; see [`ASKED`].
pub(super) const MAX_OWED: usize = 256 << 10;
/// Bytes of a packet per further credit.
const PER_CREDIT: usize = 2048;
/// Once request buffers hold this many bytes, no more requests are accepted.
const MAX_BUFFERED: usize = 256 << 10;
/// Maximum number of operations that wait to be sent from the memory of the caller.
const MAX_WAITING: usize = 64;
/// Maximum length in bytes of operations that are copied to the buffer.
const COPIED: usize = 8 << 10;

/// Number of bytes after which their arrival is acknowledged if no answer does so. A payload that the sender does not
/// copy counts one sixteenth.
const ACK_EVERY_BYTES: usize = 64 << 10;

/// The credits that a packet of `len` bytes needs.
pub(super) fn cost(len: usize) -> usize {
    1 + len / PER_CREDIT
}

/// An operation that the peer has not answered.
#[derive(Default)]
pub(super) struct Awaited {
    /// `None` if it was cancelled.
    id: Option<u64>,
    name: &'static str,
    into: Cursor,
    /// Number of bytes of data that have not arrived.
    expects: usize,
    owed: usize,
    /// Whether the target buffers the data of its answer.
    is_kept: bool,
    /// The position in the stream that the peer must have acknowledged when it answers, since memory of the caller is
    /// sent before it; `u64::MAX` while frames are still to be made.
    until: u64,
    /// The signal that is sent when the data has arrived.
    notify: Option<Header>,
}

/// The connection to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Link {
    #[default]
    None,
    /// The connection with this number is being made by this rank.
    Dialing(u64),
    /// An attempt has failed; the next one is due at this time.
    Again(Instant),
    Up(u64),
}

/// The state of a peer.
#[derive(Default)]
pub(super) struct Peer {
    pub(super) requests: Queue,
    pub(super) replies: Queue,
    awaiting: VecDeque<Awaited>,
    /// Number of the first operation in `awaiting`.
    first: u64,
    owed: usize,
    credits: usize,
    /// Credits of the peer's packets that the program has not received, and of those that it has received but that are
    /// not yet returned to the peer.
    held: usize,
    taken: usize,
    /// Number of operations of the peer that have succeeded and are not acknowledged.
    acks: u32,
    /// The failure of the operation of the peer that is being served.
    failed: Option<ErrorKind>,
    pub(super) link: Link,
    /// The time at which the first of the failed attempts to connect began, and the number of rounds of attempts.
    pub(super) dialing_since: Option<(Instant, u32)>,
    pub(super) round: Round,
    pub(super) left: bool,
    pub(super) lost: Option<Error>,
    /// Whether another device reaches the peer, whose loss is then not reported.
    pub(super) is_given_up: bool,
    pub(super) sends: SendBuffer,
    /// Number of bytes that have arrived, over all connections, and their weight since the last acknowledgement.
    pub(super) received: u64,
    unacked: usize,
    /// The part of a frame that had arrived when its connection broke.
    pub(super) input: Option<Input>,
    /// A packet of the peer that is placed as it arrives.
    pub(super) arriving: Vec<u8>,
    /// The reason why the last connection has broken.
    pub(super) broken: Option<String>,
    /// Whether there has been a connection. A broken one is re-established until the peer has left or is lost.
    pub(super) is_met: bool,
    /// Number of attempts of this rank to connect, and number of the peer's attempts that were accepted or abandoned.
    pub(super) dials: u32,
    pub(super) dialed: u32,
}

/// The common fields of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) id: u64,
    pub(super) name: &'static str,
    pub(super) key: u64,
    pub(super) notify: Option<(u64, u64, u64)>,
}

impl Call {
    fn last(&self) -> u8 {
        if self.notify.is_none() { LAST } else { 0 }
    }

    fn signal(&self) -> Option<Header> {
        let (key, offset, len) = self.notify?;
        Some(Header { flags: LAST | NOTIFY, key, offset, len, ..Header::new(Kind::Signal) })
    }
}

impl Peer {
    pub(super) fn new() -> Self {
        Self { credits: CREDITS, ..Self::default() }
    }

    pub(super) fn is_full(&self) -> bool {
        self.requests.buffered > MAX_BUFFERED
            || self.requests.len() > MAX_WAITING
            || self.awaiting.len() >= MAX_OPEN
            || self.owed >= MAX_OWED
    }

    /// Number of operations in progress.
    pub(super) fn open(&self) -> usize {
        self.awaiting.len()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.awaiting.is_empty() && self.requests.is_empty() && self.acks == 0 && self.has_answered()
    }

    /// Whether all answers and announcements were sent.
    pub(super) fn has_answered(&self) -> bool {
        self.replies.is_empty() && self.sends.unsent() == 0
    }

    fn frame(&mut self, header: Header, payload: &[u8]) {
        self.requests.fill(&mut self.sends, |bytes| {
            bytes.extend(header.bytes());
            bytes.extend(payload);
        });
    }

    fn answer(&mut self, header: Header, payload: &[u8]) {
        self.replies.fill(&mut self.sends, |bytes| {
            bytes.extend(header.bytes());
            bytes.extend(payload);
        });
    }

    /// Adds an operation; returns its number.
    fn expect(&mut self, call: &Call, into: &[Block], data: usize) -> u64 {
        let (id, name, into) = (Some(call.id), call.name, Cursor::new(into));
        self.awaiting.push_back(Awaited { id, name, into, expects: data, ..Awaited::default() });
        self.first + self.awaiting.len() as u64 - 1
    }

    fn notify(&mut self, call: &Call) {
        if let Some(signal) = call.signal() {
            self.frame(signal, &[]);
        }
    }

    fn add_owed(&mut self, serial: u64, owed: usize) {
        self.owed += owed;
        if let Some(awaited) = self.awaited(serial) {
            awaited.owed += owed;
        }
    }

    fn awaited(&mut self, serial: u64) -> Option<&mut Awaited> {
        self.awaiting.get_mut(serial.wrapping_sub(self.first) as usize)
    }

    /// Queues the last operation, whose frames are made when there is space in the send buffer.
    fn queue_operation(&mut self, item: Item) {
        if let Some(awaited) = self.awaiting.back_mut() {
            awaited.until = u64::MAX;
        }
        self.requests.push(item);
    }

    /// Writes blocks to ranges of the same total length.
    ///
    /// # Safety
    /// The blocks stay valid until the operation is complete.
    pub(super) unsafe fn write(&mut self, call: &Call, from: &[Block], ranges: &[Range]) {
        let len: usize = ranges.iter().map(|r| r.len).sum();
        let header = Header { flags: call.last(), key: call.key, ..Header::new(Kind::Write) };
        let serial = self.expect(call, &[], 0);
        if let ([Range { offset, len }], true) = (ranges, len <= COPIED) {
            let header = Header { offset: *offset as u64, len: *len as u64, ..header };
            self.requests.fill(&mut self.sends, |bytes| {
                // SAFETY: valid blocks by the contract.
                unsafe { copy::gather(&header.bytes(), from, bytes) };
            });
        } else if len == 0 {
            self.frame(header, &[]);
        } else {
            self.queue_operation(Item::Chunks(Chunks::new(serial, header, from, ranges)));
        }
        self.notify(call);
    }

    /// Reads ranges into blocks of the same total length.
    pub(super) fn read(&mut self, call: &Call, into: &[Block], ranges: &[Range]) {
        let len = ranges.iter().map(|r| r.len).sum();
        let serial = self.expect(call, into, len);
        if let Some(awaited) = self.awaiting.back_mut() {
            awaited.notify = call.signal().map(|signal| Header { flags: 0, ..signal });
        }
        match ranges {
            [] | [_] => {
                let Range { offset, len } = ranges.first().copied().unwrap_or(Range { offset: 0, len: 0 });
                let (offset, len) = (offset as u64, len as u64);
                self.frame(Header { flags: LAST, key: call.key, offset, len, ..Header::new(Kind::Read) }, &[]);
                self.add_owed(serial, ASKED);
            }
            _ => self.queue_operation(Item::Reads(Reads::new(serial, call.key, ranges.to_vec()))),
        }
    }

    /// Adds a request of one frame. The answer is the previous value, which goes to `old` unless that is null.
    pub(super) fn word(&mut self, call: &Call, header: Header, payload: &[u8], old: *mut u8, len: usize) {
        let into = [Block { base: old, len }];
        let serial = self.expect(call, if old.is_null() { &[] } else { &into }, len);
        self.add_owed(serial, ASKED);
        self.frame(Header { flags: call.last(), key: call.key, ..header }, payload);
        self.notify(call);
    }

    /// Accumulates `len` bytes; the previous values go to `old` unless that is null.
    ///
    /// # Safety
    /// The operand, as long as the code needs, stays valid until the operation is complete.
    pub(super) unsafe fn accumulate(&mut self, call: &Call, at: Range, code: u32, from: *const u8, old: *mut u8) {
        let flags = if old.is_null() { 0 } else { RETURN };
        let header = Header { flags: call.last() | flags, key: call.key, code, ..Header::new(Kind::Accumulate) };
        let into = [Block { base: old, len: at.len }];
        let returns = if old.is_null() { 0 } else { at.len };
        let serial = self.expect(call, if old.is_null() { &[] } else { &into }, returns);
        if let Some(awaited) = self.awaiting.back_mut() {
            awaited.is_kept = returns > 0;
        }
        let operand = [Block::of(from, code::operand_len(code, at.len))];
        if at.len <= PIECE.min(COPIED) {
            let header = Header { offset: at.offset as u64, len: at.len as u64, ..header };
            self.requests.fill(&mut self.sends, |bytes| {
                // SAFETY: valid by the contract.
                unsafe { copy::gather(&header.bytes(), &operand, bytes) };
            });
            self.add_owed(serial, if returns > 0 { ASKED + returns } else { 0 });
        } else {
            self.queue_operation(Item::Chunks(Chunks::new(serial, header, &operand, &[at])));
        }
        self.notify(call);
    }

    pub(super) fn signal(&mut self, key: u64, offset: usize, value: u64) {
        self.frame(Header { key, offset: offset as u64, len: value, ..Header::new(Kind::Signal) }, &[]);
    }

    /// Sends a packet; returns whether there was queue space for it.
    ///
    /// # Safety
    /// The blocks are valid.
    pub(super) unsafe fn send(&mut self, header: &[u8], body: &[Block], len: usize) -> bool {
        if self.credits < cost(len) || self.is_full() {
            return false;
        }
        self.credits -= cost(len);
        let frame = Header { key: self.received, len: len as u64, ..Header::new(Kind::Packet) };
        self.requests.fill(&mut self.sends, |bytes| {
            bytes.extend(frame.bytes());
            bytes.extend(header);
            // SAFETY: valid blocks by the contract.
            unsafe { copy::gather(&[], body, bytes) };
        });
        true
    }

    /// Sends a packet, and its body from the caller's memory; returns whether it was added to the stream. It is an
    /// operation, which the peer acknowledges.
    ///
    /// # Safety
    /// The blocks stay valid until the operation is complete.
    pub(super) unsafe fn lend(&mut self, call: &Call, header: &[u8], body: &[Block], len: usize) -> bool {
        if self.credits < cost(len) || self.is_full() || !self.requests.is_empty() || !self.sends.has_room() {
            return false;
        }
        self.credits -= cost(len);
        let serial = self.expect(call, &[], 0);
        let frame = Header { flags: LAST, key: self.received, len: len as u64, ..Header::new(Kind::Packet) };
        self.sends.fill(|bytes| {
            bytes.extend(frame.bytes());
            bytes.extend(header);
        });
        body.iter().filter(|block| block.len > 0).for_each(|b| self.sends.lend(Lender::Operation(serial), *b));
        if let Some(awaited) = self.awaiting.back_mut() {
            awaited.until = self.sends.end();
        }
        true
    }

    /// Records a packet of the peer.
    pub(super) fn count_queued(&mut self, len: usize) -> Result<(), &'static str> {
        self.held += cost(len);
        if self.held > CREDITS { Err("the peer sent more packets than it had credits for") } else { Ok(()) }
    }

    /// Records that the program has received a packet of this peer.
    pub(super) fn count_received(&mut self, len: usize) {
        self.held -= cost(len);
        self.taken += cost(len);
        // A peer that has left gets no credits.
        if self.taken >= CREDITS / 2 && self.is_met {
            let code = std::mem::take(&mut self.taken) as u32;
            self.acknowledge(Header { code, ..Header::new(Kind::Credit) });
        }
    }

    /// Queues an answer that also acknowledges the bytes that have arrived.
    fn acknowledge(&mut self, answer: Header) {
        self.unacked = 0;
        self.answer(Header { key: self.received, ..answer }, &[]);
    }

    /// Records bytes that have arrived; returns whether an acknowledgement is due.
    pub(super) fn note_received(&mut self, received: u64, weight: usize) -> bool {
        self.received = received;
        self.unacked += weight;
        let is_due = self.unacked >= ACK_EVERY_BYTES;
        if is_due {
            self.acknowledge(Header::new(Kind::Received));
        }
        is_due
    }

    /// Adds credits that the peer has returned.
    pub(super) fn credit(&mut self, count: u32) -> Result<(), &'static str> {
        self.credits += count as usize;
        if self.credits > CREDITS { Err("the peer returned credits for packets that were not sent") } else { Ok(()) }
    }

    /// Sends the peer a report about a rank.
    pub(super) fn send_text(&mut self, header: Header, text: &str) {
        self.answer(Header { len: text.len() as u64, ..header }, text.as_bytes());
    }

    /// Queues the answer to a read.
    pub(super) fn answer_read(&mut self, header: &Header) {
        self.flush_acks();
        self.replies.push(Item::Answer(Answer::new(header)));
    }

    /// Queues a previous value.
    pub(super) fn answer_data(&mut self, data: &[u8]) {
        self.flush_acks();
        self.answer(Header { flags: super::frame::END, len: data.len() as u64, ..Header::new(Kind::Data) }, data);
    }

    /// Whether the operation of the peer that is being served has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Ends a frame of an operation of the peer; returns whether the operation has ended.
    pub(super) fn served(&mut self, flags: u8, result: Result<(), ErrorKind>) -> bool {
        if let Err(kind) = result {
            self.failed.get_or_insert(kind);
        }
        if flags & LAST == 0 {
            return false;
        }
        match self.failed.take() {
            None => self.acks += 1,
            Some(kind) => {
                self.flush_acks();
                let size = target::status(Err(kind)) as u16;
                self.acknowledge(Header { size, ..Header::new(Kind::Done) });
            }
        }
        true
    }

    pub(super) fn flush_acks(&mut self) {
        let code = std::mem::take(&mut self.acks);
        if code > 0 {
            self.acknowledge(Header { code, ..Header::new(Kind::Ack) });
        }
    }

    /// Whether the peer's requests make this rank buffer more answers than allowed.
    pub(super) fn exceeds_reply_limit(&self) -> bool {
        self.replies.len() > MAX_OPEN + 2 * MAX_OWED / ASKED
            || self.replies.buffered > 4 << 20
            || self.sends.is_excessive()
    }

    /// The blocks into which the next data goes, at most `len` bytes of them; none if the data is discarded.
    pub(super) fn data_blocks(&self, len: usize, out: &mut Blocks) {
        if let Some(front) = self.awaiting.front().filter(|front| front.id.is_some()) {
            front.into.next(len, out);
        }
    }

    /// Records a frame of data.
    pub(super) fn data_begins(&mut self, header: &Header) -> Result<(), &'static str> {
        let len = header.len as usize;
        let front = self.awaiting.front_mut().ok_or("the peer sent data that was not requested")?;
        front.expects = front.expects.checked_sub(len).ok_or("the peer sent more data than was requested")?;
        let ends = header.flags & super::frame::END > 0;
        let paid = if ends { ASKED } else { 0 } + if front.is_kept { len } else { 0 };
        let paid = paid.min(front.owed);
        front.owed -= paid;
        self.owed -= paid;
        Ok(())
    }

    /// Counts bytes of data as placed.
    pub(super) fn data_placed(&mut self, len: usize) {
        if let Some(front) = self.awaiting.front_mut() {
            front.into.advance(len);
        }
    }

    /// Copies data to its destination.
    pub(super) fn place(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let mut blocks = Blocks::new();
            self.data_blocks(bytes.len(), &mut blocks);
            let placed = if blocks.is_empty() { bytes.len() } else { blocks.iter().map(|b| b.len).sum() };
            let mut from = bytes;
            for block in &blocks {
                // SAFETY: a destination of an operation in progress, valid by the contract of `post`.
                unsafe { copy::bytes(from.as_ptr(), block.base, block.len) };
                from = &from[block.len..];
            }
            self.data_placed(placed);
            bytes = &bytes[placed..];
        }
    }

    /// Ends the first operation in progress; returns its id and result unless it was cancelled.
    #[allow(clippy::type_complexity)]
    pub(super) fn complete(
        &mut self,
        result: Result<(), ErrorKind>,
    ) -> Result<Option<(u64, Result<(), Error>)>, &'static str> {
        let front = self.awaiting.front().ok_or("the peer sent an answer although no request is outstanding")?;
        if !self.sends.is_acknowledged(front.until) {
            return Err("the peer answered a request that was not sent");
        }
        if result.is_ok() && front.expects > 0 && front.id.is_some() {
            return Err("the peer sent less data than was requested");
        }
        let Some(front) = self.awaiting.pop_front() else { return Ok(None) };
        self.first += 1;
        self.owed -= front.owed;
        if let (Ok(()), Some(signal)) = (result, front.notify) {
            self.frame(signal, &[]);
        }
        Ok(front.id.map(|id| (id, result.map_err(|kind| Error::new(kind, front.name)))))
    }

    /// Makes the next frame that need not wait; returns whether there was one.
    fn make(&mut self, memory: &Memory) -> bool {
        if let Made::Frames = self.replies.make(memory, 0, &mut self.sends) {
            return true;
        }
        let room = MAX_OWED.saturating_sub(self.owed);
        match self.requests.make(memory, room, &mut self.sends) {
            Made::Nothing => return false,
            Made::Frames => {}
            Made::Request { serial, owes, until } => {
                self.add_owed(serial, owes);
                if let (Some(awaited), Some(until)) = (self.awaited(serial), until) {
                    awaited.until = until;
                }
            }
        }
        true
    }

    /// Adds the bytes to be sent next to `out`.
    pub(super) fn next(&mut self, memory: &Memory, out: &mut Blocks) {
        if self.sends.has_room() {
            self.flush_acks();
        }
        while self.sends.has_room() && self.make(memory) {}
        self.sends.next(out);
    }

    /// Drops operations; their memory is not used afterwards.
    pub(super) fn cancel(&mut self, which: &dyn Fn(u64) -> bool) {
        let mut serials = Vec::new();
        for (serial, awaited) in (self.first..).zip(&mut self.awaiting) {
            if awaited.id.is_some_and(which) {
                (awaited.id, awaited.notify) = (None, None);
                serials.push(serial);
            }
        }
        let (first, awaiting) = (self.first, &mut self.awaiting);
        self.requests
            .detach(|serial| serials.contains(&serial), |serial| awaiting[(serial - first) as usize].until = 0);
        // SAFETY: memory of operations in progress, valid by the contract of `post`.
        unsafe {
            self.sends.detach(|lender| matches!(lender, Lender::Operation(serial) if serials.contains(&serial)));
        }
    }

    /// Copies the unsent bytes of a region.
    ///
    /// # Safety
    /// Its memory is still valid.
    pub(super) unsafe fn detach_region(&mut self, key: u64) {
        // SAFETY: by the contract.
        unsafe { self.sends.detach(|lender| lender == Lender::Region(key)) };
    }

    /// Ends all operations in progress; returns their ids and names.
    pub(super) fn end(&mut self) -> Vec<(u64, &'static str)> {
        (self.requests, self.replies, self.acks, self.owed) = (Queue::default(), Queue::default(), 0, 0);
        (self.sends, self.input, self.arriving, self.is_met) = (SendBuffer::default(), None, Vec::new(), false);
        self.first += self.awaiting.len() as u64;
        self.awaiting.drain(..).filter_map(|awaited| Some((awaited.id?, awaited.name))).collect()
    }
}

const _: () = assert!(HEADER + PIECE < super::input::LEN);
