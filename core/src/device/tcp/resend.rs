//! Bytes of the stream to a peer that it has not acknowledged, to be sent again when a broken connection is made anew.
//!
//! Both ends of a pair count the bytes of its two streams, over all its connections. When a connection is made anew, each
//! side tells how many bytes it has, and the other one goes on from there, be it in the middle of a frame: so every frame
//! is carried out exactly once. Payloads stay where they are, in memory of the caller, which is lent until its operation
//! is complete, or in a region; the rest is kept here. What is kept is bounded by the buffers of the kernel and by how often
//! the peer acknowledges.

use std::collections::VecDeque;

use super::memory::Memory;
use super::queue::{ZEROS, append};
use super::sys::{Blocks, MOST_BLOCKS};
use crate::device::Block;

/// Short parts are copied to one buffer of up to this length.
const JOINED: usize = 16 << 10;
/// Bytes of a stream that a peer may leave unacknowledged. They exceed all buffers of the kernel between two ranks, so a peer
/// that reads and follows the protocol acknowledges earlier.
const MOST_UNACKNOWLEDGED: u64 = 1 << 30;

#[derive(Debug)]
enum Part {
    Bytes(Vec<u8>),
    /// Memory of the caller of the operation with this number.
    Lent(u64, Block),
    /// A part of a region of this rank.
    Region {
        key: u64,
        offset: u64,
        len: usize,
    },
}

impl Part {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Lent(_, block) => block.len,
            Self::Region { len, .. } => *len,
        }
    }
}

/// The end of a stream that is not acknowledged.
#[derive(Debug, Default)]
pub(super) struct Unacknowledged {
    parts: VecDeque<Part>,
    /// Positions in the stream: of the first part, of the first byte that is not acknowledged, and of the end.
    from: u64,
    acknowledged: u64,
    end: u64,
    /// Number of parts of lent memory.
    lent: usize,
    /// The part that is sent again next, and how much of it has been; the number of parts if nothing is sent again.
    again: usize,
    done: usize,
    spare: Vec<u8>,
}

impl Unacknowledged {
    /// Whether the peer has everything.
    pub(super) fn is_empty(&self) -> bool {
        self.acknowledged == self.end
    }

    /// Whether the peer has left more unacknowledged than it may.
    pub(super) fn is_excessive(&self) -> bool {
        self.end - self.acknowledged > MOST_UNACKNOWLEDGED
    }

    /// Whether bytes are to be sent again.
    pub(super) fn is_again(&self) -> bool {
        self.again < self.parts.len()
    }

    fn push(&mut self, part: Part) {
        self.end += part.len() as u64;
        self.parts.push_back(part);
        self.again = self.parts.len();
    }

    /// Adds a copy of bytes that were sent.
    pub(super) fn copy(&mut self, bytes: &[u8]) {
        if let Some(Part::Bytes(last)) = self.parts.back_mut()
            && last.len() + bytes.len() <= JOINED
        {
            last.extend(bytes);
            self.end += bytes.len() as u64;
        } else if !bytes.is_empty() {
            self.push(Part::Bytes(bytes.to_vec()));
        }
    }

    /// Adds a buffer that was sent as a whole; returns an empty one.
    pub(super) fn keep(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        self.push(Part::Bytes(bytes));
        std::mem::take(&mut self.spare)
    }

    /// Adds memory of the caller of an operation.
    pub(super) fn lend(&mut self, serial: u64, block: Block) {
        if let Some(Part::Lent(last, before)) = self.parts.back_mut()
            && *last == serial
            && before.base.wrapping_add(before.len) == block.base
        {
            before.len += block.len;
            self.end += block.len as u64;
        } else {
            self.lent += 1;
            self.push(Part::Lent(serial, block));
        }
    }

    /// Adds a part of a region.
    pub(super) fn region(&mut self, key: u64, offset: u64, len: usize) {
        if let Some(Part::Region { key: last, offset: start, len: before }) = self.parts.back_mut()
            && *last == key
            && start.wrapping_add(*before as u64) == offset
        {
            *before += len;
            self.end += len as u64;
        } else if len > 0 {
            self.push(Part::Region { key, offset, len });
        }
    }

