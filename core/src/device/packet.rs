//! Packets.

use super::Block;
use super::request::length;

/// Number of words of the longest short packet.
pub(crate) const SHORT_WORDS: usize = 6;

/// A packet short enough to be passed in registers: eight bytes per word, the first in the lowest bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortPacket {
    words: [u64; SHORT_WORDS],
    len: usize,
}

impl ShortPacket {
    /// A packet of the first `len` bytes of these words.
    ///
    /// # Panics
    /// If `len` is more than the words hold.
    #[inline(always)]
    pub(crate) fn new(words: [u64; SHORT_WORDS], len: usize) -> Self {
        assert!(len <= 8 * SHORT_WORDS, "a short packet of {len} bytes");
        Self { words, len }
    }

    /// Length in bytes.
    #[must_use]
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the packet has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The words, of which the first [`len`](Self::len) bytes are valid.
    #[inline(always)]
    pub(crate) fn words(&self) -> [u64; SHORT_WORDS] {
        self.words
    }

    /// The words as bytes, of which the first [`len`](Self::len) are valid.
    #[must_use]
    #[inline(always)]
    pub fn bytes(&self) -> [u8; 8 * SHORT_WORDS] {
        let mut bytes = [0; 8 * SHORT_WORDS];
        for (at, word) in bytes.chunks_exact_mut(8).zip(self.words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// A packet to another rank. It is copied when it is posted if it has at most
/// [`Capabilities::max_packet`](super::Capabilities::max_packet) bytes; the blocks of a longer one, of at most
/// [`Capabilities::max_lent_packet`](super::Capabilities::max_lent_packet) bytes, are read until it has completed.
#[derive(Clone, Copy, Debug)]
pub enum Packet<'a> {
    /// A packet whose bytes are passed in registers.
    Short(&'a ShortPacket),
    /// A header and blocks.
    Long {
        /// First bytes of the packet.
        header: &'a [u8],
        /// The remainder of the packet, gathered from these blocks.
        body: &'a [Block],
    },
}

impl Packet<'_> {
    /// Length in bytes.
    #[inline(always)]
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Packet::Short(packet) => packet.len(),
            Packet::Long { header, body } => header.len().saturating_add(length(body)),
        }
    }

    /// Whether the packet has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls a closure with the header and the blocks.
    #[inline(always)]
    pub fn with_parts<R>(&self, f: impl FnOnce(&[u8], &[Block]) -> R) -> R {
        match self {
            Packet::Short(packet) => f(&packet.bytes()[..packet.len()], &[]),
            Packet::Long { header, body } => f(header, body),
        }
    }
}
