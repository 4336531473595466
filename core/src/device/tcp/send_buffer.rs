//! The bytes of the stream to a peer from the first unacknowledged one: those that were sent, and those that are sent
//! next.
//!
//! Both ends of a pair count the bytes of its two streams, over all its connections. When a connection is
//! re-established, each side reports how many bytes it has received, and the other side continues from there, even in
//! the middle of a frame: so every frame is executed exactly once. Headers and short payloads are copied to a buffer,
//! once, and stay there until they are acknowledged. Long payloads are not copied: they stay in memory of the caller,
//! which is valid until its operation is complete, or in a region, until that is released. The number of buffered bytes
//! is bounded by the buffers of the kernel and by how often the peer acknowledges.

use std::collections::VecDeque;

use super::sys::{Blocks, MAX_BLOCKS};
use crate::device::Block;
use crate::memory::copy;

/// A buffer that has this many bytes is closed, and a new one is started. Also the maximum capacity of the buffer that
/// an idle peer keeps.
const JOINED: usize = 16 << 10;
/// While this many bytes are unsent, only urgent frames are added, so that they are not delayed.
const UNSENT: u64 = 64 << 10;
/// Bytes of a stream that a peer may leave unacknowledged. They exceed all buffers of the kernel between two ranks, so a peer
/// that reads and follows the protocol acknowledges earlier.
const MAX_UNACKNOWLEDGED: u64 = 1 << 30;

/// The owner of memory that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lender {
    /// The caller of the operation with this number.
    Operation(u64),
    /// The region of this rank with this key.
    Region(u64),
}

enum Part {
    Bytes(Vec<u8>),
    Lent(Lender, Block),
}

impl Part {
    fn block(&self) -> Block {
        match self {
            Self::Bytes(bytes) => Block::of(bytes.as_ptr(), bytes.len()),
            Self::Lent(_, block) => *block,
        }
    }

    fn len(&self) -> usize {
        self.block().len
    }
}

/// The unacknowledged end of a stream.
#[derive(Default)]
pub(super) struct SendBuffer {
    parts: VecDeque<Part>,
    /// Positions in the stream: that of the first part, and those up to which bytes are acknowledged, sent, and added.
    from: u64,
    acknowledged: u64,
    sent: u64,
    end: u64,
    /// The part that is sent next, and the number of its bytes that were sent, which may be all.
    at: usize,
    done: usize,
    spare: Vec<u8>,
}

impl SendBuffer {
    /// Whether the peer has acknowledged everything.
    pub(super) fn is_empty(&self) -> bool {
        self.acknowledged == self.end
    }

    /// Whether the peer has acknowledged everything before this position.
    pub(super) fn is_acknowledged(&self, position: u64) -> bool {
        position <= self.acknowledged
    }

    /// Whether the peer has left more bytes unacknowledged than allowed.
    pub(super) fn is_excessive(&self) -> bool {
        self.end - self.acknowledged > MAX_UNACKNOWLEDGED
    }

    /// Number of bytes that are to be sent.
    pub(super) fn unsent(&self) -> u64 {
        self.end - self.sent
    }

    /// Whether frames that are not urgent may be added.
    pub(super) fn has_room(&self) -> bool {
        self.unsent() < UNSENT
    }

    /// The position of the end of the stream.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Adds bytes, which `fill` appends to a buffer.
    pub(super) fn fill(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        if !matches!(self.parts.back(), Some(Part::Bytes(bytes)) if bytes.len() < JOINED) {
            self.parts.push_back(Part::Bytes(std::mem::take(&mut self.spare)));
        }
        if let Some(Part::Bytes(bytes)) = self.parts.back_mut() {
            let before = bytes.len();
            fill(bytes);
            self.end += (bytes.len() - before) as u64;
        }
    }

    /// Adds a whole buffer.
    pub(super) fn keep(&mut self, bytes: Vec<u8>) {
        self.end += bytes.len() as u64;
        self.parts.push_back(Part::Bytes(bytes));
    }

    /// Adds memory that does not change until it is acknowledged or [detached](Self::detach).
    pub(super) fn lend(&mut self, lender: Lender, block: Block) {
        self.end += block.len as u64;
        self.parts.push_back(Part::Lent(lender, block));
    }

    /// Adds the bytes to be sent next to `out`.
    pub(super) fn next(&self, out: &mut Blocks) {
        let mut done = self.done;
        for Block { base, len } in self.parts.range(self.at..).map(Part::block) {
            if len > done {
                out.push(Block { base: base.wrapping_add(done), len: len - done });
            }
            done = 0;
            if out.len() >= MAX_BLOCKS {
                return;
            }
        }
    }

    /// Counts `len` bytes of those that [`next`](Self::next) returned as sent.
    pub(super) fn advance(&mut self, mut len: usize) {
        self.sent += len as u64;
        while let Some(part) = self.parts.get(self.at).filter(|_| len > 0) {
            let step = (part.len() - self.done).min(len);
            (self.done, len) = (self.done + step, len - step);
            if len > 0 {
                (self.at, self.done) = (self.at + 1, 0);
            }
        }
    }