    /// Takes note that the peer has everything before this position.
    pub(super) fn acknowledge(&mut self, to: u64) -> Result<(), &'static str> {
        if to > self.end {
            return Err("an acknowledgement of bytes that were not sent");
        }
        self.acknowledged = self.acknowledged.max(to);
        while let Some(front) = self.parts.front()
            && self.from + front.len() as u64 <= self.acknowledged
        {
            self.from += front.len() as u64;
            let is_last = self.parts.len() == 1;
            match self.parts.pop_front() {
                // The buffer of short parts is used again.
                Some(Part::Bytes(mut bytes)) if is_last && bytes.capacity() <= JOINED => {
                    bytes.clear();
                    self.parts.push_front(Part::Bytes(bytes));
                    self.spare = Vec::new();
                    (self.again, self.done) = (1, 0);
                    break;
                }
                Some(Part::Bytes(mut bytes)) if !is_last => {
                    bytes.clear();
                    self.spare = bytes;
                }
                Some(Part::Lent(..)) => self.lent -= 1,
                _ => {}
            }
            if is_last {
                self.spare = Vec::new();
            }
            match self.again.checked_sub(1) {
                Some(again) => self.again = again,
                None => self.done = 0,
            }
        }
        Ok(())
    }

    /// Begins to send again what is after this position.
    pub(super) fn resume(&mut self, from: u64) -> Result<(), &'static str> {
        if from < self.acknowledged {
            return Err("bytes are expected again that were acknowledged");
        }
        self.acknowledge(from)?;
        (self.again, self.done) = (0, (from - self.from) as usize);
        self.skip();
        Ok(())
    }

    /// Goes on to the part of which bytes are to be sent next.
    fn skip(&mut self) {
        while let Some(part) = self.parts.get(self.again).filter(|part| self.done >= part.len()) {
            self.done -= part.len();
            self.again += 1;
        }
    }

    /// Gives what is sent again next to `out`.
    pub(super) fn next(&self, memory: &Memory, out: &mut Blocks) {
        let mut done = self.done;
        for part in self.parts.range(self.again..).take(MOST_BLOCKS) {
            let len = part.len() - done;
            out.push(match part {
                Part::Bytes(bytes) => Block::of(bytes[done..].as_ptr(), len),
                Part::Lent(_, block) => Block { base: block.base.wrapping_add(done), len },
                Part::Region { key, offset, .. } => match memory.address((*key, offset + done as u64), len) {
                    Ok(base) => Block { base, len },
                    // Nobody waits for bytes of a region that was released.
                    Err(_) => return out.push(Block::of(ZEROS.as_ptr(), len.min(ZEROS.len()))),
                },
            });
            done = 0;
        }
    }

    /// Counts `len` bytes of those that [`next`](Self::next) gave as sent again.
    pub(super) fn advance(&mut self, len: usize) {
        self.done += len;
        self.skip();
    }

    /// Whether memory of the caller of this operation, or of an earlier one, may have to be sent again.
    pub(super) fn uses(&self, serial: u64) -> bool {
        let first = |part: &Part| if let Part::Lent(first, _) = part { Some(*first) } else { None };
        self.lent > 0 && self.parts.iter().find_map(first).is_some_and(|first| first <= serial)
    }

    /// Copies memory of the callers of the operations that `which` selects.
    ///
    /// # Safety
    /// That memory is still valid.
    #[allow(unsafe_code)]
    pub(super) unsafe fn detach(&mut self, which: impl Fn(u64) -> bool) {
        for part in &mut self.parts {
            if let Part::Lent(serial, block) = part
                && which(*serial)
            {
                let mut bytes = Vec::new();
                // SAFETY: by the contract.
                unsafe { append(&[*block], &mut bytes) };
                *part = Part::Bytes(bytes);
                self.lent -= 1;
            }
        }
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What would be sent again, at most `most` bytes at once.
    fn sent_again(log: &mut Unacknowledged, most: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while log.is_again() {
            let mut blocks = Blocks::new();
            log.next(&Memory::default(), &mut blocks);
            let mut bytes = Vec::new();
            // SAFETY: blocks of the log, and of memory that outlives it.
            unsafe { append(&blocks, &mut bytes) };
            bytes.truncate(most);
            log.advance(bytes.len());
            all.extend(bytes);
        }
        all
    }

    #[test]
    fn peer_may_leave_so_much_unacknowledged_and_no_more() {
        let mut log = Unacknowledged::default();
        log.copy(&[1; 100]);
        log.region(5, 0, MOST_UNACKNOWLEDGED as usize - 100);
        assert!(!log.is_excessive());
        log.copy(&[1]);
        assert!(log.is_excessive());
        log.acknowledge(1).unwrap();
        assert!(!log.is_excessive());
    }

    proptest! {
        /// Whatever is acknowledged, the rest is sent again as it was.
        #[test]
        fn what_is_not_acknowledged_is_sent_again(
            steps in prop::collection::vec((0u8..5, 1usize..6000), 1..60),
            most in 1usize..9000,
        ) {
            let lent: Vec<u8> = (0..600_000u32).map(|i| (i % 251) as u8).collect();
            let (mut log, mut stream, mut acknowledged) = (Unacknowledged::default(), Vec::new(), 0);
            for (serial, (kind, len)) in steps.into_iter().enumerate() {
                match kind {
                    0 => {
                        let bytes = vec![serial as u8; len];
                        log.copy(&bytes);
                        stream.extend(bytes);
                    }
                    1 => {
                        let bytes = vec![serial as u8; 3 * len];
                        log.keep(bytes.clone());
                        stream.extend(bytes);
                    }
                    2 => {
                        let at = serial * 1000;
                        log.lend(serial as u64, Block::of(lent[at..].as_ptr(), len));
                        stream.extend(&lent[at..at + len]);
                        prop_assert!(log.uses(serial as u64));
                    }
                    3 => {
                        acknowledged += len.min(stream.len() - acknowledged);
                        log.acknowledge(acknowledged as u64).unwrap();
                        prop_assert!(log.acknowledge(stream.len() as u64 + 1).is_err());
                    }
                    _ => {
                        acknowledged += (len / 2).min(stream.len() - acknowledged);
                        log.resume(acknowledged as u64).unwrap();
                        // SAFETY: the memory lives.
                        unsafe { log.detach(|serial| serial % 2 == 0) };
                        prop_assert_eq!(sent_again(&mut log, most), &stream[acknowledged..]);
                    }
                }
                prop_assert_eq!(log.is_empty(), acknowledged == stream.len());
            }
            prop_assert!(acknowledged == 0 || log.resume(acknowledged as u64 - 1).is_err());
            log.resume(acknowledged as u64).unwrap();
            prop_assert_eq!(sent_again(&mut log, most), &stream[acknowledged..]);
            log.acknowledge(stream.len() as u64).unwrap();
            prop_assert!(log.is_empty() && !log.uses(u64::MAX) && !log.is_again());
        }
    }
}