    /// Records that the peer has acknowledged everything before this position.
    pub(super) fn acknowledge(&mut self, to: u64) -> Result<(), &'static str> {
        if to > self.sent {
            return Err("the peer acknowledged bytes that were not sent");
        }
        self.acknowledged = self.acknowledged.max(to);
        while let Some(len) = self.parts.front().map(|part| part.len() as u64)
            && self.from + len <= self.acknowledged
        {
            self.from += len;
            match self.at.checked_sub(1) {
                Some(at) => self.at = at,
                None => self.done = 0,
            }
            if let Some(Part::Bytes(mut bytes)) = self.parts.pop_front() {
                bytes.clear();
                self.spare = bytes;
            }
            if self.parts.is_empty() && self.spare.capacity() > JOINED {
                self.spare = Vec::new();
            }
        }
        Ok(())
    }

    /// Begins to retransmit everything after this position.
    pub(super) fn resume(&mut self, from: u64) -> Result<(), &'static str> {
        if from < self.acknowledged {
            return Err("the peer requests bytes again that it has acknowledged");
        }
        self.acknowledge(from)?;
        self.sent = self.acknowledged;
        (self.at, self.done) = (0, (self.acknowledged - self.from) as usize);
        Ok(())
    }

    /// Copies the memory of the owners that `which` selects; afterwards their memory is not used.
    ///
    /// # Safety
    /// The memory of these owners is still valid.
    #[allow(unsafe_code)]
    pub(super) unsafe fn detach(&mut self, which: impl Fn(Lender) -> bool) {
        for part in &mut self.parts {
            if let Part::Lent(lender, block) = part
                && which(*lender)
            {
                let mut bytes = Vec::new();
                // SAFETY: by the contract.
                unsafe { copy::gather(&[], &[*block], &mut bytes) };
                *part = Part::Bytes(bytes);
            }
        }
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sends `all` bytes in total, at most `most` at a time.
    fn send(buffer: &mut SendBuffer, most: usize, all: usize) -> Vec<u8> {
        let mut sent = Vec::new();
        while buffer.unsent() > 0 && sent.len() < all {
            let (mut blocks, mut bytes) = (Blocks::new(), Vec::new());
            buffer.next(&mut blocks);
            // SAFETY: blocks of the buffer, and of memory that outlives it.
            unsafe { copy::gather(&[], &blocks, &mut bytes) };
            bytes.truncate(most.min(all - sent.len()));
            buffer.advance(bytes.len());
            sent.extend(bytes);
        }
        sent
    }

    #[test]
    fn peer_may_leave_so_much_unacknowledged_and_no_more() {
        let mut buffer = SendBuffer::default();
        let most = MAX_UNACKNOWLEDGED as usize;
        buffer.fill(|bytes| bytes.extend([1; 100]));
        buffer.lend(Lender::Region(5), Block { base: std::ptr::null_mut(), len: most - 100 });
        assert!(!buffer.is_excessive());
        buffer.keep(vec![1]);
        assert!(buffer.is_excessive());
        assert!(buffer.acknowledge(1).is_err(), "it is not sent");
        buffer.advance(1);
        buffer.acknowledge(1).unwrap();
        assert!(!buffer.is_excessive());
    }

    proptest! {
        /// However bytes are sent and acknowledged, all are sent in order, and after a cut from the peer's position on.
        #[test]
        fn what_is_not_acknowledged_is_sent_again(
            steps in prop::collection::vec((0u8..7, 1usize..6000), 1..80),
            most in 1usize..9000,
        ) {
            let lent: Vec<u8> = (0..600_000u32).map(|i| (i % 251) as u8).collect();
            let (mut buffer, mut stream, mut sent, mut acknowledged) = (SendBuffer::default(), Vec::new(), 0, 0);
            for (serial, (kind, len)) in steps.into_iter().enumerate() {
                match kind {
                    0 => {
                        let bytes = vec![serial as u8; len];
                        buffer.fill(|to| to.extend(&bytes));
                        stream.extend(bytes);
                    }
                    1 => {
                        let bytes = vec![serial as u8; 3 * len];
                        buffer.keep(bytes.clone());
                        stream.extend(bytes);
                    }
                    2 => {
                        let lender = if len % 2 == 0 { Lender::Operation } else { Lender::Region };
                        let at = serial * 1000;
                        buffer.lend(lender(serial as u64), Block::of(lent[at..].as_ptr(), len));
                        stream.extend(&lent[at..at + len]);
                    }
                    3 | 4 => {
                        let bytes = send(&mut buffer, most, 2 * len);
                        prop_assert!(bytes.len() == (2 * len).min(stream.len() - sent));
                        prop_assert_eq!(&bytes, &stream[sent..][..bytes.len()]);
                        sent += bytes.len();
                    }
                    5 => {
                        acknowledged += len.min(sent - acknowledged);
                        buffer.acknowledge(acknowledged as u64).unwrap();
                        prop_assert!(buffer.acknowledge(sent as u64 + 1).is_err());
                    }
                    _ => {
                        acknowledged += (len / 2).min(sent - acknowledged);
                        buffer.resume(acknowledged as u64).unwrap();
                        sent = acknowledged;
                        // SAFETY: the memory outlives the buffer.
                        unsafe { buffer.detach(|lender| matches!(lender, Lender::Region(_))) };
                    }
                }
                prop_assert_eq!(buffer.unsent() as usize, stream.len() - sent);
                prop_assert_eq!(buffer.is_empty(), acknowledged == stream.len());
                let lens: usize = buffer.parts.iter().map(Part::len).sum();
                prop_assert_eq!(buffer.from as usize + lens, stream.len());
            }
            prop_assert!(acknowledged == 0 || buffer.resume(acknowledged as u64 - 1).is_err());
            buffer.resume(acknowledged as u64).unwrap();
            prop_assert_eq!(send(&mut buffer, most, usize::MAX), &stream[acknowledged..]);
            buffer.acknowledge(stream.len() as u64).unwrap();
            prop_assert!(buffer.is_empty() && buffer.parts.is_empty() && buffer.spare.capacity() <= JOINED);
        }
    }
}
